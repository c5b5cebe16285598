// SPDX-License-Identifier: MIT
/*
 * Locks in remote memory (remote.h): a ticket lock whose holder has a lease.
 *
 *   word     bytes  of 32 bits each, little-endian; all 0 at first
 *   turn     0..3   the ticket that holds it << 1 | was the one before passed over?
 *   next     4..7   the ticket to be drawn next
 *   lease    8..11  ms; 0: 10 s
 *   beat     12..15 how often a holder has asked for more time
 *
 *   take     ADD one to next, which says turn, too: one round trip if nobody has it. Else read
 *            until it's our turn.
 *   give     CAS turn to the ticket after ours: that fails if ours was passed over.
 *   pass     who has seen the same turn and beat for a lease does the same, and sets the mark.
 *
 * So the order is that of the tickets, and only the one whose turn it is, or who passes him
 * over, changes turn. Tickets have 31 bits. Clio (ASPLOS'22, sections 3.1, 4.5) has rlock as
 * test-and-set: neither fair nor free again when its holder dies.
 */
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "src/backend.hpp"

namespace remora::lib {

class Locks {
public:
    explicit Locks(Backend& backend) : backend_(backend) {}

    int init(std::uint64_t lock, std::uint32_t lease_ms);
    int take(std::uint64_t lock); // 1: the one before was passed over
    int extend(std::uint64_t lock);
    int give(std::uint64_t lock);

private:
    struct State {
        std::uint32_t turn, next, lease_ms, beat;
    };

    int read(std::uint64_t lock, State& state);
    int draw(std::uint64_t lock, std::uint32_t& ticket);
    int await(std::uint64_t lock, std::uint32_t ticket, std::uint32_t& turn);
    int settle(std::uint64_t lock, std::uint32_t turn);
    int holds(std::uint64_t lock, std::uint32_t& turn);
    // turn, from expected to desired; expected becomes what was found.
    int swap(std::uint64_t lock, std::uint32_t& expected, std::uint32_t desired);

    Backend& backend_;
    std::mutex mutex_;
    std::map<std::uint64_t, std::uint32_t> held_;         // turn, as it was when it became ours
    std::multimap<std::uint64_t, std::uint32_t> waiting_; // tickets of takers that failed
};

} // namespace remora::lib
