// SPDX-License-Identifier: GPL-2.0
// Clients and a memory node, both the real cores, over a network that loses, doubles, delays,
// reorders and damages datagrams, all of it drawn from one seed.
//
//   Op -> Channel (rmem_client) -> datagrams -> [ network, virtual time ] -> Host (rmem_node)
//            ^                                                               |
//            +--------------------------- answers <--------------------------+
//
// Messages share datagrams as in the modules, if a channel's datagram_bytes allows.
// After every event the books are checked: the windows hold what flying parts owe, not more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../../common/null_cipher.hpp"
#include "node/node_rig.hpp"

extern "C" {
#include "core/rmem/client/client.h"
}

namespace net {

using wire::Bytes;
using wire::Range;
using wire::Received;

inline constexpr uint8_t key_bytes[BASE_SIPHASH_KEY_BYTES] = {7, 7, 7, 1, 2, 3, 4, 5,
                                                              6, 7, 8, 9, 0, 1, 2, 3};
inline constexpr uint32_t space = 5;
inline constexpr uint64_t ms = BASE_NSEC_PER_MSEC;

inline base_siphash_key space_key() {
    base_siphash_key key;
    base_siphash_key_load(&key, key_bytes);
    return key;
}

// Thrown when the books don't balance, or an op ends twice.
struct Broken : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline void require(bool good, const char* what) {
    if (!good)
        throw Broken(what);
}

inline std::vector<Received> received(const Bytes& bytes, bool response,
                                      const base_siphash_key& key) {
    return wire::received(bytes, response, [&](uint32_t) { return &key; });
}

// Seals and opens datagrams of both ends. It sees all of them, so it knows a nonce that comes
// again. The salt is always the same: here numbers alone have to differ.
class Seals {
public:
    Bytes closed(Bytes plain, const rmem_seal_key& key) {
        const base_siphash_key space = space_key();
        rmem_head head = wire::header_of(plain);
        auto [used, fresh] =
            plain_of_.try_emplace({Key(key.word, std::end(key.word)), head.number}, plain);
        require(fresh || used->second == plain, "two plaintexts under one nonce");
        uint32_t messages = plain[2];
        auto bytes = static_cast<uint32_t>(plain.size());
        plain.resize(bytes + RMEM_SEAL_BYTES);
        require(rmem_seal_close(&cipher.core(), &space, &key, salt, plain.data(), bytes, messages,
                                head.more),
                "not sealed");
        return plain;
    }
    // Empty: it does not verify.
    Bytes opened(const Bytes& sealed, const rmem_seal_key& key) {
        if (!verifies(sealed))
            return {};
        Bytes plain(sealed.size() - RMEM_SEAL_BYTES);
        if (!rmem_seal_open(&cipher.core(), &key, sealed.data(),
                            static_cast<uint32_t>(sealed.size()), plain.data()))
            return {};
        auto made =
            plain_of_.find({Key(key.word, std::end(key.word)), wire::header_of(plain).number});
        require(made != plain_of_.end() && made->second.size() == plain.size() &&
                    std::equal(plain.begin() + RMEM_HDR_BYTES, plain.end(),
                               made->second.begin() + RMEM_HDR_BYTES),
                "opened what nobody sealed");
        return plain;
    }
    bool verifies(const Bytes& sealed) const {
        const base_siphash_key space = space_key();
        return rmem_seal_fits(static_cast<uint32_t>(sealed.size())) &&
               rmem_seal_hdr_verifies(sealed.data(), &space);
    }
    size_t keys() const {
        size_t count = 0;
        const Key* last = nullptr;
        for (const auto& [nonce, plain] : plain_of_) {
            count += !last || *last != nonce.first;
            last = &nonce.first;
        }
        return count;
    }

