// SPDX-License-Identifier: MIT
// Why a UDP port gives no answer. A memory node answers nobody whose key or space it
// doesn't know, so only the machine's own refusals tell.
#pragma once

#include <chrono>

#include <sys/socket.h>

namespace remora {

enum class Reach {
    silent,   // nothing came back, not even a refusal: no machine there, or a firewall
    refused,  // no program listens at the port, or a firewall refuses it
    listened, // another port is refused, but not this one: a program listens, or a firewall drops
};

// Takes twice that patience where nothing comes back.
Reach reach(const sockaddr_storage& address, socklen_t bytes, std::chrono::milliseconds patience);

} // namespace remora
