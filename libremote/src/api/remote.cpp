// SPDX-License-Identifier: MIT
// The C functions check arguments and let no exception through.
#include "remote/remote.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <span>

#include "src/api/checked.hpp"
#include "src/sync/waiting.hpp"

using remora::lib::check;
using remora::lib::check_range;
using remora::lib::EpochRef;
using remora::lib::Handle;
using remora::lib::handle_of;
using remora::lib::limit;

namespace {

int check_pieces(const remote_t* r, const remote_vec* pieces, std::size_t count) {
    if (!pieces || !count || count > REMOTE_PIECES_MAX)
        return -EINVAL;
    for (const remote_vec& piece : std::span(pieces, count)) {
        if (int error = check_range(r, piece.address, piece.buffer, piece.bytes))
            return error;
    }
    return 0;
}

int transfer(remote_t* r, std::uint8_t type, const remote_vec* pieces, std::size_t count) {
    if (int error = check_pieces(r, pieces, count))
        return error;
    try {
        return handle_of(r)->transfer(type, std::span(pieces, count), limit());
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    }
}

int start(remote_t* r, std::uint8_t type, const remote_vec* pieces, std::size_t count, rop_t* op) {
    if (int error = op ? check_pieces(r, pieces, count) : -EINVAL)
        return error;
    return handle_of(r)->start(type, std::span(pieces, count), *op, limit());
}

int check_integer(const remote_t* r, raddr_t address, std::size_t bytes) {
    if (int error = check(r))
        return error;
    return (bytes == 4 || bytes == 8) && address % bytes == 0 ? 0 : -EINVAL;
}

rmem_op_atomic fetch_of(remote_change what, std::uint64_t value) {
    return {{value, 0}, {0, 0}, {0, 0}, static_cast<u8>(what)};
}

std::uint64_t low_bytes(std::uint64_t value, std::size_t bytes) {
    return bytes == 4 ? static_cast<std::uint32_t>(value) : value;
}

int check_cas(const remote_t* r, raddr_t address, std::size_t bytes, const uint64_t* expected,
              const uint64_t* desired) {
    if (!expected || !desired)
        return -EINVAL;
    if (bytes != 16)
        return check_integer(r, address, bytes);
    int error = check(r);
    return error || address % 16 == 0 ? error : -EINVAL;
}

rmem_op_atomic cas_of(std::size_t bytes, const uint64_t* expected, const uint64_t* desired) {
    rmem_op_atomic cas{{desired[0], 0}, {low_bytes(expected[0], bytes), 0}, {0, 0}, RMEM_CAS};
    if (bytes == 16) {
        cas.value[1] = desired[1];
        cas.compare[1] = expected[1];
    }
    return cas;
}

bool is_fetch(remote_change what) {
    int op = what;
    return op > 0 && op < RMEM_ATOMIC_OP_END && op != RMEM_CAS;
}

// Data and signal of a put.
int check_put(const remote_t* r, raddr_t address, const void* buffer, std::size_t bytes,
              const remote_signal* signal) {
    if (!signal || !is_fetch(signal->what))
        return -EINVAL;
    if (int error = check_range(r, address, buffer, bytes))
        return error;
    return check_integer(r, signal->address, signal->bytes);
}

rmem_op_put put_of(const remote_signal& signal) {
    return {signal.address, signal.value, 0, static_cast<u32>(signal.bytes),
            static_cast<u8>(signal.what)};
}

bool is_compare(remote_compare compare) {
    int which = compare;
    return which >= REMOTE_EQ && which <= REMOTE_LE;
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
        return remora::lib::fail(-EINVAL,
                                 "remote_open() wants a place for the handle, and a target");
    return remora::lib::opening([&] {
        const remote_options chosen =
            remora::lib::options_of(options, "remote_options", offsetof(remote_options, integrity));
        *r = remora::lib::name_handle(
            std::make_unique<Handle>(remora::lib::parse_target(target, chosen), chosen));
        return 0;
    });
}

REMOTE_API void remote_close(remote_t* r) {
    remora::lib::take_handle(r);
}

REMOTE_API int remote_alloc(remote_t* r, uint64_t bytes, unsigned permission, raddr_t* address) {
    return allocate(r, 0, bytes, permission, address);
}

REMOTE_API int remote_alloc_at(remote_t* r, raddr_t wanted, uint64_t bytes, unsigned permission,
                               raddr_t* address) {
    return wanted ? allocate(r, wanted, bytes, permission, address) : -EINVAL;
}

REMOTE_API int remote_free(remote_t* r, raddr_t address) {
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

REMOTE_API int remote_free_sized(remote_t* r, raddr_t address, uint64_t bytes) {
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
    return remora::lib::opening([&] { return handle_of(r)->lost(*address, *bytes); });
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

REMOTE_API int remote_read(remote_t* r, raddr_t address, void* buffer, size_t bytes) {
    if (int error = check_range(r, address, buffer, bytes))
        return error;
    return handle_of(r)->epoch()->backend->transfer(RMEM_READ, address,
                                                    static_cast<uint8_t*>(buffer), bytes, limit());
}

REMOTE_API int remote_write(remote_t* r, raddr_t address, const void* buffer, size_t bytes) {
    if (int error = check_range(r, address, buffer, bytes))
        return error;
    auto* data = static_cast<uint8_t*>(const_cast<void*>(buffer));
    return handle_of(r)->epoch()->backend->transfer(RMEM_WRITE, address, data, bytes, limit());
}

REMOTE_API int remote_read_async(remote_t* r, raddr_t address, void* buffer, size_t bytes,
                                 rop_t* op) {
    if (int error = op ? check_range(r, address, buffer, bytes) : -EINVAL)
        return error;
    remote_vec piece{address, buffer, bytes};
    return handle_of(r)->start(RMEM_READ, {&piece, 1}, *op, limit());
}

REMOTE_API int remote_write_async(remote_t* r, raddr_t address, const void* buffer, size_t bytes,
                                  rop_t* op) {
    if (int error = op ? check_range(r, address, buffer, bytes) : -EINVAL)
        return error;
    remote_vec piece{address, const_cast<void*>(buffer), bytes};
    return handle_of(r)->start(RMEM_WRITE, {&piece, 1}, *op, limit());
}

REMOTE_API int remote_poll(remote_t* r, rop_t* ops, size_t count, uint64_t timeout_us) {
    if (int error = check(r))
        return error;
    if (!ops && count)
        return -EINVAL;
    return handle_of(r)->poll(ops, count, timeout_us);
}

REMOTE_API int remote_poll_any(remote_t* r, rop_t* const* ops, size_t count, uint64_t timeout_us) {
    if (int error = check(r))
        return error;
    if (!ops || !count || count > INT_MAX)
        return -EINVAL;
    return handle_of(r)->poll_any(std::span(ops, count), timeout_us);
}

REMOTE_API int remote_cancel(remote_t* r, const rop_t* op) {
    if (int error = op ? check(r) : -EINVAL)
        return error;
    return handle_of(r)->cancel(*op);
}

REMOTE_API int remote_release(remote_t* r) {
    if (int error = check(r))
        return error;
    return handle_of(r)->epoch()->backend->release(limit());
}

REMOTE_API int remote_fence(remote_t* r) {
    if (int error = check(r))
        return error;
    return handle_of(r)->epoch()->backend->fence(limit());
}

REMOTE_API int remote_readv(remote_t* r, const remote_vec* pieces, size_t count) {
    return transfer(r, RMEM_READ, pieces, count);
}

REMOTE_API int remote_writev(remote_t* r, const remote_vec* pieces, size_t count) {
    return transfer(r, RMEM_WRITE, pieces, count);
}

REMOTE_API int remote_readv_async(remote_t* r, const remote_vec* pieces, size_t count, rop_t* op) {
    return start(r, RMEM_READ, pieces, count, op);
}

REMOTE_API int remote_writev_async(remote_t* r, const remote_vec* pieces, size_t count, rop_t* op) {
    return start(r, RMEM_WRITE, pieces, count, op);
}

REMOTE_API int remote_fetch(remote_t* r, raddr_t address, size_t bytes, remote_change what,
                            uint64_t value, uint64_t* found) {
    if (int error = is_fetch(what) ? check_integer(r, address, bytes) : -EINVAL)
        return error;
    rmem_op_atomic atomic = fetch_of(what, value);
    int error =
        handle_of(r)->epoch()->backend->atomic(address, static_cast<u32>(bytes), atomic, limit());
    if (!error && found)
        *found = atomic.found[0];
    return error;
}

REMOTE_API int remote_cas(remote_t* r, raddr_t address, size_t bytes, uint64_t* expected,
                          const uint64_t* desired) {
    if (int error = check_cas(r, address, bytes, expected, desired))
        return error;
    rmem_op_atomic atomic = cas_of(bytes, expected, desired);
    if (int error = handle_of(r)->epoch()->backend->atomic(address, static_cast<u32>(bytes), atomic,
                                                           limit()))
        return error;
    bool was_there = std::ranges::equal(atomic.found, atomic.compare);
    std::copy_n(atomic.found, bytes == 16 ? 2 : 1, expected);
    return was_there;
}

REMOTE_API int remote_fetch_async(remote_t* r, raddr_t address, size_t bytes, remote_change what,
                                  uint64_t value, uint64_t* found, rop_t* op) {
    if (int error = op && is_fetch(what) ? check_integer(r, address, bytes) : -EINVAL)
        return error;
    return handle_of(r)->start_atomic(address, static_cast<u32>(bytes), fetch_of(what, value),
                                      found, *op, limit());
}

REMOTE_API int remote_cas_async(remote_t* r, raddr_t address, size_t bytes, uint64_t* expected,
                                uint64_t desired, rop_t* op) {
    if (int error = op && expected ? check_integer(r, address, bytes) : -EINVAL)
        return error;
    *expected = low_bytes(*expected, bytes);
    rmem_op_atomic cas{{desired, 0}, {*expected, 0}, {0, 0}, RMEM_CAS};
    return handle_of(r)->start_atomic(address, static_cast<u32>(bytes), cas, expected, *op,
                                      limit());
}

REMOTE_API int remote_put(remote_t* r, raddr_t address, const void* buffer, size_t bytes,
                          const remote_signal* signal) {
    if (int error = check_put(r, address, buffer, bytes, signal))
        return error;
    auto* data = static_cast<uint8_t*>(const_cast<void*>(buffer));
    try {
        return handle_of(r)->put(address, data, bytes, put_of(*signal), limit());
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    }
}

REMOTE_API int remote_put_async(remote_t* r, raddr_t address, const void* buffer, size_t bytes,
                                const remote_signal* signal, rop_t* op) {
    if (int error = op ? check_put(r, address, buffer, bytes, signal) : -EINVAL)
        return error;
    auto* data = static_cast<uint8_t*>(const_cast<void*>(buffer));
    return handle_of(r)->start_put(address, data, bytes, put_of(*signal), *op, limit());
}

REMOTE_API int remote_wait(remote_t* r, raddr_t address, size_t bytes, remote_compare compare,
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

REMOTE_API int remote_stats(remote_t* r, remote_counters* counters) {
    if (int error = counters ? check(r) : -EINVAL)
        return error;
    if (counters->size < sizeof(remote_counters))
        return -EINVAL;
    // The caller's memory may be a mapping's; don't touch it under the backend's locks.
    remote_counters sum{};
    handle_of(r)->stats(sum);
    sum.size = sizeof(sum);
    *counters = sum;
    return 0;
}
