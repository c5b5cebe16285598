// SPDX-License-Identifier: MIT
/*
 * Common part of the backends whose operations stay in flight for a while: order, waiters, time
 * limits, and synchronous calls.
 *
 *   start:  lock { order: can it begin? -> begin() ... flush() }, or left to the lock's holder
 *
 *   wait:   one waiter calls receive() for all
 *           receive() reports ended ops by end()
 *           end() asks the threads that wait for this call, or for this queue, and no others
 *
 *   cancel, limit:
 *           lock { ops that haven't begun end; take_back() of the rest, which then end soon }
 *
 * The library has no thread of its own.
 */
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>

#include "src/backend/backend.hpp"
#include "src/backend/left_calls.hpp"
#include "src/backend/order.hpp"
#include "src/backend/stats.hpp"

namespace remora::lib {

// The end that a thread waits for: a call's, any of a queue's, or, with neither, any op's.
struct WaitsFor {
    const Call* call = nullptr;
    const void* queue = nullptr;
};

// A thread that sleeps until its call has ended, or done() is true.
struct Waiter : Link {
    Waiter(const WaitsFor& what, std::function<bool()> is_done)
        : waits_for(what), done(std::move(is_done)) {}

    const WaitsFor waits_for;
    std::function<bool()> done;   // is asked after each end that it waits for, but not a call's
    Waiter* next_alike = nullptr; // in the same row
    bool in_row = false;
    bool woken = false; // the thread runs soon, and then looks for itself
    std::condition_variable wake;
};

// How long a message has from its start, though its call is given up, if its answer matters
// (Op::settles): some retransmissions. After that the node counts as silent.
inline constexpr std::chrono::milliseconds settle_time{500};

class Queued : public Backend {
public:
    int transfer(Kind kind, std::uint64_t address, std::uint8_t* data, std::uint64_t bytes,
                 Clock::time_point limit) override;
    void start(std::span<Op> ops) override;
    void start_all(std::span<Call* const> calls) override;
    void cancel(Call& call) override;
    bool wait(const Call& call, Clock::time_point until) override;
    void wait_until(const void* queue, const std::function<bool()>& done,
                    Clock::time_point until) override {
        wait_for(done, until, {nullptr, queue});
    }
    void exclusively(const std::function<void()>& fn) override;
    Clock::time_point next_event() override;
    int release(Clock::time_point limit) override;
    int fence(Clock::time_point limit) override;
    int zero(std::uint64_t address, std::uint32_t bytes) override;
    int change(std::uint64_t address, std::uint32_t bytes, Change& change,
               Clock::time_point limit) override;
    bool is_lost() const override { return lost_; }

protected:
    using Lock = std::unique_lock<std::mutex>;

    // The caller holds the lock for all of these. They throw nothing: ops in flight lie on stacks
    // that must not be unwound, and one thread receives for all. Begins an op whose order permits
    // it, or sends the next message of an op of many ranges; flush() follows.
    virtual void begin(Op& op) noexcept = 0;
    virtual void flush() noexcept = 0;
    // When receive() has to be called again at the latest, but for the calls' limits.
    virtual Clock::time_point next_timer() const { return never; }
    // Is there anything that receive() would learn of?
    virtual bool expects() const = 0;
    // Waits until an op has ended, or until; releases the lock meanwhile. flush() follows.
    virtual void receive(Lock& lock, Clock::time_point until) noexcept = 0;
    // The same without waiting. The caller made sure that no thread is in receive().
    virtual void take_in() noexcept = 0;
    // Makes the call's remaining ops, which have all begun, end soon by end() with its given_up.
    // Not called while an op settles (Op::settles), but for a bounded time. Called again now and
    // then until they have ended.
    virtual void take_back(Call& call) noexcept = 0;
    // The thread that starts a call executes its ops, so it alone ends them, also those of a call
    // that was given up while they wait for others.
    virtual bool starter_executes() const { return false; }
    // An op that had begun has ended with error. The caller must not touch a call that has ended.
    // Ops that waited for this one begin; the caller calls flush() afterwards.
    void end(Op& op, int error);
    // Notes the result of a request that isn't an op.
    void note(int error) {
        if (error == -ESTALE)
            lost_ = true;
    }

