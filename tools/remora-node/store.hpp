// SPDX-License-Identifier: GPL-2.0
#pragma once

#include <string>

#include "node/store.hpp"

namespace remora::daemon {

// The value of --store: a folder, or systemd's store of descriptors, whose service manager has what
// the process before stored there, or gets it now. Throws Failure.
inline constexpr char store_of_systemd[] = "systemd";
node::Store open_store(const std::string& where);
// After its end: systemd forgets it.
void forget_store(const std::string& where);

} // namespace remora::daemon
