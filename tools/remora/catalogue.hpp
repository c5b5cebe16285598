// SPDX-License-Identifier: GPL-2.0
// Explains each counter and metric, for remora export and remora-counters(7).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "remora/look.hpp"
#include "remora/metrics.hpp"

namespace remora {

struct CounterRow {
    const char* name; // as its module or daemon tells it
    const char* help;
};

std::span<const CounterRow> device_counters();
std::span<const CounterRow> node_counters();
std::span<const CounterRow> edm_counters();

// "read-bytes" to read_bytes, as it is a part of a metric's name.
std::string metric_part(std::string_view counter);
// The counter's row; where a newer module counts something else, a text that says so.
std::string counter_help(std::span<const CounterRow> rows, const std::string& name);

// A figure that isn't a counter of those.
template <typename Of>
struct MetricRow {
    const char* name; // behind the prefix of its kind
    MetricType type;
    const char* help;
    double (*value)(const Of& of);
};

std::span<const MetricRow<Device>> device_metrics();
std::span<const MetricRow<NodeReport>> node_metrics();
std::span<const MetricRow<SpaceReport>> space_metrics();
std::span<const MetricRow<OffloadReport>> offload_metrics();
std::span<const MetricRow<netlink::Attributes>> eqds_metrics();

inline constexpr const char* latency_help =
    "Time of operations that succeeded, from submission to completion.";
inline constexpr const char* node_up_help = "1 if the node answers remora; 0 if it stands still.";
inline constexpr const char* build_info_help = "1; the version of remora is a label.";

// remora-counters(7), as roff.
std::string catalogue_page();

} // namespace remora
