// SPDX-License-Identifier: MIT
#include "src/sync/lock.hpp"

#include <algorithm>
#include <atomic>
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

// Bounds of a waiter's pause: the next waiter polls often, the others have time.
constexpr auto look_first = std::chrono::microseconds(50);
constexpr auto look_most = std::chrono::milliseconds(2);
// An older turn is extended, as other waiters might have measured its lease for as long. An
// extension may take a quarter of the lease: with a fixed bound, a program that rarely looks at its
// queue would never get the lock.
constexpr auto late = std::chrono::milliseconds(5);

Clock::duration late_extension(std::uint32_t lease_ms) {
    return std::chrono::microseconds(std::uint64_t{lease_ms} * 250);
}

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

int Locks::init(std::uint64_t lock, std::uint32_t lease_ms, Clock::time_point limit) {
    std::uint8_t bytes[16] = {};
    base_store_le32(bytes + lease_at, lease_ms);
    forget(lock, sizeof(bytes));
    return backend_.transfer(Kind::write, lock, bytes, sizeof(bytes), limit);
}

void Locks::forget(std::uint64_t address, std::uint64_t bytes) {
    std::lock_guard guard(mutex_);
    waiting_.erase(waiting_.lower_bound(address), waiting_.lower_bound(address + bytes));
    std::erase_if(held_, [&](const auto& each) {
        return each.first.first - address < bytes && !each.second.is_taking;
    });
}

// ---- who holds ----

// Notes that the holder in room takes its lock. 0: it is noted. -EDEADLK: the holder takes it by
// another op. 1: it holds the lock, as far as this handle knows, with that turn.
int Locks::begin_taking(Held& room, std::uint64_t& turn) {
    std::lock_guard guard(mutex_);
    if (const auto held = held_.find(room.begin()->first); held != held_.end()) {
        turn = held->second.turn;
        return held->second.is_taking ? -EDEADLK : 1;
    }
    held_.merge(room);
    return 0;
}

// Notes that the holder has the lock by this turn, unless forget() removed the note.
void Locks::set_turn(const Holder& holder, std::uint64_t turn) {
    std::lock_guard guard(mutex_);
    if (auto held = held_.find(holder); held != held_.end()) {
        held->second.turn = turn;
        held->second.is_taking = false;
    }
}

void Locks::drop(const Holder& holder) {
    std::lock_guard guard(mutex_);
    held_.erase(holder);
}

// Mutex. The note of a holder, if it is still that of this turn: the answer to an earlier op can
// come when the thread takes the lock anew.
Locks::Held::iterator Locks::find_turn(const Holder& holder, std::uint64_t turn) {
    const auto held = held_.find(holder);
    const bool is_same =
        held != held_.end() && !held->second.is_taking && held->second.turn == turn;
    return is_same ? held : held_.end();
}

void Locks::change_turn(const Holder& holder, std::uint64_t turn, std::uint64_t to) {
    std::lock_guard guard(mutex_);
    if (const auto held = find_turn(holder, turn); held != held_.end())
        held->second.turn = to;
}

void Locks::drop_turn(const Holder& holder, std::uint64_t turn) {
    std::lock_guard guard(mutex_);
    if (const auto held = find_turn(holder, turn); held != held_.end())
        held_.erase(held);
}

int Locks::held_turn(const Holder& holder, std::uint64_t& turn) {
    std::lock_guard guard(mutex_);
    auto held = held_.find(holder);
    if (held == held_.end() || held->second.is_taking)
        return -EPERM;
    turn = held->second.turn;
    return 0;
}

// Finds a ticket that this handle drew for an op that was given up.
bool Locks::take_up(std::uint64_t lock, std::uint32_t& ticket) {
    std::lock_guard guard(mutex_);
    auto kept = waiting_.find(lock);
    if (kept == waiting_.end())
        return false;
    ticket = kept->second;
    waiting_.erase(kept);
    return true;
}

