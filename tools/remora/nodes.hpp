// SPDX-License-Identifier: GPL-2.0
// Reports of the kernel's memory node, and of any node's spaces.
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
// For a table.
std::vector<std::string> space_columns();
std::vector<std::string> space_row(const SpaceReport& space);

std::vector<std::string> region_columns();
std::vector<std::string> region_row(const RegionReport& region);

std::vector<std::string> offload_columns();
std::vector<std::string> offload_row(const OffloadReport& offload);

// The kernel's node's.
std::vector<SpaceReport> kernel_spaces();
std::vector<OffloadReport> kernel_offloads();
std::vector<RegionReport> kernel_regions(std::uint32_t space);

} // namespace remora
