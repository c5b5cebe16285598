// SPDX-License-Identifier: GPL-2.0
#pragma once

#include <string>

#include "node/store.hpp"

namespace remora::daemon {

// where: the value of --store. A folder, or systemd: then the descriptor is the one that the
// process before gave to it, or it gets a new one. Throws Failure.
inline constexpr char store_of_systemd[] = "systemd";
node::Store open_store(const std::string& where);
// After its end: systemd forgets it.
void forget_store(const std::string& where);
// Instead of open_store(): the memory that systemd kept goes back to the system.
void drop_store(const std::string& where);

} // namespace remora::daemon
