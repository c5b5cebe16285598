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
#include <memory>
#include <mutex>
#include <utility>

#include "src/backend/backend.hpp"

namespace remora::lib {

class Locks {
public:
    explicit Locks(Backend& backend) : backend_(backend) {}

    // limit: as in backend.hpp.
    int init(std::uint64_t lock, std::uint32_t lease_ms, Clock::time_point limit);
    int extend(std::uint64_t lock, Clock::time_point limit);
    // The steps of an op for the calling thread. Result 1: the previous holder was passed over.
    // -EDEADLK: the thread holds the lock, or takes it by another op.
    std::unique_ptr<Steps> taking(std::uint64_t lock);
    // Without lack of memory, for the first time after taking() has ended.
    std::unique_ptr<Steps> giving(std::uint64_t lock);
    // The memory is no longer a lock, or is a new one.
    void forget(std::uint64_t address, std::uint64_t bytes);

private:
    using Holder = std::pair<std::uint64_t, std::uint64_t>; // lock and thread
    struct Hold {
        std::uint64_t turn = 0;        // as the holder knows it
        bool is_taking = true;         // an op takes the lock: not held yet
        std::unique_ptr<Steps> giving; // memory for the UNLOCK; NULL after it was begun
    };
    using Held = std::map<Holder, Hold>;
    using Waiting = std::multimap<std::uint64_t, std::uint32_t>;
    class Step;
    class Taking;
    class Giving;

    static std::unique_ptr<Steps> make_giving(Locks& locks, std::uint64_t lock);
    bool take_up(std::uint64_t lock, std::uint32_t& ticket);
    int begin_taking(Held& room, std::uint64_t& turn);
    int held_turn(const Holder& holder, std::uint64_t& turn);
    void set_turn(const Holder& holder, std::uint64_t turn);
    void drop(const Holder& holder);
    Held::iterator find_turn(const Holder& holder, std::uint64_t turn);
    void change_turn(const Holder& holder, std::uint64_t turn, std::uint64_t to);
    void drop_turn(const Holder& holder, std::uint64_t turn);
    void keep(std::uint32_t ticket, Waiting& room);

    Backend& backend_;
    std::mutex mutex_; // all below; no call of the backend is made under it
    Held held_;
    Waiting waiting_; // tickets of takers that were given up
};

} // namespace remora::lib
