// SPDX-License-Identifier: GPL-2.0
// Requests of the control socket (common/control.hpp), from their JSON.
#pragma once

#include <cstdint>
#include <string_view>

#include "support/key.hpp"

namespace remora::daemon {

struct Command {
    enum class Verb { status, space_add, space_del, space_list, regions, stop };
    Verb verb;
    std::uint32_t space;
    Key key;
    std::uint64_t quota_bytes;  // 0: none
    std::uint32_t read_only_of; // 0: not a view
    bool force;
    std::uint64_t from; // address
};

// Throws Misuse, which says why the request is wrong.
Command parse_command(std::string_view line);

} // namespace remora::daemon
