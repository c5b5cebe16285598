// SPDX-License-Identifier: MIT
/*
 * A backend executes operations. All backends have the same semantics. Any number of threads can
 * call any function at once. Errors are negative errnos.
 *
 * limit: an operation that hasn't ended by then ends as if cancelled, with -ETIMEDOUT.
 */
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "remote/remote.h"
#include "src/clock.hpp"
#include "src/op.hpp"
#include "src/watch.hpp"

namespace remora::lib {

// Has a region another address than its caller asked for, who wants no other?
inline bool is_elsewhere(const Region& region, std::uint64_t wanted, std::uint32_t permission) {
    return wanted && region.address != wanted && !(permission & REMOTE_ANYWHERE);
}

class Backend {
public:
    virtual ~Backend() = default;

    // Executes one read or write of any length but 0, and waits for its end.
    virtual int transfer(Kind kind, std::uint64_t address, std::uint8_t* data, std::uint64_t bytes,
                         Clock::time_point limit) = 0;
    // Starts the call's ops in their order; the caller has passed them to call.begin(). The only
    // way to execute a put.
    virtual void start(std::span<Op> ops) = 0;
    // The same for many calls, at most once through the lock; each has its ops. Calls linked behind
    // one of them (Call::then) begin when it has succeeded; they end with -ECANCELED if it failed.
    virtual void start_all(std::span<Call* const> calls) {
        for (Call* each : calls) {
            while (Call* call = each) {
                each = call->then; // call is gone once it has ended
                start(call->ops);
            }
        }
    }
    // Ends the remaining ops of the call. Their changes aren't executed after ops that start later.
    virtual void cancel(Call& call) = 0;
    // Largest data of one put.
    virtual std::uint32_t put_bytes() const = 0;
    // Bytes of one message: limits the data of a readv, and data and ranges of a writev. 0: start()
    // accepts neither.
    virtual std::uint32_t vector_bytes() const = 0;
    // Waits until the call has ended. False: it hasn't by until. Answers that have arrived by then
    // are handled, unless until is at_once.
    virtual bool wait(const Call& call, Clock::time_point until) = 0;
    // The same until done(), which can be called under the backend's lock. It changes only when a
    // call with this queue (Call::queue) ends, or in exclusively().
    virtual void wait_until(const void* queue, const std::function<bool()>& done,
                            Clock::time_point until) = 0;
    // May a range of a readv be detached (Range::data), so that it ends before the readv does?
    virtual bool can_detach() const { return false; }
    // Can start() take kinds alloc and free?
    virtual bool can_allocate() const { return true; }
    // Are there kinds query and call?
    virtual bool can_run() const { return false; }
    // Calls fn() while no op ends and no data arrives; then looks whether threads that wait are
    // done. Only if can_detach().
    virtual void exclusively(const std::function<void()>& fn) { fn(); }
    // Where to learn that waiting would find something, until the next wait.
    virtual Watch watch() { return {}; }
    // When a thread has to wait, or look, again at the latest: to retransmit, or to end a call.
    virtual Clock::time_point next_event() { return never; }
    // Waits until all earlier ops have ended; at the limit they continue.
    virtual int release(Clock::time_point limit) = 0;
    // Waits until the node has executed all that it has received, from any client.
    virtual int fence(Clock::time_point limit) = 0;
    // Zeroes at most a page, in order with the ops on those bytes.
    virtual int zero(std::uint64_t address, std::uint32_t bytes) = 0;
    // Changes an aligned integer of bytes; change gets the integer found.
    virtual int change(std::uint64_t address, std::uint32_t bytes, Change& change,
                       Clock::time_point limit) = 0;

    // region: the memory allocated, in whole pages. wanted: its address, or 0 for any. permission:
    // REMOTE_READ or REMOTE_RW. -EADDRNOTAVAIL: it isn't to be had there, and without
    // REMOTE_ANYWHERE nothing is allocated.
    virtual int alloc(std::uint64_t bytes, std::uint32_t permission, std::uint64_t wanted,
                      Region& region) = 0;
    virtual int dealloc(const Region& region) = 0;

    // Announces memory that many ops will use, to a backend that profits from it. number: below
    // REMOTE_BUFFERS_MAX, not in use.
    virtual int keep_buffer(unsigned number, std::span<std::uint8_t> memory) {
        (void)number, (void)memory;
        return 0;
    }
    // Ops in flight on the buffer continue.
    virtual void drop_buffer(unsigned number) { (void)number; }

    // An operation has ended with -ESTALE: all operations do from now on.
    virtual bool is_lost() const { return false; }
    // Adds to counters.
    virtual void stats(remote_counters& counters) = 0;
    virtual std::uint64_t page_bytes() const = 0;
    // Asks the node for its memory. Throws Failure.
    virtual void info(remote_node& node, Clock::time_point limit) {
        (void)limit;
        node.page_bytes = page_bytes();
    }
    // Called in a child of the process that opened the backend: sends nothing to the node. May the
    // object be destroyed?
    virtual bool disown() = 0;
};

// Executes an op of several messages in the calling thread: each by execute(op), or as the error
// that pause(time) returns, which waits until then.
template <typename Execute, typename Pause>
int run_steps(Op& op, Execute execute, Pause pause) {
    int error = 0;
    while (op.steps->next(op, error)) {
        error = op.begins_at == Clock::time_point{} ? 0 : pause(op.begins_at);
        error = error ? error : execute(op);
    }
    return error;
}

// Keeps the backend's owner.
using BackendRef = std::shared_ptr<Backend>;

} // namespace remora::lib
