// SPDX-License-Identifier: GPL-2.0
#include "async.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <span>

namespace remora::test {

namespace {

using Clock = std::chrono::steady_clock;

thread_local std::uint64_t timeout_us_now = 0;

// A handle's queue. One of the threads that poll waits for all.
class Polled {
public:
    static constexpr std::uint64_t forever = UINT64_MAX;

    explicit Polled(remote_queue_t* q) : q_(q) {}
    ~Polled() { remote_queue_close(q_); }
    Polled(const Polled&) = delete;
    Polled& operator=(const Polled&) = delete;

    remote_queue_t* queue() const { return q_; }

    // Calls done() when completions have come, until it is true, or the time is up.
    template <typename Done>
    bool wait(Done done, std::uint64_t timeout_us) {
        const Clock::time_point until = timeout_us == forever
                                            ? Clock::time_point::max()
                                            : Clock::now() + std::chrono::microseconds(timeout_us);
        std::unique_lock lock(lock_);
        for (bool looked = false; !done(); looked = true) {
            if (looked && Clock::now() >= until)
                return false;
            if (waiting_ && timeout_us) {
                if (timeout_us == forever)
                    changed_.wait(lock);
                else
                    changed_.wait_until(lock, until);
                continue;
            }
            take(lock, timeout_us == forever ? forever : left_us(until));
        }
        return true;
    }
    // Lock. Gives the operation its result, if it has ended.
    bool settle(AsyncOp& op) {
        auto ended = ended_.find(op.token);
        if (ended != ended_.end()) {
            op.result = ended->second;
            ended_.erase(ended);
        }
        return op.result != -EINPROGRESS;
    }

private:
    static std::uint64_t left_us(Clock::time_point until) {
        auto left = std::chrono::ceil<std::chrono::microseconds>(until - Clock::now()).count();
        return left > 0 ? static_cast<std::uint64_t>(left) : 0;
    }
    void take(std::unique_lock<std::mutex>& lock, std::uint64_t timeout_us) {
        std::array<remote_completion, 64> done;
        const bool alone = !waiting_;
        waiting_ = true;
        for (std::size_t taken = done.size(); taken == done.size(); timeout_us = 0) {
            // Without waiting the lock is kept: a thread that finds nothing in the queue must not
            // miss a completion that another has taken and not yet noted.
            if (timeout_us)
                lock.unlock();
            taken = static_cast<std::size_t>(
                std::max(0, remote_queue_wait(q_, done.data(), done.size(), timeout_us ? 1 : 0,
                                              timeout_us)));
            if (timeout_us)
                lock.lock();
            for (const remote_completion& each : std::span(done).first(taken))
                ended_[each.user_data] = each.result;
        }
        if (alone)
            waiting_ = false;
        changed_.notify_all();
    }

