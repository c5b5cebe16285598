// SPDX-License-Identifier: MIT
#include "src/lock.hpp"

#include <algorithm>
#include <cerrno>

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

// Who is next looks often; those behind him have time.
constexpr auto look_first = std::chrono::microseconds(50);
constexpr auto look_most = std::chrono::milliseconds(2);
// Others may have counted for so long when we learn that it's our turn.
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

// As long as the row is shorter than half of all tickets.
bool is_behind(std::uint32_t ticket, std::uint64_t turn) {
    return static_cast<std::int32_t>(ticket - ticket_of(turn)) < 0;
}

} // namespace

int Locks::read(std::uint64_t lock, State& state, Clock::time_point limit) {
    std::uint8_t bytes[16];
    if (int error = backend_.transfer(RMEM_READ, lock, bytes, sizeof(bytes), limit))
        return error;
    std::uint32_t lease_ms = base_load_le32(bytes + lease_at);
    state = {base_load_le64(bytes), lease_ms ? lease_ms : lease_ms_default};
    return 0;
}

int Locks::swap(std::uint64_t lock, std::uint64_t& expected, std::uint64_t desired,
                Clock::time_point limit) {
    rmem_op_atomic cas{{desired, 0}, {expected, 0}, {0, 0}, RMEM_CAS};
    if (int error = backend_.atomic(lock, sizeof(expected), cas, limit))
        return error;
    expected = cas.found[0];
    return 0;
}

int Locks::init(std::uint64_t lock, std::uint32_t lease_ms, Clock::time_point limit) {
    std::uint8_t bytes[16] = {};
    base_store_le32(bytes + lease_at, lease_ms);
    forget(lock, sizeof(bytes));
    return backend_.transfer(RMEM_WRITE, lock, bytes, sizeof(bytes), limit);
}

void Locks::forget(std::uint64_t address, std::uint64_t bytes) {
    std::lock_guard guard(mutex_);
    waiting_.erase(waiting_.lower_bound(address), waiting_.lower_bound(address + bytes));
    std::erase_if(held_, [&](const auto& each) { return each.first.first - address < bytes; });
}

// ---- who holds what ----

void Locks::hold(std::uint64_t lock, std::uint64_t turn) {
    std::lock_guard guard(mutex_);
    held_[{lock, std::this_thread::get_id()}] = turn;
}

void Locks::drop(std::uint64_t lock) {
    std::lock_guard guard(mutex_);
    held_.erase({lock, std::this_thread::get_id()});
}

int Locks::held_turn(std::uint64_t lock, std::uint64_t& turn) {
    std::lock_guard guard(mutex_);
    auto held = held_.find({lock, std::this_thread::get_id()});
    if (held == held_.end())
        return -EPERM;
    turn = held->second;
    return 0;
}

// ---- taking ----

// A ticket that somebody of this handle drew, and gave up waiting with.
bool Locks::take_up(std::uint64_t lock, std::uint32_t& ticket) {
    std::lock_guard guard(mutex_);
    auto kept = waiting_.find(lock);
    if (kept == waiting_.end())
        return false;
    ticket = kept->second;
    waiting_.erase(kept);
    return true;
}

// It isn't held, as far as its taker knows, but it may be its turn.
void Locks::keep(std::uint64_t lock, std::uint32_t ticket) {
    std::lock_guard guard(mutex_);
    held_.erase({lock, std::this_thread::get_id()});
    waiting_.emplace(lock, ticket);
}

int Locks::draw(std::uint64_t lock, std::uint32_t& ticket, Clock::time_point limit) {
    for (;;) {
        rmem_op_atomic add{{1, 0}, {0, 0}, {0, 0}, RMEM_ADD};
        int error = backend_.atomic(lock + next_at, sizeof(std::uint32_t), add, limit);
        // Perhaps a ticket was drawn that nobody has. It is passed over, as any.
        if (error == -ECONNRESET)
            continue;
        ticket = static_cast<std::uint32_t>(add.found[0]);
        return error;
    }
}

// Until it's the ticket's turn: 0, and is_fresh if that's so for a few ms at most. -EAGAIN: it was
// passed over itself. is_fresh at first: it was drawn right now.
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
    for (;;) {
        std::uint32_t ticket = 0;
        std::uint64_t turn = 0;
        bool is_fresh = !take_up(lock, ticket);
        if (int error = is_fresh ? draw(lock, ticket, limit) : 0)
            return error;
        int error = await(lock, ticket, turn, is_fresh, limit);
        if (error == -EAGAIN)
            continue;
        if (!error) {
            hold(lock, turn);
            // Whose turn it has been for longer has less of its lease left than he is promised.
            error = is_fresh ? 0 : extend(lock, limit);
        }
        if (error == -EPERM)
            continue;
        if (error == -ETIMEDOUT)
            keep(lock, ticket);
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
        // If that was executed, the next one finds it so.
        if (error == -ECONNRESET)
            continue;
        if (error)
            return error;
        if (found != turn && found != wanted) {
            drop(lock);
            return -EPERM;
        }
        hold(lock, wanted);
        if (found == turn)
            return 0;
        // An earlier one was executed whose answer was lost; this one is still to be.
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
    // Whether it is given back isn't known, so that it may be tried again.
    if (error == -ETIMEDOUT)
        return error;
    // An extension whose answer was lost.
    if (!error && found == extended(turn)) {
        hold(lock, found);
        return give(lock, limit);
    }
    drop(lock);
    // Without the mark it was us, before.
    return error || found == turn || found == turn_after(turn, false) ? error : -EPERM;
}

// It isn't known whether the lock was given back: the turn may tell.
int Locks::settle(std::uint64_t lock, std::uint64_t turn, Clock::time_point limit) {
    State state;
    if (int error = read(lock, state, limit))
        return error;
    if (ticket_of(state.turn) == ticket_of(turn))
        return give(lock, limit);
    drop(lock);
    if (state.turn == turn_after(turn, false))
        return 0;
    // Others have had it since: if they passed us over, or we gave it back, isn't to be seen.
    return state.turn == turn_after(turn, true) ? -EPERM : -ECONNRESET;
}

} // namespace remora::lib
