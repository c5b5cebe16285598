// SPDX-License-Identifier: MIT
// lock.h's functions.
#include "remote/lock.h"

#include <cstdint>

#include "src/api/checked.hpp"

using remora::lib::check_lock;
using remora::lib::guarded;
using remora::lib::handle_of;

namespace {

int execute(remote_t* r, const remote_op& op) {
    if (int error = remora::lib::check_op(r, op))
        return error;
    return guarded([&] { return handle_of(r)->execute(op); });
}

} // namespace

REMOTE_API int remote_lock_init(remote_t* r, raddr_t lock, uint64_t lease_us) {
    if (int error = check_lock(r, lock))
        return error;
    uint64_t lease_ms = lease_us / 1000;
    if (!lease_ms || lease_ms > UINT32_MAX)
        return -EINVAL;
    return guarded([&] {
        return handle_of(r)->epoch()->locks.init(lock, static_cast<uint32_t>(lease_ms),
                                                 handle_of(r)->limit());
    });
}

REMOTE_API int remote_lock(remote_t* r, raddr_t lock) {
    return execute(r, remote_op_lock(lock, 0));
}

REMOTE_API int remote_lock_extend(remote_t* r, raddr_t lock) {
    if (int error = check_lock(r, lock))
        return error;
    return guarded(
        [&] { return handle_of(r)->epoch()->locks.extend(lock, handle_of(r)->limit()); });
}

REMOTE_API int remote_unlock(remote_t* r, raddr_t lock) {
    return execute(r, remote_op_unlock(lock, 0));
}
