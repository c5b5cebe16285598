// SPDX-License-Identifier: GPL-2.0
// Rings in shared memory, for programs on this machine: a thread that serves them, and one that
// gives them out.
#pragma once

#include <string>

#include <sys/types.h>

#include "remora-node/transport.hpp"

namespace remora::daemon {

struct ShmOptions {
    std::string path; // of the Unix socket
    mode_t mode = 0600;
    unsigned rings = 256;
    std::uint32_t spin_us = 50;
};

// Throws Failure.
std::unique_ptr<Transport> open_shm_transport(const ShmOptions& options);

std::unique_ptr<TransportKind> shm_transport_kind();

} // namespace remora::daemon
