// SPDX-License-Identifier: GPL-2.0
// Lines on the management host's standard output, whose reader may have stopped reading.
#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>

namespace remora::mh {

// Drops the line if it would have to wait.
void say_line(const std::string& line);

template <typename... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
    say_line("remora mh: " + fmt::format(text, std::forward<Args>(args)...) + "\n");
}

} // namespace remora::mh
