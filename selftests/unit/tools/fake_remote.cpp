// SPDX-License-Identifier: GPL-2.0
#include "fake_remote.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace remora::test {

namespace {

FakeRemote* fake;

int opened; // the address of handle and queue

} // namespace

FakeRemote::FakeRemote() {
    fake = this;
}
FakeRemote::~FakeRemote() {
    fake = nullptr;
}

void FakeRemote::wait_submitted(std::size_t count) {
    std::unique_lock lock(lock_);
    changed_.wait(lock, [&] { return submitted_ >= count; });
}

std::uint64_t FakeRemote::wait_sleeper() {
    std::unique_lock lock(lock_);
    changed_.wait(lock, [&] { return sleepers_ > 0; });
    return sleeps_us_;
}

void FakeRemote::end(int result) {
    {
        std::lock_guard lock(lock_);
        ended_.push_back({in_flight_.front(), result, 0});
        in_flight_.pop_front();
    }
    changed_.notify_all();
}

std::size_t FakeRemote::submitted() const {
    std::lock_guard lock(lock_);
    return submitted_;
}
std::size_t FakeRemote::refused() const {
    std::lock_guard lock(lock_);
    return refused_;
}
std::size_t FakeRemote::in_flight() const {
    std::lock_guard lock(lock_);
    return in_flight_.size();
}
unsigned FakeRemote::closed() const {
    std::lock_guard lock(lock_);
    return closed_;
}
unsigned FakeRemote::losses() const {
    std::lock_guard lock(lock_);
    return losses_;
}

int FakeRemote::submit(const remote_op* ops, std::size_t count) {
    std::lock_guard lock(lock_);
    if (!submit_errors.empty()) {
        const int error = submit_errors.front();
        submit_errors.pop_front();
        if (error)
            return error;
    }
    std::size_t started = 0;
    for (; started < count && in_flight_.size() + ended_.size() < room; started++) {
        submitted_++;
        if (results.empty()) {
            in_flight_.push_back(ops[started].user_data);
            continue;
        }
        ended_.push_back({ops[started].user_data, results.front(), 0});
        results.pop_front();
    }
    refused_ += count - started;
    changed_.notify_all();
    return started ? static_cast<int>(started) : -EAGAIN;
}

int FakeRemote::wait(remote_completion* to, std::size_t max, std::uint64_t timeout_us) {
    std::unique_lock lock(lock_);
    if (!wait_errors.empty()) {
        const int error = wait_errors.front();
        wait_errors.pop_front();
        return error;
    }
    const auto over = [&] { return !ended_.empty() || in_flight_.empty(); };
    if (!over()) {
        sleepers_++;
        sleeps_us_ = timeout_us;
        changed_.notify_all();
        if (timeout_us == UINT64_MAX)
            changed_.wait(lock, over);
        else
            changed_.wait_for(lock, std::chrono::microseconds(timeout_us), over);
        sleepers_--;
    }
    const std::size_t taken = std::min(max, ended_.size());
    std::copy_n(ended_.begin(), taken, to);
    ended_.erase(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(taken));
    return static_cast<int>(taken);
}

int FakeRemote::cancel(std::uint64_t user_data) {
    std::lock_guard lock(lock_);
    const auto found = std::ranges::find(in_flight_, user_data);
    if (found == in_flight_.end())
        return -ENOENT;
    in_flight_.erase(found);
    ended_.push_back({user_data, -ECANCELED, 0});
    changed_.notify_all();
    return 1;
}

void FakeRemote::close() {
    std::lock_guard lock(lock_);
    closed_++;
    in_flight_.clear();
    ended_.clear();
}

int FakeRemote::lost() {
    std::lock_guard lock(lock_);
    losses_++;
    return 0;
}

} // namespace remora::test

using remora::test::fake;
using remora::test::opened;

int remote_open(remote_t** r, const char*, const remote_options*) {
    *r = reinterpret_cast<remote_t*>(&opened);
    return 0;
}
void remote_close(remote_t*) {}
const char* remote_why() {
    return "";
}
const char* remote_strerror(int error) {
    return std::strerror(-error);
}
int remote_queue_open(remote_queue_t** q, remote_t*, const remote_queue_options*) {
    *q = reinterpret_cast<remote_queue_t*>(&opened);
    return 0;
}
void remote_queue_close(remote_queue_t* q) {
    if (q)
        fake->close();
}
int remote_queue_submit(remote_queue_t* q, const remote_op* ops, size_t count) {
    return q ? fake->submit(ops, count) : -EINVAL;
}
int remote_queue_wait(remote_queue_t*, remote_completion* to, size_t max, size_t, uint64_t us) {
    return fake->wait(to, max, us);
}
int remote_queue_cancel(remote_queue_t*, uint64_t user_data) {
    return fake->cancel(user_data);
}
int remote_lost(remote_t*, raddr_t*, uint64_t*) {
    return fake->lost();
}
int remote_alloc(remote_t*, uint64_t, unsigned, raddr_t* address) {
    *address = 1 << 20;
    return 0;
}
int remote_free(remote_t*, raddr_t) {
    return 0;
}
int remote_read(remote_t*, raddr_t, void*, size_t) {
    return -EFAULT;
}
int remote_query(remote_t*, remote_function*) {
    return -ENOSYS;
}
int remote_call(remote_t*, remote_function*) {
    return -ENOSYS;
}
