// SPDX-License-Identifier: GPL-2.0
#include "pong.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "loopback.hpp"
#include "support/train.hpp"

namespace remora::bench {

namespace {

// With its header such a datagram is what the protocol sends eight objects of 1 KiB in.
constexpr std::size_t datagram_bytes = 8192;
constexpr std::size_t burst_bytes = train_bytes_max / datagram_bytes * datagram_bytes;
// Answers are of bytes that lie here and there, as those of a memory node do.
constexpr std::size_t memory_bytes = 1 << 20, step_bytes = std::size_t{37} * 1024;

void send_packet(int fd, const sockaddr_in& to, std::span<const char> bytes) {
    iovec vector{const_cast<char*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(std::uint16_t))> control;
    msghdr message{};
    message.msg_name = const_cast<sockaddr_in*>(&to);
    message.msg_namelen = sizeof(to);
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    if (bytes.size() > datagram_bytes) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        set_control(CMSG_FIRSTHDR(&message), SOL_UDP, UDP_SEGMENT,
                    static_cast<std::uint16_t>(datagram_bytes));
    }
    if (sendmsg(fd, &message, 0) < 0)
        throw Failure("sendmsg: {}", std::strerror(errno));
}

} // namespace

// The kernel grants twice, for its own needs, and no more than net.core.rmem_max.
std::size_t make_room(int fd) {
    int room = ping_bytes_max;
    socklen_t length = sizeof(room);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, length);
    if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, &length))
        throw Failure("the socket's room isn't known: {}", std::strerror(errno));
    return static_cast<std::size_t>(room) / 2;
}

void send_burst(int fd, const sockaddr_in& to, std::span<const char> bytes) {
    while (!bytes.empty()) {
        std::span packet = bytes.first(std::min(bytes.size(), burst_bytes));
        send_packet(fd, to, packet);
        bytes = bytes.subspan(packet.size());
    }
}

void pong(bool spin) {
    Descriptor fd = udp_socket();
    sockaddr_in address = loopback(0);
    auto* at = reinterpret_cast<sockaddr*>(&address);
    socklen_t length = sizeof(address);
    if (bind(fd.get(), at, length) || getsockname(fd.get(), at, &length))
        throw Failure("no port: {}", std::strerror(errno));
    receive_trains(fd.get());
    make_room(fd.get());
    fmt::print("{}\n", ntohs(address.sin_port));
    std::fflush(stdout);
    std::vector<char> memory(memory_bytes + ping_bytes_max, 1);
    std::array<char, packet_bytes_max> buffer;
    std::size_t place = 0;
    for (;;) {
        Ping ping{sizeof(Ping), 0};
        for (std::size_t got = 0; got < ping.there;) {
            length = sizeof(address);
            ssize_t bytes = recvfrom(fd.get(), buffer.data(), buffer.size(),
                                     spin ? MSG_DONTWAIT : 0, at, &length);
            if (bytes < static_cast<ssize_t>(got ? 0 : sizeof(ping)))
                continue;
            if (!got)
                std::memcpy(&ping, buffer.data(), sizeof(ping));
            got += static_cast<std::size_t>(bytes);
        }
        place = (place + step_bytes) % memory_bytes;
        send_burst(fd.get(), address,
                   std::span(memory).subspan(place, std::min(ping.back, ping_bytes_max)));
    }
}

} // namespace remora::bench