    // Lock. True: the op can begin.
    bool enter(Op& op, std::uint64_t now_ns);
    // Lock. Calls fn() for the call's remaining ops, from the last one on. After fn() of the last
    // remaining op the call and its ops might be gone.
    template <typename Fn>
    static void for_each_left(const Call& call, Fn fn);
    // Lock. A thread is in receive(), so no other may call take_in().
    bool somebody_receives() const { return receiving_; }
    int one(Op& op, Clock::time_point limit = never);
    void end_unbegun(Call& call, std::uint64_t now_ns);
    // Waits until done(), which is called under the lock. False: until's time has come.
    template <typename Done>
    bool wait_for(Done done, Clock::time_point until, const WaitsFor& what = {});
    // How often threads have woken up in there. Lock.
    std::uint64_t wake_ups() const { return wake_ups_; }

    LeftCalls left_;
    std::mutex lock_; // all below
    Order order_;
    Tally tally_;
    // The time, for the next flush(): read since the lock was taken. 0: it was not.
    std::uint64_t clock_ns_ = 0;

private:
    void begin_message(Op& op, std::uint64_t now_ns);
    void start_left();
    void begin_call(Call& call, std::uint64_t now_ns);
    void begin_linked(Call& call);
    void enter_row(Call& call);
    void go_on(Call& call);
    void go(Op& op);
    bool enter_step(Op& op);
    void begin_step(Op& op);
    void pause(Op& op);
    void resume();
    Op* end_one(Op& op, int error, Op* idle);
    Op* begin_free(Op* free, Op* idle);
    Op* end_last(Op& op, int error, Op* free, Op* idle);
    template <unsigned most>
    int transfer_by(Kind kind, std::uint64_t address, std::uint8_t* data, std::uint64_t bytes,
                    Clock::time_point limit);
    int transfer_long(Kind kind, std::uint64_t address, std::uint8_t* data, std::uint64_t bytes,
                      Clock::time_point limit);
    void sleep(Lock& lock, Waiter& waiter, Clock::time_point until);
    Waiter*& row_of(const WaitsFor& what);
    static void wake(Waiter& waiter);
    void wake_waiters(const Call& call);
    void ask(const WaitsFor& what);
    void ask(Waiter& waiter);
    void wake_receiver();
    void add_timed(Call& call);
    Clock::time_point first_limit() const;
    Clock::time_point first_pause() const;
    void expire();
    void give_up(Call& call, int error);

    std::atomic<bool> lost_ = false;
    Link timed_;                     // calls with a limit, in its order
    Link paused_;                    // ops between two messages, in the order of begins_at
    bool receiving_ = false;         // a thread is in receive(), for all
    Link call_waiters_;              // threads that sleep, with a call
    Link watchers_;                  // and those without
    std::array<Waiter*, 64> rows_{}; // these, by a hash of their queue
    std::uint64_t wake_ups_ = 0;
};

template <typename Fn>
void Queued::for_each_left(const Call& call, Fn fn) {
    std::span<Op> ops = call.ops;
    // Some ops have ended. Ops that their starting thread executes itself aren't in the order.
    for (std::uint32_t left = call.left.load(std::memory_order_relaxed); left && !ops.empty();
         ops = ops.first(ops.size() - 1)) {
        if (!Order::has(ops.back()))
            continue;
        left--;
        fn(ops.back());
    }
}

template <typename Done>
bool Queued::wait_for(Done done, Clock::time_point until, const WaitsFor& what) {
    Lock lock(lock_);
    bool is_done;
    // Even without time left, handle answers that have arrived.
    for (bool looked = false; !(is_done = done()) && (!looked || Clock::now() < until);
         looked = true) {
        // The receiving thread also watches the limits and the pauses.
        Clock::time_point next =
            receiving_ ? until : std::min({until, first_limit(), first_pause()});
        if (!receiving_ && expects()) {
            receiving_ = true;
            receive(lock, next);
            receiving_ = false;
            start_left();
            flush();
        } else {
            Waiter waiter(what, std::ref(done));
            sleep(lock, waiter, next);
        }
        expire();
    }
    wake_receiver();
    return is_done;
}

} // namespace remora::lib
