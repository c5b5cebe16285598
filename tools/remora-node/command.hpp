// SPDX-License-Identifier: GPL-2.0
// Requests of the control socket (common/control.hpp), from their JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/key.hpp"

namespace remora::daemon {

struct Command {
    enum class Verb {
        status,
        space_add,
        space_del,
        space_revoke,
        space_list,
        regions,
        offload_load,
        offload_remove,
        offload_list,
        stop
    };
    Verb verb;
    std::uint32_t space;
    Key key;
    std::uint64_t quota_bytes;  // 0: none
    std::uint32_t read_only_of; // 0: not a view
    std::uint32_t member_of;    // 0: not a member
    bool sealed_only;           // the space's clients have to seal
    bool force;
    std::uint64_t from;  // address
    std::string offload; // file, or name
    std::vector<std::uint32_t> clients;
    std::uint32_t budget_us;        // 0: the program's own
    std::vector<std::string> links; // NAME=TARGET
};

// Throws Misuse, which says why the request is wrong.
Command parse_command(std::string_view line);

} // namespace remora::daemon
