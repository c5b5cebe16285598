// SPDX-License-Identifier: GPL-2.0
// Repeats a device of eqds.ko by the core alone. Standard input has the events that the device had;
// standard output gets the packets and verdicts that the core answers with.
//
//   in    config MTU_BYTES WINDOW_MTUS MBITS TRIMMING OUTER_BYTES RTO_MIN_NS RTO_MAX_NS PATHS
//         cookie PEER COOKIE                    of the device, for a SYN that lacks it
//         turn xmit|poll|due|pull NOW_NS        the events up to the next turn are of this time
//         open sender|receiver PEER ID EPOCH SEED|COOKIE
//         enqueue PEER ID BYTES PROTO SEGMENTS EACH_BYTES
//         pass PEER ID BYTES PROTO
//         receive PEER BYTES CE IP_ID HEADER    of the UDP payload; HEADER: its first bytes in hex
//         expire PEER ID
//   out   send HEADER                           in the order in which they leave
//         outcome VERDICT
//
// kmod/eqds does the same between locks, skbs and timers: see its xmit.c, send.c, recv.c, pull.c,
// life.c.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include "core/eqds/drr.h"
#include "core/eqds/receiver.h"
#include "core/eqds/reply.h"
}

namespace {

using Name = std::pair<std::string, std::uint16_t>;

// Of kmod/eqds/device.h and pull.c.
constexpr std::uint32_t classes = 3;
constexpr std::uint64_t pull_burst_ns = 100'000;
constexpr std::uint64_t pull_burst_min = 4, pull_burst_max = 64;

// A packet at the sender: a node for each of its segments.
struct Offered {
    std::vector<eqds_packet> nodes;
    std::size_t left; // segments that the core has
};

struct Sender {
    eqds_sender core{};
    std::map<const eqds_packet*, Offered> packets; // by the first node
    std::vector<eqds_packet*> slots;
    std::vector<eqds_path> path;
    eqds_paths paths{};
};

struct Receiver {
    eqds_receiver core{};
    std::vector<eqds_packet*> slots;
    eqds_reply reply{};
};

// At the receiver, a packet is a node.
void free_chain(eqds_packet* packet) {
    while (packet) {
        eqds_packet* next = packet->next;
        delete packet;
        packet = next;
    }
}

class Device {
public:
    void configure(std::istream& in) {
        std::uint64_t mbits, trimming;
        std::uint32_t mtu_bytes, window_mtus;
        in >> mtu_bytes >> window_mtus >> mbits >> trimming;
        eqds_config_init(&config_, &eqds_profile_extended, mtu_bytes, window_mtus * mtu_bytes);
        in >> config_.outer_bytes >> config_.rto_min_ns >> config_.rto_max_ns >> paths_;
        config_.trimming = trimming;
        config_.cookies = true;
        if (!eqds_config_is_valid(&config_))
            throw std::runtime_error("the configuration is not valid");
        std::uint64_t burst = mbits * pull_burst_ns / 1000 / (mtu_bytes * 8ULL);
        burst = std::min(std::max(burst, pull_burst_min), pull_burst_max);
        eqds_asl_init(&asl_, EQDS_ASL_PIFO, mtu_bytes, mbits * 1'000'000,
                      static_cast<std::uint32_t>(burst));
        eqds_drr_init(&drr_);
        for (auto& each : eqif_)
            eqds_eqif_init(&each, 0, mtu_bytes);
    }

    void learn_cookie(std::istream& in) {
        std::string peer, cookie;
        in >> peer >> cookie;
        cookies_[peer] = std::stoull(cookie, nullptr, 0);
    }

    void turn(std::istream& in) {
        end_turn();
        in >> kind_ >> now_;
    }

    // The last steps of the shell before it unlocks.
    void end_turn() {
        if (kind_ != "pull")
            send_ready();
        if (kind_ == "poll" || kind_ == "pull")
            pull();
        if (kind_ != "xmit")
            flush();
        kind_.clear();
    }

