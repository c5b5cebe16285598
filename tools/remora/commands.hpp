// SPDX-License-Identifier: GPL-2.0
// The families of verbs. Each adds its commands to the program; main() reports their exceptions.
#pragma once

#include <cstdint>

#include <CLI/CLI.hpp>

namespace remora {

// Ends the program with this exit code, when all is said.
struct Ended {
    int code;
};

inline constexpr std::uint16_t default_port = 7670; // of a memory node

void add_key_commands(CLI::App& program);      // key.cpp
void add_node_commands(CLI::App& program);     // node.cpp
void add_device_commands(CLI::App& program);   // device.cpp: attach, detach
void add_apply_command(CLI::App& program);     // apply.cpp
void add_generator_command(CLI::App& program); // generator.cpp
void add_report_commands(CLI::App& program);   // report.cpp: status, stats
void add_top_command(CLI::App& program);       // top.cpp
void add_export_command(CLI::App& program);    // export.cpp
void add_bench_command(CLI::App& program);     // bench.cpp
void add_doctor_command(CLI::App& program);    // doctor.cpp
void add_eqds_commands(CLI::App& program);     // eqds.cpp
void add_edm_commands(CLI::App& program);      // edm.cpp
void add_ping_command(CLI::App& program);      // ping.cpp
void add_mh_commands(CLI::App& program);       // mh.cpp

} // namespace remora
