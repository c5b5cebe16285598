// SPDX-License-Identifier: MIT
// The C functions check arguments and let no exception through.
#include "remote/remote.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include "src/api/checked.hpp"
#include "src/backend/integers.hpp"
#include "src/sync/waiting.hpp"

using remora::lib::cas_of;
using remora::lib::Change;
using remora::lib::check;
using remora::lib::check_cas;
using remora::lib::check_copy;
using remora::lib::check_integer;
using remora::lib::check_range;
using remora::lib::EpochRef;
using remora::lib::fetch_of;
using remora::lib::guarded;
using remora::lib::Handle;
using remora::lib::handle_of;
using remora::lib::Kind;

namespace {

int execute(remote_t* r, const remote_op& op) {
    if (int error = remora::lib::check_op(r, op))
        return error;
    return guarded([&] { return handle_of(r)->execute(op); });
}

int transfer(remote_t* r, Kind kind, raddr_t address, void* buffer, std::size_t bytes) {
    return guarded([&] {
        Handle& handle = *handle_of(r);
        return handle.epoch()->backend->transfer(kind, address, static_cast<uint8_t*>(buffer),
                                                 bytes, handle.limit());
    });
}

int change_integer(remote_t* r, raddr_t address, std::size_t bytes, Change& change) {
    return guarded([&] {
        Handle& handle = *handle_of(r);
        return handle.epoch()->backend->change(address, static_cast<std::uint32_t>(bytes), change,
                                               handle.limit());
    });
}

bool is_compare(remote_compare compare) {
    int which = compare;
    return which >= REMOTE_EQ && which <= REMOTE_LE;
}

int allocate(remote_t* r, raddr_t wanted, uint64_t bytes, unsigned permission, raddr_t* address) {
    if (int error = remora::lib::check_alloc(r, wanted, bytes, permission))
        return error;
    if (!address)
        return -EINVAL;
    return guarded(
        [&] { return handle_of(r)->epoch()->heap.alloc(bytes, permission, wanted, *address); });
}

} // namespace

REMOTE_API int remote_open(remote_t** r, const char* target, const remote_options* options) {
    if (!r || !target)
        return remora::lib::fail(-EINVAL,
                                 "remote_open() wants a place for the handle, and a target");
    return remora::lib::opening([&] {
        const remote_options chosen = remora::lib::options_of(options, "remote_options");
        if (chosen.reserved)
            throw remora::Misuse("remote_options.reserved is {}: set it to 0", chosen.reserved);
        *r = remora::lib::name_handle(
            std::make_unique<Handle>(remora::lib::parse_target(target, chosen), chosen));
        return 0;
    });
}

REMOTE_API void remote_close(remote_t* r) {
    guarded([&] {
        remora::lib::take_handle(r);
        return 0;
    });
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
    return guarded([&] {
        EpochRef epoch = handle_of(r)->epoch();
        return epoch->heap.free(address);
    });
}

REMOTE_API int remote_free_sized(remote_t* r, raddr_t address, uint64_t bytes) {
    if (int error = check(r))
        return error;
    if (!address || !bytes || address + bytes < address)
        return -EINVAL;
    return guarded([&] {
        EpochRef epoch = handle_of(r)->epoch();
        return epoch->heap.free_sized(address, bytes);
    });
}

REMOTE_API int remote_lost(remote_t* r, raddr_t* address, uint64_t* bytes) {
    if (int error = address && bytes ? check(r) : -EINVAL)
        return error;
    return remora::lib::opening([&] { return handle_of(r)->lost(*address, *bytes); });
}

REMOTE_API int remote_publish(remote_t* r, const char* name, raddr_t address) {
    return execute(r, remote_op_publish(name, address, 0));
}

REMOTE_API int remote_lookup(remote_t* r, const char* name, raddr_t* address, uint64_t* bytes) {
    uint64_t found[2];
    int error = address ? execute(r, remote_op_lookup(name, found, 0)) : -EINVAL;
    if (error)
        return error;
    *address = found[0];
    if (bytes)
        *bytes = found[1];
    return 0;
}

REMOTE_API int remote_list(remote_t* r, raddr_t from, remote_region* regions, size_t max) {
    if (!regions || !max || max > INT_MAX)
        return -EINVAL;
    if (int error = remora::lib::check_op(r, remote_op_list(from, regions, 0)))
        return error;
    return guarded([&] {
        const auto handle = handle_of(r);
        const auto limit = handle->limit(); // of the whole call
        for (std::size_t count = 0;; count++) {
            if (count == max)
                return static_cast<int>(count);
            const remote_op op = remote_op_list(from, &regions[count], 0);
            int error = remora::lib::check_op(r, op);
            error = error ? error : handle->execute(op, limit);
            if (error)
                return error;
            from = regions[count].address + 1;
            if (!regions[count].bytes)
                return static_cast<int>(count);
        }
    });
}

REMOTE_API int remote_query(remote_t* r, remote_function* what) {
    return execute(r, remote_op_query(what, 0));
}

REMOTE_API int remote_call(remote_t* r, remote_function* what) {
    return execute(r, remote_op_call(what, 0));
}

