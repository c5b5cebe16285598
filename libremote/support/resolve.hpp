// SPDX-License-Identifier: MIT
// The addresses of a host's name, within a time: the system's resolver takes half a minute where
// the name servers are silent.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/socket.h>

namespace remora {

struct Resolved {
    sockaddr_storage address;
    socklen_t bytes;
};

// In the order in which the system prefers them. Throws Failure with EHOSTUNREACH: there is no such
// host, or the name servers are silent; with EAGAIN: too many look-ups are under way.
std::vector<Resolved> resolve(const std::string& host, std::uint16_t port,
                              std::chrono::steady_clock::time_point limit);

} // namespace remora
