// SPDX-License-Identifier: GPL-2.0
#pragma once

#include <cstdint>
#include <ctime>

#include "node/core.hpp"

namespace remora::daemon {

// The clock of all times that the node is told.
inline std::uint64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * BASE_NSEC_PER_SEC +
           static_cast<std::uint64_t>(now.tv_nsec);
}

} // namespace remora::daemon