    wire::NullCipher cipher;

private:
    using Key = std::vector<uint64_t>;
    static constexpr uint8_t salt[RMEM_SEAL_SALT_BYTES] = {5};
    std::map<std::pair<Key, uint64_t>, Bytes> plain_of_;
};

// A datagram.
struct Packet {
    Bytes bytes;
    size_t channel;
    bool to_node;
    uint64_t at_ns;
    uint64_t order;
    bool operator>(const Packet& other) const {
        return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order;
    }
};

// The node with its memory and its wire.
class Host : public rig::Node {
public:
    Host(uint64_t boot, uint32_t sessions_max, uint32_t piece_bytes, uint32_t pages, Seals& seals)
        : rig::Node(config(boot, sessions_max, piece_bytes, pages, seals)), seals_(seals) {
        base_crc32c_setup();
        rmem_node_space_add(&core, space, key_bytes, 0);
    }

    void evict_all() {
        for (uint32_t slot = 0; slot < core.sessions.slots; slot++)
            rmem_sessions_close(&core.sessions, slot);
    }

    // The answers to a datagram.
    std::vector<Bytes> handle(uint64_t at_ns, const Bytes& bytes, const rmem_peer& peer) {
        now_ns = at_ns;
        std::vector<Received> messages =
            wire::is_sealed(bytes) ? unsealed(bytes) : received(bytes, false, space_key());
        for (const Received& m : messages) {
            auto answered = [&](const rmem_head& reply, const Bytes& payload) {
                answer(reply, payload);
            };
            if (m.verdict == RMEM_WIRE_TAG || !rmem_node_key(&core, m.head.space))
                continue;
            if (m.verdict == RMEM_WIRE_DAMAGED) {
                rmem_head reply;
                limit_bytes = 0;
                if (rmem_node_damaged(&core, now_ns, &m.head, &peer, &reply))
                    answered(reply, {});
            } else {
                serve(peer, m.head, m.payload.data(), answered);
            }
        }
        if (open_.messages())
            answers_.push_back(open_.take());
        std::vector<Bytes> all;
        for (Bytes& each : std::exchange(answers_, {})) {
            if (!wire::is_sealed(each) || seal(each))
                all.push_back(std::move(each));
        }
        return all;
    }
    uint64_t notices = 0;

private:
    std::vector<Received> unsealed(const Bytes& bytes) {
        rmem_head head = wire::header_of(bytes);
        rmem_seal_keys keys;
        if (!seals_.verifies(bytes) || head.space != space)
            return {};
        if (!rmem_node_keys(&core, &head, &keys)) {
            answers_.push_back(notice(head));
            return {};
        }
        return wire::opened(seals_.opened(bytes, keys.from_client), false);
    }

    Bytes notice(const rmem_head& head) {
        rmem_head notice;
        notices++;
        rmem_node_notice(&core, &head, &notice);
        return wire::sealed(notice, space_key());
    }

    // False: its session has gone meanwhile.
    bool seal(Bytes& answer) {
        rmem_head head = wire::header_of(answer);
        rmem_seal_keys keys;
        if (rmem_node_keys(&core, &head, &keys)) {
            answer = seals_.closed(std::move(answer), keys.from_node);
            return true;
        }
        if (wire::opened(answer, true)[0].head.type != (RMEM_CLOSE | RMEM_RESPONSE))
            return false;
        answer = notice(head);
        return true;
    }

    static rmem_node_config config(uint64_t boot, uint32_t sessions_max, uint32_t piece_bytes,
                                   uint32_t pages, const Seals& seals) {
        rmem_node_config config = rig::small_config();
        config.boot = boot;
        config.seed[0] = boot * 3;
        config.seed[1] = ~boot;
        config.pages = pages;
        config.pool_pages = 8;
        config.piece_bytes = piece_bytes;
        config.spaces_max = 2;
        config.sessions_max = sessions_max;
        config.session_idle_ms = 50;
        config.challenges = true;
        config.cipher = &seals.cipher.core();
        return config;
    }

