// SPDX-License-Identifier: MIT
// Changes of integers, from the program's words into the core's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "remote/remote.h"
#include "src/op.hpp"

namespace remora::lib {

inline bool is_change(std::uint32_t change) {
    return change > 0 && change < RMEM_ATOMIC_OP_END && change != RMEM_CAS;
}

inline rmem_op_atomic fetch_of(std::uint32_t change, std::uint64_t value) {
    return {{value, 0}, {0, 0}, {0, 0}, static_cast<u8>(change)};
}

// bytes: 4, 8, or 16 with two integers each.
inline rmem_op_atomic cas_of(std::size_t bytes, const std::uint64_t* expected,
                             const std::uint64_t* desired) {
    rmem_op_atomic cas{{desired[0], 0}, {expected[0], 0}, {0, 0}, RMEM_CAS};
    if (bytes == 4)
        cas.compare[0] = static_cast<std::uint32_t>(expected[0]);
    if (bytes == 16) {
        cas.value[1] = desired[1];
        cas.compare[1] = expected[1];
    }
    return cas;
}

inline rmem_op_put put_of(const remote_signal& signal) {
    return {signal.address, signal.value, 0, static_cast<u32>(signal.bytes),
            static_cast<u8>(signal.what)};
}

} // namespace remora::lib
