// SPDX-License-Identifier: GPL-2.0
#include "remora-node/door.hpp"

#include <numeric>

#include "remora-node/shm_door.hpp"
#include "remora-node/udp_door.hpp"

namespace remora::daemon {

std::vector<std::unique_ptr<DoorKind>> door_kinds() {
    std::vector<std::unique_ptr<DoorKind>> kinds;
    kinds.push_back(udp_door_kind());
    kinds.push_back(shm_door_kind());
    return kinds;
}

unsigned threads_of(const Doors& doors) {
    return std::accumulate(doors.begin(), doors.end(), 0U,
                           [](unsigned sum, const auto& door) { return sum + door->threads(); });
}

std::vector<std::unique_ptr<Serving>> serve_by(const Doors& doors, Node& node) {
    std::vector<std::unique_ptr<Serving>> served;
    unsigned thread = 0;
    for (const auto& door : doors) {
        served.push_back(door->serve(node, thread));
        thread += door->threads();
    }
    return served;
}

} // namespace remora::daemon
