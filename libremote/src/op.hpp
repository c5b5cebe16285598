// SPDX-License-Identifier: MIT
/*
 * A call is the program's request; it consists of ops, each at most op_bytes_max of a read or
 * write, or many small ranges. A call has ended when all of its ops have.
 *
 * An op is in no protocol's terms. Its backend translates it when it begins, into the op's room,
 * and translates its result back when it ends.
 */
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>

#include "remote/remote.h"
#include "src/clock.hpp"

namespace remora::lib {

inline constexpr std::uint32_t op_bytes_max = 256 << 10; // of a read or write
inline constexpr std::uint32_t copy_op_bytes_max = 64 << 10;
inline constexpr std::size_t ranges_max = 128; // of one op
inline constexpr std::uint32_t node_page_bytes_min = 64 << 10;
// Memory that a backend has in each op, and in each range, from the op's begin to its end.
inline constexpr std::size_t op_room_bytes = 448, range_room_bytes = 24;

// Traits of a kind of operation.
namespace trait {
enum : std::uint8_t {
    none = 0,
    bytes = 1 << 0,   // has an address, and bytes from there on
    reads = 1 << 1,   // changes nothing, so it keeps no order with others that don't
    name = 1 << 2,    // has a name; alone in its call
    barrier = 1 << 3, // begins when all earlier operations of the handle have ended
    silent = 1 << 4,  // takes no message: ends when it can begin
};
} // namespace trait

// The kinds of operations, a row each: README.md tells how one is added. counted: the kind in
// remote_stats(). wire: the message; device: the command; 0: none, or another way. The probes show
// the number of the row, from 0 on (probes.hpp).
// clang-format off
#define REMORA_KINDS(ROW) \
    /*  kind     traits                       counted              wire          device */ \
    ROW(none,    trait::silent,               REMOTE_KIND_OTHER,   0,            0) \
    ROW(read,    trait::bytes | trait::reads, REMOTE_KIND_READ,    RMEM_READ,    RMEM_IO_READ) \
    ROW(write,   trait::bytes,                REMOTE_KIND_WRITE,   RMEM_WRITE,   RMEM_IO_WRITE) \
    ROW(readv,   trait::reads,                REMOTE_KIND_READ,    RMEM_READV,   RMEM_IO_READV) \
    ROW(writev,  trait::none,                 REMOTE_KIND_WRITE,   RMEM_WRITEV,  RMEM_IO_WRITEV) \
    ROW(integer, trait::bytes,                REMOTE_KIND_INTEGER, RMEM_ATOMIC,  RMEM_IO_ATOMIC) \
    ROW(put,     trait::bytes,                REMOTE_KIND_WRITE,   RMEM_PUT,     RMEM_IO_PUT) \
    ROW(copy,    trait::bytes,                REMOTE_KIND_WRITE,   RMEM_COPY,    RMEM_IO_COPY) \
    ROW(zero,    trait::bytes,                REMOTE_KIND_OTHER,   RMEM_ZERO,    RMEM_IO_ZERO) \
    ROW(fence,   trait::barrier,              REMOTE_KIND_OTHER,   RMEM_FENCE,   RMEM_IO_FENCE) \
    ROW(alloc,   trait::none,                 REMOTE_KIND_OTHER,   RMEM_ALLOC,   0) \
    ROW(free,    trait::none,                 REMOTE_KIND_OTHER,   RMEM_FREE,    0) \
    ROW(publish, trait::name,                 REMOTE_KIND_OTHER,   RMEM_PUBLISH, RMEM_IO_PUBLISH) \
    ROW(lookup,  trait::name,                 REMOTE_KIND_OTHER,   RMEM_LOOKUP,  RMEM_IO_LOOKUP) \
    ROW(release, trait::barrier | trait::silent, REMOTE_KIND_OTHER,   0,            0) \
    ROW(list,    trait::name,                 REMOTE_KIND_OTHER,   RMEM_LIST,    RMEM_IO_LIST) \
    ROW(query,   trait::none,                 REMOTE_KIND_OTHER,   RMEM_QUERY,   0) \
    ROW(call,    trait::none,                 REMOTE_KIND_OTHER,   RMEM_CALL,    0)
// clang-format on

#define REMORA_KIND(kind, ...) kind,
enum class Kind : std::uint8_t { REMORA_KINDS(REMORA_KIND) };
#undef REMORA_KIND

inline bool has_trait(Kind kind, std::uint8_t one) {
#define REMORA_KIND_TRAITS(kind, traits, ...) (traits),
    static constexpr std::uint8_t traits_of[] = {REMORA_KINDS(REMORA_KIND_TRAITS)};
#undef REMORA_KIND_TRAITS
    return traits_of[static_cast<std::size_t>(kind)] & one;
}

// A change of an integer. 16 bytes are two of 8, the lower one first.
struct Change {
    static constexpr std::uint8_t cas = 2; // beside enum remote_change

