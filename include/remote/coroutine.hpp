/* SPDX-License-Identifier: MIT */
/*
 * Coroutines over a completion queue: one thread has many operations in flight, and the code reads
 * as if they came one after the other.
 *
 *	remote::task copy(remote::loop& loop, raddr_t from, raddr_t to)
 *	{
 *		std::array<std::byte, 4096> page;
 *		if (auto read = co_await loop.read(from, page); !read)
 *			co_return read.error();
 *		auto written = co_await loop.write(to, page);
 *		co_return written.error();
 *	}
 *
 *	remote::task copy_both(remote::loop& loop, raddr_t a, raddr_t b, raddr_t to)
 *	{
 *		std::vector<remote::task> parts;
 *		parts.push_back(copy(loop, a, to));
 *		parts.push_back(copy(loop, b, to + 4096));
 *		co_return co_await remote::all_of(std::move(parts));
 *	}
 *
 *	remote::loop loop(*handle);
 *	remote::task both = copy_both(loop, a, b, c);
 *	loop.run();
 *
 * A task runs at once until its first co_await, and continues in loop.run(), which the thread that
 * made the loop calls. Tasks continue in the order in which their operations end. Operations that
 * tasks begin between two waits are submitted together.
 *
 * Destroying a task that hasn't ended cancels the operation it waits for, and waits for its end, so
 * that its buffers are free; the tasks that it awaits are destroyed with it. A task MUST NOT
 * outlive its loop, nor be destroyed while another one awaits it, or by itself.
 */
#ifndef REMOTE_COROUTINE_HPP
#define REMOTE_COROUTINE_HPP

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <remote/async.hpp>

namespace remote {

/* A coroutine that returns 0 or a negative errno. Another one MAY await it, once. */
class [[nodiscard]] task {
public:
    struct promise_type {
        int error = -EINPROGRESS;
        std::coroutine_handle<> waiter = std::noop_coroutine();

        struct ending {
            bool await_ready() noexcept { return false; }
            std::coroutine_handle<>
            await_suspend(std::coroutine_handle<promise_type> frame) noexcept {
                return frame.promise().waiter;
            }
            void await_resume() noexcept {}
        };

        task get_return_object() {
            return task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_never initial_suspend() noexcept { return {}; }
        ending final_suspend() noexcept { return {}; }
        void return_value(int value) { error = value; }
        void unhandled_exception() { std::terminate(); }
    };

    task(task&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
    task& operator=(task&& other) noexcept {
        if (this != &other) {
            destroy();
            frame_ = std::exchange(other.frame_, nullptr);
        }
        return *this;
    }
    ~task() { destroy(); }

    bool done() const { return !frame_ || frame_.done(); }
    /* -EINPROGRESS until it is done. */
    int error() const { return frame_ ? frame_.promise().error : -EINVAL; }

    /* Awaiting it returns its error. */
    bool await_ready() const { return done(); }
    void await_suspend(std::coroutine_handle<> waiter) { frame_.promise().waiter = waiter; }
    int await_resume() const { return error(); }

private:
    explicit task(std::coroutine_handle<promise_type> frame) : frame_(frame) {}
    void destroy() {
        if (frame_)
            std::exchange(frame_, nullptr).destroy();
    }

    std::coroutine_handle<promise_type> frame_;
};

/* A task that ends when all these have, with the first error among them. */
inline task all_of(std::vector<task> tasks) {
    int error = 0;

    for (task& each : tasks) {
        int its = co_await each;

        if (!error)
            error = its;
    }
    co_return error;
}

/* Resumes tasks as their operations end. For one thread; the handle MUST outlive it. */
class loop {
public:
    /* depth: limit of operations in flight, beyond which tasks wait; 0: a default. */
    explicit loop(const handle& h, std::uint32_t depth = 0) {
        auto opened = detail::open_tickets(h, depth);

        error_ = opened.error();
        if (opened)
            tickets_ = std::move(*opened);
    }
    loop(const loop&) = delete;
    loop& operator=(const loop&) = delete;

    /* Awaiting it starts the operation and returns its result, as pending::wait() does. */
    class [[nodiscard]] operation final : private detail::waiter {
    public:
        operation(const operation& other)
            : loop_(other.loop_), op_(other.op_), signal_(other.signal_) {}
        operation& operator=(const operation&) = delete;
        ~operation() {
            if (ticket_ != none)
                loop_->forget(ticket_);
        }

        bool await_ready() const { return false; }
        bool await_suspend(std::coroutine_handle<> waiter) {
            waiter_ = waiter;
            if (op_.kind == REMOTE_OP_PUT)
                op_.signal = &signal_;
            result_ = loop_->begin(op_, *this, ticket_);
            return !result_;
        }
        result<int> await_resume() const {
            return result_ < 0 ? result<int>::failed(result_) : result<int>(result_);
        }
        /* The operation ends with -ETIMEDOUT if it takes longer than time from its start. */
        operation within(std::chrono::microseconds time) const {
            operation limited = *this;

            limited.op_.timeout_us = std::max<std::uint64_t>(detail::to_us(time), 1);
            return limited;
        }

