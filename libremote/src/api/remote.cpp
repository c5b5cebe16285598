// SPDX-License-Identifier: MIT
// The C functions check arguments and let no exception through.
#include "remote/remote.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

#include "src/api/handles.hpp"
#include "src/backend/stats.hpp"
#include "src/sync/waiting.hpp"
#include "support/failure.hpp"

#define REMOTE_API extern "C" __attribute__((visibility("default")))

using remora::lib::Clock;
using remora::lib::EpochRef;
using remora::lib::Handle;
using remora::lib::handle_of;

namespace {

thread_local std::string why;

int fail(int error, const char* text) {
    try {
        why = text;
    } catch (const std::bad_alloc&) {
        why.clear();
    }
    return error;
}

// For functions that open something: returns fn()'s result, and sets remote_why() on failure.
template <typename Fn>
int opening(Fn fn) {
    try {
        return fn();
    } catch (const remora::Misuse& misuse) {
        return fail(-EINVAL, misuse.what());
    } catch (const remora::Failure& failure) {
        return fail(-EHOSTUNREACH, failure.what());
    } catch (const std::bad_alloc&) {
        return fail(-ENOMEM, "no memory left here");
    } catch (const std::exception& other) {
        return fail(-EIO, other.what());
    }
}

// given: options of a size that this library or an older one knows, or NULL for the defaults.
remote_options options_of(const remote_options* given) {
    remote_options options{};
    options.size = sizeof(options);
    if (!given)
        return options;
    if (given->size < offsetof(remote_options, integrity))
        throw remora::Misuse("options.size is {}: set it to sizeof(struct remote_options)",
                             given->size);
    std::memcpy(&options, given, std::min(given->size, sizeof(options)));
    return options;
}

thread_local std::uint64_t own_timeout_us = 0; // rtimeout()'s

// The limit for an operation that this thread starts now.
Clock::time_point limit() {
    return own_timeout_us ? remora::lib::from_now(own_timeout_us) : remora::lib::never;
}

int check(const remote_t* r) {
    if (!r)
        return -EINVAL;
    const Handle* handle = handle_of(r);
    if (!handle)
        return -EBADF;
    return handle->is_foreign() ? -ECHILD : 0;
}

int check_range(const remote_t* r, raddr_t address, const void* buffer, std::size_t bytes) {
    if (int error = check(r))
        return error;
    if (!bytes || !buffer || address + bytes < address || remora::lib::is_mapped(buffer, bytes))
        return -EINVAL;
    return 0;
}

int check_pieces(const remote_t* r, const rvec* pieces, std::size_t count) {
    if (!pieces || !count || count > REMOTE_PIECES_MAX)
        return -EINVAL;
    for (const rvec& piece : std::span(pieces, count)) {
        if (int error = check_range(r, piece.address, piece.buffer, piece.bytes))
            return error;
    }
    return 0;
}

int transfer(remote_t* r, std::uint8_t type, const rvec* pieces, std::size_t count) {
    if (int error = check_pieces(r, pieces, count))
        return error;
    try {
        return handle_of(r)->transfer(type, std::span(pieces, count), limit());
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    }
}

int start(remote_t* r, std::uint8_t type, const rvec* pieces, std::size_t count, rop_t* op) {
    if (int error = op ? check_pieces(r, pieces, count) : -EINVAL)
        return error;
    return handle_of(r)->start(type, std::span(pieces, count), *op, limit());
}

int transfer_strided(remote_t* r, std::uint8_t type, raddr_t address, std::size_t stride,
                     void* buffer, std::size_t bytes, std::size_t count) {
    std::size_t reach;
    if (!buffer || !count || count > REMOTE_PIECES_MAX ||
        __builtin_mul_overflow(stride, count - 1, &reach) || address + reach < address)
        return -EINVAL;
    try {
        std::vector<rvec> pieces;
        pieces.reserve(count);
        auto* at = static_cast<std::uint8_t*>(buffer);
        for (std::size_t i = 0; i < count; i++)
            pieces.push_back({address + i * stride, at + i * bytes, bytes});
        return transfer(r, type, pieces.data(), count);
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    }
}

int check_integer(const remote_t* r, raddr_t address, std::size_t bytes) {
    if (int error = check(r))
        return error;
    return (bytes == 4 || bytes == 8) && address % bytes == 0 ? 0 : -EINVAL;
}

rmem_op_atomic fetch_of(remote_fetch what, std::uint64_t value) {
    return {{value, 0}, {0, 0}, {0, 0}, static_cast<u8>(what)};
}

rmem_op_atomic cas_of(std::uint64_t expected, std::uint64_t desired) {
    return {{desired, 0}, {expected, 0}, {0, 0}, RMEM_CAS};
}

bool is_fetch(remote_fetch what) {
    int op = what;
    return op > 0 && op < RMEM_ATOMIC_OP_END && op != RMEM_CAS;
}

std::uint64_t low_bytes(std::uint64_t value, std::size_t bytes) {
    return bytes == 4 ? static_cast<std::uint32_t>(value) : value;
}

// Data and signal of a put.
int check_put(const remote_t* r, raddr_t address, const void* buffer, std::size_t bytes,
              const rsignal* signal) {
    if (!signal || !is_fetch(signal->what))
        return -EINVAL;
    if (int error = check_range(r, address, buffer, bytes))
        return error;
    return check_integer(r, signal->address, signal->bytes);
}

rmem_op_put put_of(const rsignal& signal) {
    return {signal.address, signal.value, 0, static_cast<u32>(signal.bytes),
            static_cast<u8>(signal.what)};
}

bool is_compare(remote_compare compare) {
    int which = compare;
    return which >= REMOTE_EQ && which <= REMOTE_LE;
}

int check_lock(const remote_t* r, raddr_t lock) {
    if (int error = check(r))
        return error;
    return lock && lock % 8 == 0 ? 0 : -EINVAL;
}

int allocate(remote_t* r, raddr_t wanted, uint64_t bytes, unsigned permission, raddr_t* address) {
    if (int error = check(r))
        return error;
    if (!address || !bytes || (permission != REMOTE_READ && permission != REMOTE_RW))
        return -EINVAL;
    try {
        return handle_of(r)->epoch()->heap.alloc(bytes, permission, wanted, *address);
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    }
}

} // namespace

