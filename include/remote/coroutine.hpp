/* SPDX-License-Identifier: MIT */
/*
 * Coroutines over asynchronous operations: one thread has many operations in flight, and the
 * code reads as if they came one after the other.
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
 *	remote::loop loop(*handle);
 *	remote::task one = copy(loop, a, b), two = copy(loop, c, d);
 *	loop.run();
 *
 * A task runs at once until its first co_await, and continues in loop.run(), which the thread
 * that made the loop calls. A task MUST NOT be destroyed while it waits for the loop.
 */
#ifndef REMOTE_COROUTINE_HPP
#define REMOTE_COROUTINE_HPP

#include <cassert>
#include <cerrno>
#include <coroutine>
#include <cstddef>
#include <deque>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <remote/remote.hpp>

namespace remote {

/* A coroutine that returns 0 or a negative errno. */
class task {
public:
    struct promise_type {
        int error = -EINPROGRESS;

        task get_return_object() {
            return task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_value(int value) { error = value; }
        void unhandled_exception() { std::terminate(); }
    };

    task(task&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
    task& operator=(task&& other) noexcept {
        std::swap(frame_, other.frame_);
        return *this;
    }
    ~task() {
        if (!frame_)
            return;
        assert(frame_.done());
        frame_.destroy();
    }

    bool done() const { return frame_.done(); }
    /* -EINPROGRESS until it is done. */
    int error() const { return frame_.promise().error; }

private:
    explicit task(std::coroutine_handle<promise_type> frame) : frame_(frame) {}

    std::coroutine_handle<promise_type> frame_;
};

/* Resumes tasks as their operations end. For one thread; the handle MUST outlive it. */
class loop {
public:
    explicit loop(const handle& h) : handle_(&h) {}
    loop(const loop&) = delete;

    class operation {
    public:
        bool await_ready() const { return false; }
        void await_suspend(std::coroutine_handle<> waiter) {
            waiter_ = waiter;
            loop_->begin(*this);
        }
        result<void> await_resume() const { return rop_.result; }
        /* The operation ends with -ETIMEDOUT if it takes longer than time from its start. */
        operation within(std::chrono::microseconds time) const {
            operation limited = *this;

            limited.time_ = time;
            return limited;
        }

    private:
        friend class loop;
        enum class kind { read, write, fetch, put };

        loop* loop_ = nullptr;
        kind kind_ = kind::read;
        raddr_t address_ = 0;
        void* data_ = nullptr; /* fetch: destination of the integer found */
        std::size_t bytes_ = 0;
        remote_change what_ = REMOTE_ADD;
        uint64_t value_ = 0;
        remote_signal signal_{}; /* put */
        std::optional<std::chrono::microseconds> time_;
        rop_t rop_{};
        std::coroutine_handle<> waiter_;
    };

    /* Await the operation at once; the bytes MUST stay valid until it ends. */
    operation read(raddr_t address, std::span<std::byte> to) {
        return make(operation::kind::read, address, to.data(), to.size());
    }
    operation write(raddr_t address, std::span<const std::byte> from) {
        return make(operation::kind::write, address, const_cast<std::byte*>(from.data()),
                    from.size());
    }
    /* As remote_fetch(), on an integer of 4 or 8 bytes. */
    operation fetch(raddr_t address, std::size_t bytes, remote_change what, uint64_t value,
                    uint64_t* found = nullptr) {
        operation made = make(operation::kind::fetch, address, found, bytes);

        made.what_ = what;
        made.value_ = value;
        return made;
    }

    /* As remote_put(). */
    operation put(raddr_t address, std::span<const std::byte> from, const remote_signal& signal) {
        operation made =
            make(operation::kind::put, address, const_cast<std::byte*>(from.data()), from.size());

        made.signal_ = signal;
        return made;
    }

    /* Runs until no task waits for an operation. */
    void run() {
        while (!under_way_.empty()) {
            operation* ended = take_ended();

            begin_waiting();
            ended->waiter_.resume();
        }
        assert(waiting_.empty());
    }

    /* Cancels all operations that tasks wait for. run() resumes the tasks with -ECANCELED, or with
     * the result if the operation had ended before. */
    void cancel() {
        for (operation* each : under_way_)
            remote_cancel(handle_->get(), &each->rop_);
        for (operation* each : waiting_) {
            each->rop_.result = -ECANCELED;
            add(*each);
        }
        waiting_.clear();
    }

private:
    operation make(operation::kind kind, raddr_t address, void* data, std::size_t bytes) {
        operation made;

        made.loop_ = this;
        made.kind_ = kind;
        made.address_ = address;
        made.data_ = data;
        made.bytes_ = bytes;
        return made;
    }

    static int start(remote_t* r, operation& op) {
        std::optional<time_limit> limit;

        if (op.time_)
            limit.emplace(*op.time_);
        switch (op.kind_) {
        case operation::kind::read:
            return remote_read_async(r, op.address_, op.data_, op.bytes_, &op.rop_);
        case operation::kind::write:
            return remote_write_async(r, op.address_, op.data_, op.bytes_, &op.rop_);
        case operation::kind::put:
            return remote_put_async(r, op.address_, op.data_, op.bytes_, &op.signal_, &op.rop_);
        default:
            return remote_fetch_async(r, op.address_, op.bytes_, op.what_, op.value_,
                                      static_cast<uint64_t*>(op.data_), &op.rop_);
        }
    }

    void add(operation& op) {
        under_way_.push_back(&op);
        polled_.push_back(&op.rop_);
    }
    /* The oldest operation that has ended; a handle that can't be polled ends it with the error. */
    operation* take_ended() {
        int index = remote_poll_any(handle_->get(), polled_.data(), polled_.size(),
                                    std::numeric_limits<uint64_t>::max());

        if (index < 0)
            polled_.front()->result = std::exchange(index, 0);
        operation* ended = under_way_[static_cast<std::size_t>(index)];
        under_way_.erase(under_way_.begin() + index);
        polled_.erase(polled_.begin() + index);
        return ended;
    }

    /* False: the handle's async_max is reached. An operation that fails to start has ended. */
    bool try_begin(operation& op) {
        int error = start(handle_->get(), op);

        if (error == -EAGAIN && !under_way_.empty())
            return false;
        if (error)
            op.rop_.result = error;
        add(op);
        return true;
    }
    void begin(operation& op) {
        if (!waiting_.empty() || !try_begin(op))
            waiting_.push_back(&op);
    }
    void begin_waiting() {
        while (!waiting_.empty() && try_begin(*waiting_.front()))
            waiting_.pop_front();
    }

    const handle* handle_;
    std::vector<operation*> under_way_;
    std::vector<rop_t*> polled_;     /* of the same operations */
    std::deque<operation*> waiting_; /* for a place in under_way_ */
};

} // namespace remote

#endif
