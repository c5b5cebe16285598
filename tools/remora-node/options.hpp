// SPDX-License-Identifier: GPL-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "node/core.hpp"
#include "remora-node/ring_door.hpp"
#include "support/parse.hpp"

namespace remora::daemon {

struct Options {
    rmem_node_config config{}; // boot and seed are for the node to choose
    std::vector<SpaceOption> spaces;
    std::string bind;
    std::uint16_t port = RMEM_PORT; // 0: any
    unsigned int threads = 1;
    ShmOptions shm;
    // How long a thread looks for requests before it sleeps: of sockets, of rings.
    std::uint32_t spin_us = 0, ring_spin_us = 50;
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