    private:
        friend class loop;
        static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

        operation(loop& its, const remote_op& op) : loop_(&its), op_(op) {}
        void ended(int result) override {
            ticket_ = none;
            result_ = result;
            waiter_.resume();
        }

        loop* loop_;
        remote_op op_;
        remote_signal signal_{};
        std::coroutine_handle<> waiter_;
        std::uint64_t ticket_ = none; /* none: not in flight */
        int result_ = 0;
    };

    /* The bytes MUST stay valid until the operation ends. */
    operation read(raddr_t address, std::span<std::byte> to) {
        return start(remote_op_read(address, to.data(), to.size(), 0));
    }
    operation write(raddr_t address, std::span<const std::byte> from) {
        return start(remote_op_write(address, from.data(), from.size(), 0));
    }
    /* As remote_copy(). */
    operation copy(raddr_t to, raddr_t from, std::size_t bytes) {
        return start(remote_op_copy(to, from, bytes, 0));
    }
    /* As remote_publish(); address 0 withdraws the name, which stays valid as bytes do. */
    operation publish(const char* name, raddr_t address) {
        return start(remote_op_publish(name, address, 0));
    }
    /* As remote_lookup(). found: the address, then the bytes. */
    operation lookup(const char* name, std::array<std::uint64_t, 2>& found) {
        return start(remote_op_lookup(name, found.data(), 0));
    }
    /* As remote_fetch(), on an integer of 4 or 8 bytes. */
    operation fetch(raddr_t address, std::size_t bytes, remote_change change, std::uint64_t value,
                    std::uint64_t* found = nullptr) {
        return start(remote_op_fetch(address, bytes, change, value, found, 0));
    }
    /* As remote_cas(), with 1 or 0 as result. Integers of 16 bytes are two of uint64_t. */
    operation cas(raddr_t address, std::size_t bytes, const std::uint64_t* expected,
                  const std::uint64_t* desired, std::uint64_t* found = nullptr) {
        return start(remote_op_cas(address, bytes, expected, desired, found, 0));
    }
    /* As remote_put(). */
    operation put(raddr_t address, std::span<const std::byte> from, const remote_signal& signal) {
        operation made = start(remote_op_put(address, from.data(), from.size(), &signal, 0));

        made.signal_ = signal;
        return made;
    }
    /* Any operation; its user_data is the library's. */
    operation start(const remote_op& op) { return operation(*this, op); }

    /* Runs until no task waits for an operation. */
    void run() {
        while (run_once()) {
        }
    }
    /* Waits until an operation has ended, and resumes its task, and those of others that have.
     * False: no task waits. */
    bool run_once() {
        if (!tickets_ || !tickets_->waiting())
            return false;
        submit();
        int told = tickets_->reap(1, std::numeric_limits<std::uint64_t>::max());
        if (told < 0)
            tickets_->fail_all(told); /* the handle was closed */
        return true;
    }

    /* Cancels all operations that tasks wait for. run() resumes the tasks with -ECANCELED, or with
     * the result if the operation had ended before. */
    void cancel() {
        if (!tickets_)
            return;
        for (const remote_op& op : unsent_)
            tickets_->fail(op.user_data, -ECANCELED);
        unsent_.clear();
        tickets_->cancel_all();
    }

private:
    static constexpr std::size_t batch = 64; /* operations that wait for no more company */

    int begin(const remote_op& op, detail::waiter& to, std::uint64_t& ticket) {
        if (error_)
            return error_;
        ticket = tickets_->take(to);
        unsent_.push_back(op);
        unsent_.back().user_data = ticket;
        if (unsent_.size() >= batch)
            submit();
        return 0;
    }
    /* Starts as many as the queue takes. One that isn't valid ends. */
    void submit() {
        while (!unsent_.empty()) {
            std::array<remote_op, batch> ops;
            std::size_t count = std::min(unsent_.size(), batch);

            std::copy_n(unsent_.begin(), count, ops.begin());
            int started = remote_queue_submit(tickets_->queue(), ops.data(), count);
            if (started == -EAGAIN)
                return;
            if (started < 0) {
                tickets_->fail(ops[0].user_data, started);
                started = 1;
            }
            unsent_.erase(unsent_.begin(), unsent_.begin() + started);
        }
    }
    void forget(std::uint64_t ticket) {
        auto found = std::find_if(unsent_.begin(), unsent_.end(),
                                  [&](const remote_op& op) { return op.user_data == ticket; });
        if (found == unsent_.end())
            return tickets_->drop(ticket);
        unsent_.erase(found);
        tickets_->give(ticket);
    }

    std::unique_ptr<detail::tickets> tickets_;
    int error_ = 0;                /* errno of opening the queue */
    std::deque<remote_op> unsent_; /* operations that tasks wait for, not yet submitted */
};

} // namespace remote

#endif
