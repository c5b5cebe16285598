// SPDX-License-Identifier: GPL-2.0
#include "remora-node/socket.hpp"

#include <cerrno>
#include <cstring>
#include <memory>

#include <netdb.h>
#include <poll.h>

#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::daemon {

namespace {

constexpr std::size_t control_bytes = CMSG_SPACE(sizeof(in6_pktinfo)) + CMSG_SPACE(sizeof(int));
// Room for a burst of writes. The kernel caps it at net.core.rmem_max unless the daemon is root.
constexpr int buffer_bytes = 8 << 20;

sockaddr_in6 address_of(const std::string& host, std::uint16_t port) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    if (host.empty())
        return address;
    addrinfo hints{};
    hints.ai_family = AF_INET6;
    hints.ai_socktype = SOCK_DGRAM;
    hints.ai_flags = AI_V4MAPPED | AI_NUMERICHOST;
    addrinfo* list = nullptr;
    if (int error = getaddrinfo(host.c_str(), nullptr, &hints, &list))
        throw Misuse("--bind {} is not an address: {}", host, gai_strerror(error));
    std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
    std::memcpy(&address, list->ai_addr, sizeof(address));
    address.sin6_port = htons(port);
    return address;
}

void set(int fd, int level, int name, int value) {
    if (setsockopt(fd, level, name, &value, sizeof(value)))
        throw Failure("socket option {} of level {}: {}", name, level, std::strerror(errno));
}

void enlarge(int fd, int force, int name) {
    if (setsockopt(fd, SOL_SOCKET, force, &buffer_bytes, sizeof(buffer_bytes)))
        set(fd, SOL_SOCKET, name, buffer_bytes);
}

// ECONNREFUSED reports an earlier answer that its client's machine refused.
bool passes(int error) {
    return error == EINTR || error == EAGAIN || error == ECONNREFUSED;
}

bool is_link_local(const in6_addr& address) {
    return IN6_IS_ADDR_LINKLOCAL(&address);
}

} // namespace

Socket::Socket(const std::string& host, std::uint16_t port, Sharing sharing)
    : fd_(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    if (!fd_)
        throw Failure("no UDP socket: {}: the daemon needs IPv6 in the kernel, for IPv4, too",
                      std::strerror(errno));
    sockaddr_in6 address = address_of(host, port);
    set(fd(), SOL_IPV6, IPV6_V6ONLY, 0);
    set(fd(), SOL_IPV6, IPV6_RECVPKTINFO, 1);
    receive_trains(fd());
    enlarge(fd(), SO_RCVBUFFORCE, SO_RCVBUF);
    enlarge(fd(), SO_SNDBUFFORCE, SO_SNDBUF);
    // The first one binds without it: another daemon's port is not to be joined.
    if (sharing == Sharing::joins)
        set(fd(), SOL_SOCKET, SO_REUSEPORT, 1);
    if (bind(fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address))) {
        if (errno == EADDRINUSE)
            throw Failure("UDP port {} is in use: choose another --port", port);
        const char* remedy = "";
        if (errno == EACCES)
            remedy = ": be root, or choose a --port from 1024 on";
        else if (errno == EADDRNOTAVAIL)
            remedy = ": no interface has that address: choose another --bind";
        throw Failure("can't bind to {}: {}{}", endpoint_text(host.empty() ? "::" : host, port),
                      std::strerror(errno), remedy);
    }
    if (sharing == Sharing::first)
        set(fd(), SOL_SOCKET, SO_REUSEPORT, 1);
    socklen_t length = sizeof(address);
    getsockname(fd(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin6_port);
}

// ---- receiving ----

struct Inbox::Slot {
    alignas(64) std::array<std::uint8_t, packet_bytes_max> packet;
    alignas(cmsghdr) std::array<char, control_bytes> control;
    iovec vector;
    Path path;
};

Inbox::Inbox(Outbox* late) : messages_(packets_max), slots_(packets_max) {
    for (unsigned int i = 0; i < packets_max; i++) {
        Slot& slot = slots_[i];
        slot.vector = {slot.packet.data(), slot.packet.size()};
        msghdr& header = messages_[i].msg_hdr;
        slot.path.late = late;
        header.msg_name = &slot.path.place_as<SocketPlace>().peer;
        header.msg_iov = &slot.vector;
        header.msg_iovlen = 1;
        header.msg_control = slot.control.data();
    }
}

Inbox::~Inbox() = default;

unsigned int Inbox::receive(int fd, int wait_ms) {
    for (mmsghdr& message : std::span(messages_).first(used_)) {
        message.msg_hdr.msg_namelen = sizeof(sockaddr_in6);
        message.msg_hdr.msg_controllen = control_bytes;
    }
    // Waiting for ever needs no poll(), whose time would be a tenth of a small batch's.
    pollfd packets{fd, POLLIN, 0};
    if (wait_ms > at_once && poll(&packets, 1, wait_ms) <= 0) {
        used_ = 0;
        return 0;
    }
    int how = wait_ms == forever ? MSG_WAITFORONE : MSG_DONTWAIT;
    int got = recvmmsg(fd, messages_.data(), packets_max, how, nullptr);
    error_ = got < 0 && !passes(errno) ? errno : 0;
    used_ = got < 0 ? 0 : static_cast<unsigned int>(got);
    return used_;
}

std::span<const std::uint8_t> Inbox::packet(unsigned int index) const {
    return std::span(slots_[index].packet).first(messages_[index].msg_len);
}

const Path& Inbox::path(unsigned int index) {
    Path& path = slots_[index].path;
    msghdr& header = messages_[index].msg_hdr;
    SocketPlace& place = path.place_as<SocketPlace>();
    place.local = {};
    for (cmsghdr* each = CMSG_FIRSTHDR(&header); each; each = CMSG_NXTHDR(&header, each)) {
        if (each->cmsg_level == SOL_IPV6 && each->cmsg_type == IPV6_PKTINFO)
            std::memcpy(&place.local, CMSG_DATA(each), sizeof(place.local));
    }
    // The routing table chooses the way back, except for an address that needs an interface.
    if (!is_link_local(place.peer.sin6_addr))
        place.local.ipi6_ifindex = 0;
    std::memcpy(path.peer.addr, &place.peer.sin6_addr, sizeof(path.peer.addr));
    path.peer.port = ntohs(place.peer.sin6_port);
    return path;
}

} // namespace remora::daemon
