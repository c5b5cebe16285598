// SPDX-License-Identifier: MIT
// Output of programs whose reader might be slow, or gone: nothing here throws or waits.
#pragma once

#include <string_view>

#include <fmt/format.h>

namespace remora {

// Writes as much of the text as the descriptor takes now, and drops the rest. False: dropped some.
bool say(int fd, std::string_view text) noexcept;

void warn_text(fmt::string_view text, fmt::format_args args) noexcept;

// Says one line on stderr.
template <typename... Args>
void warn(fmt::format_string<Args...> text, Args&&... args) noexcept {
    warn_text(text, fmt::make_format_args(args...));
}

} // namespace remora
