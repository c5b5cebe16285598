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
        /* No memory for the frame: the task has ended with -ENOMEM and never ran. */
        static task get_return_object_on_allocation_failure() noexcept { return task(-ENOMEM); }
        std::suspend_never initial_suspend() noexcept { return {}; }
        ending final_suspend() noexcept { return {}; }
        void return_value(int value) { error = value; }
        void unhandled_exception() { std::terminate(); }
    };

    task(task&& other) noexcept
        : frame_(std::exchange(other.frame_, nullptr)), without_frame_(other.without_frame_) {}
    task& operator=(task&& other) noexcept {
        if (this != &other) {
            destroy();
            frame_ = std::exchange(other.frame_, nullptr);
            without_frame_ = other.without_frame_;
        }
        return *this;
    }
    ~task() { destroy(); }

    bool done() const { return !frame_ || frame_.done(); }
    /* -EINPROGRESS until it is done. */
    int error() const { return frame_ ? frame_.promise().error : without_frame_; }

    /* Awaiting it returns its error. */
    bool await_ready() const { return done(); }
    void await_suspend(std::coroutine_handle<> waiter) { frame_.promise().waiter = waiter; }
    int await_resume() const { return error(); }

private:
    explicit task(std::coroutine_handle<promise_type> frame) : frame_(frame) {}
    explicit task(int error) noexcept : without_frame_(error) {}
    void destroy() {
        if (frame_)
            std::exchange(frame_, nullptr).destroy();
    }

    std::coroutine_handle<promise_type> frame_;
    int without_frame_ = -EINVAL; /* error() of a task that has no frame */
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
class loop : public detail::operations<loop> {
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
        operation(const operation& other) : operation(*other.loop_, other.op_) {
            is_empty_ = other.is_empty_;
        }
        operation& operator=(const operation&) = delete;
        ~operation() {
            if (ticket_ != detail::tickets::none)
                loop_->forget(*this);
        }

        bool await_ready() const { return is_empty_; }
        bool await_suspend(std::coroutine_handle<> waiter) {
            waiter_ = waiter;
            result_ = loop_->begin(*this);
            return !result_;
        }
        result<int> await_resume() const {
            return result_ < 0 ? result<int>::failed(result_) : result<int>(result_);
        }
        /* The operation ends with -ETIMEDOUT if it takes longer than time from its start.
         */
        operation within(std::chrono::microseconds time) const {
            operation limited = *this;

            limited.op_.timeout_us = std::max<std::uint64_t>(detail::to_us(time), 1);
            return limited;
        }

    private:
        friend class loop;

        operation(loop& its, const remote_op& op) : loop_(&its), op_(op) {
            if (op_.kind == REMOTE_OP_PUT && op_.signal) {
                signal_ = *op_.signal;
                op_.signal = &signal_;
            }
        }
        void ended(int result) override {
            ticket_ = detail::tickets::none;
            result_ = result;
            waiter_.resume();
        }

        loop* loop_;
        remote_op op_;
        bool is_empty_ = false; /* nothing to do */
        remote_signal signal_{};
        std::coroutine_handle<> waiter_;
        std::uint64_t ticket_ = detail::tickets::none; /* none: not in flight */
        operation* next_ = nullptr;                    /* in the loop's list of unsent ones */
        int result_ = 0;
    };

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
        if (told >= 0)
            return true;
        /* Buffers are their owners' again once they are told: no operation uses them then.
         */
        cancel();
        told = tickets_->reap(0, 0);
        if (told < 0)
            tickets_->fail_all(told); /* the handle was closed, or this is a child of fork() */
        return true;
    }

    /* Cancels all operations that tasks wait for. run() resumes the tasks with -ECANCELED, or
     * with the result if the operation had ended before. */
    void cancel() {
        if (!tickets_)
            return;
        for (; first_; first_ = first_->next_)
            tickets_->fail(first_->ticket_, -ECANCELED);
        unsent_ = 0;
        tickets_->cancel_all();
    }

private:
    friend class detail::operations<loop>;
    static constexpr std::size_t batch = 64; /* operations that wait for no more company */

    operation nothing_to_do() {
        operation empty(*this, remote_op{});

        empty.is_empty_ = true;
        return empty;
    }
    int begin(operation& by) {
        if (error_)
            return error_;
        if (by.op_.flags & REMOTE_OP_LINK)
            return -EINVAL; /* the next operation can be another task's */
        by.ticket_ = by.op_.user_data = tickets_->take(by);
        if (by.ticket_ == detail::tickets::none)
            return -ENOMEM;
        by.next_ = nullptr;
        (first_ ? last_->next_ : first_) = &by;
        last_ = &by;
        if (++unsent_ >= batch)
            submit();
        return 0;
    }
    /* Starts as many as the queue takes. One that isn't valid ends. */
    void submit() {
        while (first_) {
            std::array<remote_op, batch> ops;
            std::size_t count = 0;

            for (operation* each = first_; each && count < batch; each = each->next_)
                ops[count++] = each->op_;
            int started = remote_queue_submit(tickets_->queue(), ops.data(), count);
            if (started == -EAGAIN)
                return;
            if (started < 0) {
                tickets_->fail(ops[0].user_data, started);
                started = 1;
            }
            unsent_ -= static_cast<std::size_t>(started);
            while (started--)
                first_ = first_->next_;
        }
    }
    void forget(operation& gone) {
        operation* before = nullptr;
        operation* each = first_;

        for (; each && each != &gone; each = each->next_)
            before = each;
        if (!each)
            return tickets_->drop(gone.ticket_);
        (before ? before->next_ : first_) = gone.next_;
        if (last_ == &gone)
            last_ = before;
        unsent_--;
        tickets_->give(gone.ticket_);
    }

    std::unique_ptr<detail::tickets> tickets_;
    int error_ = 0; /* errno of opening the queue */
    /* A list of operations that tasks wait for, not yet submitted. */
    operation* first_ = nullptr;
    operation* last_ = nullptr; /* valid if first_ is */
    std::size_t unsent_ = 0;
};

} // namespace remote

#endif
