// SPDX-License-Identifier: MIT
/*
 * A handle: its epoch (epoch.hpp), buffers, mappings, and queues.
 * Implements the C functions of remote.h for arguments that were checked.
 */
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>

#include "remote/remote.h"
#include "src/api/epoch.hpp"
#include "src/async/queue.hpp"
#include "src/backend/backend.hpp"
#include "src/backend/buffers.hpp"
#include "src/backend/target.hpp"
#include "src/mmap/mappings.hpp"

namespace remora::lib {

class Handle {
public:
    // Throws Failure.
    Handle(Target target, const remote_options& options);
    ~Handle();

    // Was the handle opened by another process?
    bool is_foreign() const;
    // In a child of fork(), before anything else: the child keeps no connection to the node, for
    // the parent's end has to end them.
    void leave_to_parent();
    // The epoch for an operation that begins now; the operation keeps it until it ends.
    EpochRef epoch();
    Buffers& buffers() { return buffers_; }
    Mappings& mappings() { return mappings_; }

    // 1: this range was lost. 0: none was, or all are reported and another epoch has begun. Throws
    // Failure: the new epoch gets no backend.
    int lost(raddr_t& address, std::uint64_t& bytes);
    void stats(remote_counters& counters);

    // The caller has checked the arguments.
    int execute(const remote_op& op) { return execute(op, limit()); }
    int execute(const remote_op& op, Clock::time_point limit);
    // Copies inside the node; the caller has checked the ranges.
    int copy(raddr_t to, raddr_t from, std::uint64_t bytes, Clock::time_point limit);
    // The limit for a synchronous call that begins now.
    Clock::time_point limit() const {
        return call_timeout_us_ ? from_now(call_timeout_us_) : never;
    }
    // Asks the node, within limit(). Throws Failure.
    void info(remote_node& node);

    // Queues whose operations the handle ends when it is closed.
    void add(Queue& queue);
    void remove(Queue& queue);

private:
    int begin_epoch(const EpochRef& before);
    static void disown(EpochRef& epoch);

    unsigned generation_; // number of forks when it was opened
    const Target target_;
    std::mutex epoch_lock_; // epoch_, past_
    EpochRef epoch_;
    std::atomic<Backend*> backend_; // epoch_'s, for leave_to_parent(), which can't take the lock
    remote_counters past_{};        // counters of earlier epochs
    std::mutex lost_lock_;          // serialises lost()
    Buffers buffers_;
    const std::uint64_t call_timeout_us_;
    std::mutex queues_lock_; // queues_
    std::set<Queue*> queues_;
    Mappings mappings_;
};

} // namespace remora::lib
