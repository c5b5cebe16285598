// SPDX-License-Identifier: MIT
#include "src/lock.hpp"

#include <algorithm>
#include <thread>

extern "C" {
#include "core/base/bytes.h"
}

namespace remora::lib {

namespace {

constexpr std::uint64_t lease_at = 8;
constexpr std::uint64_t beat_at = 12;
constexpr std::uint32_t lease_ms_default = 10'000;
constexpr std::uint32_t ticket_mask = 0x7fff'ffff;

// Who is next looks often; those behind him have time.
constexpr auto look_first = std::chrono::microseconds(50);
constexpr auto look_most = std::chrono::milliseconds(2);

std::uint32_t ticket_of(std::uint32_t turn) {
    return turn >> 1;
}

std::uint32_t turn_after(std::uint32_t turn, bool passed) {
    return ((ticket_of(turn) + 1) & ticket_mask) << 1 | static_cast<std::uint32_t>(passed);
}

// How many tickets from the one to the other; as long as the row is shorter than half of all.
std::uint32_t distance(std::uint32_t from, std::uint32_t to) {
    return (to - from) & ticket_mask;
}

bool is_behind(std::uint32_t ticket, std::uint32_t turn) {
    return distance(ticket_of(turn), ticket) > ticket_mask / 2;
}

} // namespace

int Locks::read(std::uint64_t lock, State& state) {
    std::uint8_t bytes[16];
    if (int error = backend_.transfer(RMEM_READ, lock, bytes, sizeof(bytes)))
        return error;
    state = {base_load_le32(bytes), base_load_le32(bytes + 4), base_load_le32(bytes + lease_at),
             base_load_le32(bytes + beat_at)};
    return 0;
}

int Locks::swap(std::uint64_t lock, std::uint32_t& expected, std::uint32_t desired) {
    rmem_op_atomic cas{{desired, 0}, {expected, 0}, {0, 0}, RMEM_CAS};
    if (int error = backend_.atomic(lock, sizeof(expected), cas))
        return error;
    expected = static_cast<std::uint32_t>(cas.found[0]);
    return 0;
}

int Locks::init(std::uint64_t lock, std::uint32_t lease_ms) {
    std::uint8_t bytes[16] = {};
    base_store_le32(bytes + lease_at, lease_ms);
    return backend_.transfer(RMEM_WRITE, lock, bytes, sizeof(bytes));
}

// ---- taking ----

int Locks::draw(std::uint64_t lock, std::uint32_t& ticket) {
    {
        std::lock_guard guard(mutex_);
        if (auto kept = waiting_.find(lock); kept != waiting_.end()) {
            ticket = kept->second;
            waiting_.erase(kept);
            return 0;
        }
    }
    for (;;) {
        rmem_op_atomic add{{std::uint64_t{1} << 32, 0}, {0, 0}, {0, 0}, RMEM_ADD};
        int error = backend_.atomic(lock, sizeof(std::uint64_t), add);
        // Perhaps a ticket was drawn that nobody has. It is passed over, as any.
        if (error == -ECONNRESET)
            continue;
        ticket = static_cast<std::uint32_t>(add.found[0] >> 32) & ticket_mask;
        return error;
    }
}

// Until it's the ticket's turn: 0, and turn says whether the one before was passed over. -EAGAIN:
// it was passed over itself.
int Locks::await(std::uint64_t lock, std::uint32_t ticket, std::uint32_t& turn) {
    State seen{};
    Clock::time_point since;
    auto pause = std::chrono::duration_cast<Clock::duration>(look_first);
    for (bool first = true;; first = false) {
        State state;
        if (int error = read(lock, state))
            return error;
        turn = state.turn;
        if (ticket_of(turn) == ticket)
            return 0;
        if (is_behind(ticket, turn))
            return -EAGAIN;
        if (first || state.turn != seen.turn || state.beat != seen.beat) {
            seen = state;
            since = Clock::now();
            pause = look_first;
        }
        std::uint32_t lease_ms = state.lease_ms ? state.lease_ms : lease_ms_default;
        if (Clock::now() - since >= std::chrono::milliseconds(lease_ms)) {
            int error = swap(lock, state.turn, turn_after(turn, true));
            if (error && error != -ECONNRESET)
                return error;
            continue;
        }
        std::this_thread::sleep_for(
            std::min<Clock::duration>(pause * distance(ticket_of(turn), ticket), look_most));
        pause = std::min<Clock::duration>(pause * 2, look_most);
    }
}

int Locks::take(std::uint64_t lock) {
    for (;;) {
        std::uint32_t ticket = 0, turn = 0;
        if (int error = draw(lock, ticket))
            return error;
        int error = await(lock, ticket, turn);
        if (error == -EAGAIN)
            continue;
        std::lock_guard guard(mutex_);
        if (error) {
            waiting_.emplace(lock, ticket);
            return error;
        }
        held_[lock] = turn;
        return static_cast<int>(turn & 1);
    }
}

// ---- holding ----

int Locks::holds(std::uint64_t lock, std::uint32_t& turn) {
    std::lock_guard guard(mutex_);
    auto held = held_.find(lock);
    if (held == held_.end())
        return -EPERM;
    turn = held->second;
    return 0;
}

int Locks::extend(std::uint64_t lock) {
    std::uint32_t turn = 0;
    if (int error = holds(lock, turn))
        return error;
    // More than once does no harm.
    int error;
    do {
        rmem_op_atomic beat{{1, 0}, {0, 0}, {0, 0}, RMEM_ADD};
        error = backend_.atomic(lock + beat_at, sizeof(std::uint32_t), beat);
    } while (error == -ECONNRESET);
    State state{};
    if (!error)
        error = read(lock, state);
    if (!error && state.turn != turn) {
        std::lock_guard guard(mutex_);
        held_.erase(lock);
        return -EPERM;
    }
    return error;
}

int Locks::give(std::uint64_t lock) {
    std::uint32_t turn = 0;
    if (int error = holds(lock, turn))
        return error;
    std::uint32_t found = turn;
    int error = swap(lock, found, turn_after(turn, false));
    if (error == -ECONNRESET)
        return settle(lock, turn);
    // Whether it is given back isn't known, so that it may be tried again.
    if (error == -ETIMEDOUT)
        return error;
    std::lock_guard guard(mutex_);
    held_.erase(lock);
    return !error && found != turn ? -EPERM : error;
}

// It isn't known whether the lock was given back: the turn may tell.
int Locks::settle(std::uint64_t lock, std::uint32_t turn) {
    State state;
    if (int error = read(lock, state))
        return error;
    if (state.turn == turn)
        return give(lock);
    std::lock_guard guard(mutex_);
    held_.erase(lock);
    if (state.turn == turn_after(turn, false))
        return 0;
    // Others have had it since: if they passed us over, or we gave it back, isn't to be seen.
    return state.turn == turn_after(turn, true) ? -EPERM : -ECONNRESET;
}

} // namespace remora::lib
