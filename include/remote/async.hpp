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

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <utility>

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
 * user_data until the completion is taken, even if the waiter is gone by then. Only take() needs
 * memory. For one thread.
 */
class tickets {
public:
    static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

    explicit tickets(remote_queue_t* q) : q_(q) {}
    tickets(const tickets&) = delete;
    tickets& operator=(const tickets&) = delete;
    ~tickets() { remote_queue_close(q_); }

    remote_queue_t* queue() const { return q_; }
    /* Number of waiters to be told. */
    std::size_t waiting() const { return waiting_; }
    /* none: no memory. */
    std::uint64_t take(waiter& to) {
        if (free_ == none && !grow())
            return none;
        std::uint64_t ticket = free_;
        free_ = slots_[ticket].next;
        slots_[ticket] = {&to};
        waiting_++;
        return ticket;
    }
    /* The operation never started. */
    void give(std::uint64_t ticket) {
        waiting_--;
        put_back(ticket);
    }
    void move(std::uint64_t ticket, waiter& to) { slots_[ticket].to = &to; }
    /* Cancels the operation, and waits for that; its waiter isn't told. */
    void drop(std::uint64_t ticket) {
        waiting_--;
        slots_[ticket].to = nullptr;
        cancel(ticket);
    }
    /* Ends the waiter with an error that isn't a completion's, unless its operation has ended.
     */
    void fail(std::uint64_t ticket, int error) { append(ticket, error); }
    void fail_all(int error) {
        for (std::uint64_t ticket = 0; ticket < count_; ticket++) {
            if (slots_[ticket].to)
                append(ticket, error);
        }
    }
    /* The waiters are still to be told, by reap(). */
    void cancel(std::uint64_t ticket) { (void)remote_queue_cancel(q_, ticket); }
    void cancel_all() {
        for (std::uint64_t ticket = 0; ticket < count_; ticket++) {
            if (slots_[ticket].to)
                cancel(ticket);
        }
    }

    /*
     * Takes completions, waiting for one if at_least is 1, and tells the waiters, which might
     * call this in turn. Returns how many were told, or a negative errno.
     */
    int reap(std::size_t at_least, std::uint64_t timeout_us) {
        if (first_ == none) {
            std::array<remote_completion, 64> done;
            int taken = remote_queue_wait(q_, done.data(), done.size(), at_least, timeout_us);

            if (taken < 0)
                return taken;
            for (int i = 0; i < taken; i++)
                append(done[i].user_data, done[i].result);
        }
        int told = 0;
        /* A waiter can begin an operation that ends at once: that one waits for the next
         * call. */
        for (const std::uint64_t last = last_; first_ != none; told++) {
            const std::uint64_t ticket = first_;
            const slot ended = slots_[ticket];

            first_ = ended.next;
            put_back(ticket);
            if (ended.to) {
                waiting_--;
                ended.to->ended(ended.result);
            }
            if (ticket == last)
                return told + 1;
        }
        return told;
    }

private:
    struct slot {
        waiter* to = nullptr; /* NULL: nobody waits */
        std::uint64_t next = none;
        int result = 0;
        bool ended = false; /* in the list from first_ on */
    };

    bool grow() {
        const std::size_t more = count_ ? 2 * count_ : 64;
        std::unique_ptr<slot[]> grown(new (std::nothrow) slot[more]);

        if (!grown)
            return false;
        std::copy_n(slots_.get(), count_, grown.get());
        slots_ = std::move(grown);
        for (std::uint64_t ticket = more; ticket-- > count_;)
            put_back(ticket);
        count_ = more;
        return true;
    }
    void put_back(std::uint64_t ticket) {
        slots_[ticket] = {nullptr, free_};
        free_ = ticket;
    }
    void append(std::uint64_t ticket, int result) {
        slot& at = slots_[ticket];

        if (at.ended)
            return;
        at.ended = true;
        at.result = result;
        at.next = none;
        (first_ == none ? first_ : slots_[last_].next) = ticket;
        last_ = ticket;
    }

    remote_queue_t* q_;
    std::size_t waiting_ = 0;
    std::unique_ptr<slot[]> slots_; /* by ticket */
    std::uint64_t count_ = 0;
    std::uint64_t free_ = none;  /* list of tickets to be taken */
    std::uint64_t first_ = none; /* list of those that have ended, whose waiters weren't told */
    std::uint64_t last_ = none;  /* valid if first_ is */
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
    std::unique_ptr<tickets> opened(new (std::nothrow) tickets(q));
    if (!opened) {
        remote_queue_close(q);
        return result<std::unique_ptr<tickets>>::failed(-ENOMEM);
    }
    return opened;
}

/*
 * The operations of a queue, or of a loop, which has start(remote_op), and nothing_to_do() for
 * empty spans. Bytes and names MUST stay valid until the operation ends.
 */
