// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that can take long, as they wait for the one thread that executes them:
 *
 *   threads of the sockets ─ add() ─> queue (core/rmem/node/queue.h) ─ serve() ─> Host::call() ─>
 *   the operator's thread ─ add() ──> errands ─────────────────────────'                 ended()
 *
 * So no other request waits in a socket for the end of an ALLOC or FREE of a large region, and no
 * thread but this one waits for the lock of such calls.
 */
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "node/host.hpp"
#include "remora-node/path.hpp"

namespace remora::daemon {

class SlowPath {
public:
    struct Job {
        rmem_job core; // first
        Path path;
    };
    struct Events {
        std::function<void(Job& job)> ended;  // its call has an answer
        std::function<void(Job& job)> orphan; // its space is gone
        std::function<void()> between;        // a long call's steps
    };

    explicit SlowPath(node::Host& host);

    enum class Added { waits, for_another, no_room }; // for_another: another space's request went
    Added add(const rmem_head& head, const Path& path, std::span<const std::uint8_t> payload);

    // The operator's calls: executed in the thread of serve(), before the requests that wait.
    // between: for Host's functions. After stop() none is.
    using Errand = std::function<void(const node::Host::Between& between)>;
    void add(Errand errand);

    // serve() returns at once, in this turn or the next. From any thread.
    void poke();

    // Waits for requests until the timeout, poke() or stop(), and executes some. In one thread at a
    // time.
    void serve(std::chrono::milliseconds timeout, const Events& events);
    // Final, from any thread.
    void stop();
    bool is_stopped();

private:
    using Take = rmem_job* (*)(rmem_queue*);
    Job* take(Take whose);
    void let_go(Job& job, void (*how)(rmem_queue*, rmem_job*));
    void run_errands(const Events& events);
    std::uint32_t execute(Job& job, const Events& events); // returns its rmem_queue_cost()
    void execute_between(const rmem_node_call& under_way, const Events& events);
    void execute_brief(const rmem_node_call& under_way, const Events& events);

    node::Host& host_;
    std::mutex lock_; // all below
    std::condition_variable added_;
    bool stopped_ = false;
    bool poked_ = false;
    std::vector<Errand> errands_;
    rmem_queue queue_;
    std::vector<Job> jobs_;
    std::vector<std::uint8_t> lanes_; // queue_'s memory
};

} // namespace remora::daemon
