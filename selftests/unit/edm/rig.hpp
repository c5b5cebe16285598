// SPDX-License-Identifier: GPL-2.0
// A rack: hosts, a scheduler and its standby, and a network that loses, copies and reorders.
//
//   host 0 --\                /-- scheduler 0
//   host 1 ---> [ network ] --
//   ...    --/                \-- scheduler 1
//
// All datagrams but data pass as sealed bytes. After every event the invariants of each core are
// checked, and that
//   - a deadline lies beyond the event, once expire and next have been drained;
//   - no port is booked for two chunks at a time, by whichever scheduler;
//   - a byte of an op is sent once, in order; a request is executed once.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "core.hpp"

namespace edm {

constexpr base_siphash_key operator_key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};

struct Options {
    uint16_t hosts = 3;
    uint8_t schedulers = 1;
    uint32_t seed = 1;
    uint64_t delay_ns = 5'000; // one way
    uint64_t jitter_ns = 0;    // up to so much more, so datagrams overtake each other
    double loss = 0, copies = 0;
    uint32_t rate_mbps = 8'000; // a byte takes a nanosecond
    uint32_t chunk_bytes = 16'384, unit_bytes = 1'024, mega_bytes = 0;
    uint32_t lease_us = 1'000;
    uint16_t slots = 8;
    uint64_t late_ns = 1'000'000;
    uint64_t patience_ns = 3'000'000;
};

struct Op {
    edm_op op{};
    uint16_t host;
    uint32_t sent = 0, landed = 0, executed = 0;
    uint64_t start_ns, end_ns = 0;
    bool ended = false, unscheduled = false;
};

class Rig {
public:
    explicit Rig(const Options& options) : opt(options), random(options.seed) {
        for (uint8_t n = 0; n < opt.schedulers; n++) {
            schedulers.push_back(std::make_unique<Scheduler>());
            start_scheduler(n);
        }
        for (uint16_t n = 0; n < opt.hosts; n++) {
            hosts.push_back(std::make_unique<Host>());
            start_host(n, 1);
        }
        for (uint16_t n = 0; n < opt.hosts; n++)
            drain_host(n);
    }

    // A scheduler that knows nothing, under another life.
    void start_scheduler(uint8_t n) {
        Scheduler& s = *schedulers[n];
        edm_sched_config config{};
        edm_match_config& match = config.match;
        match.demand = {opt.hosts, opt.slots, 3, EDM_SRPT, false, 1, opt.lease_us * 1000ULL};
        match.chunk_bytes = opt.chunk_bytes;
        match.unit_bytes = opt.unit_bytes;
        match.age_ns = 1'000'000'000;
        match.egress_bytes_max = ~0u;
        match.share_bytes = 1 << 30;
        match.share_permille = 1000;
        config.life = 1 + random() % 1'000'000'000;
        config.lease_us = opt.lease_us;
        config.book_permille = 1000;
        config.key = operator_key;
        ASSERT_TRUE(edm_sched_config_is_valid(&config));
        s.memory.assign(edm_sched_bytes(&config) / 8 + 1, 0xfefefefefefefefe);
        edm_sched_init(&s.core, &config, s.memory.data());
        s.secret = {{random(), random()}};
        s.up = true;
    }

    // A host's new life: its ops are forgotten.
    void start_host(uint16_t n, uint32_t epoch) {
        Host& h = *hosts[n];
        edm_host_config config{};
        config.link = {operator_key, opt.lease_us * 1000ULL, epoch, opt.rate_mbps, n, opt.slots};
        config.ports = opt.hosts;
        config.links = opt.schedulers;
        config.mega_bytes = opt.mega_bytes;
        config.patience_ns = opt.patience_ns;
        config.late_ns = opt.late_ns;
        ASSERT_TRUE(edm_host_config_is_valid(&config));
        h.memory.assign(edm_host_bytes(&config) / 8 + 1, 0xfefefefefefefefe);
        edm_host_init(&h.core, now, &config, h.memory.data());
        h.epoch = epoch;
        h.executed.clear();
        for (auto& op : ops)
            if (op->host == n)
                op->ended = true;
    }

    Op& submit(uint16_t host, uint16_t peer, uint32_t bytes, uint8_t type = EDM_WRITE) {
        ops.push_back(std::make_unique<Op>());
        Op& op = *ops.back();
        op.host = host;
        op.start_ns = now;
        op.op.bytes = bytes;
        op.op.peer = peer;
        op.op.type = type;
        edm_host_submit(&hosts[host]->core, now, &op.op);
        drain_host(host);
        return op;
    }

