// SPDX-License-Identifier: MIT
// Files on the way through a Unix socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sys/types.h>

#include "support/descriptor.hpp"

namespace remora {

// Files that travel with one message, at most.
inline constexpr std::size_t files_max = 20;

// One message with these files. Never waits. False: errno says why.
bool send_files(int fd, std::span<const std::uint8_t> message, std::span<const int> files);
// Returns the bytes of the message as recvmsg() does, without waiting; files: as many as came.
ssize_t receive_files(int fd, std::span<std::uint8_t> message, std::vector<Descriptor>& files);

} // namespace remora
