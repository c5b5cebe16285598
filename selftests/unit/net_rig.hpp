// SPDX-License-Identifier: GPL-2.0
// Clients and a memory node, both the real cores, over a network that loses, doubles, delays,
// reorders and damages packets, all of it drawn from one seed.
//
//   Op -> Channel (rmem_client) -> packets -> [ network, virtual time ] -> Host (rmem_node)
//            ^                                                               |
//            +--------------------------- answers <--------------------------+
//
// After every event the books are checked: the windows hold what flying parts owe, not more.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "core.hpp"

extern "C" {
#include "core/rmem/client.h"
}

namespace net {

using Bytes = std::vector<uint8_t>;

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
class Host {
public:
    Host(uint64_t boot, uint32_t sessions_max, uint32_t piece_bytes) {
        base_crc32c_setup();
        rmem_node_config config{};
        config.boot = boot;
        config.seed[0] = boot * 3;
        config.seed[1] = ~boot;
        config.pages = 128;
        config.page_shift = RMEM_PAGE_SHIFT_MIN;
        config.pool_pages = 8;
        config.piece_bytes = piece_bytes;
        config.spaces_max = 2;
        config.sessions_max = sessions_max;
        config.regions_max = 16;
        config.session_idle_ms = 50;
        memory_.resize(config.pages << config.page_shift);
        size_t bytes = (rmem_node_state_bytes(&config) + 63) / 64 * 64;
        state_.reset(static_cast<uint8_t*>(std::aligned_alloc(64, bytes)));
        std::memset(state_.get(), 0xee, bytes);
        rmem_node_init(&core, &config, state_.get());
        rmem_node_space_add(&core, space, key_bytes, 0);
    }

    void refill() {
        bool used;
        for (uint32_t page; (page = rmem_node_scrub_next(&core, &used)) != RMEM_PAGE_NONE;) {
            std::memset(at({page, 0, 0}), 0, 1u << core.config.page_shift);
            rmem_node_scrub_done(&core, page);
        }
    }

    void evict_all() {
        for (uint32_t slot = 0; slot < core.sessions.slots; slot++)
            rmem_sessions_close(&core.sessions, slot);
    }

    // The answers to a datagram.
    std::vector<Bytes> handle(uint64_t now_ns, const Bytes& bytes, const rmem_peer& peer) {
        rmem_head head;
        std::vector<Bytes> answers;
        const uint8_t* payload = bytes.data() + RMEM_HDR_BYTES;
        if (rmem_wire_parse(bytes.data(), bytes.size(), false, &head) != RMEM_WIRE_GOOD)
            return answers;
        const base_siphash_key* key = rmem_node_key(&core, head.space);
        if (!key)
            return answers;
        auto verdict =
            rmem_wire_verify(bytes.data(), &head, key, payload, bytes.size() - RMEM_HDR_BYTES);
        if (verdict == RMEM_WIRE_DAMAGED) {
            rmem_head reply;
            rmem_node_damaged(&core, &head, &reply);
            answers.push_back(seal(reply, {}));
        } else if (verdict == RMEM_WIRE_GOOD) {
            if (head.type <= RMEM_FREE)
                slow(now_ns, head, payload, peer, answers);
            else
                fast(now_ns, head, payload, peer, answers);
        }
        return answers;
    }

    rmem_node core;

private:
    struct Free {
        void operator()(void* p) const { std::free(p); }
    };

    uint8_t* at(const rmem_extent& e) {
        return memory_.data() + (uint64_t(e.page) << core.config.page_shift) + e.offset;
    }

    Bytes seal(rmem_head head, const Bytes& payload) {
        Bytes bytes(RMEM_HDR_BYTES + payload.size());
        if (!payload.empty())
            std::memcpy(bytes.data() + RMEM_HDR_BYTES, payload.data(), payload.size());
        auto key = space_key();
        rmem_wire_build(bytes.data(), &head, &key, payload.data(), payload.size());
        return bytes;
    }

    void slow(uint64_t now_ns, const rmem_head& head, const uint8_t* payload, const rmem_peer& peer,
              std::vector<Bytes>& answers) {
        rmem_node_call call;
        rmem_node_call_begin(&core, &call, now_ns, &head, &peer, payload);
        while (rmem_node_call_step(&core, &call)) {
        }
        if (call.answer.action != RMEM_ACT_REPLY)
            return;
        Bytes out(rmem_wire_payload_bytes(&call.answer.reply));
        if (!out.empty())
            std::memcpy(out.data(), &call.out, out.size());
        answers.push_back(seal(call.answer.reply, out));
    }