REMOTE_API int remote_open(remote_t** r, const char* target, const remote_options* options) {
    if (!r || !target)
        return fail(-EINVAL, "remote_open() wants a place for the handle, and a target");
    return opening([&] {
        const remote_options chosen = options_of(options);
        *r = remora::lib::name_handle(
            std::make_unique<Handle>(remora::lib::parse_target(target, chosen), chosen));
        return 0;
    });
}

REMOTE_API void remote_close(remote_t* r) {
    remora::lib::take_handle(r);
}

REMOTE_API const char* remote_why(void) {
    return why.c_str();
}

REMOTE_API int ralloc(remote_t* r, uint64_t bytes, unsigned permission, raddr_t* address) {
    return allocate(r, 0, bytes, permission, address);
}

REMOTE_API int ralloc_at(remote_t* r, raddr_t wanted, uint64_t bytes, unsigned permission,
                         raddr_t* address) {
    return wanted ? allocate(r, wanted, bytes, permission, address) : -EINVAL;
}

REMOTE_API int rfree(remote_t* r, raddr_t address) {
    if (int error = check(r))
        return error;
    try {
        uint64_t bytes = 0;
        EpochRef epoch = handle_of(r)->epoch();
        int error = epoch->heap.free(address, bytes);
        if (!error)
            epoch->locks.forget(address, bytes);
        return error;
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    }
}

REMOTE_API int rfree_sized(remote_t* r, raddr_t address, uint64_t bytes) {
    if (int error = check(r))
        return error;
    if (!address || !bytes || address + bytes < address)
        return -EINVAL;
    try {
        EpochRef epoch = handle_of(r)->epoch();
        int error = epoch->heap.free_sized(address, bytes);
        if (!error)
            epoch->locks.forget(address, bytes);
        return error;
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    }
}

REMOTE_API int remote_lost(remote_t* r, raddr_t* address, uint64_t* bytes) {
    if (int error = address && bytes ? check(r) : -EINVAL)
        return error;
    return opening([&] { return handle_of(r)->lost(*address, *bytes); });
}

REMOTE_API uint64_t remote_page_bytes(remote_t* r) {
    return check(r) ? 0 : handle_of(r)->epoch()->backend->page_bytes();
}

