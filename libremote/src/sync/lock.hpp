// SPDX-License-Identifier: MIT
/*
 * Locks in remote memory (remote.h): a ticket lock whose holder has a lease.
 *
 *   word     bytes  little-endian; all 0 at first
 *   turn     0..7   the holder's ticket << 32 | number of its extensions << 1 |
 *                   was the previous ticket passed over?
 *   next     8..11  the next ticket to draw
 *   lease    12..15 ms; 0: 10 s
 *
 *   take     ADD one to next; read until turn has the drawn ticket
 *   extend   CAS turn to the same ticket with one more extension
 *   give     CAS turn to the next ticket
 *   pass     a waiter that has seen the same turn for a lease does the same, and sets the mark
 *
 * Every change of turn is a CAS of the value seen. If a holder extends while a waiter passes it
 * over, one succeeds and the other learns it. Clio (ASPLOS'22, sections 3.1, 4.5) has remote_lock
 * as test-and-set: neither fair nor free again when its holder dies.
 */
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "src/backend/backend.hpp"

namespace remora::lib {

class Locks {
public:
    explicit Locks(Backend& backend) : backend_(backend) {}

    // limit: as in backend.hpp.
    int init(std::uint64_t lock, std::uint32_t lease_ms, Clock::time_point limit);
    // 1: the previous holder was passed over. -EDEADLK: the calling thread holds the lock.
    int take(std::uint64_t lock, Clock::time_point limit);
    int extend(std::uint64_t lock, Clock::time_point limit);
    int give(std::uint64_t lock, Clock::time_point limit);
    // The memory is no longer a lock, or is a new one.
    void forget(std::uint64_t address, std::uint64_t bytes);

private:
    using Holder = std::pair<std::uint64_t, std::uint64_t>; // lock and thread
    using Held = std::map<Holder, std::uint64_t>;           // turn, as the holder knows it
    using Waiting = std::multimap<std::uint64_t, std::uint32_t>;

    struct State {
        std::uint64_t turn;
        std::uint32_t lease_ms;
    };

    int read(std::uint64_t lock, State& state, Clock::time_point limit);
    bool take_up(std::uint64_t lock, std::uint32_t& ticket);
    int draw(std::uint64_t lock, std::uint32_t& ticket, Clock::time_point limit);
    int await(std::uint64_t lock, std::uint32_t ticket, std::uint64_t& turn, bool& is_fresh,
              Clock::time_point limit);
    int settle(std::uint64_t lock, std::uint64_t turn, Clock::time_point limit);
    int check_unheld(std::uint64_t lock, Clock::time_point limit);
    int held_turn(std::uint64_t lock, std::uint64_t& turn);
    void hold(Held& taken);
    void set_turn(std::uint64_t lock, std::uint64_t turn);
    void drop(std::uint64_t lock);
    void keep(std::uint64_t lock, std::uint32_t ticket, Waiting& room);
    // CAS of turn from expected to desired; expected becomes the value found.
    int swap(std::uint64_t lock, std::uint64_t& expected, std::uint64_t desired,
             Clock::time_point limit);

    Backend& backend_;
    std::mutex mutex_;
    Held held_;
    Waiting waiting_; // tickets of takers that timed out
};

} // namespace remora::lib
