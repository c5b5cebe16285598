// SPDX-License-Identifier: GPL-2.0
#pragma once

#include <array>
#include <string>

#include "remora/netlink.hpp"

namespace remora {

// By the value of RMEM_A_INTEGRITY.
extern const std::array<std::string, 3> integrity_names;

// The client's family; Failure says which module to load.
netlink::Family device_family();

} // namespace remora