REMOTE_API int remote_register(remote_t* r, void* buffer, size_t bytes) {
    if (int error = check_range(r, 0, buffer, bytes))
        return error;
    auto* memory = static_cast<std::uint8_t*>(buffer);
    if (bytes > REMOTE_BUFFER_BYTES_MAX || memory + bytes < memory)
        return -EINVAL;
    try {
        return handle_of(r)->buffers().add(memory, bytes);
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    }
}

REMOTE_API int remote_unregister(remote_t* r, void* buffer) {
    if (int error = check(r))
        return error;
    return handle_of(r)->buffers().remove(static_cast<std::uint8_t*>(buffer));
}

REMOTE_API int rread(remote_t* r, raddr_t address, void* buffer, size_t bytes) {
    if (int error = check_range(r, address, buffer, bytes))
        return error;
    return handle_of(r)->epoch()->backend->transfer(RMEM_READ, address,
                                                    static_cast<uint8_t*>(buffer), bytes, limit());
}

REMOTE_API int rwrite(remote_t* r, raddr_t address, const void* buffer, size_t bytes) {
    if (int error = check_range(r, address, buffer, bytes))
        return error;
    auto* data = static_cast<uint8_t*>(const_cast<void*>(buffer));
    return handle_of(r)->epoch()->backend->transfer(RMEM_WRITE, address, data, bytes, limit());
}

REMOTE_API int rread_async(remote_t* r, raddr_t address, void* buffer, size_t bytes, rop_t* op) {
    if (int error = op ? check_range(r, address, buffer, bytes) : -EINVAL)
        return error;
    rvec piece{address, buffer, bytes};
    return handle_of(r)->start(RMEM_READ, {&piece, 1}, *op, limit());
}

REMOTE_API int rwrite_async(remote_t* r, raddr_t address, const void* buffer, size_t bytes,
                            rop_t* op) {
    if (int error = op ? check_range(r, address, buffer, bytes) : -EINVAL)
        return error;
    rvec piece{address, const_cast<void*>(buffer), bytes};
    return handle_of(r)->start(RMEM_WRITE, {&piece, 1}, *op, limit());
}

REMOTE_API int rpoll(remote_t* r, rop_t* ops, size_t count, uint64_t timeout_us) {
    if (int error = check(r))
        return error;
    if (!ops && count)
        return -EINVAL;
    return handle_of(r)->poll(ops, count, timeout_us);
}

REMOTE_API int rpoll_any(remote_t* r, rop_t* const* ops, size_t count, uint64_t timeout_us) {
    if (int error = check(r))
        return error;
    if (!ops || !count || count > INT_MAX)
        return -EINVAL;
    return handle_of(r)->poll_any(std::span(ops, count), timeout_us);
}

REMOTE_API int rcancel(remote_t* r, const rop_t* op) {
    if (int error = op ? check(r) : -EINVAL)
        return error;
    return handle_of(r)->cancel(*op);
}

REMOTE_API uint64_t rtimeout(uint64_t timeout_us) {
    return std::exchange(own_timeout_us, timeout_us);
}

REMOTE_API int rrelease(remote_t* r) {
    if (int error = check(r))
        return error;
    return handle_of(r)->epoch()->backend->release(limit());
}

REMOTE_API int rfence(remote_t* r) {
    if (int error = check(r))
        return error;
    return handle_of(r)->epoch()->backend->fence(limit());
}

REMOTE_API int rreadv(remote_t* r, const rvec* pieces, size_t count) {
    return transfer(r, RMEM_READ, pieces, count);
}

REMOTE_API int rwritev(remote_t* r, const rvec* pieces, size_t count) {
    return transfer(r, RMEM_WRITE, pieces, count);
}

REMOTE_API int rreadv_async(remote_t* r, const rvec* pieces, size_t count, rop_t* op) {
    return start(r, RMEM_READ, pieces, count, op);
}

REMOTE_API int rwritev_async(remote_t* r, const rvec* pieces, size_t count, rop_t* op) {
    return start(r, RMEM_WRITE, pieces, count, op);
}

REMOTE_API int rread_strided(remote_t* r, raddr_t address, size_t stride, void* buffer,
                             size_t bytes, size_t count) {
    return transfer_strided(r, RMEM_READ, address, stride, buffer, bytes, count);
}

