// SPDX-License-Identifier: GPL-2.0
/*
 * QUERY and CALL messages: the run table (core/rmem/offload/run.h), and the shared objects with the
 * programs that it runs.
 *
 *   threads of the transports ─ admit() ─> table ─ run_own() at the end of the batch ─> ended()
 *                                            '──── run(), in the slow path's thread ──> ended()
 *
 * A thread ends most of its calls itself, and answers them together. The slow path's thread ends
 * those that take longer, and those that ended in another thread's rounds.
 *
 * A call that waits for a lock or a forward sleeps: rmem_run_park(), and wake() by the end of
 * the call that has the lock, or by the link's thread.
 *
 * Programs are trusted: a step that writes wild or never returns takes the node with it.
 */
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/node_report.hpp"
#include "node/host.hpp"
#include "remora-node/forward.hpp"
#include "remora-node/key_locks.hpp"
#include "remora-node/path.hpp"

extern "C" {
#include "core/rmem/offload/run.h"
}

namespace remora::daemon {

class Calls {
public:
    // poke: has the thread of run() run.
    explicit Calls(node::Host& host, std::function<void()> poke = {});
    ~Calls();
    Calls(const Calls&) = delete;
    Calls& operator=(const Calls&) = delete;

    // The thread of run() alone, for these three. Throw Failure.
    // budget_us: 0: the program's own. between: as of remove(), while the program's start waits.
    void load(const std::string& file, std::uint32_t space, std::uint32_t budget_us,
              const std::vector<std::uint32_t>& clients, const OpenLinks& links,
              const std::function<void()>& between);
    // After a space was deleted: its programs go when their last call has ended.
    void space_gone();
    // between: is called again and again while calls of the program run; it calls run().
    void remove(const std::string& name, std::uint32_t space, const std::function<void()>& between);
    std::vector<OffloadReport> list();

    // RMEM_ACT_RUN, under its slot's lock. False: answer refuses it.
    bool admit(const rmem_head& head, std::span<const std::uint8_t> args, const Path& path,
               unsigned thread, rmem_answer& answer);
    bool any();

    struct Ended {
        const rmem_call& call;
        const Path& path;
        rmem_answer& answer;
        std::uint32_t limit_bytes; // of a datagram with the answer
    };
    using End = std::function<void(const Ended&)>;
    // Some rounds of steps, between Node::enter() and leave().
    void run(const End& ended);
    // The same, unless another thread is at it, until so many calls have ended that this thread
    // admitted, of paths that takes() is true for. Others that end are left for run().
    void run_own(unsigned thread, std::size_t count, const std::function<bool(const Path&)>& takes,
                 const End& ended);

private:
    struct Table;
    class Stopwatch;
    static const rmem_run_ops run_ops;
    struct Closing {
        void operator()(void* handle) const;
    };
    using Handle = std::unique_ptr<void, Closing>;

    Table& table();
    using Round = std::array<rmem_call*, RMEM_RUN_ROUND>;
    // Some steps of calls of one space; those that ended. None: no call runs.
    std::optional<std::span<rmem_call*>> round(Stopwatch& watch, Round& calls);
    void give(std::span<rmem_call* const> calls);
    void end(rmem_call& call, const End& ended);

    int start(rmem_run_offload& offload, const std::function<void()>& between);
    int key_lock(rmem_call* call, std::uint64_t key);
    int forward(rmem_call* call, const char* link, std::uint32_t function, const void* args,
                std::uint32_t bytes);
    int forwarded(rmem_call* call, void* answer);
    void forward_ended(Forward& forward, int error, const void* answer);
    void let_go(rmem_call* call);
    bool leave(u32 place, bool stop);

    KeyLocks locks_; // stepping_
    // By their calls, in their order: those whose answer wasn't taken. stepping_.
    std::map<rmem_call*, std::deque<std::shared_ptr<Forward>>> forwards_;

    node::Host& host_;
    const std::function<void()> poke_;
    std::mutex stepping_;              // before lock_
    std::atomic<unsigned> wanted_ = 0; // threads in run() that wait for stepping_
    std::mutex lock_;                  // the core's run lock, and left_
    std::vector<rmem_call*> left_;     // ended, for run()
    std::unique_ptr<Table> table_;     // from the first program on
    std::condition_variable woken_;    // a start's call
    Handle handle_[RMEM_RUN_OFFLOADS];
    Links links_[RMEM_RUN_OFFLOADS];
};

} // namespace remora::daemon