    void answer(rmem_head reply, const Bytes& payload) {
        reply.number = ++number_;
        if (!open_.takes(limit_bytes, reply)) {
            answers_.push_back(open_.take());
            open_.takes(limit_bytes, reply);
        }
        open_.add(reply, space_key(), payload);
    }

    Seals& seals_;
    uint64_t number_ = 0;
    std::vector<Bytes> answers_;
    wire::Datagram open_; // the one that the next answer may join
};

struct Op {
    rmem_op op{};
    Bytes data;
    std::vector<rmem_range> ranges; // of a READV, WRITEV
    size_t channel = 0;
    bool flying = false; // submitted, not ended
    rmem_client_result result = RMEM_CLIENT_OK;
    std::function<void(Op&)> ended;
};

struct Channel {
    rmem_client client;
    rmem_peer peer{};
    std::vector<Op*> ops; // submitted, not ended
};

struct Weather {
    uint32_t loss = 0, dup = 0, damage = 0, cut = 0; // of 1000 datagrams
    uint64_t delay_ns = 50'000;
    uint64_t jitter_ns = 20'000; // larger than what lies between packets: they overtake
};

class World {
public:
    explicit World(uint64_t seed, uint32_t iwnd_bytes = RMEM_IWND_BYTES, uint32_t pages = 128)
        : random(seed), node_pages(pages) {
        rmem_base_init(&base);
        rmem_incast_init(&incast, iwnd_bytes);
        boot_node();
    }

    void boot_node() {
        host =
            std::make_unique<Host>(random() | 1, sessions_max, node_piece_bytes, node_pages, seals);
    }

    rmem_client_config config(uint8_t name) {
        rmem_client_config config{};
        std::memset(config.client, name, sizeof(config.client));
        config.space = space;
        config.integrity = sealed ? RMEM_SEALED : RMEM_DIGEST;
        config.cipher = sealed ? &seals.cipher.core() : nullptr;
        config.key = space_key();
        config.piece_bytes = 1400;
        config.datagram_bytes = datagram_bytes;
        config.seed = random();
        config.waiter = name;
        return config;
    }

    // device: has one turn for iwnd with its other channels; none: a turn of its own.
    Channel& add_channel(const rmem_client_config& config, uint64_t boot = 0,
                         rmem_incast_share* device = nullptr) {
        channels.push_back(std::make_unique<Channel>());
        Channel& channel = *channels.back();
        rmem_client_init(&channel.client, &config, &base, &incast, boot);
        rmem_client_set_share(&channel.client, device);
        channel.peer.addr[15] = config.client[0];
        channel.peer.port = 4000;
        rmem_client_open(&channel.client, now_ns);
        pump(channels.size() - 1);
        return channel;
    }

    void submit(Op& op, size_t channel) {
        require(!op.flying, "submitted twice");
        op.flying = true;
        op.channel = channel;
        channels[channel]->ops.push_back(&op);
        rmem_client_submit(&channels[channel]->client, &op.op, now_ns);
        pump(channel);
        check_books();
    }

    // One event; false: nothing will ever happen again.
    bool step() {
        uint64_t at_ns = network.empty() ? ~0ull : network.top().at_ns;
        size_t timer = channels.size();
        for (size_t i = 0; i < channels.size(); i++) {
            uint64_t deadline_ns = rmem_client_deadline(&channels[i]->client);
            if (deadline_ns && deadline_ns < at_ns) {
                at_ns = deadline_ns;
                timer = i;
            }
        }
        if (at_ns == ~0ull)
            return false;
        now_ns = std::max(now_ns, at_ns);
        if (timer < channels.size()) {
            if (late_ns && random() % 8 == 0)
                now_ns += random() % late_ns;
            expire(timer);
        } else {
            deliver();
        }
        check_books();
        return true;
    }

    // Until it's true, for so much virtual time at most.
    bool run(const std::function<bool()>& until, uint64_t for_ns = 60'000 * ms) {
        uint64_t end_ns = now_ns + for_ns;
        while (!until()) {
            if (now_ns > end_ns || !step())
                return until();
        }
        return true;
    }

