// SPDX-License-Identifier: GPL-2.0
// The eqds devices of this network namespace, for commands other than remora eqds.
#pragma once

#include <vector>

#include "remora/netlink.hpp"

namespace remora {

// Attributes of EQDS_CMD_DEVICES, one set for each device. NoFamily if eqds isn't loaded.
std::vector<netlink::Attributes> eqds_devices();

} // namespace remora
