// SPDX-License-Identifier: GPL-2.0
// The functions of libremote that programs with a queue call, as a test answers them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include <remote/queue.h>

namespace remora::test {

// One handle and one queue. Made before the code under test, and there for as long as that.
class FakeRemote {
public:
    FakeRemote();
    ~FakeRemote();
    FakeRemote(const FakeRemote&) = delete;
    FakeRemote& operator=(const FakeRemote&) = delete;

    // Operations that the queue holds; the next one is refused with -EAGAIN.
    std::size_t room = 256;
    // Errors of the next submissions and waits, each of one.
    std::deque<int> submit_errors, wait_errors;
    // Results of the next operations, which end at once; the others wait for end().
    std::deque<int> results;

    // Waits until so many operations were submitted in all, or a timeout ends the suite.
    void wait_submitted(std::size_t count);
    // The same, for a thread that sleeps in remote_queue_wait(). Its time there.
    std::uint64_t wait_sleeper();
    // Ends the oldest one in flight.
    void end(int result);

    std::size_t submitted() const;
    std::size_t refused() const;
    std::size_t in_flight() const;
    unsigned closed() const; // times that the queue was closed
    unsigned losses() const; // calls of remote_lost()

    // The functions.
    int submit(const remote_op* ops, std::size_t count);
    int wait(remote_completion* to, std::size_t max, std::uint64_t timeout_us);
    int cancel(std::uint64_t user_data);
    void close();
    int lost();

private:
    mutable std::mutex lock_;
    std::condition_variable changed_;
    std::deque<std::uint64_t> in_flight_;
    std::deque<remote_completion> ended_;
    std::size_t submitted_ = 0, refused_ = 0, sleepers_ = 0;
    std::uint64_t sleeps_us_ = 0;
    unsigned closed_ = 0, losses_ = 0;
};

} // namespace remora::test
