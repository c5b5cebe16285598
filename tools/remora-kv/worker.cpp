// SPDX-License-Identifier: GPL-2.0
#include "remora-kv/worker.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "support/failure.hpp"
#include "support/say.hpp"

namespace remora::kv {

namespace {

constexpr std::uint32_t second_us = 1'000'000;
// While others wait for memory, a client that holds much of it has to read or send by this time.
constexpr std::uint32_t stalled_s = 20;

} // namespace

Worker::Worker(Shared& all, Counts& mine, const std::string& target, const Place& place,
               int listener_fd)
    : shared(all),
      counts(mine),
      table(target, place),
      budget(all.buffers_bytes / all.threads, all.connections_max),
      listener(listener_fd),
      poll(epoll_create1(EPOLL_CLOEXEC)) {
    if (!poll)
        throw Failure("no epoll descriptor: {}", std::strerror(errno));
    watch(shared.stop_fd, EPOLLIN, false);
    watch(listener, EPOLLIN | EPOLLEXCLUSIVE, false);
}

void Worker::watch(int fd, std::uint32_t events, bool again) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    if (epoll_ctl(poll.get(), again ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event))
        throw Failure("can't wait for descriptor {}: {}", fd, std::strerror(errno));
}

// The library can have another descriptor each time.
void Worker::watch_queue(std::uint64_t& next_us) {
    const int fd = table.descriptor(next_us);
    if (fd < 0)
        throw Failure("can't wait for the node: {}", remote_strerror(fd));
    if (fd == queue_fd)
        return;
    if (queue_fd >= 0)
        epoll_ctl(poll.get(), EPOLL_CTL_DEL, queue_fd, nullptr);
    watch(fd, EPOLLIN, false);
    queue_fd = fd;
}

void Worker::accept_all() {
    for (;;) {
        Descriptor fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!fd) {
            // Without descriptors or memory it would be ready again at once.
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
                epoll_ctl(poll.get(), EPOLL_CTL_DEL, listener, nullptr);
                paused_s = table.now_s();
            }
            return;
        }
        Counts::add(counts.accepted);
        if (shared.sum(&Counts::open) >= shared.connections_max) {
            constexpr std::string_view full = "SERVER_ERROR too many open connections\r\n";
            (void)send(fd.get(), full.data(), full.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
            continue;
        }
        const int yes = 1; // an error: it isn't TCP
        (void)setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
        const int number = fd.get();
        auto connection = std::make_shared<Connection>(*this, std::move(fd));
        watch_connection(*connection);
        connections.emplace(number, std::move(connection));
        Counts::add(counts.open);
    }
}

void Worker::end(const std::shared_ptr<Connection>& connection) {
    // Commands under way keep the object, and its descriptor with it.
    if (connection->events)
        epoll_ctl(poll.get(), EPOLL_CTL_DEL, connection->fd(), nullptr);
    shutdown(connection->fd(), SHUT_RDWR);
    if (connections.erase(connection->fd()))
        Counts::add(counts.open, -1);
    connection->leave();
}

// A socket that waits for nothing isn't in the set: else epoll would tell again and again that its
// peer has gone.
void Worker::watch_connection(Connection& connection) {
    const std::uint32_t events =
        (connection.wants_to_read() ? EPOLLIN : 0U) | (connection.wants_to_write() ? EPOLLOUT : 0U);
    if (!events && connection.events)
        epoll_ctl(poll.get(), EPOLL_CTL_DEL, connection.fd(), nullptr);
    else if (events && connection.events != events)
        watch(connection.fd(), events, connection.events.has_value());
    connection.events = events ? std::optional(events) : std::nullopt;
}

void Worker::resume_paused() {
    if (paused.empty() || !budget.take_freed())
        return;
    for (const auto& each : paused) {
        each->unpause();
        wake(each);
    }
    paused.clear();
}

void Worker::end_stalled() {
    if (paused.empty() || looked_s == table.now_s())
        return;
    looked_s = table.now_s();
    auto bytes = [](const auto& each) { return each.second->stalled_bytes(stalled_s); };
    const auto worst = std::ranges::max_element(connections, {}, bytes);
    if (worst != connections.end() && bytes(*worst))
        end(std::shared_ptr(worst->second));
}

// Commands that end in here wake their connections, which go on at once.
void Worker::advance_all() {
    for (std::size_t n = 0; n < awake.size(); n++) {
        const auto connection = awake[n];
        connection->is_awake = false;
        auto known = connections.find(connection->fd());
        if (known == connections.end() || known->second != connection)
            continue;
        if (!connection->advance()) {
            end(connection);
            continue;
        }
        watch_connection(*connection);
    }
    awake.clear();
}

void Worker::run() {
    std::array<epoll_event, 256> events;
    for (;;) {
        advance_all();
        table.submit();
        table.reap();
        end_stalled();
        resume_paused();
        if (!awake.empty() || table.has_begun())
            continue;
        if (table.broken() == -ESTALE)
            throw Failure("the node restarted, and the table is lost: start remora-kv again");
        if (table.broken())
            throw Failure("the node: {}", remote_strerror(table.broken()));
        std::uint64_t next_us = second_us;
        watch_queue(next_us);
        next_us = std::min<std::uint64_t>(next_us, second_us);
        const int n = epoll_wait(poll.get(), events.data(), static_cast<int>(events.size()),
                                 static_cast<int>((next_us + 999) / 1000));
        table.look_at_clock();
        if (paused_s && paused_s != table.now_s()) {
            paused_s = 0;
            watch(listener, EPOLLIN | EPOLLEXCLUSIVE, false);
        }
        for (int i = 0; i < n; i++) {
            const int fd = events[static_cast<std::size_t>(i)].data.fd;
            if (fd == shared.stop_fd)
                return;
            if (fd == listener) {
                accept_all();
                continue;
            }
            auto at = connections.find(fd);
            if (at == connections.end())
                continue;
            const auto connection = at->second;
            const std::uint32_t what = events[static_cast<std::size_t>(i)].events;
            if ((what & EPOLLERR) || ((what & (EPOLLIN | EPOLLHUP)) && !connection->readable())) {
                end(connection);
                continue;
            }
            wake(connection);
        }
    }
}

} // namespace remora::kv