    void fast(uint64_t now_ns, const rmem_head& head, const uint8_t* payload, const rmem_peer& peer,
              std::vector<Bytes>& answers) {
        rmem_answer answer{};
        rmem_node_request(&core, now_ns, &head, &peer, &answer);
        if (answer.action == RMEM_ACT_DROP)
            return;
        if (answer.action == RMEM_ACT_SEND_OUT) {
            send_out(head, answers);
            return;
        }
        for (unsigned n = 0; n < answer.extents; n++) {
            const rmem_extent& e = answer.extent[n];
            if (answer.action == RMEM_ACT_FILL) {
                std::memset(at(e), 0, e.bytes);
            } else {
                std::memcpy(at(e), payload, e.bytes);
                payload += e.bytes;
            }
        }
        if (answer.action != RMEM_ACT_REPLY)
            rmem_node_done(&core, &head);
        answers.push_back(seal(answer.reply, {}));
    }

    void send_out(const rmem_head& head, std::vector<Bytes>& answers) {
        uint32_t bytes;
        for (uint32_t offset = 0;; offset += bytes) {
            rmem_answer part{};
            bytes = rmem_node_read_part(&core, &head, offset, &part);
            if (!bytes)
                return;
            Bytes out;
            for (unsigned n = 0; n < part.extents; n++) {
                const rmem_extent& e = part.extent[n];
                if (e.page == RMEM_PAGE_NONE)
                    out.resize(out.size() + e.bytes);
                else
                    out.insert(out.end(), at(e), at(e) + e.bytes);
            }
            answers.push_back(seal(part.reply, out));
        }
    }

    std::unique_ptr<uint8_t, Free> state_;
    Bytes memory_;
};

struct Op {
    rmem_op op{};
    Bytes data;
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
    uint32_t loss = 0, dup = 0, damage = 0; // of 1000 packets
    uint64_t delay_ns = 50'000;
    uint64_t jitter_ns = 20'000; // larger than what lies between packets: they overtake
};

class World {
public:
    explicit World(uint64_t seed, uint64_t iwnd_bytes = RMEM_IWND_BYTES) : random(seed) {
        rmem_window_init(&window);
        rmem_incast_init(&incast, iwnd_bytes);
        boot_node();
    }

    void boot_node() {
        host = std::make_unique<Host>(random() | 1, sessions_max, node_piece_bytes);
    }

    rmem_client_config config(uint8_t name) {
        rmem_client_config config{};
        std::memset(config.client, name, sizeof(config.client));
        config.space = space;
        config.integrity = RMEM_DIGEST;
        config.key = space_key();
        config.piece_bytes = 1400;
        config.seed = random();
        config.waiter = name;
        return config;
    }

    Channel& add_channel(const rmem_client_config& config, uint64_t boot = 0) {
        channels.push_back(std::make_unique<Channel>());
        Channel& channel = *channels.back();
        rmem_client_init(&channel.client, &config, &window, &incast, boot);
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
        if (timer < channels.size())
            expire(timer);
        else
            deliver();
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
        uint64_t packets = 0, bytes = 0;
        for (const auto& channel : channels) {
            require(channel->client.outstanding_ops == channel->ops.size(), "ops miscounted");
            for (const Op* op : channel->ops) {
                uint32_t flying = 0;
                for (uint32_t part = 0; part < op->op.parts; part++) {
                    if (!(op->op.flying[part / 64] >> part % 64 & 1))
                        continue;
                    flying++;
                    if (op->op.type == RMEM_READ)
                        bytes += std::min(op->op.piece, op->op.len - part * op->op.piece);
                }
                require(flying == op->op.flying_parts, "flying parts miscounted");
                packets += flying;
            }
        }
        require(packets == rmem_window_in_flight(&window), "cwnd: credit lost or invented");
        require(bytes == rmem_incast_used_bytes(&incast), "iwnd: credit lost or invented");
    }