REMOTE_API int rwrite_strided(remote_t* r, raddr_t address, size_t stride, const void* buffer,
                              size_t bytes, size_t count) {
    return transfer_strided(r, RMEM_WRITE, address, stride, const_cast<void*>(buffer), bytes,
                            count);
}

REMOTE_API int rfetch(remote_t* r, raddr_t address, size_t bytes, remote_fetch what, uint64_t value,
                      uint64_t* found) {
    if (int error = is_fetch(what) ? check_integer(r, address, bytes) : -EINVAL)
        return error;
    rmem_op_atomic atomic = fetch_of(what, value);
    int error =
        handle_of(r)->epoch()->backend->atomic(address, static_cast<u32>(bytes), atomic, limit());
    if (!error && found)
        *found = atomic.found[0];
    return error;
}

REMOTE_API int rcas(remote_t* r, raddr_t address, size_t bytes, uint64_t* expected,
                    uint64_t desired) {
    if (int error = expected ? check_integer(r, address, bytes) : -EINVAL)
        return error;
    rmem_op_atomic atomic = cas_of(*expected, desired);
    if (int error = handle_of(r)->epoch()->backend->atomic(address, static_cast<u32>(bytes), atomic,
                                                           limit()))
        return error;
    bool was_there = atomic.found[0] == low_bytes(*expected, bytes);
    *expected = atomic.found[0];
    return was_there;
}

REMOTE_API int rcas128(remote_t* r, raddr_t address, uint64_t expected[2],
                       const uint64_t desired[2]) {
    if (int error = check(r))
        return error;
    if (!expected || !desired || address % 16)
        return -EINVAL;
    rmem_op_atomic atomic{{desired[0], desired[1]}, {expected[0], expected[1]}, {0, 0}, RMEM_CAS};
    if (int error = handle_of(r)->epoch()->backend->atomic(address, 16, atomic, limit()))
        return error;
    bool was_there = atomic.found[0] == expected[0] && atomic.found[1] == expected[1];
    std::copy_n(atomic.found, 2, expected);
    return was_there;
}

REMOTE_API int rtas(remote_t* r, raddr_t address) {
    uint64_t found = 0;
    if (int error = rfetch(r, address, 4, REMOTE_SWAP, 1, &found))
        return error;
    return found != 0;
}

REMOTE_API int rfetch_async(remote_t* r, raddr_t address, size_t bytes, remote_fetch what,
                            uint64_t value, uint64_t* found, rop_t* op) {
    if (int error = op && is_fetch(what) ? check_integer(r, address, bytes) : -EINVAL)
        return error;
    return handle_of(r)->start_atomic(address, static_cast<u32>(bytes), fetch_of(what, value),
                                      found, *op, limit());
}

REMOTE_API int rcas_async(remote_t* r, raddr_t address, size_t bytes, uint64_t* expected,
                          uint64_t desired, rop_t* op) {
    if (int error = op && expected ? check_integer(r, address, bytes) : -EINVAL)
        return error;
    *expected = low_bytes(*expected, bytes);
    return handle_of(r)->start_atomic(address, static_cast<u32>(bytes), cas_of(*expected, desired),
                                      expected, *op, limit());
}

REMOTE_API int rput(remote_t* r, raddr_t address, const void* buffer, size_t bytes,
                    const rsignal* signal) {
    if (int error = check_put(r, address, buffer, bytes, signal))
        return error;
    auto* data = static_cast<uint8_t*>(const_cast<void*>(buffer));
    try {
        return handle_of(r)->put(address, data, bytes, put_of(*signal), limit());
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    }
}

REMOTE_API int rput_async(remote_t* r, raddr_t address, const void* buffer, size_t bytes,
                          const rsignal* signal, rop_t* op) {
    if (int error = op ? check_put(r, address, buffer, bytes, signal) : -EINVAL)
        return error;
    auto* data = static_cast<uint8_t*>(const_cast<void*>(buffer));
    return handle_of(r)->start_put(address, data, bytes, put_of(*signal), *op, limit());
}

