// SPDX-License-Identifier: MIT
// What ends a command. main() prints what() as one line "remora: ..." and exits with the code.
#pragma once

#include <stdexcept>
#include <string>

#include <fmt/format.h>

namespace remora {

// It can't be done: exit code 1.
class Failure : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;

    template <typename... Args>
    explicit Failure(fmt::format_string<Args...> text, Args&&... args) requires(sizeof...(Args) > 0)
        : std::runtime_error(fmt::format(text, std::forward<Args>(args)...)) {}
};

// It was asked for wrongly: exit code 2.
class Misuse : public Failure {
public:
    using Failure::Failure;
};

} // namespace remora
