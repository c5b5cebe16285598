// SPDX-License-Identifier: GPL-2.0
// Where servers are: ports of this machine.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include <netinet/in.h>
#include <sys/socket.h>

#include "support/descriptor.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::bench {

inline std::uint16_t port_of(const std::string& text) {
    return static_cast<std::uint16_t>(parse_number(text, 1, 65535, "port"));
}

inline sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

inline Descriptor udp_socket() {
    Descriptor fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd)
        throw Failure("no UDP socket: {}", std::strerror(errno));
    return fd;
}

} // namespace remora::bench
