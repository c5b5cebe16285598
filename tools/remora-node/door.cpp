// SPDX-License-Identifier: GPL-2.0
#include "remora-node/door.hpp"

#include "remora-node/shm_door.hpp"
#include "remora-node/udp_door.hpp"

namespace remora::daemon {

std::vector<std::unique_ptr<DoorKind>> door_kinds() {
    std::vector<std::unique_ptr<DoorKind>> kinds;
    kinds.push_back(udp_door_kind());
    kinds.push_back(shm_door_kind());
    return kinds;
}

} // namespace remora::daemon