    bool idle() const {
        for (const auto& channel : channels) {
            if (!channel->ops.empty())
                return false;
        }
        return true;
    }

    void check_books() const {
        if (!keeps_books)
            return;
        uint64_t bytes = 0;
        for (const auto& channel : channels) {
            uint64_t packets = 0;
            require(channel->client.outstanding_ops == channel->ops.size(), "ops miscounted");
            for (const Op* op : channel->ops) {
                uint32_t flying = 0, flying_bytes = 0;
                for (uint32_t part = 0; part < op->op.parts; part++) {
                    if (!(op->op.flying[part / 64] >> part % 64 & 1))
                        continue;
                    flying++;
                    if (channel->client.config.lossless)
                        continue; // takes no iwnd
                    if (op->op.type == RMEM_READ)
                        flying_bytes += std::min(op->op.piece, op->op.len - part * op->op.piece);
                    if (op->op.type == RMEM_READV)
                        flying_bytes += op->op.len;
                }
                require(op->op.iwnd_bytes <= flying_bytes, "iwnd: held for what doesn't fly");
                bytes += op->op.iwnd_bytes;
                require(flying == op->op.flying_parts, "flying parts miscounted");
                packets += flying;
            }
            require(packets == channel->client.window.in_flight, "cwnd: credit lost or invented");
        }
        require(bytes == rmem_incast_used_bytes(&incast), "iwnd: credit lost or invented");
    }

    // Calls next() of a channel until it has nothing to say, and of those this woke.
    void pump(size_t channel) {
        rmem_client& client = channels[channel]->client;
        rmem_client_tx tx;
        wire::Datagram bundle;
        bool shared = false;
        uint32_t room = 0;
        auto flush = [&] {
            if (bundle.messages())
                send({bundle.take(), channel, true, 0, 0});
        };
        rmem_client_set_lending(&client, lends_bytes_min);
        while (rmem_client_next(&client, now_ns, &tx)) {
            uint32_t row = rmem_client_row(&client, &tx);
            require(row >= 1 && row <= RMEM_BUNDLE_MAX, "a row no datagram takes");
            Bytes payload = payload_of(tx);
            if (tx.head.type == RMEM_WRITE && tx.head.piece) {
                flush();
                shared = false;
                if (unsent && random() % 1000 < unsent)
                    rmem_client_unsent(&client, &tx, now_ns);
                else
                    send_lent(channel, tx.head, payload);
                continue;
            }
            if (!shared || !rmem_type_may_share(tx.head.type) || bundle.messages() == room ||
                !bundle.takes(client.config.datagram_bytes, tx.head)) {
                flush();
                bundle.takes(client.config.datagram_bytes, tx.head);
                room = row;
            }
            if (unsent && random() % 1000 < unsent) {
                bundle.forget(tx.head);
                rmem_client_unsent(&client, &tx, now_ns);
                continue;
            }
            shared = rmem_type_may_share(tx.head.type);
            bundle.add(tx.head, client.config.key, payload);
        }
        flush();
        kick();
    }

    // Parts of a WRITE together. As a port does that fetches their data: each comes to the node by
    // itself. Or they are refused.
    void send_lent(size_t channel, rmem_head head, const Bytes& data) {
        const base_siphash_key& key = channels[channel]->client.config.key;
        const uint32_t piece = std::exchange(head.piece, 0);
        lent_messages++;
        require(data.size() == head.len && head.len > piece, "parts without their data");
        head.more = false;
        if (random() % 1000 < refuses) {
            wire::Datagram refusal;
            head.type |= RMEM_RESPONSE;
            head.status = RMEM_DAMAGED;
            head.floor = 0;
            refusal.takes(0, head);
            refusal.add(head, key, {});
            send({refusal.take(), channel, false, 0, 0});
            return;
        }
        for (uint32_t offset = 0; offset < data.size(); offset += piece, head.id++) {
            wire::Datagram each;
            head.len = std::min<uint32_t>(piece, data.size() - offset);
            each.takes(0, head);
            each.add(head, key, Bytes(data.begin() + offset, data.begin() + offset + head.len));
            send({each.take(), channel, true, 0, 0});
            head.addr += head.len;
        }
    }

