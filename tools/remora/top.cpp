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
#include "remora/devices.hpp"
#include "remora/look.hpp"
#include "remora/nodes.hpp"
#include "remora/table.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"
#include "uapi/remora_eqds.h"

namespace remora {

namespace {

using Json = nlohmann::ordered_json;

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

// As remora node space list has them, with the node before them and rates behind.
std::vector<std::string> space_top_columns() {
    std::vector<std::string> columns = space_columns();
    columns.insert(columns.begin(), "LENT");
    columns.insert(columns.end(), {"OP/S", "READ MB/S", "WRITTEN MB/S"});
    return columns;
}

struct SpaceRates {
    double calls_share; // the part of a processor that its clients' calls took
    double operations, read_bytes, written_bytes;
};

std::vector<std::string> space_top_row(const NodeLook& node, const SpaceReport& space,
                                       const SpaceRates& rates) {
    std::vector<std::string> row = space_row(space);
    row.back() = fmt::format("{:.1f} %", 100 * rates.calls_share);
    row.insert(row.begin(), node.name);
    row.insert(row.end(), {rate_text(rates.operations), mb_text(rates.read_bytes),
                           mb_text(rates.written_bytes)});
    return row;
}

struct Shown {
    Json nodes = Json::array(), devices = Json::array(), eqds = Json::array();
    Table node_table{{"LENT", "PORT", "MEMORY", "PROMISED", "WRITTEN TO", "SESSIONS", "READ/S",
                      "MB/S", "WRITE/S", "MB/S", "ATOMIC/S", "PUT/S", "DROP/S"}};
    Table space_table{space_top_columns()};
    Table device_table{{"USED", "NODE", "STATE", "READ/S", "MB/S", "P50", "P99", "WRITE/S", "MB/S",
                        "P50", "P99", "ATOMIC/S", "PUT/S", "P50", "P99", "RETRY/S"}};
    Table eqds_table{
        {"TUNNELS", "LINK", "TO", "FROM", "SENT/S", "AGAIN/S", "RECEIVED/S", "ACTIVE", "BUSY"}};
    bool has_spaces = false;
};

// A space that was deleted and added again between the samples shows nothing.
SpaceRates space_rates(const SpaceReport& space, const NodeLook& before, double seconds) {
    for (const SpaceReport& earlier : before.spaces) {
        if (earlier.id != space.id)
            continue;
        auto rate = [&](std::uint64_t is, std::uint64_t was) {
            return is > was ? static_cast<double>(is - was) / seconds : 0;
        };
        return {rate(space.calls_ns, earlier.calls_ns) / 1e9,
                rate(space.operations, earlier.operations),
                rate(space.read_bytes, earlier.read_bytes),
                rate(space.written_bytes, earlier.written_bytes)};
    }
    return {};
}

void show_spaces(const NodeLook& node, const NodeLook& before, double seconds, Json& json,
                 Shown& shown) {
    for (const SpaceReport& space : node.spaces) {
        const SpaceRates rates = space_rates(space, before, seconds);
        Json& told = json["spaces"].emplace_back(space_json(space));
        told["calls_share"] = rates.calls_share;
        told["operations_per_s"] = rates.operations;
        told["read_bytes_per_s"] = rates.read_bytes;
        told["written_bytes_per_s"] = rates.written_bytes;
        shown.space_table.add(space_top_row(node, space, rates));
        shown.has_spaces = true;
    }
}

void show_node(const NodeLook& node, const NodeLook& before, double seconds, Shown& shown) {
    const Rates rates(node.report.counters, before.report.counters, seconds);
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
    show_spaces(node, before, seconds, json, shown);
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
    for (const NodeLook& node : now.nodes) {
        for (const NodeLook& earlier : before.nodes) {
            if (earlier.name == node.name && earlier.report.boot == node.report.boot)
                show_node(node, earlier, seconds, shown);
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
}

Look look_at_something(const std::vector<std::string>& sockets) {
    Look now = look(sockets);
    if (!now.why_nothing.empty())
        throw Failure("{}", now.why_nothing);
    return now;
}

struct TopOptions {
    bool json = false, batch = false;
    std::string interval = "1";
    std::optional<std::string> count;
    std::vector<std::string> sockets;
};

Json samples_json(const Shown& shown, double seconds) {
    return {{"seconds", seconds},
            {"nodes", shown.nodes},
            {"devices", shown.devices},
            {"eqds", shown.eqds}};
}

// Runs for so many samples; unless told, until a signal, and with --json once.
void top(const TopOptions& options) {
    const std::uint32_t interval_ms =
        parse_seconds_ms(options.interval, 1, UINT32_MAX, "--interval");
    std::uint64_t left = options.json ? 1 : UINT64_MAX;
    if (options.count)
        left = parse_number(*options.count, 1, UINT32_MAX, "--count");
    const bool is_terminal = !options.batch && isatty(STDOUT_FILENO);
    Look before = look_at_something(options.sockets);
    for (; left; left--) {
        timespec pause{interval_ms / 1000, static_cast<long>(interval_ms % 1000) * 1'000'000};
        while (nanosleep(&pause, &pause) && errno == EINTR) {
        }
        Look now = look_at_something(options.sockets);
        const Shown shown = compare(now, before);
        const double seconds = std::chrono::duration<double>(now.when - before.when).count();
        if (options.json) // one a line, if there are several
            fmt::print("{}\n", samples_json(shown, seconds).dump(options.count ? -1 : 2));
        else
            print(shown, is_terminal);
        if (std::fflush(stdout))
            throw Failure("can't write to standard output");
        before = std::move(now);
    }
}

} // namespace

void add_top_command(CLI::App& program) {
    CLI::App* command = program.add_subcommand("top", "Show memory lent and used, with rates");
    auto options = std::make_shared<TopOptions>();
    command->add_flag("--json", options->json, "Print one sample, as an object");
    command->add_option("--interval", options->interval, "SECONDS to count; default 1");
    command->add_flag("-b,--batch", options->batch, "Don't clear the terminal");
    command->add_option("-n,--count", options->count, "Samples to print");
    command->add_option("--socket", options->sockets, "PATH of a remora-node's socket; repeatable")
        ->allow_extra_args(false);
    command->callback([options] { top(*options); });
}

} // namespace remora
