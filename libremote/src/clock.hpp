// SPDX-License-Identifier: MIT
// Points in time, and the two that are none.
#pragma once

#include <chrono>
#include <cstdint>

namespace remora::lib {

using Clock = std::chrono::steady_clock;

inline constexpr Clock::time_point never = Clock::time_point::max();
// For waiting: just look.
inline constexpr Clock::time_point at_once = Clock::time_point::min();

// So many us from now; never, if the clock doesn't reach that far.
inline Clock::time_point from_now(std::uint64_t us) {
    Clock::time_point now = Clock::now();
    auto most = std::chrono::duration_cast<std::chrono::microseconds>(never - now).count();
    return us < static_cast<std::uint64_t>(most) ? now + std::chrono::microseconds(us) : never;
}

} // namespace remora::lib
