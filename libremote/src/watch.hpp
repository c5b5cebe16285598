// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace remora::lib {

// A descriptor that will be readable once there is something.
struct Watch {
    int fd = -1;              // none
    std::uint64_t serial = 0; // another one for another file behind the number
    bool is_ready = false;    // there is something already, even if the descriptor isn't readable
};

} // namespace remora::lib
