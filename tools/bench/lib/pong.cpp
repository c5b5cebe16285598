// SPDX-License-Identifier: GPL-2.0
#include "pong.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "loopback.hpp"

namespace remora::bench {

void pong() {
    Descriptor fd = udp_socket();
    sockaddr_in address = loopback(0);
    auto* at = reinterpret_cast<sockaddr*>(&address);
    socklen_t length = sizeof(address);
    if (bind(fd.get(), at, length) || getsockname(fd.get(), at, &length))
        throw Failure("no port: {}", std::strerror(errno));
    fmt::print("{}\n", ntohs(address.sin_port));
    std::fflush(stdout);
    std::array<char, 65536> buffer;
    for (;;) {
        length = sizeof(address);
        std::uint32_t bytes;
        if (recvfrom(fd.get(), buffer.data(), buffer.size(), 0, at, &length) <
            static_cast<ssize_t>(sizeof(bytes)))
            continue;
        std::memcpy(&bytes, buffer.data(), sizeof(bytes));
        sendto(fd.get(), buffer.data(), std::min<std::size_t>(bytes, buffer.size()), 0, at, length);
    }
}

} // namespace remora::bench
