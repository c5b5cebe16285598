// SPDX-License-Identifier: GPL-2.0
#pragma once

#include <cstdint>

#include <netinet/in.h>

#include "node/core.hpp"

namespace remora::daemon {

// A datagram's source, and the local address it came to. IPv4 is mapped into IPv6.
struct Path {
    sockaddr_in6 peer;
    in6_pktinfo local;
    std::uint64_t ring =
        0; // serial number of the rings that it came by; then the others mean nothing
};

bool operator==(const Path& a, const Path& b);

// The source, as the core tells clients apart.
rmem_peer peer_of(const Path& path);

} // namespace remora::daemon