template <typename Starter>
class operations {
public:
    auto read(raddr_t address, std::span<std::byte> to) {
        return to.empty() ? its().nothing_to_do()
                          : its().start(remote_op_read(address, to.data(), to.size(), 0));
    }
    auto write(raddr_t address, std::span<const std::byte> from) {
        return from.empty() ? its().nothing_to_do()
                            : its().start(remote_op_write(address, from.data(), from.size(), 0));
    }
    /* As remote_copy(). */
    auto copy(raddr_t to, raddr_t from, std::size_t bytes) {
        return its().start(remote_op_copy(to, from, bytes, 0));
    }
    /* As remote_publish(); address 0 withdraws the name. */
    auto publish(const char* name, raddr_t address) {
        return its().start(remote_op_publish(name, address, 0));
    }
    /* As remote_lookup(). found: the address, then the bytes. */
    auto lookup(const char* name, std::array<std::uint64_t, 2>& found) {
        return its().start(remote_op_lookup(name, found.data(), 0));
    }
    /* Ends when all earlier operations of the handle have ended. */
    auto release() { return its().start(remote_op_release(0)); }
    /* As remote_query() and remote_call(); the function and its buffers stay until the end. */
    auto query(remote_function& function) { return its().start(remote_op_query(&function, 0)); }
    auto call(remote_function& function) { return its().start(remote_op_call(&function, 0)); }
    /* As remote_alloc(), and remote_free(). address is set once the operation has succeeded. */
    auto alloc(std::uint64_t bytes, raddr_t& address, unsigned int permission = REMOTE_RW) {
        return its().start(remote_op_alloc(0, bytes, permission, &address, 0));
    }
    auto free(raddr_t address) { return its().start(remote_op_free(address, 0)); }
    /* As remote_lock(), with 1 as result if the previous holder was passed over, and
     * remote_unlock(). The thread is the holder, so two coroutines exclude each other otherwise. */
    auto lock(raddr_t lock) { return its().start(remote_op_lock(lock, 0)); }
    auto unlock(raddr_t lock) { return its().start(remote_op_unlock(lock, 0)); }
    /* As release(), and then all that the node is executing. */
    auto fence() { return its().start(remote_op_fence(0)); }
    /* As remote_put(). The signal is copied. */
    auto put(raddr_t address, std::span<const std::byte> from, const remote_signal& signal) {
        return its().start(remote_op_put(address, from.data(), from.size(), &signal, 0));
    }
    /* As remote_fetch(), on an integer of 4 or 8 bytes. */
    auto fetch(raddr_t address, std::size_t bytes, remote_change change, std::uint64_t value,
               std::uint64_t* found = nullptr) {
        return its().start(remote_op_fetch(address, bytes, change, value, found, 0));
    }
    /* As remote_cas(), with 1 or 0 as result. Integers of 16 bytes are two of uint64_t. */
    auto cas(raddr_t address, std::size_t bytes, const std::uint64_t* expected,
             const std::uint64_t* desired, std::uint64_t* found = nullptr) {
        return its().start(remote_op_cas(address, bytes, expected, desired, found, 0));
    }

private:
    friend Starter;
    operations() = default;
    Starter& its() { return static_cast<Starter&>(*this); }
};

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
        if (tickets_)
            give_up(-ECANCELED);
        tickets_ = std::exchange(other.tickets_, nullptr);
        ticket_ = other.ticket_;
        result_ = other.result_;
        if (tickets_)
            tickets_->move(ticket_, *this);
        return *this;
    }
    ~pending() {
        if (tickets_)
            give_up(-ECANCELED);
    }

    /*
     * Has the operation ended? Doesn't wait. In a child of fork(), and if the handle was
     * closed, it has ended with the error that the queue returns: -ECHILD, -EBADF.
     */
    bool done() {
        if (tickets_)
            reap(0, 0);
        return !tickets_;
    }
    /* Waits for the end. The value is the result of this kind's C function. */
    result<int> wait() {
        while (tickets_) {
            if (!reap(1, std::numeric_limits<std::uint64_t>::max()))
                give_up(-EBADF); /* nothing is in flight: the handle was closed */
        }
        return result_ < 0 ? result<int>::failed(result_) : result<int>(result_);
    }
    /* Cancels it. Then wait() returns -ECANCELED, or the result if it had ended before. */
    void cancel() {
        if (tickets_)
            tickets_->cancel(ticket_);
        while (tickets_) { /* its completion is there, perhaps behind others */
            if (!reap(0, 0))
                give_up(-ECANCELED);
        }
    }

private:
    friend class queue;

    /* Takes completions. False: there was none. An error ends this operation. */
    bool reap(std::size_t at_least, std::uint64_t timeout_us) {
        int told = tickets_->reap(at_least, timeout_us);

        if (told < 0)
            give_up(told);
        return told;
    }
    void give_up(int error) {
        tickets_->drop(ticket_);
        ended(error);
    }
    void ended(int result) override {
        tickets_ = nullptr;
        result_ = result;
    }

    detail::tickets* tickets_ = nullptr; /* NULL: it has ended */
    std::uint64_t ticket_ = 0;
    int result_ = -EINVAL;
};

/* remote_queue_t, for one thread, closed when destroyed. The handle MUST outlive it. */
class queue : public detail::operations<queue> {
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

    /* Starts any operation; its user_data is the library's. Waits for room in the queue. */
    pending start(remote_op op) {
        pending made;

        if (!tickets_)
            return made;
        op.user_data = tickets_->take(made);
        if (op.user_data == detail::tickets::none) {
            made.ended(-ENOMEM);
            return made;
        }
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
    friend class detail::operations<queue>;

    static pending nothing_to_do() {
        pending made;

        made.ended(0);
        return made;
    }

    std::unique_ptr<detail::tickets> tickets_;
};

} // namespace remote

#endif
