// SPDX-License-Identifier: GPL-2.0
// A memory node for the tests of offloads: a space of one region, and calls that are stepped by
// hand.
//
// Its functions keep to include/remora/offload.h, and refuse anything else. One program is
// linked with it, without the core.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <sanitizer/asan_interface.h>

#include "remora/offload.h"

namespace offload_test {

inline constexpr uint64_t page_bytes = 65536;
inline constexpr uint32_t slice_bytes_max = 1024; // the least that a node's packets have
inline constexpr uint64_t base = 7 * page_bytes;

inline void require(bool holds) {
    if (!holds)
        std::abort();
}

// In a step, AddressSanitizer finds accesses outside of the slices that the step was given.
struct Memory {
    explicit Memory(uint64_t size)
        : bytes(size), data(static_cast<uint8_t*>(std::aligned_alloc(page_bytes, size))) {
        std::memset(data.get(), 0, size);
        require(size % page_bytes == 0);
        backed.resize(size / page_bytes);
    }
    ~Memory() { ASAN_UNPOISON_MEMORY_REGION(data.get(), bytes); }
    Memory(Memory&&) = delete;
    // For clients, between steps.
    uint8_t* at(uint64_t addr) {
        if (!std::exchange(open_, true))
            ASAN_UNPOISON_MEMORY_REGION(data.get(), bytes);
        return data.get() + (addr - base);
    }
    void begin_step() {
        if (std::exchange(open_, false))
            ASAN_POISON_MEMORY_REGION(data.get(), bytes);
    }
    uint8_t* give(uint64_t addr, uint32_t size) {
        given_.emplace_back(data.get() + (addr - base), size);
        ASAN_UNPOISON_MEMORY_REGION(given_.back().data(), size);
        return given_.back().data();
    }
    void end_step() {
        for (std::span<uint8_t> slice : given_)
            ASAN_POISON_MEMORY_REGION(slice.data(), slice.size());
        given_.clear();
    }
    bool has(uint64_t addr, uint64_t size) const {
        return addr >= base && addr - base < bytes && size <= bytes - (addr - base);
    }

    struct Free {
        void operator()(uint8_t* memory) const { std::free(memory); }
    };
    uint64_t bytes;
    std::unique_ptr<uint8_t, Free> data;
    uint64_t slices = 0;
    std::vector<bool> backed; // pages that were written to
    bool scarce = false;      // the first write to a page finds no zeroed one

private:
    bool open_ = true;
    std::vector<std::span<uint8_t>> given_;
};

} // namespace offload_test

struct rmem_call {
    offload_test::Memory* memory;
    uint32_t function;
    bool changes;
    std::vector<uint8_t> args, result;
    uint32_t room;
    int error = 0;
    alignas(16) uint8_t scratch[RMEM_SCRATCH_BYTES_MAX] = {};
};

extern "C" const rmem_offload_ops OFFLOAD; // the program's name: the Makefile's

namespace offload_test {

class Call {
public:
    // The call has a copy of the arguments, so that AddressSanitizer finds accesses behind them: a
    // vector that was made shorter has room behind them.
    Call(Memory& memory, uint32_t function, const std::vector<uint8_t>& args, uint32_t room = 8192)
        : call_{&memory, function, (OFFLOAD.once_mask >> function & 1) != 0, args, {}, room} {
        if (call_.changes)
            call_.room = 16;
        call_.result.reserve(call_.room); // its address stays
    }
    // True: it goes on.
    bool step() {
        if (ended_)
            return false;
        call_.memory->begin_step();
        outcome_ = OFFLOAD.step(&call_);
        call_.memory->end_step();
        steps_++;
        ended_ = outcome_ != RMEM_AGAIN;
        return !ended_;
    }
    // 0 or -errno; -ETIME: more steps than a budget has.
    int run(unsigned steps_max = 100'000) {
        while (step() && steps_ < steps_max) {
        }
        return ended_ ? outcome_ : -ETIME;
    }
    bool ended() const { return ended_; }
    int outcome() const { return outcome_; }
    unsigned steps() const { return steps_; }
    std::span<const uint8_t> result() const { return call_.result; }

private:
    rmem_call call_;
    bool ended_ = false;
    int outcome_ = 0;
    unsigned steps_ = 0;
};

} // namespace offload_test

// ---- the functions of a program, defined once: by the file that defines OFFLOAD_TEST_MEMORY ----

#ifdef OFFLOAD_TEST_MEMORY
using offload_test::page_bytes;
using offload_test::require;
using offload_test::slice_bytes_max;

__u32 rmem_function(const rmem_call* call) {
    return call->function;
}

__u32 rmem_args_bytes(const rmem_call* call) {
    return static_cast<__u32>(call->args.size());
}

static void* fail(rmem_call* call, int error) {
    call->error = error;
    return nullptr;
}

const void* rmem_args(rmem_call* call, __u32 bytes) {
    return bytes <= call->args.size() ? call->args.data() : fail(call, -EINVAL);
}

void* rmem_result(rmem_call* call, __u32 bytes) {
    if (bytes > call->room)
        return fail(call, -EMSGSIZE);
    call->result.resize(bytes);
    return call->result.data();
}

void* rmem_scratch(rmem_call* call, __u32 bytes) {
    return bytes <= sizeof(call->scratch) ? call->scratch : fail(call, -EINVAL);
}

int rmem_error(const rmem_call* call) {
    return call->error;
}

// The first change of a page might find no zeroed one.
static bool backs(offload_test::Memory& memory, __u64 addr) {
    auto backed = memory.backed[(addr - offload_test::base) / page_bytes];
    if (backed)
        return true;
    backed = true;
    return !memory.scarce;
}

static void* slice(rmem_call* call, __u64 addr, __u32 bytes, bool change) {
    offload_test::Memory& memory = *call->memory;
    if (change && !call->changes)
        return fail(call, -EACCES);
    if (!bytes || bytes > slice_bytes_max || addr % page_bytes + bytes > page_bytes)
        return fail(call, -EINVAL);
    if (!memory.has(addr, bytes))
        return fail(call, -EFAULT);
    if (change && !backs(memory, addr))
        return fail(call, -EAGAIN);
    memory.slices++;
    return memory.give(addr, bytes);
}

const void* rmem_look(rmem_call* call, __u64 addr, __u32 bytes) {
    return slice(call, addr, bytes, false);
}

void* rmem_at(rmem_call* call, __u64 addr, __u32 bytes) {
    return slice(call, addr, bytes, true);
}

int rmem_read(rmem_call* call, __u64 addr, void* to, __u32 bytes) {
    if (!call->memory->has(addr, bytes))
        return -EFAULT;
    call->memory->slices++;
    std::memcpy(to, call->memory->give(addr, bytes), bytes);
    return 0;
}

int rmem_write(rmem_call* call, __u64 addr, const void* from, __u32 bytes) {
    if (!call->changes)
        return -EACCES;
    if (!call->memory->has(addr, bytes))
        return -EFAULT;
    for (__u64 page = addr / page_bytes; page <= (addr + bytes - 1) / page_bytes; page++)
        if (!backs(*call->memory, page * page_bytes))
            return -EAGAIN;
    call->memory->slices++;
    std::memcpy(call->memory->give(addr, bytes), from, bytes);
    return 0;
}

void rmem_prefetch(rmem_call*, __u64) {}
#endif
