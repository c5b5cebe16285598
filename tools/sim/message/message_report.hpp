// SPDX-License-Identifier: GPL-2.0
// What a run of messages reports: latencies and slowdowns of reads, of writes and of all.
#pragma once

#include <string>

#include "sim/message/message.hpp"
#include "sim/options.hpp"
#include "sim/report.hpp"

namespace sim {

// Runs the workload "messages" and writes the reports that the options ask for. Throws as Sim does.
void simulate_messages(const Options& options);

} // namespace sim
