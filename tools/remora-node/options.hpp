// SPDX-License-Identifier: GPL-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "node/core.hpp"
#include "remora-node/transport.hpp"
#include "support/parse.hpp"

namespace remora::daemon {

struct Options {
    rmem_node_config config{}; // boot and seed are for the node to choose
    std::vector<SpaceOption> spaces;
    std::string memory_file; // empty: none
    std::uint32_t memory_file_space = 0;
    std::uint64_t memory_file_bytes = 0; // of a new one; 0: it is there
    std::string store;                   // of --store; empty: none
    bool store_holds = true;             // false: the pages are too large for a store
    std::vector<std::unique_ptr<TransportKind>> transports =
        transport_kinds(); // which know their options
    bool lock = true;
    std::optional<std::string> control_socket;
    std::string status_socket;           // empty: none
    std::optional<int> ready_fd;         // gets the port and a newline
    std::uint32_t stats_interval_ms = 0; // 0: none
};

// Options of the command line and of its --config file. Nothing: the program must exit with *code,
// for the user asked for help or version. Throws Misuse.
std::optional<Options> parse_options(int argc, char** argv, int* code);

} // namespace remora::daemon