// Keeps the ticket of an op that was given up; its turn might have come.
void Locks::keep(std::uint32_t ticket, Waiting& room) {
    std::lock_guard guard(mutex_);
    room.begin()->second = ticket;
    waiting_.merge(room);
}

// ---- messages ----

class Locks::Step : public Steps {
protected:
    struct State {
        std::uint64_t turn;
        std::uint32_t lease_ms;
    };

    Step(Locks& locks, std::uint64_t lock)
        : locks_(locks), lock_(lock), holder_(lock, this_thread()) {}

    // Set the op to the next message; true, for next().
    bool read(Op& op, Clock::time_point begins_at = {}) {
        op.kind = Kind::read;
        op.address = lock_;
        op.bytes = sizeof(bytes_);
        op.data = bytes_;
        op.begins_at = begins_at;
        op.settles = false;
        sent_ = std::max(Clock::now(), begins_at);
        return true;
    }
    bool change(Op& op, std::uint64_t address, std::uint32_t bytes, const Change& what) {
        op.kind = Kind::integer;
        op.address = address;
        op.bytes = bytes;
        op.data = nullptr;
        op.change = what;
        op.begins_at = {};
        op.settles = false;
        sent_ = Clock::now();
        return true;
    }
    // A CAS of turn.
    bool swap(Op& op, std::uint64_t expected, std::uint64_t desired) {
        return change(op, lock_, sizeof(expected),
                      {{desired, 0}, {expected, 0}, {0, 0}, Change::cas});
    }
    // The lock's words, after a read.
    State state() const {
        const std::uint32_t lease_ms = base_load_le32(bytes_ + lease_at);
        return {base_load_le64(bytes_), lease_ms ? lease_ms : lease_ms_default};
    }

    Locks& locks_;
    const std::uint64_t lock_;
    const Holder holder_;
    // The message isn't executed before. Its answer can be handled much later.
    Clock::time_point sent_;

private:
    std::uint8_t bytes_[16];
};

// ---- taking ----

/*
 *   begin -> [checked] -> drawn -> looked ... looked -> [extended] -> held
 *                           ^        |  \-> passed, looked
 *                           \--------/ the ticket was passed over
 */
class Locks::Taking final : public Step {
public:
    Taking(Locks& locks, std::uint64_t lock) : Step(locks, lock), room_{{lock, 0}} {
        note_[holder_].giving = make_giving(locks, lock);
    }

    bool next(Op& op, int& error) noexcept override {
        const bool goes_on = go_on(op, error);
        if (!goes_on && error && at_ != At::begin)
            give_up(error);
        return goes_on;
    }
    int hand_over(std::uint64_t*) override { return static_cast<int>(turn_ & passed_over); }

private:
    enum class At { begin, checked, drawn, looked, passed, extended };

    bool go_on(Op& op, int& error) {
        switch (at_) {
        case At::begin:
            return !error && begin(op, error);
        case At::checked:
            return check(op, error);
        case At::drawn:
            return take_ticket(op, error);
        case At::looked:
            return !error && look(op, error);
        case At::passed:
            if (error && error != -ECONNRESET)
                return false;
            at_ = At::looked;
            return read(op);
        case At::extended:
            return take_extension(op, error);
        }
        return false;
    }

