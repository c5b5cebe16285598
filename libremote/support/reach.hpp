// SPDX-License-Identifier: MIT
// What a UDP port that gives no answer may be. A memory node answers nobody whose key or space it
// doesn't know, so only the machine's own refusals tell.
#pragma once

#include <chrono>

#include <sys/socket.h>

namespace remora {

enum class Reach {
    silent,   // nothing came back, not even a refusal: no machine there, or a firewall
    refused,  // the machine is there, and nobody listens at the port
    listened, // the machine refuses another port, but not this one
};

// Takes twice that patience where nothing comes back.
Reach reach(const sockaddr_storage& address, socklen_t bytes, std::chrono::milliseconds patience);

} // namespace remora