    std::uint64_t value[2];
    std::uint64_t compare[2]; // cas
    std::uint64_t found[2];   // once it has ended
    std::uint8_t what;        // enum remote_change, or cas
};

struct Region {
    std::uint64_t address, bytes;
};

// With a zero behind it.
struct RegionName {
    explicit RegionName(const char* name) {
        std::memcpy(text, name, strnlen(name, REMOTE_NAME_BYTES_MAX));
    }
    char text[REMOTE_NAME_BYTES_MAX + 1] = {};
};

struct Call;
struct Op;

// Told when a call has ended, by the thread that ends it, under the backend's lock.
class Listener {
public:
    virtual void ended() = 0;

protected:
    ~Listener() = default;
};

// The messages of an op that takes several, one after the other: an allocation, a lock. The op
// begins as one of a silent kind. Its backend calls next() when that has ended, and when each
// message has, under its lock if it has one.
class Steps {
public:
    virtual ~Steps() = default;
    // error: of the message that has ended. True: the op is set to the next message, which goes at
    // op.begins_at. False: the op has ended with error.
    virtual bool next(Op& op, int& error) noexcept = 0;
    // The op has ended with success. Stores the value found, unless found is NULL. Returns
    // the result of the operation's function.
    virtual int hand_over(std::uint64_t* found) = 0;
};

// An element of a ring, whose head is in no op.
struct Link {
    Link* prev = this;
    Link* next = this;
    Op* op = nullptr;
    std::uint64_t from = 0, end = 0; // the bytes of the range
    bool is_read = false;            // nothing changes them

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
    std::uint8_t* data = nullptr; // NULL: the node's answer for it is thrown away
    std::uint32_t bytes = 0;
    int result = 0; // once the op has ended
};

struct alignas(8) RangeRoom {
    std::byte bytes[range_room_bytes];
};

struct Op {
    Kind kind = Kind::none;
    std::uint32_t permission = 0; // alloc
    std::uint32_t bytes = 0;
    std::uint64_t address = 0;
    std::uint8_t* data = nullptr;
    Call* call = nullptr;
    union {
        Change change{};      // integer
        remote_signal signal; // put
        std::uint64_t source; // copy: first byte
        Region region;        // free; alloc: wanted bytes, then got; lookup: found
        remote_region* to;    // list: destination of the region found
        remote_function* run; // query, call; its arguments are the op's data
    };
    const RegionName* name = nullptr; // publish, lookup; list: empty. Stays until the op has ended
    // put: bytes that other ops of the call write right before its own. If one of them fails, the
    // put isn't sent.
    std::uint64_t before = 0;
    std::span<Range> ranges;         // of a readv or writev, whose data is here, not in data
    std::span<Range> now;            // the ranges of the message in flight
    RangeRoom* range_room = nullptr; // for as many as ranges
    int refused = 0;                 // the first error of ranges sent one by one
    bool is_unordered = false;       // compared with no other
    bool is_aside = false;           // no barrier waits for it; alone in its call, and unordered
    Steps* steps = nullptr;          // NULL: one message, or many ranges
    bool keeps_place = false;        // all steps have the place in the order of the first
    Clock::time_point begins_at{};   // of a step: not before; {}: at once
    // The answer to the message in flight matters even if the call is given up: it is waited for a
    // while (queued.cpp).
    bool settles = false;
    // client.cpp's, of an alloc
    std::uint8_t stage = 0, tries = 0;
    std::uint64_t alloc_id = 0; // of its answer
    Op* next = nullptr;         // of a list of ops that can begin, or can't yet
    // order.hpp's
    Link all, near, near_second;
    Link paused;                                   // queued.hpp's, until begins_at
    std::uint64_t from = 0, end = 0;               // range of bytes,
    std::uint64_t second_from = 0, second_end = 0; // and of a PUT's integer, or a COPY's source
    std::uint64_t number = 0;
    std::uint64_t entered_ns = 0;
    std::uint32_t blockers = 0;

