// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <sys/socket.h>

#include "support/train.hpp"

namespace remora::lib {

// Packets of one recvmmsg(), each of them a train.
class Incoming {
public:
    static constexpr unsigned packets_max = 8;

    Incoming() {
        for (unsigned i = 0; i < packets_max; i++) {
            vector_[i] = {packet_[i].data(), packet_[i].size()};
            msghdr& header = message_[i].msg_hdr;
            header = {};
            header.msg_iov = &vector_[i];
            header.msg_iovlen = 1;
            header.msg_control = control_[i].data();
            header.msg_controllen = sizeof(Control);
        }
    }
    unsigned receive(int fd) {
        // Resets only the headers that were used: with many handles each cache line costs.
        for (; used_; used_--)
            message_[used_ - 1].msg_hdr.msg_controllen = sizeof(Control);
        int got = recvmmsg(fd, message_.data(), packets_max, MSG_DONTWAIT, nullptr);
        used_ = got < 0 ? 0 : static_cast<unsigned>(got);
        return used_;
    }
    template <typename Fn>
    void for_each_datagram(unsigned packet, Fn fn) {
        mmsghdr& message = message_[packet];
        remora::for_each_datagram(message.msg_hdr,
                                  std::span(packet_[packet]).first(message.msg_len), fn);
    }

private:
    struct alignas(64) Packet : std::array<std::uint8_t, packet_bytes_max> {};
    struct alignas(cmsghdr) Control : std::array<char, CMSG_SPACE(sizeof(int))> {};

    unsigned used_ = 0;
    std::array<mmsghdr, packets_max> message_;
    std::array<iovec, packets_max> vector_;
    std::array<Control, packets_max> control_;
    std::array<Packet, packets_max> packet_;
};

} // namespace remora::lib
