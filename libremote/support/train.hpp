// SPDX-License-Identifier: MIT
/*
 * Trains: UDP datagrams of one size, but for the last, that go through the kernel's layers as one
 * packet, since packets cost most.
 *
 *   out: segmentation offload: the kernel cuts them apart as late as it can
 *   in:  generic receive offload: those that came together are received together
 */
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <span>

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

namespace remora {

// Payload under an IPv6 header, and the number of datagrams every kernel takes (UDP_MAX_SEGMENTS).
inline constexpr std::size_t train_bytes_max = 65535 - 40 - sizeof(udphdr);
inline constexpr unsigned train_datagrams_max = 64;

// The message's control buffer has room for it.
template <typename Value>
void set_control(cmsghdr* control, int level, int type, const Value& value) {
    assert(control);
    control->cmsg_level = level;
    control->cmsg_type = type;
    control->cmsg_len = CMSG_LEN(sizeof(value));
    std::memcpy(CMSG_DATA(control), &value, sizeof(value));
}

// A train under construction.
class GsoBatch {
public:
    // Does the next datagram, of this many bytes, join the train? If not, it begins the next train.
    bool add(std::size_t bytes) {
        bool coupled = datagrams_ > 0 && datagrams_ < train_datagrams_max &&
                       train_bytes_ + bytes <= train_bytes_max && last_bytes_ == first_bytes_ &&
                       bytes <= first_bytes_;
        if (!coupled)
            *this = {};
        if (datagrams_++ == 0)
            first_bytes_ = bytes;
        last_bytes_ = bytes;
        train_bytes_ += bytes;
        return coupled;
    }

private:
    unsigned datagrams_ = 0;
    std::size_t train_bytes_ = 0, first_bytes_ = 0, last_bytes_ = 0;
};

// Receive trains from now on. Without kernel support, datagrams come one by one.
inline void receive_trains(int fd) {
    int on = 1;
    setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof(on));
}

// A packet has room for as much as UDP carries, so none is ever cut short.
inline constexpr std::size_t packet_bytes_max = 1 << 16;

// fn for each datagram of a packet that was received by the header.
template <typename Fn>
void for_each_datagram(msghdr& header, std::span<const std::uint8_t> packet, Fn fn) {
    int each = 0;
    for (cmsghdr* control = CMSG_FIRSTHDR(&header); control;
         control = CMSG_NXTHDR(&header, control)) {
        if (control->cmsg_level == SOL_UDP && control->cmsg_type == UDP_GRO)
            std::memcpy(&each, CMSG_DATA(control), sizeof(each));
    }
    std::size_t most = each > 0 ? static_cast<std::size_t>(each) : packet_bytes_max;
    while (!packet.empty()) {
        std::size_t bytes = std::min(most, packet.size());
        fn(packet.first(bytes));
        packet = packet.subspan(bytes);
    }
}

} // namespace remora
