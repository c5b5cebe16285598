// SPDX-License-Identifier: GPL-2.0
// UDP sockets that share a port, and a thread for each.
#pragma once

#include <string>

#include "remora-node/transport.hpp"

namespace remora::daemon {

struct UdpOptions {
    std::string bind;               // an address of this machine; empty: all
    std::uint16_t port = RMEM_PORT; // 0: any that is free
    unsigned threads = 1;
    std::uint32_t spin_us = 0;
};

// Throws Misuse, Failure.
std::unique_ptr<Transport> open_udp_transport(const UdpOptions& options);

std::unique_ptr<TransportKind> udp_transport_kind();

} // namespace remora::daemon
