// SPDX-License-Identifier: MIT
// Exceptions that end a command. main() prints what() as one line "remora: ..." and exits.
#pragma once

#include <stdexcept>
#include <string>

#include <fmt/format.h>

namespace remora {

// A request that can't be fulfilled; a program exits with code 1. A cause that a program might want
// to tell from others has an errno.
class Failure : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;

    template <typename... Args>
    explicit Failure(fmt::format_string<Args...> text, Args&&... args) requires(sizeof...(Args) > 0)
        : std::runtime_error(fmt::format(text, std::forward<Args>(args)...)) {}

    template <typename... Args>
    Failure(int error, fmt::format_string<Args...> text, Args&&... args)
        : std::runtime_error(fmt::format(text, std::forward<Args>(args)...)), error_(error) {}

    int error() const { return error_; } // 0: none in particular

private:
    int error_ = 0;
};

// Wrong usage; a program exits with code 2.
class Misuse : public Failure {
public:
    using Failure::Failure;
};

} // namespace remora
