// SPDX-License-Identifier: GPL-2.0
// This machine's membership at EDM's scheduler, and its network devices.
#pragma once

#include <string>

#include "remora/netlink.hpp"

namespace remora {

// The answer to EDM_CMD_STATUS. NoFamily if edm isn't loaded.
netlink::Attributes edm_report();

// As edm.ko has it: joining, scheduled, standby or unscheduled; empty: this machine is no member.
std::string edm_member_state();

// EDM's datagrams go before other frames of a network device. Prints by which means.
void edm_port(const std::string& device);
void edm_port_undo(const std::string& device);

} // namespace remora
