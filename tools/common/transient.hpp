// SPDX-License-Identifier: GPL-2.0
// Errors of a function at a node that a later try can be without.
#pragma once

#include <cerrno>

namespace remora {

// error: 0 or -errno, of libremote. The node can come back, get its program again, or have room.
inline bool is_transient(int error) {
    switch (error) {
    case -ESTALE:
    case -ENOSYS:
    case -ETIMEDOUT:
    case -ECONNRESET:
    case -ECONNREFUSED:
    case -EHOSTUNREACH:
    case -EUSERS:
    case -EAGAIN:
        return true;
    default:
        return false;
    }
}

} // namespace remora
