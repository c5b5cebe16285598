// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace remora::lib {

// A descriptor that will be readable once there is something.
struct Watch {
    int fd = -1;              // none
    std::uint64_t serial = 0; // another one for another file behind the number
    bool is_ready = false;    // there is something already, whatever the descriptor says
};

} // namespace remora::lib