    // The backend's translation of the op. make_room() again for each message of an op.
    template <typename T>
    T& make_room() {
        static_assert(sizeof(T) <= op_room_bytes && alignof(T) <= alignof(std::max_align_t));
        return *new (room_) T;
    }
    template <typename T>
    T& room() {
        return *std::launder(reinterpret_cast<T*>(room_));
    }

private:
    alignas(std::max_align_t) std::byte room_[op_room_bytes]; // not initialised
};

struct Call {
    std::atomic<std::uint32_t> left{
        0};         // ops that haven't ended; the last one's release-store ends it
    int result = 0; // of the first op that failed
    Listener* listener = nullptr;
    const void* queue = nullptr; // its identity, for Backend::wait_until(); null: none
    Clock::time_point limit = never;
    // For the backend, while ops are left.
    std::span<Op> ops;
    Link timed;                               // of those with a limit
    std::atomic<int> given_up{0};             // errno for the remaining ops after cancel or timeout
    Call* then = nullptr;                     // begins when this one has succeeded,
    Call* after = nullptr;                    // which is this, while neither has ended
    bool is_outside = false;                  // behind a LOCK or FREE: not in the order yet
    Call* next_left = nullptr;                // left_calls.hpp's
    mutable struct Waiter* waiters = nullptr; // queued.hpp's: threads that sleep until it has ended

    // Number of ops for a call of this size.
    void begin(std::size_t count, Clock::time_point ends_at = never) {
        result = 0;
        given_up.store(0, std::memory_order_relaxed);
        then = after = nullptr;
        is_outside = false;
        limit = ends_at;
        ops = {};
        left.store(static_cast<std::uint32_t>(count), std::memory_order_relaxed);
    }
    // How the call's ops end that were given up, or else with error.
    int error_of_end(int error) const {
        const int early = given_up;
        return early ? early : error;
    }
    bool ended() const { return left.load(std::memory_order_acquire) == 0; }
    // The call can be gone after its last one, unless it has a listener.
    void end_op(int op_result) {
        if (op_result && !result)
            result = op_result;
        Listener* told = listener;
        if (left.fetch_sub(1, std::memory_order_release) == 1 && told)
            told->ended();
    }
};

// Has the last op of a call ended, with error, as one behind which a linked call begins?
inline bool has_succeeded(const Op& op, int error) {
    const Change& change = op.change;
    if (error || op.call->result)
        return false;
    return op.steps || op.kind != Kind::integer || change.what != Change::cas ||
           (change.found[0] == change.compare[0] && change.found[1] == change.compare[1]);
}

inline std::size_t ops_for(std::uint64_t bytes) {
    return bytes / op_bytes_max + (bytes % op_bytes_max != 0);
}

// A read or write of a call as the first ops_for(bytes) of these, which are given back.
inline std::span<Op> cut(std::span<Op> ops, Call& call, Kind kind, std::uint64_t address,
                         std::uint8_t* data, std::uint64_t bytes) {
    ops = ops.first(ops_for(bytes));
    for (Op& op : ops) {
        op.kind = kind;
        op.address = address;
        op.bytes = static_cast<std::uint32_t>(bytes < op_bytes_max ? bytes : op_bytes_max);
        op.data = data;
        op.call = &call;
        address += op.bytes;
        data += op.bytes;
        bytes -= op.bytes;
    }
    return ops;
}

// Ops of a copy of this size.
inline std::size_t copies_for(std::uint64_t bytes) {
    return bytes / copy_op_bytes_max + (bytes % copy_op_bytes_max != 0);
}

// A copy of a call as the first copies_for(bytes) of these, which are given back. The two ranges
// don't overlap, so the ops can be executed in any order.
inline std::span<Op> cut_copy(std::span<Op> ops, Call& call, std::uint64_t to, std::uint64_t from,
                              std::uint64_t bytes) {
    ops = ops.first(copies_for(bytes));
    for (Op& op : ops) {
        op.kind = Kind::copy;
        op.address = to;
        op.bytes =
            static_cast<std::uint32_t>(bytes < copy_op_bytes_max ? bytes : copy_op_bytes_max);
        op.source = from;
        op.data = nullptr;
        op.call = &call;
        to += op.bytes;
        from += op.bytes;
        bytes -= op.bytes;
    }
    return ops;
}

} // namespace remora::lib
