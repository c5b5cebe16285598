// SPDX-License-Identifier: GPL-2.0
// The command line, parameter files and presets. All three name parameters alike.
#pragma once

#include <string>
#include <vector>

#include "sim/params.hpp"

namespace sim {

struct Options {
    Params params;
    std::string table1; // of messages: latency budgets, as CSV
    std::string json, csv, ports_csv, samples_csv;
    std::string trace, pcap;
    std::uint64_t watch = 0; // id of the flow that is traced
    bool progress = false, wall_time = true, quiet = false;
    std::string seeds; // "1-8"
    unsigned jobs = 0;
};

// Throws remora::Misuse or remora::Failure. --help and --version print and end the process.
Options parse_options(const std::vector<std::string>& arguments);

} // namespace sim
