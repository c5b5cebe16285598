// SPDX-License-Identifier: GPL-2.0
// This machine's identity, which the names of its disks belong to.
#pragma once

#include <optional>
#include <string>

namespace remora {

// RMEM_OWNER_MAX hexadecimal digits, the same at each boot. Nothing: the machine has no id.
std::optional<std::string> machine_owner();

} // namespace remora
