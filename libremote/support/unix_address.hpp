// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <string>

#include <sys/un.h>

#include "support/failure.hpp"

namespace remora {

// Throws Failure: the path is longer than an address of a Unix socket.
inline sockaddr_un unix_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof(address.sun_path))
        throw Failure(EINVAL, "socket path '{}' is empty or longer than {} bytes: choose another",
                      path, sizeof(address.sun_path) - 1);
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    return address;
}

} // namespace remora
