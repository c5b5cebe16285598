// SPDX-License-Identifier: GPL-2.0
// The floor's other end.
#pragma once

namespace remora::bench {

// Prints its port, then answers each datagram with as many bytes as its first four say. No end.
[[noreturn]] void pong();

} // namespace remora::bench
