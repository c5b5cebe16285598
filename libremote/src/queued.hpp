// SPDX-License-Identifier: MIT
/*
 * What backends share whose operations are under way for a while: their order, those who wait for
 * them, those whose limit of time comes, and what synchronous calls are made of.
 *
 *   start:  lock { order: may it begin? -> begin() ... flush() }
 *   wait:   one of those who wait calls receive() for all; it tells what has ended by end()
 *   cancel, limit:
 *           lock { what hasn't begun ends; take_back() of the rest, which then ends soon }
 *
 * There is no thread of our own.
 */
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "src/backend.hpp"
#include "src/order.hpp"
#include "src/stats.hpp"

namespace remora::lib {

class Queued : public Backend {
public:
    int transfer(std::uint8_t type, std::uint64_t address, std::uint8_t* data, std::uint64_t bytes,
                 Clock::time_point limit) override;
    void start(std::span<Op> ops) override;
    void cancel(Call& call) override;
    bool wait(const Call& call, Clock::time_point until) override;
    int release(Clock::time_point limit) override;
    int fence(Clock::time_point limit) override;
    int zero(std::uint64_t address, std::uint32_t bytes) override;
    int atomic(std::uint64_t address, std::uint32_t bytes, rmem_op_atomic& atomic,
               Clock::time_point limit) override;
    bool is_lost() const override { return lost_; }

protected:
    using Lock = std::unique_lock<std::mutex>;

    // Lock, for all of these. The op's order permits it, or of many ranges the next message is due;
    // flush() follows.
    virtual void begin(Op& op) = 0;
    virtual void flush() = 0;
    // Is there anything that receive() would learn of?
    virtual bool expects() const = 0;
    // Until something ended, or until; the lock is let go meanwhile. flush() follows.
    virtual void receive(Lock& lock, Clock::time_point until) = 0;
    // The same of what has ended by now; somebody_receives() isn't so.
    virtual void take_in() = 0;
    // All of the call's ops that are left have begun, and are to end soon, by end() with its
    // given_up. Asked again, now and then, until they have.
    virtual void take_back(Call& call) = 0;
    // What was begun has ended so. Of a call that has ended nothing may be touched any more. Those
    // that waited for it begin; flush() is to follow.
    void end(Op& op, int error);
    // How something has ended that isn't an op.
    void note(int error) {
        if (error == -ESTALE)
            lost_ = true;
    }

    // Lock. True: it may begin.
    bool enter(Op& op);
    // Lock. Of the call, from its last one: after fn() of the last that is left the call, and its
    // ops, may be gone.
    template <typename Fn>
    static void for_each_left(const Call& call, Fn fn);
    // Lock. Then take_in() isn't for others.
    bool somebody_receives() const { return receiving_; }
    int one(Op& op, Clock::time_point limit = never);
    // done() is asked under the lock. False: until's time has come.
    template <typename Done>
    bool wait_for(Done done, Clock::time_point until);

    std::mutex lock_; // all below
    Order order_;
    Tally tally_;

private:
    rmem_op* end_one(Op& op, int error, rmem_op* hopeless);
    void add_timed(Call& call);
    Clock::time_point first_limit() const;
    void expire();
    void give_up(Call& call, int error);

    std::atomic<bool> lost_ = false;
    Link timed_;             // calls with a limit, by that
    bool receiving_ = false; // somebody does, for all
    unsigned waiting_ = 0;
    std::condition_variable changed_;
};

template <typename Fn>
void Queued::for_each_left(const Call& call, Fn fn) {
    std::span<Op> ops = call.ops;
    // Some have ended. Those that their starter carries out himself aren't here.
    for (std::uint32_t left = call.left.load(std::memory_order_relaxed); left && !ops.empty();
         ops = ops.first(ops.size() - 1)) {
        if (!Order::has(ops.back()))
            continue;
        left--;
        fn(ops.back());
    }
}

template <typename Done>
bool Queued::wait_for(Done done, Clock::time_point until) {
    Lock lock(lock_);
    bool is_done;
    // Even if there is no time: what is here already is taken in.
    for (bool looked = false; !(is_done = done()) && (!looked || Clock::now() < until);
         looked = true) {
        // Who receives sees to limits, too.
        Clock::time_point next = receiving_ ? until : std::min(until, first_limit());
        if (!receiving_ && expects()) {
            receiving_ = true;
            receive(lock, next);
            receiving_ = false;
            flush();
        } else {
            waiting_++;
            if (next == never)
                changed_.wait(lock);
            else
                changed_.wait_until(lock, next);
            waiting_--;
        }
        expire();
    }
    // Somebody else may have to receive from now on.
    if (waiting_ && !receiving_)
        changed_.notify_one();
    return is_done;
}

} // namespace remora::lib
