/* SPDX-License-Identifier: MIT */
/*
 * Asynchronous operations as objects: one thread has many in flight, and waits for those it wants.
 *
 *	auto queue = remote::queue::open(*handle);
 *	if (!queue)
 *		return fail(remote_strerror(queue.error()));
 *	remote::pending first = queue->read(a, std::as_writable_bytes(std::span(in)));
 *	remote::pending second = queue->write(b, std::as_bytes(std::span(out)));
 *	if (!first.wait() || !second.wait())
 *		return fail("an operation failed");
 *
 * coroutine.hpp has the same for coroutines.
 */
#ifndef REMOTE_ASYNC_HPP
#define REMOTE_ASYNC_HPP

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <remote/queue.h>
#include <remote/remote.hpp>

namespace remote {

namespace detail {

/* Told once that its operation has ended. */
class waiter {
public:
    virtual void ended(int result) = 0;

protected:
    ~waiter() = default;
};

/*
 * A queue, and the waiters for its operations. Each has a ticket, which is its operation's
 * user_data until the completion is taken, even if the waiter is gone by then. For one thread.
 */
class tickets {
public:
    explicit tickets(remote_queue_t* q) : q_(q) {}
    tickets(const tickets&) = delete;
    tickets& operator=(const tickets&) = delete;
    ~tickets() { remote_queue_close(q_); }

    remote_queue_t* queue() const { return q_; }
    /* Number of waiters to be told. */
    std::size_t waiting() const { return waiting_; }
    std::uint64_t take(waiter& to) {
        waiting_++;
        if (free_.empty()) {
            waiters_.push_back(&to);
            return waiters_.size() - 1;
        }
        std::uint64_t ticket = free_.back();
        free_.pop_back();
        waiters_[ticket] = &to;
        return ticket;
    }
    /* The operation never started. */
    void give(std::uint64_t ticket) {
        waiting_--;
        waiters_[ticket] = nullptr;
        free_.push_back(ticket);
    }
    void move(std::uint64_t ticket, waiter& to) { waiters_[ticket] = &to; }
    /* Cancels the operation, and waits for that; its waiter isn't told. */
    void drop(std::uint64_t ticket) {
        waiting_--;
        waiters_[ticket] = nullptr;
        (void)remote_queue_cancel(q_, ticket);
    }
    /* Ends the waiter with an error that isn't a completion's. */
    void fail(std::uint64_t ticket, int error) { ended_.push_back({ticket, error, 0}); }
    void fail_all(int error) {
        for (std::uint64_t ticket = 0; ticket < waiters_.size(); ticket++) {
            if (waiters_[ticket])
                fail(ticket, error);
        }
    }
    void cancel_all() {
        for (std::uint64_t ticket = 0; ticket < waiters_.size(); ticket++) {
            if (waiters_[ticket])
                (void)remote_queue_cancel(q_, ticket);
        }
    }

    /*
     * Takes completions, waiting for one if at_least is 1, and tells the waiters, which might call
     * this in turn. Returns how many were told, or a negative errno.
     */
    int reap(std::size_t at_least, std::uint64_t timeout_us) {
        if (ended_.empty()) {
            std::array<remote_completion, 64> done;
            int taken = remote_queue_wait(q_, done.data(), done.size(), at_least, timeout_us);

            if (taken < 0)
                return taken;
            ended_.insert(ended_.end(), done.begin(), done.begin() + taken);
        }
        int told = 0;
        for (std::size_t left = ended_.size(); left && !ended_.empty(); left--, told++) {
            const remote_completion first = ended_.front();

            ended_.pop_front();
            waiter* to = std::exchange(waiters_[first.user_data], nullptr);
            free_.push_back(first.user_data);
            if (!to)
                continue;
            waiting_--;
            to->ended(first.result);
        }
        return told;
    }

private:
    remote_queue_t* q_;
    std::size_t waiting_ = 0;
    std::vector<waiter*> waiters_;        /* by ticket; NULL: nobody waits */
    std::vector<std::uint64_t> free_;     /* tickets */
    std::deque<remote_completion> ended_; /* taken from the queue, and not told */
};

inline std::uint64_t to_us(std::chrono::microseconds time) {
    return time.count() > 0 ? static_cast<std::uint64_t>(time.count()) : 0;
}

inline result<std::unique_ptr<tickets>> open_tickets(const handle& h, std::uint32_t depth) {
    remote_queue_options options{};
    remote_queue_t* q = nullptr;

    options.size = sizeof(options);
    options.depth = depth;
    int error = remote_queue_open(&q, h.get(), &options);
    if (error)
        return result<std::unique_ptr<tickets>>::failed(error);
    return std::make_unique<tickets>(q);
}

} // namespace detail

/*
 * An operation in flight, or ended. Destroying it cancels the operation and waits for that. The
 * queue MUST outlive it.
 */
class [[nodiscard]] pending final : private detail::waiter {
public:
    pending() = default;
    pending(pending&& other) noexcept { *this = std::move(other); }
    pending& operator=(pending&& other) noexcept {
        if (this == &other)
            return *this;
        cancel();
        tickets_ = std::exchange(other.tickets_, nullptr);
        ticket_ = other.ticket_;
        result_ = other.result_;
        if (tickets_)
            tickets_->move(ticket_, *this);
        return *this;
    }
    ~pending() { cancel(); }

