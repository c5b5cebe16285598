// SPDX-License-Identifier: GPL-2.0
// Connection matrices as the field's simulators read them (.cm):
//
//   Nodes N
//   Connections M
//   [Triggers T] [Failures F]
//   A->B id I start PS size BYTES [trigger T] [send_done_trigger T] [recv_done_trigger T] [prio P]
//   trigger id T oneshot|multishot|barrier [count C]
//   failure switch_type TOR|AGG switch_id S link_id L
//
// Lines that are empty or begin with # are skipped.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <string>
#include <vector>

#include "sim/units.hpp"

namespace sim {

struct Matrix {
    struct Connection {
        std::uint32_t src = 0, dst = 0;
        std::uint64_t id = 0, bytes = 0;
        Time start = never;                                      // never: by its trigger
        std::uint32_t trigger = 0, send_done = 0, recv_done = 0; // 0: none
    };
    struct Trigger {
        enum class Type { unspecified, oneshot, multishot, barrier } type = Type::unspecified;
        std::uint32_t count = 1; // a barrier fires after that many activations
    };

    std::uint32_t nodes = 0;
    std::vector<Connection> connections;
    std::map<std::uint32_t, Trigger> triggers;
    std::vector<std::string> failures; // as --fail-link takes them
};

// Throws remora::Failure "NAME:LINE: what is wrong".
Matrix parse_matrix(std::istream& in, const std::string& name);
Matrix read_matrix(const std::string& file);

} // namespace sim
