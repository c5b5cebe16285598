// SPDX-License-Identifier: GPL-2.0
// A thread of the daemon: requests of one socket in, answers out; some pages zeroed between
// batches.
#pragma once

#include <atomic>

#include "remora-node/node.hpp"
#include "remora-node/outbox.hpp"
#include "remora-node/socket.hpp"

namespace remora::daemon {

// The clock of all times that the node is told.
std::uint64_t now_ns();

class Worker {
public:
    // index: of this thread among the node's threads.
    Worker(Node& node, const Socket& socket, unsigned int thread);
    // Until stop(), from another thread, which is final: the socket still queues what comes, and is
    // to be closed.
    void run();
    void stop();

private:
    void serve(unsigned int packets);
    void report_error();

    Node& node_;
    int fd_;
    unsigned int thread_;
    std::atomic<bool> stopped_{false};
    bool told_ = false; // of an error
    Inbox inbox_;
    SocketOutbox outbox_;
};

} // namespace remora::daemon
