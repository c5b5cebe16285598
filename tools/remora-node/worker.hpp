// SPDX-License-Identifier: GPL-2.0
// A thread of the daemon: requests of one socket in, answers out; some pages zeroed between
// batches.
#pragma once

#include <functional>
#include <vector>

#include "remora-node/node.hpp"
#include "remora-node/outbox.hpp"
#include "remora-node/socket.hpp"

namespace remora::daemon {

// Something else to wait for. ready() is called when fd is readable; false ends the thread's run.
struct Watch {
    int fd;
    std::function<bool()> ready;
};

class Worker {
public:
    Worker(Node& node, const Socket& socket, unsigned int thread);
    // Until a watch's ready() says false.
    void run(const std::vector<Watch>& watches);

private:
    void serve();

    Node& node_;
    int fd_;
    unsigned int thread_;
    Inbox inbox_;
    SocketOutbox outbox_;
};

} // namespace remora::daemon
