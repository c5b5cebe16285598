// SPDX-License-Identifier: MIT
/*
 * A call is what the program asked for; ops are what a call takes, each at most
 * RMEM_OP_BYTES_MAX of a READ or WRITE, or many small ranges. A call has ended when all of its ops
 * have.
 */
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>

#include "src/clock.hpp"
#include "uapi/remora_rmem_io.h"

extern "C" {
#include "core/base/bytes.h"
#include "core/rmem/client/client.h"
}

namespace remora::lib {

inline constexpr std::uint32_t op_bytes_max = RMEM_OP_BYTES_MAX;

struct Call;
struct Op;

// Told when a call has ended, by the thread that ends it, under the backend's lock.
class Listener {
public:
    virtual void ended() = 0;

protected:
    ~Listener() = default;
};

// An element of a ring, whose head is in no op.
struct Link {
    Link* prev = this;
    Link* next = this;
    Op* op = nullptr;
    std::uint64_t from = 0, end = 0; // the bytes of the range

    Link() = default;
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;
    void add_before(Link& other) {
        prev = other.prev;
        next = &other;
        prev->next = next->prev = this;
    }
    void remove() {
        prev->next = next;
        next->prev = prev;
        prev = next = this;
    }
};

// One range of an op with many.
struct Range {
    Link near; // order.hpp's
    std::uint64_t address = 0;
    std::uint8_t* data = nullptr; // NULL: whatever the node answers for it is thrown away
    std::uint32_t bytes = 0;
    int result = 0; // once the op has ended
};

struct Op {
    // type, addr, len (FREE, ALLOC, ATOMIC, PUT, COPY: what the union has) are the caller's
    rmem_op core{};
    std::uint8_t* data = nullptr;
    Call* call = nullptr;
    // PUT: bytes that other ops of the call write right before its own. If one of them fails, the
    // PUT isn't sent.
    std::uint64_t before = 0;
    std::span<Range> ranges;          // of a READV or WRITEV, whose data is here, not in data
    std::span<Range> now;             // the ranges of the message in flight
    const rmem_io_vec* vec = nullptr; // the same, as /dev/rmemN has them
    int refused = 0;                  // the first error of ranges sent one by one
    // order.hpp's
    Link all, near, near_second;
    std::uint64_t from = 0, end = 0;               // range of bytes,
    std::uint64_t second_from = 0, second_end = 0; // and of a PUT's integer, or a COPY's source
    std::uint64_t number = 0;
    std::uint64_t entered_ns = 0;
    std::uint32_t blockers = 0;
};

static_assert(offsetof(Op, core) == 0);

inline Op& op_of(rmem_op* core) {
    return *reinterpret_cast<Op*>(core);
}

struct Call {
    std::atomic<std::uint32_t> left{
        0};         // ops that haven't ended; the last one's release-store ends it
    int result = 0; // of the first op that failed
    Listener* listener = nullptr;
    Clock::time_point limit = never;
    // For the backend, while ops are left.
    std::span<Op> ops;
    Link timed;                               // of those with a limit
    int given_up = 0;                         // errno for the remaining ops after cancel or timeout
    Call* next_left = nullptr;                // left_calls.hpp's
    mutable struct Waiter* waiters = nullptr; // threads that sleep until it has ended

    // Number of ops for a call of this size.
    void begin(std::size_t count, Clock::time_point ends_at = never) {
        result = 0;
        given_up = 0;
        limit = ends_at;
        ops = {};
        left.store(static_cast<std::uint32_t>(count), std::memory_order_relaxed);
    }
    bool ended() const { return left.load(std::memory_order_acquire) == 0; }
    // The call may be gone after its last one, unless it has a listener.
    void end_op(int op_result) {
        if (op_result && !result)
            result = op_result;
        Listener* told = listener;
        if (left.fetch_sub(1, std::memory_order_release) == 1 && told)
            told->ended();
    }
};

inline std::size_t ops_for(std::uint64_t bytes) {
    return bytes / op_bytes_max + (bytes % op_bytes_max != 0);
}

// A READ or WRITE of a call as the first ops_for(bytes) of these, which are given back.
inline std::span<Op> cut(std::span<Op> ops, Call& call, std::uint8_t type, std::uint64_t address,
                         std::uint8_t* data, std::uint64_t bytes) {
    ops = ops.first(ops_for(bytes));
    for (Op& op : ops) {
        op.core.type = type;
        op.core.addr = address;
        op.core.len = static_cast<u32>(bytes < op_bytes_max ? bytes : op_bytes_max);
        op.data = data;
        op.call = &call;
        address += op.core.len;
        data += op.core.len;
        bytes -= op.core.len;
    }
    return ops;
}

// Bytes of a put that don't fit into the message with its integer and are written before it.
inline std::size_t before_put(std::size_t bytes, std::uint32_t put_bytes) {
    return bytes - (bytes < put_bytes ? bytes : put_bytes);
}

// The last bytes of a put, at most Backend::put_bytes(), and its integer.
inline void make_put(Op& op, Call& call, std::uint64_t address, std::uint8_t* data,
                     std::uint32_t bytes, const rmem_op_put& put, std::uint64_t before) {
    op.core.type = RMEM_PUT;
    op.core.addr = address;
    op.core.len = bytes;
    op.core.put = put;
    op.data = data;
    op.call = &call;
    op.before = before;
}

// Ops of a COPY of this size.
inline std::size_t copies_for(std::uint64_t bytes) {
    return bytes / RMEM_COPY_BYTES_MAX + (bytes % RMEM_COPY_BYTES_MAX != 0);
}

// A COPY of a call as the first copies_for(bytes) of these, which are given back. The two ranges
// don't overlap, so the ops may be executed in any order.
inline std::span<Op> cut_copy(std::span<Op> ops, Call& call, std::uint64_t to, std::uint64_t from,
                              std::uint64_t bytes) {
    ops = ops.first(copies_for(bytes));
    for (Op& op : ops) {
        op.core.type = RMEM_COPY;
        op.core.addr = to;
        op.core.len = static_cast<u32>(bytes < RMEM_COPY_BYTES_MAX ? bytes : RMEM_COPY_BYTES_MAX);
        op.core.copy.from = from;
        op.data = nullptr;
        op.call = &call;
        to += op.core.len;
        from += op.core.len;
        bytes -= op.core.len;
    }
    return ops;
}

// A region and its name, at most RMEM_NAME_BYTES of it, as they are on the wire.
inline rmem_named named_of(const char* name, std::uint64_t address) {
    rmem_named named{};
    base_store_le64(&named.addr, address);
    std::memcpy(named.name, name, strnlen(name, sizeof(named.name)));
    return named;
}

// A PUBLISH or LOOKUP, alone in its call. named stays until the op has ended.
inline void make_named(Op& op, Call& call, std::uint8_t type, const rmem_named& named) {
    op.core.type = type;
    op.core.addr = 0;
    op.core.len = 0;
    op.core.name = {&named, 0, 0};
    op.data = nullptr;
    op.call = &call;
}

// -errno of a refusal.
inline int status_error(std::uint8_t status) {
    switch (status) {
    case RMEM_OK:
        return 0;
    case RMEM_FAULT:
        return -EFAULT;
    case RMEM_PERM:
        return -EACCES;
    case RMEM_INVALID:
        return -EINVAL;
    case RMEM_NO_MEMORY:
        return -ENOSPC;
    case RMEM_REBOOTED:
        return -ESTALE;
    case RMEM_EXISTS:
        return -EEXIST;
    case RMEM_NO_NAME:
        return -ENOENT;
    default:
        return -EIO;
    }
}

} // namespace remora::lib
