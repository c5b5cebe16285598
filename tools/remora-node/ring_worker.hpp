// SPDX-License-Identifier: GPL-2.0
/*
 * Serves the rings, in one thread:
 *
 *   round:  pointer words that changed (core/ring/ring.h: the tracker) -> ready rings, in turn
 *             each: request copied out of the ring -> Node::handle() -> answers -> response ring
 *           of a ring that was served a moment ago, its next entry instead
 *   idle:   looks again for a while, then sleeps until a client wakes it
 *
 * A ring's turn is bounded by requests and by answers, so a client waits for at most one turn of
 * each other one. A request is taken only while its answers have room: a client that reads no
 * answers stops being served, and nobody else.
 *
 * Most rounds are for the warm rings alone, so that idle ones cost their neighbours nothing. A
 * round is for all rings after a few of those, or after as many requests as a turn has. So the
 * first request of an idle ring waits for at most three turns of each other ring.
 *
 * Pointer words let one region stand for many rings, but each costs the way of a line of the cache
 * before the entry's own. So while a ring is warm the worker looks at its next entry alone, and its
 * client's pointer word stays in the client's cache. A client writes both before it looks at the
 * node's flag, so a worker that has set its flag and then looks at either misses no request.
 */
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "remora-node/node.hpp"
#include "remora-node/rings.hpp"

extern "C" {
#include "core/rmem/plain.h"
}

namespace remora::daemon {

// Answers to the requests of one ring, one turn at a time.
class RingOutbox final : public Outbox {
public:
    explicit RingOutbox(Counters& counters);
    ~RingOutbox() override;
    // A turn begins.
    void begin(RingPair& pair) {
        pair_ = &pair;
        posted_ = 0;
    }
    Reply& add(const Path& path) override;
    void flush() override;
    bool takes(const Path& path) const override;
    std::uint8_t* plain_room(const rmem_head& head, std::uint32_t payload_bytes) override;
    void plain_done(const rmem_head& head, std::uint32_t payload_bytes) override;
    // Entries of this turn, and those that flush() will add.
    unsigned posted() const { return posted_; }
    unsigned waiting() const { return waiting_ + (plain_.messages != 0); }
    // One datagram. False: the ring is full.
    bool post(RingPair& pair, std::span<const std::uint8_t> head, const Reply* rest);

private:
    static constexpr unsigned batch = 16;

    void post_plain();

    Counters& counters_;
    RingPair* pair_ = nullptr;
    unsigned posted_ = 0, waiting_ = 0;
    rmem_plain_sum plain_{}; // answers in the entry that will be posted next
    // They are in stage_, not in the ring. The client spins on the entry's line: it would take the
    // line away between an early store and the entry's word.
    bool staged_ = true;
    alignas(64) std::array<std::uint8_t, 256> stage_;
    std::vector<Reply> replies_;
};

// Answers of the slow path: one at a time, left for the worker.
class LateOutbox final : public Outbox {
public:
    explicit LateOutbox(Rings& rings) : rings_(rings) {}
    Reply& add(const Path& path) override;
    void flush() override;

private:
    Rings& rings_;
    std::uint64_t serial_ = 0; // of the pair; 0: nothing waits
    std::unique_ptr<Reply> reply_ = std::make_unique<Reply>();
};

// The path of requests by the pair with this serial number.
Path path_of(std::uint64_t serial, Outbox* late);

class RingWorker {
public:
    // thread: of this one among the node's threads; spin_us: how long it looks for requests before
    // it sleeps.
    RingWorker(Node& node, Rings& rings, unsigned thread, std::uint32_t spin_us);

    // Until stop(), from another thread.
    void run();
    void stop();
    // One round, for run(), which calls it again and again. False: no ring was ready.
    bool look();

private:
    void take_changes();
    void answer(const Rings::Changes::Answer& answer);
    void choose();
    bool round();
    // The worker looks at these of each ring while it waits. They are close together, as there can
    // be many rings.
    struct Watched {
        explicit Watched(std::shared_ptr<RingPair> of);
        const std::uint32_t* pointer;
        const std::uint64_t* entry; // word of the next one
        std::uint32_t taken;
        unsigned warm = 0;    // looks at the entry before those at the pointer word
        bool blocked = false; // a request waits for room for its answers
        bool is_warm() const { return warm || blocked; }
        std::shared_ptr<RingPair> pair;
    };
    static bool is_ready(const Watched& watched);
    bool serve(Watched& watched, std::uint64_t now);
    ring_fault take_turn(Watched& watched, std::uint64_t now);
    bool has_answer_room(RingPair& pair, ring_fault& fault) const;
    void close(RingPair& pair, ring_fault fault);
    bool spin();
    bool has_work() const;

    Node& node_;
    Rings& rings_;
    const unsigned thread_;
    const std::uint64_t spin_ns_;
    std::atomic<bool> stopped_{false};
    std::vector<Watched> pairs_;
    std::uint64_t told_ns_ = 0; // when the operator was last told of a closed pair
    unsigned busy_rounds_ = 0;
    std::vector<std::size_t> chosen_;              // places in pairs_ of the rings of this round
    unsigned rounds_left_ = 0, requests_left_ = 0; // before a round is for all rings again
    std::size_t first_ = 0;                        // its turn comes first in the next such round
    RingOutbox outbox_;
    LateOutbox late_;
    alignas(64) std::array<std::uint8_t, RMEM_DATAGRAM_BYTES_MAX> request_;
};

} // namespace remora::daemon