    void open(std::istream& in) {
        std::string end, chance;
        Name name;
        std::uint32_t epoch;
        in >> end >> name.first >> name.second >> epoch >> chance;
        std::uint64_t drawn = std::stoull(chance, nullptr, 0);
        if (end == "receiver") {
            auto& r = receivers_[name] = std::make_unique<Receiver>();
            r->slots.resize(config_.window_packets);
            eqds_receiver_init(&r->core, &config_, &asl_, r->slots.data(), name.second, drawn);
            eqds_asl_set(&r->core.share, 0, 1);
            return;
        }
        auto& s = senders_[name] = std::make_unique<Sender>();
        s->slots.resize(config_.window_packets);
        s->path.resize(paths_);
        eqds_paths_init(&s->paths, s->path.data(), paths_, drawn);
        eqds_sender_init(&s->core, &config_, s->slots.data(), &s->paths, name.second, epoch, 0);
    }

    void enqueue(std::istream& in) {
        Name name;
        unsigned bytes, proto, segments, each_bytes;
        in >> name.first >> name.second >> bytes >> proto >> segments >> each_bytes;
        Offered offered{std::vector<eqds_packet>(segments), segments};
        eqds_packet* packet = &offered.nodes.at(0);
        packet->bytes = bytes;
        packet->next_proto = static_cast<std::uint8_t>(proto);
        Sender& s = *senders_.at(name);
        s.packets.emplace(packet, std::move(offered));
        eqds_out out;
        eqds_sender_enqueue_whole(&s.core, now_, packet, static_cast<std::uint16_t>(segments - 1),
                                  each_bytes, &out);
        settle(s, out);
    }

    void pass(std::istream& in) {
        Name name;
        unsigned bytes, proto;
        in >> name.first >> name.second >> bytes >> proto;
        eqds_head head;
        if (!eqds_sender_unnumbered(&senders_.at(name)->core, now_, bytes,
                                    static_cast<std::uint8_t>(proto), &head))
            throw std::runtime_error("the kernel let a packet pass that has to wait");
        emit(head);
    }

    void expire(std::istream& in) {
        Name name;
        in >> name.first >> name.second;
        Sender& s = *senders_.at(name);
        eqds_out out;
        eqds_sender_expire(&s.core, now_, &out);
        settle(s, out);
        if (s.core.state == EQDS_SENDER_CLOSED) {
            eqds_drr_remove(&s.core);
            senders_.erase(name);
        }
    }

