// SPDX-License-Identifier: MIT
// The one function of fmt's shared library that the library calls, compiled here: distributions
// have no archive of fmt to link a program with statically.
#define FMT_HEADER_ONLY 1
#include <fmt/format.h>

namespace remora::lib {

// An inline function is compiled where its address is taken.
[[gnu::used]] static std::string (*const compiled)(fmt::string_view,
                                                   fmt::format_args) = fmt::vformat;

} // namespace remora::lib
