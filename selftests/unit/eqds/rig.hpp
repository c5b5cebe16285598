// SPDX-License-Identifier: GPL-2.0
// A small network for tunnels: senders on hosts of their own, one receiver behind one link.
//
//   sender 0 --\                    the switch drops or trims what its
//   sender 1 ---> [ switch queue ]  queue has no room for      ---> receivers, one list
//   ...      --/
//
// Headers go through the codec. After every event both ends' invariants are checked, and that
// the numbers of the two ends are in order: pull seen <= pull sent <= target known <= target.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core.hpp"

namespace eqds {

struct Packet {
    eqds_packet node;
    uint32_t id;    // at the sender: as offered
    uint32_t bytes; // as offered
};

// One message on its way.
struct Message {
    std::vector<uint8_t> header;
    uint32_t id = 0;    // of the packet carried
    uint32_t bytes = 0; // on the wire, 0 payload: only the header
    bool ce = false;
};

struct Options {
    const eqds_profile* profile = &eqds_profile_extended;
    uint32_t tunnels = 1;
    uint32_t mtu_bytes = 1500;
    uint32_t window_mtus = 20; // the round trip has 18
    uint16_t window_packets = 64;
    uint32_t epoch_packets = 0; // 0: numbers of an epoch wrap
    bool trimming = false;
    bool overdraw = false;
    bool ordered = true;
    uint64_t link_bits_per_sec = 10'000'000'000;
    uint64_t delay_ns = 5'000;   // one way
    uint32_t queue_packets = 32; // of the switch
    uint64_t cookie = 0;         // of every address; 0: they need no proof
    eqds_asl_policy policy = EQDS_ASL_FIFO;
    uint32_t paths = 16;
    uint8_t strikes_max = EQDS_STRIKES_MAX;
};

class Rig;

struct Tunnel {
    eqds_sender sender;
    eqds_receiver receiver;
    std::vector<eqds_packet*> sender_slots, receiver_slots;
    std::vector<eqds_path> path;
    eqds_paths paths;
    bool has_receiver = false;
    std::deque<std::unique_ptr<Packet>> owned; // everything offered
    std::vector<uint32_t> delivered;           // ids in order
    uint64_t delivered_bytes = 0;
    uint32_t freed = 0;
    std::vector<uint32_t> lost;           // ids given up
    uint64_t in_bytes = 0, out_bytes = 0; // at the receiver, on the wire
    std::map<int, uint32_t> verdicts;     // of both ends
    uint32_t rts = 0, data = 0, trimmed = 0, resent = 0, pulls = 0, dropped = 0;
    uint64_t last_delivered_ns = 0;
};

class Rig {
public:
    explicit Rig(const Options& options) : opt(options) {
        eqds_config_init(&config, opt.profile, opt.mtu_bytes, opt.window_mtus * opt.mtu_bytes);
        config.window_packets = opt.window_packets;
        config.epoch_packets = opt.epoch_packets;
        config.trimming = opt.trimming;
        config.overdraw = opt.overdraw;
        config.ordered = opt.ordered;
        config.cookies = opt.cookie;
        config.strikes_max = opt.strikes_max;
        EXPECT_TRUE(eqds_config_is_valid(&config));
        eqds_asl_init(&asl, opt.policy, opt.mtu_bytes, opt.link_bits_per_sec, 1);
        for (uint32_t i = 0; i < opt.tunnels; i++) {
            tunnels.push_back(std::make_unique<Tunnel>());
            Tunnel& t = *tunnels.back();
            t.sender_slots.resize(config.window_packets);
            t.receiver_slots.resize(config.window_packets);
            t.path.resize(opt.paths);
            eqds_paths_init(&t.paths, t.path.data(), opt.paths, i + 1);
            init_sender(t, 1000 + i);
        }
    }

    ~Rig() {
        for (auto& t : tunnels)
            if (t->has_receiver)
                forget_receiver(*t);
    }

    void init_sender(Tunnel& t, uint32_t epoch, uint64_t cookie = 0) {
        eqds_sender_init(&t.sender, &config, t.sender_slots.data(), &t.paths, index(t), epoch,
                         cookie);
    }