    // -EDEADLK: the thread holds the lock. If its lease expired, the lock has another turn.
    bool begin(Op& op, int& error) {
        const int known = locks_.begin_taking(note_, turn_);
        if (known < 0) {
            error = known;
            return false;
        }
        if (!known)
            return draw(op);
        at_ = At::checked;
        return read(op);
    }
    bool check(Op& op, int& error) {
        if (!error && ticket_of(state().turn) != ticket_of(turn_)) {
            locks_.drop_turn(holder_, turn_);
            if (!locks_.begin_taking(note_, turn_))
                return draw(op);
        }
        error = error ? error : -EDEADLK;
        at_ = At::begin; // the note isn't this op's, so it stays
        return false;
    }
    bool draw(Op& op) {
        is_first_ = true;
        if (locks_.take_up(lock_, ticket_)) {
            has_ticket_ = true;
            not_before_ = {};
            at_ = At::looked;
            return read(op);
        }
        at_ = At::drawn;
        change(op, lock_ + next_at, sizeof(ticket_), {{1, 0}, {0, 0}, {0, 0}, REMOTE_ADD});
        // If the answer is lost, no client knows the ticket, and its turn costs others a lease.
        op.settles = true;
        return true;
    }
    bool take_ticket(Op& op, int& error) {
        const int given_up = op.call->given_up;
        // A ticket might have been drawn whose number is lost. Waiters pass it over like any other.
        if (error == -ECONNRESET && !given_up)
            return draw(op);
        if (error)
            return false;
        ticket_ = static_cast<std::uint32_t>(op.change.found[0]);
        has_ticket_ = true;
        error = given_up;
        if (error)
            return false;
        not_before_ = sent_;
        at_ = At::looked;
        return read(op);
    }
    // Waits for the ticket's turn.
    bool look(Op& op, int& error) {
        error = op.call->given_up;
        if (error)
            return false;
        const State found = state();
        const Clock::time_point now = Clock::now();
        turn_ = found.turn;
        late_extension_ = late_extension(found.lease_ms);
        if (ticket_of(turn_) == ticket_) {
            // If the turn came earlier, less of the lease is left than the holder is promised.
            if (now - not_before_ >= std::min<Clock::duration>(late, late_extension_))
                return extend(op);
            locks_.set_turn(holder_, turn_);
            return false;
        }
        if (is_behind(ticket_, turn_)) {
            has_ticket_ = false; // others passed it over
            return draw(op);
        }
        if (is_first_ || turn_ != seen_) {
            seen_ = turn_;
            since_ = now;
            pause_ = look_first;
        }
        is_first_ = false;
        not_before_ = sent_;
        if (now - since_ >= std::chrono::milliseconds(found.lease_ms)) {
            at_ = At::passed;
            return swap(op, turn_, turn_after(turn_, true));
        }
        const auto pause =
            std::min<Clock::duration>(pause_ * (ticket_ - ticket_of(turn_)), look_most);
        pause_ = std::min<Clock::duration>(pause_ * 2, look_most);
        return read(op, now + pause);
    }
    bool extend(Op& op) {
        at_ = At::extended;
        return swap(op, turn_, extended(turn_));
    }
    bool take_extension(Op& op, int& error) {
        // If the CAS was executed, the next one finds its value.
        if (error == -ECONNRESET && !op.call->given_up)
            return extend(op);
        if (error)
            return false;
        const std::uint64_t found = op.change.found[0], wanted = extended(turn_);
        if (found != turn_ && found != wanted) {
            has_ticket_ = false;
            return draw(op);
        }
        const bool is_earlier = found == wanted; // executed and its answer lost
        turn_ = wanted;
        if (is_earlier || Clock::now() - sent_ >= late_extension_)
            return extend(op);
        locks_.set_turn(holder_, turn_);
        return false;
    }
    // The op ends without the lock.
    void give_up(int error) {
        locks_.drop(holder_);
        if (has_ticket_ && (error == -ETIMEDOUT || error == -ECANCELED))
            locks_.keep(ticket_, room_);
    }

    Held note_;    // memory for the notes of a holder,
    Waiting room_; // and of a ticket
    At at_ = At::begin;
    std::uint32_t ticket_ = 0;
    bool has_ticket_ = false;
    bool is_first_ = true; // look at the turn since the ticket is known
    std::uint64_t turn_ = 0, seen_ = 0;
    Clock::time_point since_;      // seen_ was seen first
    Clock::time_point not_before_; // the ticket's turn came; {}: unknown
    Clock::duration late_extension_{};
    Clock::duration pause_ = look_first;
};