    /* Has the operation ended? Doesn't wait. */
    bool done() {
        if (tickets_)
            (void)tickets_->reap(0, 0);
        return !tickets_;
    }
    /* Waits for the end. The value is the result of this kind's C function. */
    result<int> wait() {
        while (tickets_) {
            int told = tickets_->reap(1, std::numeric_limits<std::uint64_t>::max());

            if (told <= 0) { /* the handle was closed */
                tickets_->drop(ticket_);
                ended(told ? told : -EBADF);
            }
        }
        return result_ < 0 ? result<int>::failed(result_) : result<int>(result_);
    }
    /* Cancels it if it hasn't ended: then wait() returns -ECANCELED. */
    void cancel() {
        if (!tickets_)
            return;
        tickets_->drop(ticket_);
        ended(-ECANCELED);
    }

private:
    friend class queue;

    void ended(int result) override {
        tickets_ = nullptr;
        result_ = result;
    }

    detail::tickets* tickets_ = nullptr; /* NULL: it has ended */
    std::uint64_t ticket_ = 0;
    int result_ = -EINVAL;
};

/* remote_queue_t, for one thread, closed when destroyed. The handle MUST outlive it. */
class queue {
public:
    /* depth: limit of operations in flight; 0: a default. */
    static result<queue> open(const handle& h, std::uint32_t depth = 0) {
        auto tickets = detail::open_tickets(h, depth);

        if (!tickets)
            return result<queue>::failed(tickets.error());
        queue opened;
        opened.tickets_ = std::move(*tickets);
        return opened;
    }

    remote_queue_t* get() const { return tickets_ ? tickets_->queue() : nullptr; }

    pending read(raddr_t address, std::span<std::byte> to) {
        return start(remote_op_read(address, to.data(), to.size(), 0));
    }
    pending write(raddr_t address, std::span<const std::byte> from) {
        return start(remote_op_write(address, from.data(), from.size(), 0));
    }
    pending copy(raddr_t to, raddr_t from, std::size_t bytes) {
        return start(remote_op_copy(to, from, bytes, 0));
    }
    /* address 0: withdraws the name. */
    pending publish(const char* name, raddr_t address) {
        return start(remote_op_publish(name, address, 0));
    }
    /* found: the address, then the bytes. */
    pending lookup(const char* name, std::array<std::uint64_t, 2>& found) {
        return start(remote_op_lookup(name, found.data(), 0));
    }
    pending put(raddr_t address, std::span<const std::byte> from, const remote_signal& signal) {
        return start(remote_op_put(address, from.data(), from.size(), &signal, 0));
    }
    pending fetch(raddr_t address, std::size_t bytes, remote_change change, std::uint64_t value,
                  std::uint64_t* found = nullptr) {
        return start(remote_op_fetch(address, bytes, change, value, found, 0));
    }
    pending cas(raddr_t address, std::size_t bytes, const std::uint64_t* expected,
                const std::uint64_t* desired, std::uint64_t* found = nullptr) {
        return start(remote_op_cas(address, bytes, expected, desired, found, 0));
    }
    /* Starts any operation; its user_data is the library's. Waits for room in the queue. */
    pending start(remote_op op) {
        pending made;

        if (!tickets_)
            return made;
        op.user_data = tickets_->take(made);
        made.tickets_ = tickets_.get();
        made.ticket_ = op.user_data;
        int started;
        while ((started = remote_queue_submit(get(), &op, 1)) == -EAGAIN &&
               tickets_->reap(1, std::numeric_limits<std::uint64_t>::max()) > 0) {
        }
        if (started != 1) {
            tickets_->give(made.ticket_);
            made.ended(started);
        }
        return made;
    }

private:
    std::unique_ptr<detail::tickets> tickets_;
};

} // namespace remote

#endif