    // Events until the time given, or done() says so.
    bool run(
        uint64_t ns, const std::function<bool()>& done = [] { return false; }) {
        const uint64_t until = now + ns;
        while (!done()) {
            const uint64_t event = events.empty() ? EDM_NEVER : events.begin()->first;
            const uint64_t timer = next_timer();
            if (std::min(event, timer) > until) {
                now = until;
                return done();
            }
            now = std::max(now, std::min(event, timer));
            if (event <= timer) {
                auto what = std::move(events.begin()->second);
                events.erase(events.begin());
                what();
            } else {
                expire();
            }
            if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure())
                return false;
        }
        return true;
    }

    bool all_ended() const {
        return std::all_of(ops.begin(), ops.end(), [](const auto& op) { return op->ended; });
    }
    bool all_follow(uint8_t scheduler = 0) const {
        return std::all_of(hosts.begin(), hosts.end(),
                           [&](const auto& h) { return h->core.follow == scheduler; });
    }

    struct Scheduler {
        edm_sched core;
        std::vector<uint64_t> memory;
        base_siphash_key secret;
        bool up = false;
    };
    struct Host {
        edm_host core;
        std::vector<uint64_t> memory;
        uint32_t epoch;
        std::set<std::tuple<uint16_t, uint32_t, uint32_t>> executed; // peer, epoch, id
    };
    struct Chunk {
        uint64_t at_ns, source_ns, destination_ns; // until when either port is busy
        uint16_t source, destination;
    };

    Options opt;
    std::mt19937_64 random;
    std::vector<std::unique_ptr<Scheduler>> schedulers;
    std::vector<std::unique_ptr<Host>> hosts;
    std::vector<std::unique_ptr<Op>> ops;
    std::vector<Chunk> chunks;
    uint64_t now = 1'000'000, unscheduled_bytes = 0, sent_bytes = 0;
    uint32_t tampered = 0, wasted = 0;
    // Fate of a datagram: true loses it.
    std::function<bool(const edm_message&, bool to_scheduler)> lose = [](auto&, bool) {
        return false;
    };

    void drain_host(uint16_t n) {
        edm_host& core = hosts[n]->core;
        edm_host_action action;
        while (edm_host_next(&core, now, &action))
            act(n, action);
        EXPECT_GT(edm_host_deadline_ns(&core), now) << "host " << n;
        const char* broken = edm_host_check(&core);
        EXPECT_FALSE(broken) << broken;
    }

