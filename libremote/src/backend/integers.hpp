// SPDX-License-Identifier: MIT
// Changes of integers, from the program's words.
#pragma once

#include <cstddef>
#include <cstdint>

#include "remote/remote.h"
#include "src/op.hpp"

namespace remora::lib {

inline bool is_change(std::uint32_t change) {
    return change > 0 && change <= REMOTE_SMAX && change != Change::cas;
}

inline Change fetch_of(std::uint32_t change, std::uint64_t value) {
    return {{value, 0}, {0, 0}, {0, 0}, static_cast<std::uint8_t>(change)};
}

// bytes: 4, 8, or 16 with two integers each.
inline Change cas_of(std::size_t bytes, const std::uint64_t* expected,
                     const std::uint64_t* desired) {
    Change cas{{desired[0], 0}, {expected[0], 0}, {0, 0}, Change::cas};
    if (bytes == 4)
        cas.compare[0] = static_cast<std::uint32_t>(expected[0]);
    if (bytes == 16) {
        cas.value[1] = desired[1];
        cas.compare[1] = expected[1];
    }
    return cas;
}

} // namespace remora::lib