    void receive(std::istream& in) {
        std::string peer, hex;
        std::uint32_t bytes;
        std::uint16_t ip_id;
        bool ce;
        in >> peer >> bytes >> ce >> ip_id >> hex;
        std::vector<std::uint8_t> wire;
        for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
            wire.push_back(static_cast<std::uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
        eqds_head head;
        if (eqds_wire_parse(config_.profile, wire.data(), wire.size(), &head) != EQDS_WIRE_GOOD)
            throw std::runtime_error("a packet that arrived is none of a tunnel's: " + hex);
        head.ce = ce;
        if (head.counted) {
            if (!(head.flags & EQDS_TRIM))
                head.bytes = bytes + config_.outer_bytes;
            if (!eqds_wire_count(&head, ip_id, 0))
                throw std::runtime_error("a header that does not cover its IP ID: " + hex);
        }
        if (head.control)
            receive_control(peer, head);
        else
            receive_data(peer, head, bytes);
    }

    ~Device() {
        eqds_out out;
        for (auto& [name, s] : senders_)
            eqds_sender_close(&s->core, &out);
        for (auto& [name, r] : receivers_) {
            eqds_receiver_close(&r->core, &out);
            free_chain(out.deliver);
            free_chain(out.free);
        }
    }

private:
    void receive_control(const std::string& peer, const eqds_head& head) {
        auto found = senders_.find({peer, head.sender});
        if (found == senders_.end())
            return;
        eqds_out out;
        eqds_sender_receive(&found->second->core, now_, &head, &out);
        settle(*found->second, out);
    }

    void receive_data(const std::string& peer, const eqds_head& head, std::uint32_t bytes) {
        auto found = receivers_.find({peer, head.sender});
        eqds_out out;
        if (found == receivers_.end()) {
            // The trace tells of tunnels that were made, so this one was not admitted.
            if (eqds_receiver_admit(&head, cookies_[peer], &out))
                throw std::runtime_error("the kernel had a tunnel for a packet, or made none");
            if (out.send)
                emit(out.head);
            return;
        }
        Receiver& r = *found->second;
        if (eqds_receiver_restarts(&r.core, &head) &&
            !eqds_receiver_admit(&head, r.core.cookie, &out)) {
            emit(out.head);
            return;
        }
        auto* packet = head.flags & (EQDS_EMPTY | EQDS_TRIM) ? nullptr : new eqds_packet{};
        eqds_receiver_receive(&r.core, now_, &head, bytes, packet, &out);
        free_chain(out.deliver);
        free_chain(out.free);
        if (out.send)
            reply(r, out.head);
        outcome(out);
        if (!r.core.established) {
            replying_.erase(std::remove(replying_.begin(), replying_.end(), &r), replying_.end());
            receivers_.erase(found);
        }
    }

    static void release(Sender& s, const eqds_packet* part) {
        const eqds_packet* next;
        for (; part; part = next) {
            auto whole = s.packets.find(part - part->nth);
            next = part->next;
            whole->second.left -= part->more + 1;
            if (!whole->second.left)
                s.packets.erase(whole);
        }
    }

    void settle(Sender& s, const eqds_out& out) {
        release(s, out.free);
        release(s, out.lost);
        if (out.send)
            emit(out.head);
        outcome(out);
        eqds_drr_update(&drr_, &eqif_[s.core.id], &s.core);
    }

    void send_ready() {
        eqds_head head;
        eqds_sender* from;
        while (eqds_drr_send(&drr_, now_, &head, &from))
            emit(head);
    }

    void pull() {
        eqds_head head;
        for (std::uint64_t n = 0; n < pull_burst_max; n++) {
            eqds_receiver* core = eqds_receiver_next(&asl_, now_, &head);
            if (!core)
                return;
            for (auto& [name, r] : receivers_)
                if (&r->core == core)
                    reply(*r, head);
        }
    }

    void reply(Receiver& r, const eqds_head& head) {
        bool waited = r.reply.waits;
        eqds_head leaves[EQDS_REPLY_LEAVES];
        std::uint32_t count = eqds_reply_add(&r.reply, &head, leaves);
        for (std::uint32_t i = 0; i < count; i++)
            emit(leaves[i]);
        if (!r.reply.waits)
            std::erase(replying_, &r);
        else if (!waited)
            replying_.push_back(&r);
    }

    void flush() {
        for (Receiver* r : replying_) {
            if (!r->reply.waits)
                continue;
            r->reply.waits = false;
            emit(r->reply.head);
        }
        replying_.clear();
    }

    void emit(const eqds_head& head) const {
        std::uint8_t wire[EQDS_WIRE_BYTES_MAX];
        eqds_wire_encode(config_.profile, &head, wire);
        std::printf("send ");
        for (std::uint32_t i = 0; i < eqds_wire_header_bytes(config_.profile, head.control); i++)
            std::printf("%02x", wire[i]);
        std::printf("\n");
    }

    static void outcome(const eqds_out& out) { std::printf("outcome %d\n", out.verdict); }

    eqds_config config_{};
    eqds_asl asl_{};
    eqds_drr drr_{};
    eqds_eqif eqif_[classes]{};
    std::uint32_t paths_ = 0;
    std::map<Name, std::unique_ptr<Sender>> senders_;
    std::map<Name, std::unique_ptr<Receiver>> receivers_;
    std::vector<Receiver*> replying_;
    std::map<std::string, std::uint64_t> cookies_;
    std::string kind_;
    std::uint64_t now_ = 0;
};

void replay() {
    Device device;
    std::string line, verb;
    while (std::getline(std::cin, line)) {
        std::istringstream in(line);
        in >> verb;
        if (verb == "config")
            device.configure(in);
        else if (verb == "cookie")
            device.learn_cookie(in);
        else if (verb == "turn")
            device.turn(in);
        else if (verb == "open")
            device.open(in);
        else if (verb == "enqueue")
            device.enqueue(in);
        else if (verb == "receive")
            device.receive(in);
        else if (verb == "pass")
            device.pass(in);
        else if (verb == "expire")
            device.expire(in);
        else
            throw std::runtime_error("unknown: " + line);
        if (in.fail())
            throw std::runtime_error("incomplete: " + line);
    }
    device.end_turn();
}

} // namespace

int main() {
    try {
        replay();
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "eqds-replay: %s\n", error.what());
        return 1;
    }
}