private:
    using Bytes = std::vector<uint8_t>;
    std::multimap<uint64_t, std::function<void()>> events;

    bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random) < p; }

    uint64_t next_timer() const {
        uint64_t at = EDM_NEVER;
        for (const auto& s : schedulers)
            if (s->up)
                at = std::min(at, edm_sched_deadline_ns(&s->core));
        for (const auto& h : hosts)
            at = std::min(at, edm_host_deadline_ns(&h->core));
        return at;
    }

    void expire() {
        for (uint8_t n = 0; n < schedulers.size(); n++)
            if (schedulers[n]->up && edm_sched_deadline_ns(&schedulers[n]->core) <= now)
                drain_scheduler(n);
        for (uint16_t n = 0; n < hosts.size(); n++)
            if (edm_host_deadline_ns(&hosts[n]->core) <= now)
                drain_host(n);
    }

    // A datagram into the network. An op's request is its address, which is opaque to the core.
    void send(const edm_message& message, const edm_item* items, const Op* op,
              const base_siphash_key& key, bool to_scheduler,
              const std::function<void(const Bytes&)>& deliver) {
        Bytes bytes(edm_wire_header_bytes(&message));
        edm_wire_encode(&message, items, bytes.data());
        if (op) {
            const auto* p = reinterpret_cast<const uint8_t*>(&op);
            bytes.insert(bytes.end(), p, p + sizeof(op));
        }
        edm_wire_seal(bytes.data(), bytes.size(), &key);
        if (lose(message, to_scheduler) || chance(opt.loss))
            return;
        for (int n = chance(opt.copies) ? 2 : 1; n; n--) {
            const uint64_t delay = opt.delay_ns + (opt.jitter_ns ? random() % opt.jitter_ns : 0);
            events.emplace(now + delay, [bytes, deliver] { deliver(bytes); });
        }
    }

    static Op* op_in(const Bytes& bytes) {
        Op* op = nullptr;
        std::memcpy(&op, bytes.data() + bytes.size() - sizeof(op), sizeof(op));
        return op;
    }

    // ---- schedulers ----

    void reply(uint8_t n, const edm_message& message, const edm_item* items, const Op* op,
               const base_siphash_key& key) {
        const uint16_t to = message.port;
        send(message, items, op, key, false,
             [this, n, to](const Bytes& bytes) { to_host(to, n, bytes); });
    }

    void to_scheduler(uint8_t n, uint16_t from, const Bytes& bytes) {
        Scheduler& s = *schedulers[n];
        edm_message in, out;
        edm_item items[EDM_ENTRIES_MAX];
        if (!s.up)
            return;
        ASSERT_EQ(edm_wire_parse(&in, bytes.data(), bytes.size()), EDM_WIRE_GOOD);
        if (in.kind == EDM_JOIN) {
            ASSERT_TRUE(edm_wire_verifies(bytes.data(), bytes.size(), &operator_key));
            const uint64_t cookie = edm_wire_cookie(&s.secret, &from, sizeof(from));
            if (edm_sched_join(&s.core, now, &in, from, cookie, &out) == EDM_SCHED_REPLY)
                reply(n, out, nullptr, nullptr, operator_key);
            drain_scheduler(n);
            return;
        }
        const base_siphash_key* key = edm_sched_key(&s.core, in.port);
        if (!key || !edm_wire_verifies(bytes.data(), bytes.size(), key)) {
            tampered++;
            return;
        }
        if (in.kind == EDM_DEMAND) {
            if (edm_sched_demand(&s.core, now, &in, bytes.data(), &out, items) == EDM_SCHED_REPLY)
                reply(n, out, items, nullptr, *key);
        } else {
            const auto verdict = edm_sched_request(&s.core, now, &in, &out, items);
            if (verdict == EDM_SCHED_REPLY)
                reply(n, out, nullptr, op_in(bytes), *edm_sched_key(&s.core, out.port));
            else if (verdict == EDM_SCHED_REFUSE)
                reply(n, out, items, nullptr, *key);
        }
        drain_scheduler(n);
    }

    void drain_scheduler(uint8_t n) {
        edm_sched& core = schedulers[n]->core;
        edm_message message;
        edm_item item;
        while (edm_sched_expire(&core, now))
            ;
        while (edm_sched_next(&core, now, &message, &item)) {
            const edm_half& half = core.match.half[EDM_SOURCE][message.port];
            const edm_half& other = core.match.half[EDM_DESTINATION][item.peer];
            book({now, half.free_ns, other.free_ns, message.port, item.peer});
            reply(n, message, &item, nullptr, *edm_sched_key(&core, message.port));
        }
        EXPECT_GT(edm_sched_deadline_ns(&core), now) << "scheduler " << int(n);
        const char* broken = edm_match_check(&core.match);
        EXPECT_FALSE(broken) << broken;
    }

    void book(const Chunk& chunk) {
        for (auto c = chunks.rbegin(); c != chunks.rend() && c - chunks.rbegin() < 64; ++c) {
            EXPECT_FALSE(c->source == chunk.source && c->source_ns > chunk.at_ns)
                << "a source is booked twice";
            EXPECT_FALSE(c->destination == chunk.destination && c->destination_ns > chunk.at_ns)
                << "a destination is booked twice";
        }
        chunks.push_back(chunk);
    }

    // ---- hosts ----

    void to_host(uint16_t n, uint8_t link, const Bytes& bytes) {
        Host& h = *hosts[n];
        edm_message in;
        ASSERT_EQ(edm_wire_parse(&in, bytes.data(), bytes.size()), EDM_WIRE_GOOD);
        const bool joins = in.kind == EDM_CHALLENGE || in.kind == EDM_WELCOME;
        const base_siphash_key* key = joins ? &operator_key : edm_host_key(&h.core, link);
        if (!key || !edm_wire_verifies(bytes.data(), bytes.size(), key)) {
            tampered++;
            return;
        }
        if (in.kind == EDM_GRANT) {
            grant(h, link, in, bytes);
        } else if (in.kind != EDM_FORWARD) {
            edm_host_receive(&h.core, now, link, &in, bytes.data());
        } else if (edm_host_request(&h.core, now, link, &in) == EDM_HOST_NEW) {
            Op* op = op_in(bytes);
            ASSERT_TRUE(h.executed.emplace(in.item.peer, in.peer_epoch, in.item.id).second);
            ASSERT_EQ(++op->executed, 1u);
            edm_host_answer(&h.core, in.item.peer, in.item.id);
        }
        drain_host(n);
    }

    // The flow that an entry of a GRANT is for, or NULL: it has ended.
    static const edm_flow* flow_of(const edm_host& core, const edm_item& item) {
        const uint32_t slots = core.config.link.slots, slot = item.id % slots;
        const edm_flow& flow =
            item.type == EDM_ANSWER ? core.answer[item.peer * slots + slot] : core.message[slot];
        return flow.state == EDM_FLOW_USED && flow.id == item.id ? &flow : nullptr;
    }

    // A grant makes a host send the bytes that were booked with it, or none.
    void grant(Host& h, uint8_t link, const edm_message& in, const Bytes& bytes) {
        struct Before {
            edm_item item;
            const edm_flow* flow;
            uint32_t accepted;
        };
        std::vector<Before> before;
        for (uint32_t n = 0; n < in.count; n++) {
            edm_item item;
            edm_wire_item(bytes.data(), n, &item);
            const edm_flow* flow = flow_of(h.core, item);
            if (!item.status)
                before.push_back({item, flow, flow ? flow->accepted : 0});
        }
        const uint32_t seen = h.core.link[link].seq_in;
        edm_host_receive(&h.core, now, link, &in, bytes.data());
        for (const Before& b : before) {
            const bool taken = b.flow && b.flow->accepted > b.accepted;
            EXPECT_TRUE(!taken || (b.flow->accepted == b.item.granted &&
                                   b.item.granted - b.accepted <= b.item.size))
                << "a host accepts more than was booked";
            // Its bytes were accepted under another grant: they were booked twice. An unknown
            // answer has only not been forwarded yet.
            wasted += h.core.link[link].seq_in != seen &&
                      (b.flow ? b.accepted >= b.item.granted : b.item.type == EDM_WRITE);
        }
    }

    void act(uint16_t n, const edm_host_action& action) {
        Host& h = *hosts[n];
        switch (action.what) {
        case EDM_HOST_TELL: {
            const bool join = action.message.kind == EDM_JOIN;
            tell(n, action, nullptr, join ? operator_key : *edm_host_key(&h.core, action.link));
            break;
        }
        case EDM_HOST_ASK: {
            Op* op = of(action.op);
            if (!action.unscheduled)
                return tell(n, action, op, *edm_host_key(&h.core, action.link));
            op->unscheduled = true;
            // The whole answer at once, whatever of it came before.
            events.emplace(now + 2 * opt.delay_ns, [this, op] {
                op->landed = 0;
                finish_read(*op, op->op.bytes);
            });
            break;
        }
        case EDM_HOST_SEND: {
            Op* op = of(action.op);
            ASSERT_EQ(action.from, op->sent) << "a byte is sent twice, or not in order";
            op->sent += action.bytes;
            ASSERT_LE(op->sent, op->op.bytes);
            op->unscheduled |= action.unscheduled;
            count(action);
            break;
        }
        case EDM_HOST_ANSWER: {
            count(action);
            const edm_message data = action.message;
            const uint16_t to = action.peer;
            events.emplace(now + opt.delay_ns, [this, data, to] {
                edm_op* op = edm_host_op_of(&hosts[to]->core, &data);
                if (op)
                    finish_read(*of(op), data.payload_bytes);
            });
            break;
        }
        default:
            ASSERT_EQ(of(action.op)->sent, action.op->bytes);
            of(action.op)->ended = true;
            of(action.op)->end_ns = now;
        }
    }

    void count(const edm_host_action& action) {
        sent_bytes += action.bytes;
        if (action.unscheduled)
            unscheduled_bytes += action.bytes;
    }

    void finish_read(Op& op, uint32_t bytes) {
        if (op.ended || op.op.state != EDM_OP_ACTIVE)
            return;
        op.landed += bytes;
        ASSERT_LE(op.landed, op.op.bytes) << "data of an answer came twice";
        if (op.landed < op.op.bytes)
            return;
        op.ended = true;
        op.end_ns = now;
        edm_host_done(&hosts[op.host]->core, now, &op.op);
        drain_host(op.host);
    }

    void tell(uint16_t n, const edm_host_action& action, const Op* op,
              const base_siphash_key& key) {
        const uint8_t link = action.link;
        send(action.message, action.items, op, key, true,
             [this, n, link](const Bytes& bytes) { to_scheduler(link, n, bytes); });
    }

    static Op* of(edm_op* op) { return reinterpret_cast<Op*>(op); }
};

} // namespace edm
