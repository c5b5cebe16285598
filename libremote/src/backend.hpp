// SPDX-License-Identifier: MIT
/*
 * What carries out operations. One semantics, whichever it is; all of it may be called by any
 * number of threads at once. Errors are negative errnos.
 *
 * limit: what hasn't ended by then ends as if cancelled, with -ETIMEDOUT.
 */
#pragma once

#include <cstdint>
#include <span>

#include "remote/remote.h"
#include "src/clock.hpp"
#include "src/op.hpp"

namespace remora::lib {

class Backend {
public:
    virtual ~Backend() = default;

    // One READ or WRITE, to its end; any length but 0.
    virtual int transfer(std::uint8_t type, std::uint64_t address, std::uint8_t* data,
                         std::uint64_t bytes, Clock::time_point limit) = 0;
    // The call's ops begin, in their order; call.begin() has been told of them. PUT is done by this
    // only.
    virtual void start(std::span<Op> ops) = 0;
    // What is left of the call ends. Its changes aren't executed after what begins from now on.
    virtual void cancel(Call& call) = 0;
    // Bytes of data that one PUT takes at most.
    virtual std::uint32_t put_bytes() const = 0;
    // READV and WRITEV: bytes of a message, so of all data of a READV, and of data and ranges of a
    // WRITEV; 0: start() takes none.
    virtual std::uint32_t vector_bytes() const = 0;
    // Until it has ended; false: until's time has come, and it hasn't. What is here by then is
    // taken in, but for at_once.
    virtual bool wait(const Call& call, Clock::time_point until) = 0;
    // Until all ops that began before have ended; at the limit they are left alone.
    virtual int release(Clock::time_point limit) = 0;
    // Until all is executed that the node has received, of whomever.
    virtual int fence(Clock::time_point limit) = 0;
    // The bytes are zero from now on, in order with the ops on them; a page's at most.
    virtual int zero(std::uint64_t address, std::uint32_t bytes) = 0;
    // An integer of so many bytes, aligned; what was found goes into atomic.
    virtual int atomic(std::uint64_t address, std::uint32_t bytes, rmem_op_atomic& atomic,
                       Clock::time_point limit) = 0;

    // The range that was found, in whole pages; wanted: 0, or where it should be.
    virtual int alloc(std::uint64_t bytes, std::uint32_t permission, std::uint64_t wanted,
                      rmem_op_range& range) = 0;
    virtual int dealloc(const rmem_op_range& range) = 0;

    // Ops will often be about this memory of the program's: for a backend to which it makes a
    // difference. number: below REMOTE_BUFFERS_MAX, not in use.
    virtual int keep_buffer(unsigned number, std::span<std::uint8_t> memory) {
        (void)number, (void)memory;
        return 0;
    }
    // What is under way on it goes on.
    virtual void drop_buffer(unsigned number) { (void)number; }

    // An operation has ended with -ESTALE: so do all from now on.
    virtual bool is_lost() const { return false; }
    // Added to what is there.
    virtual void stats(remote_counters& counters) = 0;
    virtual std::uint64_t page_bytes() const = 0;
    // In a child of the process that opened it: nothing is to be said to the node. May it be
    // destroyed?
    virtual bool disown() = 0;
};

} // namespace remora::lib