    remote_queue_t* q_;
    std::mutex lock_;
    std::condition_variable changed_;
    bool waiting_ = false;
    std::map<std::uint64_t, int> ended_; // results nobody has asked for, by token
};

struct All {
    std::mutex lock;
    std::map<remote_t*, std::shared_ptr<Polled>> queue;
    std::map<remote_t*, std::uint32_t> depth;
};

All& all() {
    static All all;
    return all;
}

bool is_closed(remote_t* r) {
    remote_counters counters{};
    counters.size = sizeof(counters);
    return remote_stats(r, &counters) == -EBADF;
}

// NULL: error is why.
std::shared_ptr<Polled> queue_of(remote_t* r, int& error) {
    std::lock_guard lock(all().lock);
    auto found = all().queue.find(r);
    if (found != all().queue.end() && !is_closed(r))
        return found->second;
    std::erase_if(all().queue, [](const auto& each) { return is_closed(each.first); });
    remote_queue_options options{};
    options.size = sizeof(options);
    options.depth = all().depth.contains(r) ? all().depth[r] : 1024;
    remote_queue_t* q = nullptr;
    error = remote_queue_open(&q, r, &options);
    return error ? nullptr : (all().queue[r] = std::make_shared<Polled>(q));
}

int start(remote_t* r, remote_op op, AsyncOp* started) {
    static std::atomic<std::uint64_t> last;
    int error = 0;
    if (!started)
        return -EINVAL;
    auto polled = queue_of(r, error);
    if (!polled)
        return error;
    op.user_data = ++last;
    op.timeout_us = timeout_us_now;
    int submitted = remote_queue_submit(polled->queue(), &op, 1);
    if (submitted != 1)
        return submitted;
    *started = {op.user_data, -EINPROGRESS};
    return 0;
}

} // namespace

void set_depth(remote_t* r, std::uint32_t depth) {
    std::lock_guard lock(all().lock);
    all().depth[r] = depth;
}

int read_async(remote_t* r, raddr_t address, void* buffer, std::size_t bytes, AsyncOp* op) {
    return start(r, remote_op_read(address, buffer, bytes, 0), op);
}

int write_async(remote_t* r, raddr_t address, const void* buffer, std::size_t bytes, AsyncOp* op) {
    return start(r, remote_op_write(address, buffer, bytes, 0), op);
}

int copy_async(remote_t* r, raddr_t to, raddr_t from, std::size_t bytes, AsyncOp* op) {
    return start(r, remote_op_copy(to, from, bytes, 0), op);
}

int publish_async(remote_t* r, const char* name, raddr_t address, AsyncOp* op) {
    return start(r, remote_op_publish(name, address, 0), op);
}

int lookup_async(remote_t* r, const char* name, std::uint64_t* found, AsyncOp* op) {
    return start(r, remote_op_lookup(name, found, 0), op);
}

int readv_async(remote_t* r, const remote_vec* pieces, std::size_t count, AsyncOp* op) {
    return start(r, remote_op_readv(pieces, count, 0), op);
}

int writev_async(remote_t* r, const remote_vec* pieces, std::size_t count, AsyncOp* op) {
    return start(r, remote_op_writev(pieces, count, 0), op);
}

int fetch_async(remote_t* r, raddr_t address, std::size_t bytes, remote_change change,
                std::uint64_t value, std::uint64_t* found, AsyncOp* op) {
    return start(r, remote_op_fetch(address, bytes, change, value, found, 0), op);
}

int cas_async(remote_t* r, raddr_t address, std::size_t bytes, std::uint64_t* expected,
              std::uint64_t desired, AsyncOp* op) {
    if (bytes == 4)
        *expected = static_cast<std::uint32_t>(*expected);
    return start(r, remote_op_cas(address, bytes, expected, &desired, expected, 0), op);
}

int put_async(remote_t* r, raddr_t address, const void* buffer, std::size_t bytes,
              const remote_signal* signal, AsyncOp* op) {
    return start(r, remote_op_put(address, buffer, bytes, signal, 0), op);
}

int poll_all(remote_t* r, AsyncOp* ops, std::size_t count, std::uint64_t timeout_us) {
    int error = 0;
    auto polled = queue_of(r, error);
    if (!polled)
        return error;
    std::span all_ops(ops, count);
    auto all_ended = [&] {
        bool ended = true;
        for (AsyncOp& op : all_ops)
            ended &= polled->settle(op);
        return ended;
    };
    if (!polled->wait(all_ended, timeout_us))
        return -EAGAIN;
    for (const AsyncOp& op : all_ops) {
        if (op.result < 0)
            return op.result;
    }
    return 0;
}

int poll_any(remote_t* r, AsyncOp* const* ops, std::size_t count, std::uint64_t timeout_us) {
    int error = 0;
    auto polled = queue_of(r, error);
    if (!polled)
        return error;
    int index = -EAGAIN;
    auto any_ended = [&] {
        for (std::size_t i = 0; i < count && index < 0; i++) {
            if (polled->settle(*ops[i]))
                index = static_cast<int>(i);
        }
        return index >= 0;
    };
    polled->wait(any_ended, timeout_us);
    return index;
}

int cancel(remote_t* r, const AsyncOp* op) {
    int error = 0;
    auto polled = queue_of(r, error);
    if (!polled)
        return error;
    int cancelled = remote_queue_cancel(polled->queue(), op->token);
    return cancelled == -ENOENT ? 0 : std::min(cancelled, 0);
}

int read_in_time(remote_t* r, raddr_t address, void* buffer, std::size_t bytes) {
    AsyncOp op;
    if (!timeout_us_now)
        return remote_read(r, address, buffer, bytes);
    int error = read_async(r, address, buffer, bytes, &op);
    return error ? error : poll_all(r, &op, 1, Polled::forever);
}

int write_in_time(remote_t* r, raddr_t address, const void* buffer, std::size_t bytes) {
    AsyncOp op;
    if (!timeout_us_now)
        return remote_write(r, address, buffer, bytes);
    int error = write_async(r, address, buffer, bytes, &op);
    return error ? error : poll_all(r, &op, 1, Polled::forever);
}

int add_in_time(remote_t* r, raddr_t address, std::uint64_t value, std::uint64_t* found) {
    AsyncOp op;
    if (!timeout_us_now)
        return remote_fetch(r, address, 8, REMOTE_ADD, value, found);
    int error = fetch_async(r, address, 8, REMOTE_ADD, value, found, &op);
    return error ? error : poll_all(r, &op, 1, Polled::forever);
}

int cas_in_time(remote_t* r, raddr_t address, std::uint64_t* expected, std::uint64_t desired) {
    AsyncOp op;
    if (!timeout_us_now)
        return std::min(remote_cas(r, address, 8, expected, &desired), 0);
    int error = cas_async(r, address, 8, expected, desired, &op);
    return error ? error : poll_all(r, &op, 1, Polled::forever);
}

void Within::set(std::uint64_t us) {
    timeout_us_now = us;
}

Within::Within(std::uint64_t us) : before_(timeout_us_now) {
    timeout_us_now = us;
}

Within::~Within() {
    timeout_us_now = before_;
}

} // namespace remora::test