REMOTE_API int remote_register(remote_t* r, void* buffer, size_t bytes) {
    if (int error = check_range(r, 0, buffer, bytes))
        return error;
    auto* memory = static_cast<std::uint8_t*>(buffer);
    if (bytes > REMOTE_BUFFER_BYTES_MAX || memory + bytes < memory)
        return -EINVAL;
    return guarded([&] { return handle_of(r)->buffers().add(memory, bytes); });
}

REMOTE_API int remote_unregister(remote_t* r, void* buffer) {
    if (int error = check(r))
        return error;
    return guarded(
        [&] { return handle_of(r)->buffers().remove(static_cast<std::uint8_t*>(buffer)); });
}

REMOTE_API int remote_read(remote_t* r, raddr_t address, void* buffer, size_t bytes) {
    if (int error = check_range(r, address, buffer, bytes))
        return error;
    return transfer(r, Kind::read, address, buffer, bytes);
}

REMOTE_API int remote_write(remote_t* r, raddr_t address, const void* buffer, size_t bytes) {
    if (int error = check_range(r, address, buffer, bytes))
        return error;
    return transfer(r, Kind::write, address, const_cast<void*>(buffer), bytes);
}

REMOTE_API int remote_copy(remote_t* r, raddr_t to, raddr_t from, size_t bytes) {
    if (int error = check_copy(r, to, from, bytes))
        return error;
    return guarded([&] { return handle_of(r)->copy(to, from, bytes, handle_of(r)->limit()); });
}

REMOTE_API int remote_release(remote_t* r) {
    if (int error = check(r))
        return error;
    return guarded([&] { return handle_of(r)->epoch()->backend->release(handle_of(r)->limit()); });
}

REMOTE_API int remote_fence(remote_t* r) {
    if (int error = check(r))
        return error;
    return guarded([&] { return handle_of(r)->epoch()->backend->fence(handle_of(r)->limit()); });
}

REMOTE_API int remote_readv(remote_t* r, const remote_vec* pieces, size_t count) {
    return execute(r, remote_op_readv(pieces, count, 0));
}

REMOTE_API int remote_writev(remote_t* r, const remote_vec* pieces, size_t count) {
    return execute(r, remote_op_writev(pieces, count, 0));
}

REMOTE_API int remote_fetch(remote_t* r, raddr_t address, size_t bytes, remote_change what,
                            uint64_t value, uint64_t* found) {
    if (int error = remora::lib::is_change(what) ? check_integer(r, address, bytes) : -EINVAL)
        return error;
    Change atomic = fetch_of(what, value);
    int error = change_integer(r, address, bytes, atomic);
    if (!error && found)
        *found = atomic.found[0];
    return error;
}

REMOTE_API int remote_cas(remote_t* r, raddr_t address, size_t bytes, uint64_t* expected,
                          const uint64_t* desired) {
    if (int error = expected && desired ? check_cas(r, address, bytes) : -EINVAL)
        return error;
    Change atomic = cas_of(bytes, expected, desired);
    if (int error = change_integer(r, address, bytes, atomic))
        return error;
    bool was_there = std::ranges::equal(atomic.found, atomic.compare);
    std::copy_n(atomic.found, bytes == 16 ? 2 : 1, expected);
    return was_there;
}

REMOTE_API int remote_put(remote_t* r, raddr_t address, const void* buffer, size_t bytes,
                          const remote_signal* signal) {
    return execute(r, remote_op_put(address, buffer, bytes, signal, 0));
}

REMOTE_API int remote_wait(remote_t* r, raddr_t address, size_t bytes, remote_compare compare,
                           uint64_t value, uint64_t timeout_us, uint64_t* found) {
    if (int error = is_compare(compare) ? check_integer(r, address, bytes) : -EINVAL)
        return error;
    uint64_t there = 0;
    int error = guarded([&] {
        const EpochRef epoch = handle_of(r)->epoch();
        return remora::lib::wait_for_integer(*epoch->backend, address, bytes, compare, value,
                                             remora::lib::from_now(timeout_us),
                                             handle_of(r)->limit(), there);
    });
    if (found && (!error || error == -EAGAIN))
        *found = there;
    return error;
}

REMOTE_API int remote_info(remote_t* r, remote_node* node) {
    if (int error = node ? check(r) : -EINVAL)
        return error;
    remote_node found{};
    int error = remora::lib::opening([&] {
        remora::lib::check_results(node, "remote_node");
        handle_of(r)->info(found);
        return 0;
    });
    if (error)
        return error;
    remora::lib::give(found, node);
    return 0;
}

REMOTE_API int remote_stats(remote_t* r, remote_counters* counters) {
    if (int error = counters ? check(r) : -EINVAL)
        return error;
    // The caller's memory can be a mapping's; don't touch it under the backend's locks.
    remote_counters sum{};
    return remora::lib::opening([&] {
        remora::lib::check_results(counters, "remote_counters");
        handle_of(r)->stats(sum);
        remora::lib::give(sum, counters);
        return 0;
    });
}