    void end(rmem_op* chain, rmem_client_result result) {
        while (chain) {
            rmem_op* next = chain->next;
            // op is the first member.
            Op* op = reinterpret_cast<Op*>(chain);
            auto& ops = channels[op->channel]->ops;
            auto found = std::find(ops.begin(), ops.end(), op);
            require(found != ops.end() && op->flying, "an op ended twice");
            ops.erase(found);
            op->flying = false;
            op->result = result;
            ended_now.push_back(op);
            chain = next;
        }
    }

    // Takes it back.
    void cancel(Op& op) {
        rmem_client_cancel(&channels[op.channel]->client, &op.op, now_ns);
        op.op.next = nullptr;
        end(&op.op, RMEM_CLIENT_CANCELLED);
        pump(op.channel);
        check_books();
        tell();
    }

    // A packet of the past may be played again.
    void inject(const Packet& packet) { network.push(packet); }

    std::mt19937_64 random;
    const uint32_t node_pages; // the node's memory
    uint64_t now_ns = 1'000'000;
    Weather weather;
    uint32_t sessions_max = 4;
    uint32_t node_piece_bytes = 4096;
    uint32_t datagram_bytes = 0; // of channels to be added
    bool sealed = false;         // the same
    Seals seals;
    uint32_t unsent = 0;          // of 1000 messages, refused by the carrier
    uint32_t lends_bytes_min = 0; // rmem_client_set_lending()
    uint32_t refuses = 0;         // of 1000 messages with several parts
    size_t lent_messages = 0;     // WRITEs sent with several parts
    bool node_up = true;
    bool keeps_books = true;      // which takes longer than all the rest
    uint64_t late_ns = 0;         // timers are, at most
    uint64_t slow_service_ns = 0; // of the node, per datagram: makes queues
    uint64_t link_ns_per_kib = 0; // of the node's link, each way: the same
    rmem_base base;
    rmem_incast incast;
    std::unique_ptr<Host> host;
    std::vector<std::unique_ptr<Channel>> channels;
    std::function<void(const Packet&)> on_sent;

private:
    // For all devices, and the machine.
    void kick() {
        if (std::exchange(kicking_, true))
            return;
        while (kick_queue(incast, nullptr) || std::ranges::any_of(channels, [&](const auto& each) {
                   rmem_incast_share* device = each->client.share;
                   return device && kick_queue(device->queue, device);
               })) {
        }
        kicking_ = false;
    }

    bool kick_queue(rmem_incast& queue, const rmem_incast_share* device) {
        int waiter = rmem_incast_next(&queue);
        if (waiter == RMEM_WAITER_NONE)
            return false;
        for (size_t i = 0; i < channels.size(); i++) {
            const rmem_client& client = channels[i]->client;
            if (client.config.waiter % RMEM_WAITERS == waiter &&
                (!device || client.share == device))
                pump(i);
        }
        return true;
    }

    static Bytes payload_of(const rmem_client_tx& tx) {
        Bytes payload(tx.payload_bytes + tx.data_bytes);
        auto data = std::copy_n(static_cast<const uint8_t*>(rmem_client_tx_payload(&tx)),
                                tx.payload_bytes, payload.begin());
        if (tx.data_bytes) {
            const Op* op = reinterpret_cast<const Op*>(tx.op);
            require(tx.data_offset + tx.data_bytes <= op->data.size(), "sent beyond the op");
            std::copy_n(op->data.begin() + tx.data_offset, tx.data_bytes, data);
        }
        require(rmem_wire_payload_bytes(&tx.head) == payload.size(),
                "payload isn't what the header says");
        return payload;
    }

