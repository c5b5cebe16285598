// SPDX-License-Identifier: GPL-2.0
// A memory node's state and spaces, as the kernel's node and the daemon both report them: the JSON
// of `remora node status --json` and `remora node space list --json`, and of the daemon's sockets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace remora {

struct NodeReport {
    bool started = false;
    std::uint64_t boot = 0;
    std::uint32_t port = 0;
    std::uint64_t memory_bytes = 0;
    std::uint64_t page_bytes = 0;
    std::uint64_t promised_bytes = 0; // in regions
    std::uint64_t backed_bytes = 0;   // in regions and written to
    std::uint64_t ready_bytes = 0;    // zeroed, for a first touch
    std::uint32_t pool_pages = 0;
    std::uint32_t spaces = 0, spaces_max = 0;
    std::uint32_t sessions = 0, sessions_max = 0;
    std::uint32_t regions = 0, regions_max = 0;
    std::uint32_t session_idle_ms = 0;
    std::vector<std::pair<std::string, std::uint64_t>> counters;
};

struct SpaceReport {
    std::uint64_t id, promised_bytes, quota_bytes, regions;
    std::uint64_t read_only_of;                          // 0: it isn't
    std::uint64_t calls_ns;                              // the node's time for its clients' calls
    std::uint64_t operations, read_bytes, written_bytes; // of its clients, executed
    std::uint64_t sealed_only;                           // 1: its clients have to seal
    std::uint64_t member_of;                             // 0: it isn't
    std::uint64_t revoked;                               // 1: its own key was revoked
};

struct RegionReport {
    std::uint64_t address, bytes;
    std::uint32_t permission; // 1: read; 3: read and write
    std::uint32_t names;
    std::string name; // one of them
};

struct OffloadReport {
    std::string name;
    std::uint64_t id, space;
    std::vector<std::uint32_t> clients; // other spaces that can call it
    std::uint64_t budget_us, running, ended, failed, over_budget, used_ns;
};

// Regions in one answer of a daemon.
inline constexpr std::size_t regions_report_max = 4096;

// A region's name, up to a zero, for people and JSON: bytes other than printable ASCII as \xNN.
std::string name_text(std::string_view bytes);
nlohmann::ordered_json region_json(const RegionReport& region);
// Throws nlohmann::json::exception if json isn't region_json()'s.
RegionReport region_parse(const nlohmann::ordered_json& json);

nlohmann::ordered_json space_json(const SpaceReport& space);
// Throws nlohmann::json::exception if json isn't space_json()'s.
SpaceReport space_parse(const nlohmann::ordered_json& json);

nlohmann::ordered_json offload_json(const OffloadReport& offload);
// Throws nlohmann::json::exception if json isn't offload_json()'s.
OffloadReport offload_parse(const nlohmann::ordered_json& json);

nlohmann::ordered_json node_report_json(const NodeReport& report);
// Throws nlohmann::json::exception if json isn't node_report_json()'s.
NodeReport node_report_parse(const nlohmann::ordered_json& json);
// For people: several lines, counters that are 0 left out.
std::string node_report_text(const NodeReport& report);

} // namespace remora
