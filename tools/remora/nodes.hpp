// SPDX-License-Identifier: GPL-2.0
// Reports of the kernel's memory node, and of any node's spaces.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/node_report.hpp"
#include "remora/netlink.hpp"

namespace remora {

// The kernel's node; Failure says which module to load.
netlink::Family node_family();

NodeReport kernel_report();

// As the user wrote them. spaces: ID=KEYFILE[,quota=SIZE|,read-only-of=ID].
struct StartOptions {
    std::string memory, page;
    std::string idle;
    std::optional<std::string> port, pool, sessions, regions, spaces_max;
    std::vector<std::string> spaces;
};

// The kernel's node, by node.cpp. All throw Failure, or Misuse for options that can't be. Signals
// are recorded from the start on, and interrupt it.
void kernel_start(const StartOptions& options);
void kernel_stop();
void kernel_space_add(const std::string& text);
void kernel_space_del(std::uint32_t id, bool force);

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
