// SPDX-License-Identifier: GPL-2.0
// remora export: metrics for Prometheus: printed, as a file for node-exporter, or by HTTP.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/version.hpp"
#include "remora/catalogue.hpp"
#include "remora/commands.hpp"
#include "remora/http.hpp"
#include "remora/look.hpp"
#include "remora/metrics.hpp"
#include "support/failure.hpp"
#include "uapi/remora_edm.h"

namespace remora {

namespace {

using Labels = Metrics::Labels;

template <typename Of>
void add_rows(Metrics& metrics, const char* prefix, std::span<const MetricRow<Of>> rows,
              const Labels& labels, const Of& of) {
    for (const MetricRow<Of>& row : rows)
        metrics.add(row.type, std::string(prefix) + row.name, row.help, labels, row.value(of));
}

void add_counters(Metrics& metrics, const char* prefix, std::span<const CounterRow> rows,
                  const Labels& labels, const Counters& counters) {
    for (const auto& [name, value] : counters) {
        const bool is_maximum = name == "alloc-retries-worst";
        metrics.add(is_maximum ? MetricType::gauge : MetricType::counter,
                    prefix + metric_part(name), counter_help(rows, name), labels,
                    static_cast<double>(value));
    }
}

// ---- times ----

// Powers of two, each a bound of RMEM_A_TIMES, too: 1 us to 0.54 s.
constexpr unsigned first_bound_shift = 10, bounds = 20;

void add_times(Metrics& metrics, const Device& device, const Labels& labels, const char* kind) {
    const Times times = device.times(kind);
    std::vector<Metrics::Bucket> buckets;
    std::uint64_t all = 0;
    std::size_t at = 0;
    for (unsigned bound = 0; bound < bounds; bound++) {
        const std::uint64_t up_to_ns = std::uint64_t{1} << (first_bound_shift + bound);
        while (at < times.size() && times_bound_ns(at) <= up_to_ns)
            all += times[at++];
        buckets.push_back({static_cast<double>(up_to_ns) / 1e9, all});
    }
    while (at < times.size())
        all += times[at++];
    Labels with_kind = labels;
    with_kind.emplace_back("op", kind);
    std::optional<double> sum;
    if (const std::optional<std::uint64_t> ns = device.times_sum_ns(kind))
        sum = static_cast<double>(*ns) / 1e9;
    metrics.add_histogram("remora_device_latency_seconds", latency_help, with_kind, buckets, all,
                          sum);
}

// ---- all of a look ----

void add_device(Metrics& metrics, const Device& device) {
    Labels labels = {{"device", device.name()}, {"node", device.node()}};
    if (const std::string name = device.attributes.string(RMEM_A_NAME); !name.empty())
        labels.emplace_back("name", name);
    add_rows(metrics, "remora_device_", device_metrics(), labels, device);
    add_counters(metrics, "remora_device_", device_counters(), labels, device.counters());
    for (const char* kind : {"read", "write", "other"})
        add_times(metrics, device, labels, kind);
}

void add_node(Metrics& metrics, const NodeLook& node) {
    const Labels labels = {{"service", node.name}};
    metrics.add(MetricType::gauge, "remora_node_up", node_up_help, labels, 1);
    add_rows(metrics, "remora_node_", node_metrics(), labels, node.report);
    add_counters(metrics, "remora_node_", node_counters(), labels, node.report.counters);
    for (const SpaceReport& space : node.spaces)
        add_rows(metrics, "remora_space_", space_metrics(),
                 {{"service", node.name}, {"space", fmt::to_string(space.id)}}, space);
    for (const OffloadReport& offload : node.offloads)
        add_rows(metrics, "remora_offload_", offload_metrics(),
                 {{"service", node.name},
                  {"space", fmt::to_string(offload.space)},
                  {"offload", offload.name}},
                 offload);
}

std::string metrics_text(const std::vector<std::string>& sockets, MetricFormat format) {
    const Look now = look(sockets);
    Metrics metrics;
    metrics.add(MetricType::gauge, "remora_build_info", build_info_help, {{"version", version}}, 1);
    for (const auto& [name, device] : now.devices)
        add_device(metrics, device);
    for (const NodeLook& node : now.nodes)
        add_node(metrics, node);
    for (const std::string& socket : now.silent)
        metrics.add(MetricType::gauge, "remora_node_up", node_up_help, {{"service", socket}}, 0);
    for (const auto& [name, device] : now.eqds)
        add_rows(metrics, "remora_eqds_", eqds_metrics(), {{"device", name}}, device);
    if (now.edm) {
        Counters counters;
        for (const netlink::Attributes& each : now.edm->nests(EDM_A_COUNTERS))
            counters.emplace_back(each.string(EDM_COUNTER_NAME), each.number(EDM_COUNTER_VALUE));
        add_counters(metrics, "remora_edm_", edm_counters(), {}, counters);
    }
    return metrics.text(format);
}

// ---- ways out ----

// A reader sees the old file or the new one, whole.
void replace_file(const std::string& path, const std::string& text) {
    auto fail = [&](const std::string& which) {
        throw Failure("can't write {}: {}", which, std::strerror(errno));
    };
    std::string beside = path + ".XXXXXX";
    Descriptor fd(mkostemp(beside.data(), O_CLOEXEC));
    if (!fd)
        fail(path);
    std::size_t at = 0;
    while (at < text.size()) {
        const ssize_t put = write(fd.get(), text.data() + at, text.size() - at);
        if (put < 0 && errno != EINTR)
            break;
        at += put < 0 ? 0 : static_cast<std::size_t>(put);
    }
    // node-exporter is another user.
    if (at < text.size() || fchmod(fd.get(), 0644) || rename(beside.c_str(), path.c_str())) {
        const int error = errno;
        unlink(beside.c_str());
        errno = error;
        fail(path);
    }
}

struct ExportOptions {
    std::string textfile, listen;
    bool openmetrics = false;
    std::vector<std::string> sockets;
};

[[noreturn]] void serve(const ExportOptions& options) {
    const Descriptor listener = http_listen(options.listen);
    fmt::print("{}/metrics\n", http_address(listener));
    std::fflush(stdout);
    http_serve(listener, "/metrics", [&](std::string_view accept) {
        const bool open = accept.find("application/openmetrics-text") != accept.npos;
        const MetricFormat format = open ? MetricFormat::openmetrics : MetricFormat::prometheus;
        return HttpPage{metric_media_type(format), metrics_text(options.sockets, format)};
    });
}

void export_metrics(const ExportOptions& options) {
    if (!options.listen.empty())
        serve(options);
    const std::string text =
        metrics_text(options.sockets,
                     options.openmetrics ? MetricFormat::openmetrics : MetricFormat::prometheus);
    if (options.textfile.empty())
        fmt::print("{}", text);
    else
        replace_file(options.textfile, text);
}

} // namespace

void add_export_command(CLI::App& program) {
    CLI::App* command = program.add_subcommand("export", "Print metrics for Prometheus");
    auto options = std::make_shared<ExportOptions>();
    CLI::Option* open = command->add_flag("--openmetrics", options->openmetrics,
                                          "Print OpenMetrics 1.0 instead of Prometheus' format");
    CLI::Option* file = command->add_option("--textfile", options->textfile,
                                            "FILE to write and rename, as node-exporter's "
                                            "textfile collector reads it");
    command
        ->add_option("--listen", options->listen,
                     "Serve /metrics by HTTP at ADDRESS:PORT, or by descriptor fd:N")
        ->excludes(file)
        ->excludes(open);
    file->excludes(open);
    command->add_option("--socket", options->sockets, "PATH of a remora-node's socket; repeatable")
        ->allow_extra_args(false);
    command->callback([options] { export_metrics(*options); });

    CLI::App* page = program.add_subcommand("__counters", "Print remora-counters(7)");
    page->group(""); // hidden: for the Makefile
    page->callback([] { fmt::print("{}", catalogue_page()); });
}

} // namespace remora
