// SPDX-License-Identifier: GPL-2.0
// The daemon's threads: for each socket, requests in and answers out, some pages zeroed between
// batches; and one for what takes long.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "remora-node/node.hpp"
#include "remora-node/outbox.hpp"
#include "remora-node/ring_worker.hpp"
#include "remora-node/socket.hpp"

namespace remora::daemon {

class Worker {
public:
    // index: of this thread among the node's threads.
    // spin_us: how long it looks for requests before it sleeps.
    Worker(Node& node, const Socket& socket, unsigned int thread, std::uint32_t spin_us = 0);
    // Until stop(), from another thread, which is final: the socket still queues what comes, and is
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

// The thread of requests that may take long (slow.hpp). Its answers leave by the socket or by
// rings.
class SlowWorker {
public:
    // rings: null if there are none.
    SlowWorker(Node& node, const Socket& socket, Rings* rings = nullptr)
        : node_(node),
          socket_outbox_(socket.fd(), node.counters(node.slow_thread())),
          outbox_(socket_outbox_, rings) {
        node.defer_slow();
    }
    void run() { node_.run_slow(outbox_); }
    // Final, from another thread.
    void stop() { node_.stop_slow(); }

private:
    Node& node_;
    SocketOutbox socket_outbox_;
    SlowOutbox outbox_;
};

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
