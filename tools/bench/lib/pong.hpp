// SPDX-License-Identifier: GPL-2.0
// The floor's other end, and what travels between the two: bursts of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <netinet/in.h>

namespace remora::bench {

// The head of a burst: its own size and the answer's size in bytes.
struct Ping {
    std::uint32_t there, back;
};
inline constexpr std::uint32_t ping_bytes_max = 64 << 20;

// The socket gets as much room as it can have. Datagrams of a burst that do not fit are lost.
std::size_t make_room(int fd);

// A burst is as few packets as UDP can have it in: trains of datagrams (support/train.hpp) as long
// as the protocol's are. Throws Failure.
void send_burst(int fd, const sockaddr_in& to, std::span<const char> bytes);

// Prints its port, then answers each burst. No end. spin: never sleeps.
[[noreturn]] void pong(bool spin);

} // namespace remora::bench
