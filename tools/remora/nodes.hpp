// SPDX-License-Identifier: GPL-2.0
// Reports of this machine's memory nodes: the kernel's, and a daemon's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/node_report.hpp"
#include "remora/netlink.hpp"

namespace remora {

// The kernel's node; Failure says which module to load.
netlink::Family node_family();

NodeReport kernel_report();
// The report of the daemon with that status socket.
NodeReport daemon_report(const std::string& socket);

struct SpaceReport {
    std::uint64_t id, promised_bytes, quota_bytes, regions;
    std::uint64_t read_only_of; // 0: it isn't
};

nlohmann::ordered_json space_json(const SpaceReport& space);
// For a table.
std::vector<std::string> space_columns();
std::vector<std::string> space_row(const SpaceReport& space);

// The kernel's node's.
std::vector<SpaceReport> kernel_spaces();

} // namespace remora
