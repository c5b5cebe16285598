// SPDX-License-Identifier: GPL-2.0
// Bounds on waiting, so that a test fails with a message rather than hangs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace remora::test {

// Upper bound on one wait for another thread or process: far above what a busy machine takes.
inline constexpr std::chrono::seconds patience{120};

// Waits until condition() is true. False: it isn't within patience.
template <typename Condition>
bool comes_true(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() >= end)
            return false;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return true;
}

// Ends the process, with a message, if the guarded scope takes longer than several waits may: a
// call of the library that never returns can't be ended otherwise.
class Watchdog {
public:
    explicit Watchdog(std::string what) : what_(std::move(what)), thread_([this] { watch(); }) {}
    ~Watchdog() {
        {
            std::lock_guard lock(lock_);
            over_ = true;
        }
        changed_.notify_one();
        thread_.join();
    }
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

private:
    void watch() {
        std::unique_lock lock(lock_);
        if (changed_.wait_for(lock, 3 * patience, [this] { return over_; }))
            return;
        std::fprintf(stderr, "hangs: %s\n", what_.c_str());
        std::abort();
    }

    const std::string what_;
    std::mutex lock_;
    std::condition_variable changed_;
    bool over_ = false;
    std::thread thread_;
};

} // namespace remora::test
