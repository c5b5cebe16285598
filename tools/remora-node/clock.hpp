// SPDX-License-Identifier: GPL-2.0
#pragma once

#include <cstdint>
#include <ctime>

#include "node/core.hpp"

namespace remora::daemon {

inline std::uint64_t clock_ns(clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * BASE_NSEC_PER_SEC +
           static_cast<std::uint64_t>(now.tv_nsec);
}

// The clock of all times that the node is told.
inline std::uint64_t now_ns() {
    return clock_ns(CLOCK_MONOTONIC_COARSE);
}

// For short stretches of time.
inline std::uint64_t fine_now_ns() {
    return clock_ns(CLOCK_MONOTONIC);
}

} // namespace remora::daemon