    Tunnel& operator[](uint32_t i) { return *tunnels[i]; }
    uint16_t index(const Tunnel& t) const {
        for (uint16_t i = 0; i < tunnels.size(); i++)
            if (tunnels[i].get() == &t)
                return i;
        return 0;
    }

    // Packets of bytes each into the tunnel's queue.
    void offer(Tunnel& t, uint32_t count, uint32_t bytes) {
        for (uint32_t i = 0; i < count; i++) {
            auto packet = std::make_unique<Packet>();
            packet->id = t.owned.size();
            packet->bytes = bytes;
            packet->node.bytes = bytes;
            packet->node.next_proto = EQDS_PROTO_IPV4;
            eqds_out out;
            eqds_sender_enqueue(&t.sender, now, &packet->node, &out);
            t.owned.push_back(std::move(packet));
            sender_did(t, out);
        }
    }

    // Drop state without a word, as a crash would.
    void forget_receiver(Tunnel& t) {
        eqds_out out;
        eqds_receiver_close(&t.receiver, &out);
        for (eqds_packet* p = out.deliver; p;)
            p = release(p);
        t.has_receiver = false;
    }
    // The packets go back to the queue of a sender that knows nothing.
    void forget_sender(Tunnel& t, uint32_t epoch) {
        eqds_out out;
        eqds_sender_close(&t.sender, &out);
        init_sender(t, epoch);
        for (eqds_packet* p = out.free; p;) {
            eqds_packet* next = p->next;
            eqds_out again;
            eqds_sender_enqueue(&t.sender, now, p, &again);
            sender_did(t, again);
            p = next;
        }
    }

    // Events until there are none before the time given, or done() says so.
    bool run(
        uint64_t until_ns, const std::function<bool()>& done = [] { return false; }) {
        while (!done()) {
            uint64_t timer = next_timer();
            uint64_t event = events.empty() ? EQDS_NEVER : events.begin()->first;
            uint64_t at = std::min(timer, event);
            if (at > until_ns) {
                now = until_ns;
                return false;
            }
            now = std::max(now, at);
            if (event <= timer) {
                auto what = std::move(events.begin()->second);
                events.erase(events.begin());
                what();
            } else {
                expire();
            }
            check();
        }
        return true;
    }

    bool all_delivered() const {
        for (const auto& t : tunnels)
            if (t->delivered.size() < t->owned.size())
                return false;
        return true;
    }
    bool all_freed() const {
        for (const auto& t : tunnels)
            if (t->freed < t->owned.size())
                return false;
        return true;
    }

    Message encode(const eqds_head& head) {
        Message m;
        m.header.resize(eqds_wire_bytes(opt.profile, &head));
        eqds_wire_encode(opt.profile, &head, m.header.data());
        return m;
    }

    // A control or data message to an end, as the network would bring it.
    void to_sender(Tunnel& t, const Message& m) {
        eqds_head head;
        ASSERT_EQ(eqds_wire_parse(opt.profile, m.header.data(), m.header.size(), &head),
                  EQDS_WIRE_GOOD);
        eqds_out out;
        eqds_sender_receive(&t.sender, now, &head, &out);
        sender_did(t, out);
    }
    void to_receiver(Tunnel& t, const Message& m) {
        eqds_head head;
        ASSERT_EQ(eqds_wire_parse(opt.profile, m.header.data(), m.header.size(), &head),
                  EQDS_WIRE_GOOD);
        head.ce = m.ce;
        if (!head.bytes)
            head.bytes = m.bytes;
        t.in_bytes += m.header.size() + (head.flags & EQDS_TRIM ? 0 : m.bytes);
        eqds_out out;
        if (!t.has_receiver) {
            if (!eqds_receiver_admit(&head, opt.cookie, &out)) {
                receiver_did(t, out);
                return;
            }
            eqds_receiver_init(&t.receiver, &config, &asl, t.receiver_slots.data(), head.sender,
                               opt.cookie);
            t.has_receiver = true;
        }
        eqds_packet* node = nullptr;
        if (!(head.flags & (EQDS_EMPTY | EQDS_TRIM)))
            head.no_room = refuse(head);
        if (!(head.flags & (EQDS_EMPTY | EQDS_TRIM)) && !head.no_room) {
            auto* packet = new Packet{};
            packet->id = m.id;
            packet->bytes = m.bytes;
            node = &packet->node;
        }
        eqds_receiver_receive(&t.receiver, now, &head, m.header.size() + m.bytes, node, &out);
        receiver_did(t, out);
    }