    void send(Packet packet) {
        packet.at_ns = now_ns;
        const bool seals_it = packet.to_node && wire::is_sealed(packet.bytes);
        if (packet.to_node || !wire::is_sealed(packet.bytes))
            check_size(packet, seals_it);
        if (seals_it)
            packet.bytes = seals.closed(std::move(packet.bytes),
                                        channels[packet.channel]->client.keys.from_client);
        if (on_sent)
            on_sent(packet);
        unsigned copies = 1 + (random() % 1000 < weather.dup);
        for (unsigned copy = 0; copy < copies; copy++) {
            if (random() % 1000 < weather.loss)
                continue;
            Packet one = packet;
            one.order = order_++;
            one.at_ns = through_link(packet) + weather.delay_ns +
                        (weather.jitter_ns ? random() % weather.jitter_ns : 0);
            if (random() % 1000 < weather.damage)
                one.bytes[random() % one.bytes.size()] ^= 1 << random() % 8;
            if (weather.cut && random() % 1000 < weather.cut)
                one.bytes.resize(random() % one.bytes.size());
            network.push(std::move(one));
        }
    }

    uint64_t through_link(const Packet& packet) {
        uint64_t& free_ns = link_free_ns_[packet.to_node];
        free_ns = std::max(free_ns, now_ns) + packet.bytes.size() * link_ns_per_kib / 1024;
        return free_ns;
    }

    // Either way: one message, or as many as the client's datagram_bytes take.
    void check_size(const Packet& packet, bool is_plain) const {
        size_t messages = (is_plain ? wire::opened(packet.bytes, !packet.to_node)
                                    : received(packet.bytes, !packet.to_node, space_key()))
                              .size();
        require(messages, "a datagram without a message");
        require(messages == 1 ||
                    packet.bytes.size() <= channels[packet.channel]->client.config.datagram_bytes,
                "a datagram larger than the path takes");
    }

    void deliver() {
        Packet packet = network.top();
        network.pop();
        Channel& channel = *channels[packet.channel];
        if (!packet.to_node) {
            receive(packet.channel, packet.bytes);
            return;
        }
        if (!node_up)
            return;
        if (slow_service_ns) {
            busy_until_ns_ = std::max(busy_until_ns_, now_ns) + slow_service_ns;
            uint64_t was_ns = now_ns;
            now_ns = busy_until_ns_;
            answer(packet, channel);
            now_ns = was_ns;
        } else {
            answer(packet, channel);
        }
    }

    void answer(const Packet& packet, Channel& channel) {
        host->refill();
        for (Bytes& bytes : host->handle(now_ns, packet.bytes, channel.peer))
            send({std::move(bytes), packet.channel, false, 0, 0});
    }

    std::vector<Received> unsealed(const rmem_client& client, const Bytes& bytes) {
        const rmem_seal_key* key = rmem_client_opening_key(&client, wire::header_of(bytes).session);
        return key ? wire::opened(seals.opened(bytes, *key), true) : std::vector<Received>();
    }

    void receive(size_t index, const Bytes& bytes) {
        rmem_client& client = channels[index]->client;
        bool any = false;
        for (const Received& m : wire::is_sealed(bytes)
                                     ? unsealed(client, bytes)
                                     : received(bytes, true, client.config.key)) {
            rmem_client_rx rx;
            if (m.verdict == RMEM_WIRE_TAG)
                continue;
            rmem_client_receive(&client, now_ns, &m.head, m.payload.data(),
                                m.verdict == RMEM_WIRE_DAMAGED, &rx);
            any = true;
            if (rx.op) {
                Op* op = reinterpret_cast<Op*>(rx.op);
                require(op->flying, "data for an op that ended");
                require(uint64_t(rx.data_offset) + rx.data_bytes <= op->op.len &&
                            rx.data_bytes == m.payload.size(),
                        "data beyond the op");
                op->data.resize(op->op.len);
                std::memcpy(op->data.data() + rx.data_offset, m.payload.data(), rx.data_bytes);
            }
            end(rx.finished, rx.result);
        }
        if (!any)
            return;
        pump(index);
        tell();
    }

