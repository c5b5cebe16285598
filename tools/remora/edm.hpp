// SPDX-License-Identifier: GPL-2.0
// This machine's membership at EDM's scheduler.
#pragma once

#include <string>

namespace remora {

// As edm.ko has it: joining, scheduled, standby or unscheduled; empty: this machine is no member.
std::string edm_member_state();

} // namespace remora