    Options opt;
    eqds_config config;
    eqds_asl asl;
    std::vector<std::unique_ptr<Tunnel>> tunnels;
    uint64_t now = 1000;
    // Decides the fate of a message in the network: true loses it.
    std::function<bool(const eqds_head&)> lose_data = [](auto&) { return false; };
    std::function<bool(const eqds_head&)> lose_control = [](auto&) { return false; };
    std::function<bool(const eqds_head&)> trim = [](auto&) { return false; };
    // The receiver's caller has no memory for the packet.
    std::function<bool(const eqds_head&)> refuse = [](auto&) { return false; };
    std::function<bool(const eqds_head&)> mark = [](auto&) { return false; };
    std::function<uint64_t(const eqds_head&)> extra_delay = [](auto&) { return 0; };
    std::function<void(const eqds_head&)> seen_control = [](auto&) {};
    // Delay of a second copy of a message behind the first one; 0: there is none.
    std::function<uint64_t(const eqds_head&)> copy_delay = [](auto&) { return 0; };
    // The receiver's state may be of an earlier life of the sender whose epoch had the same number.
    bool epochs_collide = false;
    uint32_t queued = 0, queued_max = 0, queue_trims = 0;

    void check() {
        for (auto& t : tunnels) {
            const char* broken = eqds_sender_check(&t->sender);
            ASSERT_FALSE(broken) << broken;
            if (!t->has_receiver)
                continue;
            broken = eqds_receiver_check(&t->receiver);
            ASSERT_FALSE(broken) << broken;
            // Numbers of the same epoch only.
            if (!t->receiver.established || t->receiver.epoch != t->sender.epoch ||
                t->sender.state == EQDS_SENDER_CLOSED || epochs_collide)
                continue;
            uint8_t bits = opt.profile->pull_bits;
            ASSERT_GE(eqds_ahead(t->receiver.share.pull, t->sender.pull, bits), 0);
            ASSERT_GE(eqds_ahead(t->receiver.share.target, t->receiver.share.pull, bits), 0);
            ASSERT_GE(eqds_ahead(t->sender.target, t->receiver.share.target, bits), 0);
        }
    }

private:
    std::multimap<uint64_t, std::function<void()>> events;
    uint64_t link_free_ns = 0;

    static eqds_packet* release(eqds_packet* p) {
        eqds_packet* next = p->next;
        delete reinterpret_cast<Packet*>(p);
        return next;
    }

    uint64_t next_timer() const {
        uint64_t at = eqds_asl_deadline_ns(&asl);
        for (const auto& t : tunnels) {
            at = std::min(at, eqds_sender_deadline_ns(&t->sender));
            if (t->has_receiver)
                at = std::min(at, eqds_receiver_deadline_ns(&t->receiver));
        }
        return at;
    }

    void expire() {
        eqds_head head;
        // Where all let their turns pass, a call that is due returns nobody.
        for (uint64_t due; (due = eqds_asl_deadline_ns(&asl)) <= now;) {
            eqds_receiver* r = eqds_receiver_next(&asl, now, &head);
            EXPECT_GT(eqds_asl_deadline_ns(&asl), due) << "a turn took no time";
            if (!r)
                continue;
            tunnels[r->id]->pulls++;
            send_control(*tunnels[r->id], head);
        }
        for (auto& t : tunnels) {
            eqds_out out;
            if (eqds_sender_deadline_ns(&t->sender) <= now) {
                eqds_sender_expire(&t->sender, now, &out);
                EXPECT_GT(eqds_sender_deadline_ns(&t->sender), now);
                sender_did(*t, out);
                EXPECT_GT(eqds_sender_deadline_ns(&t->sender), now);
            }
            if (t->has_receiver && eqds_receiver_deadline_ns(&t->receiver) <= now) {
                eqds_receiver_expire(&t->receiver, now, &out);
                EXPECT_GT(eqds_receiver_deadline_ns(&t->receiver), now);
                receiver_did(*t, out);
            }
        }
    }