REMOTE_API int rwait(remote_t* r, raddr_t address, size_t bytes, remote_compare compare,
                     uint64_t value, uint64_t timeout_us, uint64_t* found) {
    if (int error = is_compare(compare) ? check_integer(r, address, bytes) : -EINVAL)
        return error;
    uint64_t there = 0;
    int error =
        remora::lib::wait_for_integer(*handle_of(r)->epoch()->backend, address, bytes, compare,
                                      value, remora::lib::from_now(timeout_us), limit(), there);
    if (found && (!error || error == -EAGAIN))
        *found = there;
    return error;
}

REMOTE_API int rlock_init(remote_t* r, raddr_t lock, uint64_t lease_us) {
    if (int error = check_lock(r, lock))
        return error;
    uint64_t lease_ms = lease_us / 1000;
    if (!lease_ms || lease_ms > UINT32_MAX)
        return -EINVAL;
    return handle_of(r)->epoch()->locks.init(lock, static_cast<uint32_t>(lease_ms), limit());
}

REMOTE_API int rlock(remote_t* r, raddr_t lock) {
    if (int error = check_lock(r, lock))
        return error;
    try {
        return handle_of(r)->epoch()->locks.take(lock, limit());
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    }
}

REMOTE_API int rlock_extend(remote_t* r, raddr_t lock) {
    if (int error = check_lock(r, lock))
        return error;
    return handle_of(r)->epoch()->locks.extend(lock, limit());
}

REMOTE_API int runlock(remote_t* r, raddr_t lock) {
    if (int error = check_lock(r, lock))
        return error;
    Clock::time_point until = limit();
    EpochRef epoch = handle_of(r)->epoch();
    if (int error = epoch->backend->release(until))
        return error;
    return epoch->locks.give(lock, until);
}

REMOTE_API int remote_stats(remote_t* r, remote_counters* counters) {
    if (int error = counters ? check(r) : -EINVAL)
        return error;
    // The caller's memory may be a mapping's; don't touch it under the backend's locks.
    remote_counters sum{};
    handle_of(r)->stats(sum);
    *counters = sum;
    return 0;
}

REMOTE_API uint64_t remote_percentile_ns(const remote_kind_stats* kind, double percent) {
    return kind ? remora::lib::percentile_ns(*kind, percent) : 0;
}

// ---- memory as memory ----

namespace {

// As for remote_options: an older program's structure is shorter.
remora::lib::PagerLimits limits_of(const remote_mmap_options* given) {
    remote_mmap_options options{};
    if (given && given->size < offsetof(remote_mmap_options, prefetch_bytes))
        throw remora::Misuse("options.size is {}: set it to sizeof(struct remote_mmap_options)",
                             given->size);
    if (given)
        std::memcpy(&options, given, std::min(given->size, sizeof(options)));
    return {options.cache_bytes, options.prefetch_bytes};
}

bool is_whole_pages(uint64_t value) {
    return value % static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) == 0;
}

} // namespace

REMOTE_API int remote_mmap(remote_t* r, raddr_t address, size_t bytes, unsigned permission,
                           const remote_mmap_options* options, void** memory) {
    if (int error = memory ? check(r) : -EINVAL)
        return error;
    if (!bytes || address + bytes < address || !is_whole_pages(address) || !is_whole_pages(bytes) ||
        (permission != REMOTE_READ && permission != REMOTE_RW))
        return fail(-EINVAL, "remote_mmap() wants whole pages, and REMOTE_READ or REMOTE_RW");
    try {
        int error =
            handle_of(r)->mappings().map(handle_of(r)->epoch(), address, bytes,
                                         permission == REMOTE_RW, limits_of(options), *memory);
        return error ? fail(error, "the first or the last page of the range can't be read") : 0;
    } catch (const remora::Misuse& misuse) {
        return fail(-EINVAL, misuse.what());
    } catch (const remora::Failure& failure) {
        return fail(-EOPNOTSUPP, failure.what());
    } catch (const std::system_error& error) {
        return fail(-error.code().value(), error.what());
    } catch (const std::bad_alloc&) {
        return fail(-ENOMEM, "no memory left here");
    }
}

REMOTE_API int remote_msync(remote_t* r, void* memory, size_t bytes) {
    if (int error = check(r))
        return error;
    return handle_of(r)->mappings().sync(memory, bytes);
}

REMOTE_API int remote_munmap(remote_t* r, void* memory) {
    if (int error = check(r))
        return error;
    return handle_of(r)->mappings().unmap(memory);
}
