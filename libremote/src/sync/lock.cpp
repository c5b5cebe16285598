// SPDX-License-Identifier: MIT
#include "src/sync/lock.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

extern "C" {
#include "core/base/bytes.h"
}

namespace remora::lib {

namespace {

constexpr std::uint64_t next_at = 8;
constexpr std::uint64_t lease_at = 12;
constexpr std::uint32_t lease_ms_default = 10'000;
constexpr std::uint64_t passed_over = 1;
constexpr std::uint64_t one_asking = 2;
constexpr std::uint64_t below_ticket = 0xffff'ffff;

// Bounds of a waiter's pause: the next waiter polls often, the others have time.
constexpr auto look_first = std::chrono::microseconds(50);
constexpr auto look_most = std::chrono::milliseconds(2);
// Bound on a fresh turn: other waiters might have measured the lease for this long already.
constexpr auto late = std::chrono::milliseconds(5);

std::uint32_t ticket_of(std::uint64_t turn) {
    return static_cast<std::uint32_t>(turn >> 32);
}

std::uint64_t turn_after(std::uint64_t turn, bool passed) {
    return std::uint64_t{ticket_of(turn) + 1} << 32 | (passed ? passed_over : 0);
}

std::uint64_t extended(std::uint64_t turn) {
    return (turn & ~below_ticket) | ((turn + one_asking) & below_ticket);
}

// Number of the calling thread. The system reuses the ids of threads that have ended.
std::uint64_t this_thread() {
    static std::atomic<std::uint64_t> last{0};
    thread_local const std::uint64_t mine = ++last;
    return mine;
}

// Valid while the queue is shorter than half of all tickets.
bool is_behind(std::uint32_t ticket, std::uint64_t turn) {
    return static_cast<std::int32_t>(ticket - ticket_of(turn)) < 0;
}

} // namespace

int Locks::read(std::uint64_t lock, State& state, Clock::time_point limit) {
    std::uint8_t bytes[16];
    if (int error = backend_.transfer(Kind::read, lock, bytes, sizeof(bytes), limit))
        return error;
    std::uint32_t lease_ms = base_load_le32(bytes + lease_at);
    state = {base_load_le64(bytes), lease_ms ? lease_ms : lease_ms_default};
    return 0;
}

int Locks::swap(std::uint64_t lock, std::uint64_t& expected, std::uint64_t desired,
                Clock::time_point limit) {
    Change cas{{desired, 0}, {expected, 0}, {0, 0}, Change::cas};
    if (int error = backend_.change(lock, sizeof(expected), cas, limit))
        return error;
    expected = cas.found[0];
    return 0;
}

int Locks::init(std::uint64_t lock, std::uint32_t lease_ms, Clock::time_point limit) {
    std::uint8_t bytes[16] = {};
    base_store_le32(bytes + lease_at, lease_ms);
    forget(lock, sizeof(bytes));
    return backend_.transfer(Kind::write, lock, bytes, sizeof(bytes), limit);
}

void Locks::forget(std::uint64_t address, std::uint64_t bytes) {
    std::lock_guard guard(mutex_);
    waiting_.erase(waiting_.lower_bound(address), waiting_.lower_bound(address + bytes));
    std::erase_if(held_, [&](const auto& each) { return each.first.first - address < bytes; });
}

// ---- holders ----

// taken: the lock's entry.
void Locks::hold(Held& taken) {
    std::lock_guard guard(mutex_);
    held_.merge(taken);
}

// Unless the lock was forgotten meanwhile.
void Locks::set_turn(std::uint64_t lock, std::uint64_t turn) {
    std::lock_guard guard(mutex_);
    if (auto held = held_.find({lock, this_thread()}); held != held_.end())
        held->second = turn;
}

void Locks::drop(std::uint64_t lock) {
    std::lock_guard guard(mutex_);
    held_.erase({lock, this_thread()});
}

int Locks::held_turn(std::uint64_t lock, std::uint64_t& turn) {
    std::lock_guard guard(mutex_);
    auto held = held_.find({lock, this_thread()});
    if (held == held_.end())
        return -EPERM;
    turn = held->second;
    return 0;
}

// -EDEADLK: the calling thread holds the lock. If its lease expired, the lock has another turn.
int Locks::check_unheld(std::uint64_t lock, Clock::time_point limit) {
    std::uint64_t turn = 0;
    if (held_turn(lock, turn))
        return 0;
    State state;
    if (int error = read(lock, state, limit))
        return error;
    if (ticket_of(state.turn) == ticket_of(turn))
        return -EDEADLK;
    drop(lock);
    return 0;
}

// ---- taking ----

// Finds a ticket that a thread of this handle drew before its wait timed out.
bool Locks::take_up(std::uint64_t lock, std::uint32_t& ticket) {
    std::lock_guard guard(mutex_);
    auto kept = waiting_.find(lock);
    if (kept == waiting_.end())
        return false;
    ticket = kept->second;
    waiting_.erase(kept);
    return true;
}

// Keeps the ticket of a take() that timed out; its turn may have come.
void Locks::keep(std::uint64_t lock, std::uint32_t ticket, Waiting& room) {
    std::lock_guard guard(mutex_);
    held_.erase({lock, this_thread()});
    room.begin()->second = ticket;
    waiting_.merge(room);
}

int Locks::draw(std::uint64_t lock, std::uint32_t& ticket, Clock::time_point limit) {
    for (;;) {
        Change add{{1, 0}, {0, 0}, {0, 0}, REMOTE_ADD};
        int error = backend_.change(lock + next_at, sizeof(std::uint32_t), add, limit);
        // A ticket might have been drawn whose number is lost. Waiters pass it over like any other.
        if (error == -ECONNRESET)
            continue;
        ticket = static_cast<std::uint32_t>(add.found[0]);
        return error;
    }
}

// Waits for the ticket's turn. 0: the turn has come; is_fresh: at most a few ms ago. -EAGAIN: the
// ticket was passed over. In: is_fresh if the ticket was drawn just now.
int Locks::await(std::uint64_t lock, std::uint32_t ticket, std::uint64_t& turn, bool& is_fresh,
                 Clock::time_point limit) {
    std::uint64_t seen = 0;
    Clock::time_point since;
    Clock::time_point looked = Clock::now();
    auto pause = std::chrono::duration_cast<Clock::duration>(look_first);
    for (bool first = true;; first = false) {
        State state;
        if (int error = read(lock, state, limit))
            return error;
        Clock::time_point now = Clock::now();
        turn = state.turn;
        if (ticket_of(turn) == ticket) {
            is_fresh = (!first || is_fresh) && now - looked < late;
            return 0;
        }
        if (is_behind(ticket, turn))
            return -EAGAIN;
        if (now >= limit)
            return -ETIMEDOUT;
        if (first || turn != seen) {
            seen = turn;
            since = now;
            pause = look_first;
        }
        looked = now;
        if (now - since >= std::chrono::milliseconds(state.lease_ms)) {
            int error = swap(lock, state.turn, turn_after(turn, true), limit);
            if (error && error != -ECONNRESET)
                return error;
            continue;
        }
        std::this_thread::sleep_for(
            std::min<Clock::duration>(pause * (ticket - ticket_of(turn)), look_most));
        pause = std::min<Clock::duration>(pause * 2, look_most);
    }
}

int Locks::take(std::uint64_t lock, Clock::time_point limit) {
    if (int error = check_unheld(lock, limit))
        return error;
    for (;;) {
        // Before a ticket is drawn: without memory to note it, nobody would have the lock.
        Held taken{{{lock, this_thread()}, 0}};
        Waiting room{{lock, 0}};
        std::uint32_t ticket = 0;
        std::uint64_t turn = 0;
        bool is_fresh = !take_up(lock, ticket);
        if (int error = is_fresh ? draw(lock, ticket, limit) : 0)
            return error;
        int error = await(lock, ticket, turn, is_fresh, limit);
        if (error == -EAGAIN)
            continue;
        if (!error) {
            taken.begin()->second = turn;
            hold(taken);
            // If the turn came earlier, less of the lease is left than the holder is promised.
            error = is_fresh ? 0 : extend(lock, limit);
        }
        if (error == -EPERM)
            continue;
        if (error == -ETIMEDOUT)
            keep(lock, ticket, room);
        return error ? error : static_cast<int>(turn & passed_over);
    }
}

// ---- holding ----

int Locks::extend(std::uint64_t lock, Clock::time_point limit) {
    for (;;) {
        std::uint64_t turn = 0;
        if (int error = held_turn(lock, turn))
            return error;
        std::uint64_t found = turn, wanted = extended(turn);
        int error = swap(lock, found, wanted, limit);
        // If the CAS was executed, the next one finds its value.
        if (error == -ECONNRESET)
            continue;
        if (error)
            return error;
        if (found != turn && found != wanted) {
            drop(lock);
            return -EPERM;
        }
        set_turn(lock, wanted);
        if (found == turn)
            return 0;
        // An earlier extension was executed and its answer lost; this one is still to do.
    }
}

int Locks::give(std::uint64_t lock, Clock::time_point limit) {
    std::uint64_t turn = 0;
    if (int error = held_turn(lock, turn))
        return error;
    std::uint64_t found = turn;
    int error = swap(lock, found, turn_after(turn, false), limit);
    if (error == -ECONNRESET)
        return settle(lock, turn, limit);
    // The release was executed or not, so keep the lock: the caller can try again.
    if (error == -ETIMEDOUT)
        return error;
    // An extension was executed and its answer lost.
    if (!error && found == extended(turn)) {
        set_turn(lock, found);
        return give(lock, limit);
    }
    drop(lock);
    // A turn without the mark is this holder's own earlier release.
    return error || found == turn || found == turn_after(turn, false) ? error : -EPERM;
}

// After a lost answer to a release: reads turn to learn whether it was executed.
int Locks::settle(std::uint64_t lock, std::uint64_t turn, Clock::time_point limit) {
    State state;
    if (int error = read(lock, state, limit))
        return error;
    if (ticket_of(state.turn) == ticket_of(turn))
        return give(lock, limit);
    drop(lock);
    if (state.turn == turn_after(turn, false))
        return 0;
    // Others have had the lock since: turn can't show whether it was released or passed over.
    return state.turn == turn_after(turn, true) ? -EPERM : -ECONNRESET;
}

} // namespace remora::lib
