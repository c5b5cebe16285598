// SPDX-License-Identifier: GPL-2.0
// Results as JSON, CSV and a summary. All but the run's duration is the same for the same seed.
#pragma once

#include <string>

#include "sim/sim.hpp"

namespace sim {

struct RunCost {
    double seconds = 0, cpu_seconds = 0;
    std::uint64_t memory_bytes = 0; // growth of the process
};

// Memory of the process.
std::uint64_t resident_bytes();

// "-": standard output. Throw remora::Failure.
void write_json(const Sim& sim, const RunCost& cost, bool wall_time, const std::string& file);
void write_csv(const Sim& sim, const std::string& file);
void write_ports_csv(const Sim& sim, const std::string& file);
void write_samples_csv(const Sim& sim, const std::string& file);
void print_summary(const Sim& sim, const RunCost& cost);

} // namespace sim
