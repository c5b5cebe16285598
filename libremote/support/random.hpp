// SPDX-License-Identifier: MIT
// Random numbers that can't be predicted.
#pragma once

#include <cerrno>
#include <cstring>
#include <type_traits>

#include <sys/random.h>

#include "support/failure.hpp"

namespace remora {

// getrandom() returns up to 256 bytes whole once the kernel's generator is seeded.
template <typename T>
T random_value() {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 256);
    T value;
    if (getrandom(&value, sizeof(value), 0) != static_cast<ssize_t>(sizeof(value)))
        throw Failure("no random numbers from the kernel: {}", std::strerror(errno));
    return value;
}

} // namespace remora
