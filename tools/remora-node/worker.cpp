// SPDX-License-Identifier: GPL-2.0
#include "remora-node/worker.hpp"

#include <chrono>
#include <cstring>
#include <thread>

#include <sys/socket.h>

#include "remora-node/clock.hpp"
#include "support/futex.hpp"
#include "support/say.hpp"

namespace remora::daemon {

namespace {

// How long to wait for the other threads' grace when there is nothing else to do, and for an error
// to pass.
constexpr int grace_ms = 1;

} // namespace

Worker::Worker(Node& node, const Socket& socket, unsigned int thread, std::uint32_t spin_us,
               Outbox* late)
    : node_(node),
      fd_(socket.fd()),
      thread_(thread),
      spin_(has_one_processor() ? 0 : spin_us),
      inbox_(late),
      outbox_(socket.fd(), node.counters(thread)) {}

void Worker::run() {
    while (!stopped_.load()) {
        bool more = node_.scrub(thread_);
        if (spin())
            continue;
        serve(inbox_.receive(fd_, more ? grace_ms : Inbox::forever));
        if (inbox_.error())
            report_error();
    }
}

// True: something came.
bool Worker::spin() {
    if (!spin_.count())
        return false;
    auto end = std::chrono::steady_clock::now() + spin_;
    do {
        if (unsigned int packets = inbox_.receive(fd_, Inbox::at_once)) {
            serve(packets);
            return true;
        }
        if (inbox_.error())
            return false;
    } while (!stopped_.load() && std::chrono::steady_clock::now() < end);
    return stopped_.load();
}

// The error can last, so pause rather than spin, and print it once.
void Worker::report_error() {
    if (!told_)
        warn("remora-node: warning: nothing can be received: {}", std::strerror(inbox_.error()));
    told_ = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(grace_ms));
}

void Worker::serve(unsigned int packets) {
    if (!packets)
        return;
    std::uint64_t now = now_ns();
    node_.enter(thread_);
    for (unsigned int i = 0; i < packets; i++)
        inbox_.for_each_datagram(i, [&, &path = inbox_.path(i)](auto datagram) {
            node_.handle(thread_, now, datagram, path, outbox_);
        });
    node_.finish(thread_, outbox_);
    outbox_.flush();
    node_.leave(thread_);
}

// A call that waits for packets then ends with an empty one. shutdown() of a socket that isn't
// connected returns an error, yet works.
void Worker::stop() {
    stopped_.store(true);
    shutdown(fd_, SHUT_RD);
}

} // namespace remora::daemon
