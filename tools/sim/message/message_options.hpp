// SPDX-License-Identifier: GPL-2.0
// The parameters of message workloads on the command line.
#pragma once

#include "sim/params.hpp"

namespace CLI {
class App;
}

namespace sim {

void add_message_options(CLI::App& app, Params& params);
// Throws remora::Misuse.
void check_message_options(const Params& params);

} // namespace sim
