// SPDX-License-Identifier: MIT
// Points in time, and two special values.
#pragma once

#include <chrono>
#include <cstdint>

namespace remora::lib {

using Clock = std::chrono::steady_clock;

inline constexpr Clock::time_point never = Clock::time_point::max();
// For waiting: don't wait.
inline constexpr Clock::time_point at_once = Clock::time_point::min();

// As the protocol's core counts.
inline std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
}

// us microseconds from now; never, if the clock doesn't reach that far.
inline Clock::time_point from_now(std::uint64_t us) {
    Clock::time_point now = Clock::now();
    auto most = std::chrono::duration_cast<std::chrono::microseconds>(never - now).count();
    return us < static_cast<std::uint64_t>(most) ? now + std::chrono::microseconds(us) : never;
}

// Rounded up; UINT64_MAX: never.
inline std::uint64_t us_until(Clock::time_point time) {
    if (time == never)
        return UINT64_MAX;
    auto left = std::chrono::ceil<std::chrono::microseconds>(time - Clock::now()).count();
    return left > 0 ? static_cast<std::uint64_t>(left) : 0;
}

} // namespace remora::lib
