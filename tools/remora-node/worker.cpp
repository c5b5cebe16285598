// SPDX-License-Identifier: GPL-2.0
#include "remora-node/worker.hpp"

#include <cerrno>
#include <cstring>
#include <ctime>

#include <poll.h>

#include "support/failure.hpp"

namespace remora::daemon {

namespace {

// Batches served before the other descriptors are looked at again.
constexpr unsigned int batches_max = 16;
// How long to wait for the other threads' grace when there is nothing else to do.
constexpr int grace_ms = 1;

std::uint64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * BASE_NSEC_PER_SEC +
           static_cast<std::uint64_t>(now.tv_nsec);
}

} // namespace

Worker::Worker(Node& node, const Socket& socket, unsigned int thread)
    : node_(node), fd_(socket.fd()), thread_(thread), outbox_(socket.fd(), node.counters(thread)) {}

void Worker::serve() {
    for (unsigned int batch = 0; batch < batches_max; batch++) {
        unsigned int got = inbox_.receive(fd_);
        if (!got)
            return;
        std::uint64_t now = now_ns();
        node_.enter(thread_);
        for (unsigned int i = 0; i < got; i++)
            inbox_.for_each_datagram(i, [&, &path = inbox_.path(i)](auto datagram) {
                node_.handle(thread_, now, datagram, path, outbox_);
            });
        outbox_.flush();
        node_.leave(thread_);
        node_.scrub(thread_);
        if (got < Inbox::packets_max)
            return; // poll() says whether there is more
    }
}

void Worker::run(const std::vector<Watch>& watches) {
    std::vector<pollfd> fds{{fd_, POLLIN, 0}};
    for (const Watch& watch : watches)
        fds.push_back({watch.fd, POLLIN, 0});
    for (;;) {
        bool more = node_.scrub(thread_);
        if (poll(fds.data(), fds.size(), more ? grace_ms : -1) < 0 && errno != EINTR)
            throw Failure("can't wait for requests: {}", std::strerror(errno));
        if (fds[0].revents)
            serve();
        for (std::size_t i = 0; i < watches.size(); i++) {
            if (fds[i + 1].revents && !watches[i].ready())
                return;
        }
    }
}

} // namespace remora::daemon
