// SPDX-License-Identifier: GPL-2.0
/*
 * remora top: the memory that this machine lends and uses, with rates between two samples.
 *
 * A device that appears or disappears between two samples is shown with the next pair.
 */
#include <cerrno>
#include <chrono>
#include <ctime>
#include <map>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "remora/commands.hpp"
#include "remora/daemon.hpp"
#include "remora/devices.hpp"
#include "remora/eqds.hpp"
#include "remora/nodes.hpp"
#include "remora/table.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"
#include "support/say.hpp"
#include "uapi/remora_eqds.h"

namespace remora {

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Node {
    std::string name; // kernel, or a daemon's socket
    NodeReport report;
    std::vector<SpaceReport> spaces; // the kernel's
};

struct Look {
    Clock::time_point when;
    std::vector<Node> nodes;
    std::map<std::string, Device> devices;
    std::map<std::string, netlink::Attributes> eqds;
};

// A module that isn't loaded, or serves in another network namespace alone, reports nothing.
template <typename Ask>
auto if_serves(std::string& elsewhere, Ask ask) -> std::optional<decltype(ask())> {
    try {
        return ask();
    } catch (const netlink::NoFamily& none) {
        if (none.is_loaded())
            elsewhere = none.what();
        return std::nullopt;
    }
}

// A daemon that stands still is told of, and the others are shown.
void add_daemon(const std::string& socket, std::vector<Node>& nodes) {
    try {
        nodes.push_back({socket, Daemon(socket).report(), {}});
    } catch (const Failure& failure) {
        if (failure.error() != ETIMEDOUT)
            throw;
        warn("remora: {}", failure.what());
    }
}

Look look(const std::vector<std::string>& sockets) {
    Look now{Clock::now(), {}, {}, {}};
    std::string elsewhere; // why a module that is loaded serves nothing here
    auto kernel = if_serves(elsewhere, [] {
        return Node{"kernel", kernel_report(), kernel_spaces()};
    });
    auto used = if_serves(elsewhere, [] { return devices(std::nullopt); });
    auto tunnels = if_serves(elsewhere, [] { return eqds_devices(); });
    if (!kernel && !used && !tunnels && sockets.empty())
        throw Failure("{}", elsewhere.empty() ? "none of rmem, rmem_node and eqds is loaded: "
                                                "modprobe one, or name a --socket"
                                              : elsewhere);
    if (tunnels)
        for (netlink::Attributes& device : *tunnels) {
            std::string name = device.string(EQDS_A_DEVICE);
            now.eqds.emplace(std::move(name), std::move(device));
        }
    if (kernel && kernel->report.started)
        now.nodes.push_back(std::move(*kernel));
    for (const std::string& socket : sockets)
        add_daemon(socket, now.nodes);
    if (used) {
        for (Device& device : *used) {
            std::string name = device.name();
            now.devices.emplace(name, std::move(device));
        }
    }
    return now;
}

// ---- growth per second ----

class Rates {
public:
    Rates(const Counters& now, const Counters& before, double seconds) : seconds_(seconds) {
        for (const auto& [name, value] : before)
            grown_[name] -= static_cast<double>(value);
        for (const auto& [name, value] : now)
            grown_[name] += static_cast<double>(value);
    }
    double of(const std::string& name) const {
        auto found = grown_.find(name);
        return found == grown_.end() ? 0 : std::max(found->second, 0.0) / seconds_;
    }
    // Messages with one range, and with several.
    double of_both(const std::string& name) const { return of(name) + of(name + "v"); }
    // Sum of all counters whose names begin so.
    double of_all(std::string_view prefix) const {
        double sum = 0;
        for (const auto& [name, grown] : grown_)
            sum += name.starts_with(prefix) ? std::max(grown, 0.0) / seconds_ : 0;
        return sum;
    }

private:
    std::map<std::string, double> grown_;
    double seconds_;
};

Times growth(Times now, const Times& before) {
    for (std::size_t i = 0; i < now.size() && i < before.size(); i++)
        now[i] = now[i] >= before[i] ? now[i] - before[i] : now[i];
    return now;
}

std::string mb_text(double bytes) {
    return fmt::format("{:.1f}", bytes / 1e6);
}

std::string rate_text(double rate) {
    return fmt::format("{:.0f}", rate);
}

// ---- output ----

struct Shown {
    Json nodes = Json::array(), devices = Json::array(), eqds = Json::array();
    Table node_table{{"LENT", "PORT", "MEMORY", "PROMISED", "WRITTEN TO", "SESSIONS", "READ/S",
                      "MB/S", "WRITE/S", "MB/S", "ATOMIC/S", "PUT/S", "DROP/S"}};
    Table space_table{space_columns()};
    Table device_table{{"USED", "NODE", "STATE", "READ/S", "MB/S", "P50", "P99", "WRITE/S", "MB/S",
                        "P50", "P99", "ATOMIC/S", "PUT/S", "P50", "P99", "RETRY/S"}};
    Table eqds_table{
        {"TUNNELS", "LINK", "TO", "FROM", "SENT/S", "AGAIN/S", "RECEIVED/S", "ACTIVE", "BUSY"}};
    bool has_spaces = false;
};

void show_spaces(const Node& node, Json& json, Shown& shown) {
    for (const SpaceReport& space : node.spaces) {
        json["spaces"].push_back(space_json(space));
        shown.space_table.add(space_row(space));
        shown.has_spaces = true;
    }
}

void show_node(const Node& node, const Rates& rates, Shown& shown) {
    const NodeReport& report = node.report;
    Json json = {{"node", node.name},
                 {"port", report.port},
                 {"memory_bytes", report.memory_bytes},
                 {"promised_bytes", report.promised_bytes},
                 {"backed_bytes", report.backed_bytes},
                 {"sessions", report.sessions},
                 {"read_per_s", rates.of_both("read")},
                 {"read_bytes_per_s", rates.of("read-bytes")},
                 {"write_per_s", rates.of_both("write")},
                 {"write_bytes_per_s", rates.of("write-bytes")},
                 {"atomic_per_s", rates.of("atomic")},
                 {"put_per_s", rates.of("put")},
                 {"drop_per_s", rates.of_all("drop-")},
                 {"spaces", Json::array()}};
    shown.node_table.add({node.name, fmt::to_string(report.port), size_text(report.memory_bytes),
                          size_text(report.promised_bytes), size_text(report.backed_bytes),
                          fmt::to_string(report.sessions), rate_text(rates.of_both("read")),
                          mb_text(rates.of("read-bytes")), rate_text(rates.of_both("write")),
                          mb_text(rates.of("write-bytes")), rate_text(rates.of("atomic")),
                          rate_text(rates.of("put")), rate_text(rates.of_all("drop-"))});
    show_spaces(node, json, shown);
    shown.nodes.push_back(std::move(json));
}

void show_device(const Device& device, const Device& before, const Rates& rates, Shown& shown) {
    Times reads = growth(device.times("read"), before.times("read"));
    Times writes = growth(device.times("write"), before.times("write"));
    Times others = growth(device.times("other"), before.times("other"));
    std::string state = name_of(state_names, device.number(RMEM_A_STATE));
    shown.devices.push_back({{"device", "/dev/" + device.name()},
                             {"node", device.node()},
                             {"state", state},
                             {"read_per_s", rates.of("read")},
                             {"read_bytes_per_s", rates.of("read-bytes")},
                             {"read_p50_ns", percentile_ns(reads, 50)},
                             {"read_p99_ns", percentile_ns(reads, 99)},
                             {"write_per_s", rates.of("write")},
                             {"write_bytes_per_s", rates.of("write-bytes")},
                             {"write_p50_ns", percentile_ns(writes, 50)},
                             {"write_p99_ns", percentile_ns(writes, 99)},
                             {"atomic_per_s", rates.of("atomic")},
                             {"put_per_s", rates.of("put")},
                             {"put_bytes_per_s", rates.of("put-bytes")},
                             {"other_p50_ns", percentile_ns(others, 50)},
                             {"other_p99_ns", percentile_ns(others, 99)},
                             {"retry_per_s", rates.of("retries")}});
    shown.device_table.add({"/dev/" + device.name(), device.node(), state,
                            rate_text(rates.of("read")), mb_text(rates.of("read-bytes")),
                            time_text(percentile_ns(reads, 50)),
                            time_text(percentile_ns(reads, 99)), rate_text(rates.of("write")),
                            mb_text(rates.of("write-bytes")), time_text(percentile_ns(writes, 50)),
                            time_text(percentile_ns(writes, 99)), rate_text(rates.of("atomic")),
                            rate_text(rates.of("put")), time_text(percentile_ns(others, 50)),
                            time_text(percentile_ns(others, 99)), rate_text(rates.of("retries"))});
}

void show_eqds(const netlink::Attributes& device, const netlink::Attributes& before, double seconds,
               Shown& shown) {
    auto rate = [&](std::uint16_t type) {
        std::uint64_t is = device.number(type), was = before.number(type);
        return is > was ? static_cast<double>(is - was) / seconds : 0.0;
    };
    std::string name = device.string(EQDS_A_DEVICE), link = device.string(EQDS_A_LINK);
    shown.eqds.push_back({{"device", name},
                          {"link", link},
                          {"tunnels_to", device.number(EQDS_A_TX_TUNNELS)},
                          {"tunnels_from", device.number(EQDS_A_RX_TUNNELS)},
                          {"sent_per_s", rate(EQDS_A_TX_PACKETS)},
                          {"again_per_s", rate(EQDS_A_TX_AGAIN)},
                          {"received_per_s", rate(EQDS_A_RX_PACKETS)},
                          {"active", device.number(EQDS_A_ACTIVE)},
                          {"busy_us", device.number(EQDS_A_BUSY_US)}});
    shown.eqds_table.add({name, link, fmt::to_string(device.number(EQDS_A_TX_TUNNELS)),
                          fmt::to_string(device.number(EQDS_A_RX_TUNNELS)),
                          rate_text(rate(EQDS_A_TX_PACKETS)), rate_text(rate(EQDS_A_TX_AGAIN)),
                          rate_text(rate(EQDS_A_RX_PACKETS)),
                          fmt::to_string(device.number(EQDS_A_ACTIVE)),
                          time_text(device.number(EQDS_A_BUSY_US) * 1000)});
}

Shown compare(const Look& now, const Look& before) {
    double seconds = std::chrono::duration<double>(now.when - before.when).count();
    Shown shown;
    for (const Node& node : now.nodes) {
        for (const Node& earlier : before.nodes) {
            if (earlier.name == node.name && earlier.report.boot == node.report.boot)
                show_node(node, Rates(node.report.counters, earlier.report.counters, seconds),
                          shown);
        }
    }
    for (const auto& [name, device] : now.devices) {
        auto earlier = before.devices.find(name);
        if (earlier != before.devices.end())
            show_device(device, earlier->second,
                        Rates(device.counters(), earlier->second.counters(), seconds), shown);
    }
    for (const auto& [name, device] : now.eqds) {
        auto earlier = before.eqds.find(name);
        if (earlier != before.eqds.end())
            show_eqds(device, earlier->second, seconds, shown);
    }
    return shown;
}

void print(const Shown& shown, bool is_terminal) {
    if (is_terminal)
        fmt::print("\x1b[H\x1b[2J");
    shown.node_table.print();
    if (shown.has_spaces) {
        fmt::print("\n");
        shown.space_table.print();
    }
    fmt::print("\n");
    shown.device_table.print();
    if (!shown.eqds.empty()) {
        fmt::print("\n");
        shown.eqds_table.print();
    }
    if (!is_terminal)
        fmt::print("\n");
    if (std::fflush(stdout))
        throw Failure("can't write to standard output");
}

// Runs until a signal; with --json once.
void top(bool json, const std::string& interval, const std::vector<std::string>& sockets) {
    std::uint32_t interval_ms = parse_seconds_ms(interval, 1, UINT32_MAX, "--interval");
    Look before = look(sockets);
    for (;;) {
        timespec left{interval_ms / 1000, static_cast<long>(interval_ms % 1000) * 1'000'000};
        while (nanosleep(&left, &left) && errno == EINTR) {
        }
        Look now = look(sockets);
        Shown shown = compare(now, before);
        if (json) {
            double seconds = std::chrono::duration<double>(now.when - before.when).count();
            Json all = {{"seconds", seconds},
                        {"nodes", shown.nodes},
                        {"devices", shown.devices},
                        {"eqds", shown.eqds}};
            return fmt::print("{}\n", all.dump(2));
        }
        print(shown, isatty(STDOUT_FILENO));
        before = std::move(now);
    }
}

} // namespace

void add_top_command(CLI::App& program) {
    CLI::App* command = program.add_subcommand("top", "Show memory lent and used, with rates");
    auto json = std::make_shared<bool>(false);
    auto interval = std::make_shared<std::string>("1");
    auto sockets = std::make_shared<std::vector<std::string>>();
    command->add_flag("--json", *json, "Print one sample, as an object");
    command->add_option("--interval", *interval, "SECONDS to count; default 1");
    command->add_option("--socket", *sockets, "PATH of a remora-node's socket; repeatable")
        ->allow_extra_args(false);
    command->callback([=] { top(*json, *interval, *sockets); });
}

} // namespace remora
