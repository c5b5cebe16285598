// SPDX-License-Identifier: MIT
#include "support/reach.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include <netinet/in.h>
#include <poll.h>

#include "support/descriptor.hpp"

namespace remora {

namespace {

// A machine limits its refusals, and one can be lost.
constexpr int tries = 4;
// Reserved (tcpmux); hardly anything listens there by UDP.
constexpr std::uint16_t other_port = 1;

// Does the machine refuse a datagram to that address?
bool refuses(const sockaddr_storage& address, socklen_t bytes, std::chrono::milliseconds patience) {
    Descriptor fd(socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd || connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes))
        return false;
    // poll() takes a negative time for none.
    const int wait_ms = std::max(static_cast<int>(patience.count() / tries), 0);
    for (int n = 0; n < tries; n++) {
        pollfd refusal{fd.get(), POLLIN, 0};
        char nothing = 0;
        if ((send(fd.get(), &nothing, sizeof(nothing), 0) < 0 && errno == ECONNREFUSED) ||
            (poll(&refusal, 1, wait_ms) > 0 &&
             recv(fd.get(), &nothing, sizeof(nothing), MSG_DONTWAIT) < 0 && errno == ECONNREFUSED))
            return true;
    }
    return false;
}

} // namespace

Reach reach(const sockaddr_storage& address, socklen_t bytes, std::chrono::milliseconds patience) {
    if (refuses(address, bytes, patience))
        return Reach::refused;
    sockaddr_storage other = address;
    // The port is at the same place in both kinds of address.
    reinterpret_cast<sockaddr_in&>(other).sin_port = htons(other_port);
    return refuses(other, bytes, patience) ? Reach::listened : Reach::silent;
}

} // namespace remora
