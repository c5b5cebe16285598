// SPDX-License-Identifier: GPL-2.0
#include "remora/reach.hpp"

#include <cerrno>
#include <cstring>
#include <memory>

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "support/descriptor.hpp"
#include "support/failure.hpp"

namespace remora {

namespace {

// A machine limits its refusals, and one may be lost.
constexpr int tries = 4;
constexpr int patience_ms = 250; // for each
// Reserved (tcpmux); hardly anything listens there by UDP.
constexpr std::uint16_t other_port = 1;

// Does the machine refuse a datagram to that port?
bool refuses(const addrinfo& host, std::uint16_t port) {
    sockaddr_storage address{};
    std::memcpy(&address, host.ai_addr, host.ai_addrlen);
    // The port is at the same place in both kinds of address.
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
    Descriptor fd(socket(host.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd || connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), host.ai_addrlen))
        return false;
    for (int n = 0; n < tries; n++) {
        pollfd refusal{fd.get(), POLLIN, 0};
        char nothing = 0;
        if ((send(fd.get(), &nothing, sizeof(nothing), 0) < 0 && errno == ECONNREFUSED) ||
            (poll(&refusal, 1, patience_ms) > 0 &&
             recv(fd.get(), &nothing, sizeof(nothing), MSG_DONTWAIT) < 0 && errno == ECONNREFUSED))
            return true;
    }
    return false;
}

} // namespace

Reach reach(const Endpoint& endpoint) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* list = nullptr;
    if (int error = getaddrinfo(endpoint.host.c_str(), nullptr, &hints, &list))
        throw Failure("no host {}: {}", endpoint.host, gai_strerror(error));
    std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
    Reach best = Reach::silent;
    for (const addrinfo* each = list; each && best != Reach::listened; each = each->ai_next) {
        if (refuses(*each, endpoint.port))
            best = Reach::refused;
        else if (refuses(*each, other_port))
            best = Reach::listened;
    }
    return best;
}

} // namespace remora
