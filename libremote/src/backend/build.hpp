// SPDX-License-Identifier: MIT
// The one place where an operation of the interface (remote/queue.h) becomes the ops of a call,
// for synchronous calls and for queues.
#pragma once

#include <memory>
#include <vector>

#include "remote/queue.h"
#include "src/backend/backend.hpp"
#include "src/backend/cut.hpp"

namespace remora::lib {

// The shape of an operation's arguments, for their check (api/checked.hpp).
enum class Args {
    invalid,
    none,
    data,
    copy,
    put,
    pieces,
    integer,
    cas,
    publish,
    name,
    region,
    run,
    alloc,
    free,
    lock
};

Args args_of(std::uint32_t kind); // enum remote_op_kind

// Makes the messages of operations that take several.
class StepsMaker {
public:
    // Throws bad_alloc. NULL: the operation takes one message, or its pieces.
    virtual std::unique_ptr<Steps> steps_of(const remote_op& op) = 0;

protected:
    ~StepsMaker() = default;
};

// Memory that a call needs while it is in flight. Its address stays meanwhile.
class Built {
public:
    // Sets the call to the operation, whose arguments were checked. Throws bad_alloc.
    void make(const remote_op& op, const Backend& backend, StepsMaker& maker, Call& call,
              Clock::time_point limit);
    // The call has ended with result: hands the values found over, once. Returns the result of the
    // operation's function.
    int hand_over(int result);
    // For the next operation.
    void clear();

private:
    std::span<Op> room(std::size_t count);
    std::span<Op> make_pieces(const remote_op& op, const Backend& backend, Call& call);
    std::span<Op> make_put(const remote_op& op, const Backend& backend, Call& call);
    void make_named(Kind kind, const char* name, raddr_t address);
    std::span<Op> make_ops(const remote_op& op, const Backend& backend, Call& call);

    Op first_;
    std::vector<Op> more_;             // instead of first_, of a long operation
    std::unique_ptr<RegionName> name_; // of a PUBLISH, LOOKUP or LIST
    std::unique_ptr<Steps> steps_;     // of an ALLOC, FREE, LOCK or UNLOCK
    Ranges ranges_;
    std::uint64_t* found_ = nullptr; // destination of an integer, a region or an address found
};

} // namespace remora::lib
