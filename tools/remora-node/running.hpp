// SPDX-License-Identifier: GPL-2.0
#pragma once

#include <thread>
#include <utility>

namespace remora::daemon {

// A worker in its thread, which ends when this does.
template <typename Work>
class Running {
public:
    template <typename... Args>
    explicit Running(Args&&... args)
        : work_(std::forward<Args>(args)...), thread_(&Work::run, &work_) {}
    ~Running() {
        work_.stop();
        thread_.join();
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

private:
    Work work_;
    std::thread thread_;
};

} // namespace remora::daemon