std::unique_ptr<Steps> Locks::taking(std::uint64_t lock) {
    return std::make_unique<Taking>(*this, lock);
}

// ---- holding ----

int Locks::extend(std::uint64_t lock, Clock::time_point limit) {
    const Holder holder{lock, this_thread()};
    for (;;) {
        std::uint64_t turn = 0;
        if (int error = held_turn(holder, turn))
            return error;
        const std::uint64_t wanted = extended(turn);
        Change cas{{wanted, 0}, {turn, 0}, {0, 0}, Change::cas};
        int error = backend_.change(lock, sizeof(turn), cas, limit);
        // If the CAS was executed, the next one finds its value.
        if (error == -ECONNRESET)
            continue;
        if (error)
            return error;
        const std::uint64_t found = cas.found[0];
        if (found != turn && found != wanted) {
            drop_turn(holder, turn);
            return -EPERM;
        }
        change_turn(holder, turn, wanted);
        if (found == turn)
            return 0;
        // An earlier extension was executed and its answer lost; this one is still to do.
    }
}

// ---- giving ----

class Locks::Giving final : public Step {
public:
    Giving(Locks& locks, std::uint64_t lock) : Step(locks, lock) {}

    bool next(Op& op, int& error) noexcept override {
        switch (at_) {
        case At::begin:
            return !error && give(op, error);
        case At::given:
            return take_given(op, error);
        case At::settled:
            return !error && settle(op, error);
        }
        return false;
    }
    int hand_over(std::uint64_t*) override { return 0; }

private:
    enum class At { begin, given, settled };

    bool give(Op& op, int& error) {
        std::uint64_t turn = 0;
        error = locks_.held_turn(holder_, turn);
        // The thread lost this turn, and might have another one by now.
        if (!error && at_ != At::begin && ticket_of(turn) != ticket_of(turn_))
            error = -EPERM;
        if (error)
            return false;
        turn_ = turn;
        at_ = At::given;
        return swap(op, turn_, turn_after(turn_, false));
    }
    bool take_given(Op& op, int& error) {
        if (error == -ECONNRESET && !op.call->given_up) {
            at_ = At::settled;
            return read(op);
        }
        // The release was executed or not, so keep the lock: the caller can try again.
        if (error == -ETIMEDOUT || error == -ECANCELED || (error && op.call->given_up))
            return false;
        const std::uint64_t found = op.change.found[0];
        // An extension was executed and its answer lost.
        if (!error && found == extended(turn_)) {
            locks_.change_turn(holder_, turn_, found);
            return give(op, error);
        }
        locks_.drop_turn(holder_, turn_);
        // A turn without the mark is this holder's own earlier release.
        if (!error && found != turn_ && found != turn_after(turn_, false))
            error = -EPERM;
        return false;
    }
    // After a lost answer to a release: looks at turn to learn whether it was executed.
    bool settle(Op& op, int& error) {
        const std::uint64_t found = state().turn;
        if (ticket_of(found) == ticket_of(turn_))
            return give(op, error);
        locks_.drop_turn(holder_, turn_);
        // Others might have had the lock since: then turn can't show whether it was released or
        // passed over.
        if (found != turn_after(turn_, false))
            error = found == turn_after(turn_, true) ? -EPERM : -ECONNRESET;
        return false;
    }

    At at_ = At::begin;
    std::uint64_t turn_ = 0;
};

std::unique_ptr<Steps> Locks::make_giving(Locks& locks, std::uint64_t lock) {
    return std::make_unique<Giving>(locks, lock);
}

std::unique_ptr<Steps> Locks::giving(std::uint64_t lock) {
    {
        std::lock_guard guard(mutex_);
        const auto held = held_.find({lock, this_thread()});
        if (held != held_.end() && !held->second.is_taking && held->second.giving)
            return std::move(held->second.giving);
    }
    return make_giving(*this, lock);
}

} // namespace remora::lib
