// SPDX-License-Identifier: MIT
// Numbers nobody can guess.
#pragma once

#include <cerrno>
#include <cstring>
#include <type_traits>

#include <sys/random.h>

#include "support/failure.hpp"

namespace remora {

// Up to 256 bytes come whole, once the kernel's generator is seeded.
template <typename T>
T random_value() {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 256);
    T value;
    if (getrandom(&value, sizeof(value), 0) != static_cast<ssize_t>(sizeof(value)))
        throw Failure("no random numbers from the kernel: {}", std::strerror(errno));
    return value;
}

} // namespace remora
