// SPDX-License-Identifier: GPL-2.0
// Waits for descriptors.
#pragma once

#include <cerrno>
#include <cstdint>
#include <system_error>

#include <sys/epoll.h>
#include <unistd.h>

namespace eqds_run {

class Source {
public:
    virtual ~Source() = default;
    virtual void ready(std::uint32_t events) = 0;
};

[[noreturn]] inline void throw_errno(const char* what, int error = errno) {
    throw std::system_error(error, std::generic_category(), what);
}

class Loop {
public:
    Loop() : fd_(epoll_create1(EPOLL_CLOEXEC)) {
        if (fd_ < 0)
            throw_errno("epoll");
    }
    ~Loop() { close(fd_); }
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    void add(int fd, Source* source) { control(EPOLL_CTL_ADD, fd, source, EPOLLIN); }
    void remove(int fd) { epoll_ctl(fd_, EPOLL_CTL_DEL, fd, nullptr); }
    // A source that is off is told of nothing but its end.
    void turn(int fd, Source* source, bool on) {
        control(EPOLL_CTL_MOD, fd, source, on ? std::uint32_t{EPOLLIN} : 0);
    }

    // Serves one source that is ready: it may be the end of others.
    void serve() {
        epoll_event event{};
        int n = epoll_wait(fd_, &event, 1, -1);
        if (n < 0 && errno != EINTR)
            throw_errno("epoll");
        if (n > 0)
            static_cast<Source*>(event.data.ptr)->ready(event.events);
    }

private:
    void control(int verb, int fd, Source* source, std::uint32_t events) {
        epoll_event event{};
        event.events = events;
        event.data.ptr = source;
        if (epoll_ctl(fd_, verb, fd, &event))
            throw_errno("epoll");
    }

    int fd_;
};

} // namespace eqds_run