    void sender_did(Tunnel& t, const eqds_out& out) {
        t.verdicts[out.verdict]++;
        for (eqds_packet* p = out.free; p; p = p->next)
            t.freed++;
        for (eqds_packet* p = out.lost; p; p = p->next)
            t.lost.push_back(reinterpret_cast<Packet*>(p)->id);
        if (out.send) {
            t.rts += !(out.head.flags & EQDS_FIN);
            send_data(t, out.head, nullptr);
        }
        eqds_head head;
        while (eqds_packet* p = eqds_sender_next(&t.sender, now, &head)) {
            t.data++;
            t.resent += head.attempt > 0;
            send_data(t, head, reinterpret_cast<Packet*>(p));
        }
        check();
    }

    void receiver_did(Tunnel& t, const eqds_out& out) {
        t.verdicts[out.verdict]++;
        for (eqds_packet* p = out.deliver; p;) {
            auto* packet = reinterpret_cast<Packet*>(p);
            t.delivered.push_back(packet->id);
            t.delivered_bytes += packet->bytes;
            t.last_delivered_ns = now;
            p = release(p);
        }
        for (eqds_packet* p = out.free; p;)
            p = release(p);
        if (out.verdict == EQDS_CLOSED)
            t.has_receiver = false;
        if (out.send)
            send_control(t, out.head);
    }

    void send_data(Tunnel& t, const eqds_head& head, const Packet* packet) {
        Message m = encode(head);
        if (lose_data(head)) {
            t.dropped++;
            return;
        }
        if (packet) {
            m.id = packet->id;
            m.bytes = packet->bytes;
        }
        m.ce = mark(head);
        bool cut = packet && trim(head);
        uint64_t at = now + opt.delay_ns + extra_delay(head);
        events.emplace(at, [this, &t, m, cut] { at_switch(t, m, cut); });
        if (uint64_t later = copy_delay(head))
            events.emplace(at + later, [this, &t, m, cut] { at_switch(t, m, cut); });
    }

    void at_switch(Tunnel& t, Message m, bool cut) {
        if (m.bytes && (cut || queued >= opt.queue_packets)) {
            queue_trims++;
            if (!opt.trimming && !cut) {
                t.dropped++;
                return;
            }
            t.trimmed++;
            m.bytes = 0;
            m.header[opt.profile->start_bits ? 0 : 1] |= EQDS_TRIM;
        }
        if (!m.bytes) { // headers have a queue of their own
            events.emplace(now + opt.delay_ns, [this, &t, m] { to_receiver(t, m); });
            return;
        }
        queued_max = std::max(queued_max, ++queued);
        link_free_ns =
            std::max(link_free_ns, now) + m.bytes * 8 * 1'000'000'000ULL / opt.link_bits_per_sec;
        events.emplace(link_free_ns, [this, &t, m] {
            queued--;
            events.emplace(now + opt.delay_ns, [this, &t, m] { to_receiver(t, m); });
        });
    }

    void send_control(Tunnel& t, const eqds_head& head) {
        Message m = encode(head);
        t.out_bytes += m.header.size();
        seen_control(head);
        if (!t.has_receiver && opt.cookie) {
            ASSERT_LE(t.out_bytes, t.in_bytes);
        }
        if (lose_control(head)) {
            t.dropped++;
            return;
        }
        uint64_t at = now + 2 * opt.delay_ns + extra_delay(head);
        events.emplace(at, [this, &t, m] { to_sender(t, m); });
        if (uint64_t later = copy_delay(head))
            events.emplace(at + later, [this, &t, m] { to_sender(t, m); });
    }
};

} // namespace eqds