    void expire(size_t index) {
        rmem_client& client = channels[index]->client;
        rmem_client_result result;
        uint64_t sent = client.count.sent;
        rmem_op* chain = rmem_client_expire(&client, now_ns, &result);
        end(chain, result);
        pump(index);
        uint64_t deadline_ns = rmem_client_deadline(&client);
        require(!deadline_ns || deadline_ns > now_ns || client.count.sent > sent,
                "a deadline is still due, and nothing was sent");
        rounds_ = now_ns == rounds_ns_ ? rounds_ + 1 : 1;
        rounds_ns_ = now_ns;
        require(rounds_ <= RMEM_WINDOW * channels.size(), "deadlines go round in circles");
        tell();
    }

    // Callbacks may submit, so they come when all else is done.
    void tell() {
        auto all = std::move(ended_now);
        ended_now.clear();
        for (Op* op : all) {
            if (op->ended)
                op->ended(*op);
        }
    }

    std::priority_queue<Packet, std::vector<Packet>, std::greater<>> network;
    std::vector<Op*> ended_now;
    uint64_t order_ = 0;
    uint64_t busy_until_ns_ = 0;
    uint64_t link_free_ns_[2] = {};
    uint64_t rounds_ns_ = 0, rounds_ = 0; // expiries at one time
    bool kicking_ = false;
};

// Fill in what a caller would.
inline void make(Op& op, uint8_t type, uint64_t addr, uint32_t len) {
    op.op.type = type;
    op.op.addr = addr;
    op.op.len = len;
}

inline void make_write(Op& op, uint64_t addr, Bytes data) {
    make(op, RMEM_WRITE, addr, data.size());
    op.data = std::move(data);
}

inline void make_add(Op& op, uint64_t addr, uint64_t value) {
    make(op, RMEM_ATOMIC, addr, 8);
    op.op.atomic = {{value, 0}, {0, 0}, {0, 0}, RMEM_ADD};
}

// The data to addr, then value added to the integer of 8 bytes at signal.
inline void make_put(Op& op, uint64_t addr, Bytes data, uint64_t signal, uint64_t value) {
    make(op, RMEM_PUT, addr, data.size());
    op.op.put = {signal, value, 0, 8, RMEM_ADD};
    op.data = std::move(data);
}

inline void make_copy(Op& op, uint64_t to, uint64_t from, uint32_t bytes) {
    make(op, RMEM_COPY, to, bytes);
    op.op.copy.from = from;
}

// READV; or WRITEV, whose data is that of the ranges, one after the other.
inline void make_vector(Op& op, uint8_t type, const std::vector<Range>& ranges, Bytes data = {}) {
    make(op, type, 0, 0);
    op.ranges.clear();
    for (const Range& range : ranges) {
        op.ranges.push_back(wire::range_of(range.addr, range.bytes));
        op.op.len += static_cast<uint32_t>(range.bytes);
    }
    op.op.vector = {op.ranges.data(), static_cast<uint8_t>(ranges.size())};
    op.data = std::move(data);
}

// Submits and waits for the end.
inline rmem_client_result finish(World& world, Op& op, size_t channel = 0) {
    world.submit(op, channel);
    require(world.run([&] { return !op.flying; }), "an op never ended");
    return op.result;
}

// A region; its address.
inline uint64_t allocate(World& world, uint64_t bytes, size_t channel = 0) {
    Op op;
    op.op.type = RMEM_ALLOC;
    op.op.alloc = {bytes, 0, RMEM_PERM_READ | RMEM_PERM_WRITE};
    require(finish(world, op, channel) == RMEM_CLIENT_OK, "ALLOC failed");
    return op.op.range.addr;
}

} // namespace net