    // Calls next() of a channel until it has nothing to say, and of those this woke.
    void pump(size_t channel) {
        rmem_client_tx tx;
        while (rmem_client_next(&channels[channel]->client, now_ns, &tx)) {
            if (unsent && random() % 1000 < unsent)
                rmem_client_unsent(&channels[channel]->client, &tx, now_ns);
            else
                transmit(channel, tx);
        }
        kick();
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

    // A packet of the past may be played again.
    void inject(const Packet& packet) { network.push(packet); }

    std::mt19937_64 random;
    uint64_t now_ns = 1'000'000;
    Weather weather;
    uint32_t sessions_max = 4;
    uint32_t node_piece_bytes = 4096;
    uint32_t unsent = 0; // of 1000 packets, refused by the carrier
    bool node_up = true;
    uint64_t slow_service_ns = 0; // of the node, per packet: makes queues
    rmem_window window;
    rmem_incast incast;
    std::unique_ptr<Host> host;
    std::vector<std::unique_ptr<Channel>> channels;
    std::function<void(const Packet&)> on_sent;

private:
    void kick() {
        uint64_t waiting = rmem_window_waiting(&window) | rmem_incast_waiting(&incast);
        for (size_t i = 0; waiting && i < channels.size(); i++) {
            if (waiting >> (channels[i]->client.config.waiter % RMEM_WAITERS) & 1)
                pump(i);
        }
    }

    void transmit(size_t channel, rmem_client_tx& tx) {
        Bytes bytes(RMEM_HDR_BYTES + tx.payload_bytes + tx.data_bytes);
        uint8_t* payload = bytes.data() + RMEM_HDR_BYTES;
        if (tx.data_bytes) {
            Op* op = reinterpret_cast<Op*>(tx.op);
            require(tx.data_offset + tx.data_bytes <= op->data.size(), "sent beyond the op");
            std::memcpy(payload, op->data.data() + tx.data_offset, tx.data_bytes);
        } else {
            std::memcpy(payload, tx.payload, tx.payload_bytes);
        }
        require(rmem_wire_payload_bytes(&tx.head) == bytes.size() - RMEM_HDR_BYTES,
                "payload isn't what the header says");
        rmem_wire_build(bytes.data(), &tx.head, &channels[channel]->client.config.key, payload,
                        bytes.size() - RMEM_HDR_BYTES);
        send({std::move(bytes), channel, true, 0, 0});
    }

    void send(Packet packet) {
        packet.at_ns = now_ns;
        if (on_sent)
            on_sent(packet);
        unsigned copies = 1 + (random() % 1000 < weather.dup);
        for (unsigned copy = 0; copy < copies; copy++) {
            if (random() % 1000 < weather.loss)
                continue;
            Packet one = packet;
            one.order = order_++;
            one.at_ns =
                now_ns + weather.delay_ns + (weather.jitter_ns ? random() % weather.jitter_ns : 0);
            if (random() % 1000 < weather.damage)
                one.bytes[random() % one.bytes.size()] ^= 1 << random() % 8;
            network.push(std::move(one));
        }
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

    void receive(size_t index, const Bytes& bytes) {
        rmem_client& client = channels[index]->client;
        const uint8_t* payload = bytes.data() + RMEM_HDR_BYTES;
        rmem_head head;
        rmem_client_rx rx;
        if (rmem_wire_parse(bytes.data(), bytes.size(), true, &head) != RMEM_WIRE_GOOD)
            return;
        auto verdict = rmem_wire_verify(bytes.data(), &head, &client.config.key, payload,
                                        bytes.size() - RMEM_HDR_BYTES);
        if (verdict == RMEM_WIRE_TAG)
            return;
        rmem_client_receive(&client, now_ns, &head, payload, verdict == RMEM_WIRE_DAMAGED, &rx);
        if (rx.op) {
            Op* op = reinterpret_cast<Op*>(rx.op);
            require(op->flying, "data for an op that ended");
            require(uint64_t(rx.data_offset) + rx.data_bytes <= op->op.len &&
                        rx.data_bytes == bytes.size() - RMEM_HDR_BYTES,
                    "data beyond the op");
            op->data.resize(op->op.len);
            std::memcpy(op->data.data() + rx.data_offset, payload, rx.data_bytes);
        }
        end(rx.finished, rx.result);
        pump(index);
        tell();
    }

    void expire(size_t index) {
        rmem_client_result result;
        rmem_op* chain = rmem_client_expire(&channels[index]->client, now_ns, &result);
        end(chain, result);
        pump(index);
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
