// SPDX-License-Identifier: GPL-2.0
// The daemon's threads: for each socket, requests in and answers out, some pages zeroed between
// batches; and one for requests that take long.
#pragma once

#include <atomic>
#include <chrono>

#include "remora-node/node.hpp"
#include "remora-node/outbox.hpp"
#include "remora-node/socket.hpp"

namespace remora::daemon {

class Worker {
public:
    // index: of this thread among the node's threads.
    // spin_us: how long it looks for requests before it sleeps.
    // late: of the paths (path.hpp).
    Worker(Node& node, const Socket& socket, unsigned int thread, std::uint32_t spin_us,
           Outbox* late);
    // Until stop(), from another thread, which is final: the socket still queues datagrams, and is
    // to be closed.
    void run();
    void stop();

private:
    bool spin();
    void serve(unsigned int packets);
    void report_error();

    Node& node_;
    int fd_;
    unsigned int thread_;
    std::chrono::microseconds spin_;
    std::atomic<bool> stopped_{false};
    bool told_ = false; // of an error
    Inbox inbox_;
    SocketOutbox outbox_;
};

// The thread of requests that can take long (slow.hpp). Node::defer_slow() comes first.
class SlowWorker {
public:
    explicit SlowWorker(Node& node) : node_(node) {}
    void run() { node_.run_slow(); }
    // Final, from another thread.
    void stop() { node_.stop_slow(); }

private:
    Node& node_;
};

} // namespace remora::daemon
