// SPDX-License-Identifier: GPL-2.0
// remora status, stats: the client's reports of its devices.
#include <cerrno>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "remora/commands.hpp"
#include "remora/devices.hpp"
#include "remora/edm.hpp"
#include "remora/table.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"
#include "support/say.hpp"

namespace remora {

namespace {

double cwnd_packets(const Device& device) {
    return static_cast<double>(device.number(RMEM_A_CWND)) / 1024;
}

// ---- status ----

// EDM's figures; a scheduler grants its messages.
bool is_scheduled(const Device& device) {
    return device.node().starts_with("edm:");
}

nlohmann::ordered_json status_json(const Device& device) {
    nlohmann::ordered_json json;
    json["device"] = "/dev/" + device.name();
    json["name"] = device.attributes.string(RMEM_A_NAME);
    json["keep"] = device.attributes.has(RMEM_A_KEEP);
    json["node"] = device.node();
    json["space"] = device.number(RMEM_A_SPACE);
    json["size_bytes"] = device.number(RMEM_A_BYTES);
    json["state"] = name_of(state_names, device.number(RMEM_A_STATE));
    json["openers"] = device.number(RMEM_A_OPENERS);
    json["integrity"] = name_of(integrity_names, device.number(RMEM_A_INTEGRITY));
    json["fail_after_ms"] = device.number(RMEM_A_FAIL_AFTER_MS);
    json["queues"] = device.number(RMEM_A_QUEUES);
    json["page_bytes"] = device.number(RMEM_A_PAGE_BYTES);
    json["piece_bytes"] = device.number(RMEM_A_PIECE);
    json["address"] = fmt::format("{:#x}", device.number(RMEM_A_ADDR));
    json["boot"] = fmt::format("{:016x}", device.number(RMEM_A_BOOT));
    json["rtt_ns"] = device.number(RMEM_A_RTT_NS);
    json["cwnd_packets"] = cwnd_packets(device);
    if (is_scheduled(device)) {
        json["scheduler"] = edm_member_state();
        for (const auto& [name, value] : device.counters())
            if (name == "unscheduled")
                json["unscheduled_packets"] = value;
    }
    return json;
}

std::string state_text(const Device& device) {
    std::string text{name_of(state_names, device.number(RMEM_A_STATE))};
    return is_scheduled(device) ? text + ", " + edm_member_state() : text;
}

// The kernel warns at the attach, and a reboot or another sysctl makes it so later.
void warn_of_min_free() {
    std::uint64_t kib = 0;
    std::ifstream("/proc/sys/vm/min_free_kbytes") >> kib;
    if (kib && kib < RMEM_MIN_FREE_KIB)
        warn("remora: vm.min_free_kbytes is {}: for swap to /dev/rmbN 'sysctl "
             "vm.min_free_kbytes={}'",
             kib, RMEM_MIN_FREE_KIB);
}

void status(bool json) {
    bool disks = false;
    auto list = nlohmann::ordered_json::array();
    Table table({"DEVICE", "NAME", "SIZE", "NODE", "STATE", "IN USE", "RTT", "CWND", "INTEGRITY"});
    for (const Device& device : devices(std::nullopt)) {
        list.push_back(status_json(device));
        disks |= device.number(RMEM_A_KIND) == RMEM_KIND_DISK;
        std::uint64_t openers = device.number(RMEM_A_OPENERS);
        std::uint64_t bytes = device.number(RMEM_A_BYTES);
        const std::string name = device.attributes.string(RMEM_A_NAME);
        table.add(
            {"/dev/" + device.name(), name.empty() ? "-" : name, bytes ? size_text(bytes) : "-",
             device.node(), state_text(device), openers ? fmt::format("{}", openers) : "no",
             time_text(device.number(RMEM_A_RTT_NS)), fmt::format("{:.2f}", cwnd_packets(device)),
             name_of(integrity_names, device.number(RMEM_A_INTEGRITY))});
    }
    if (json)
        fmt::print("{}\n", list.dump(2));
    else
        table.print();
    if (disks && !json)
        warn_of_min_free();
}

// ---- stats ----

void print_counters(const std::map<std::string, Counters>& all, bool json, int indent) {
    if (json) {
        auto object = nlohmann::ordered_json::object();
        for (const auto& [device, counters] : all) {
            object[device] = nlohmann::ordered_json::object();
            for (const auto& [name, value] : counters)
                object[device][name] = value;
        }
        fmt::print("{}\n", object.dump(indent));
        return;
    }
    for (const auto& [device, counters] : all) {
        fmt::print("{}\n", device);
        for (const auto& [name, value] : counters)
            fmt::print("  {:<20} {}\n", name, value);
    }
}

std::map<std::string, Counters> read_counters(const std::optional<std::string>& wanted) {
    std::map<std::string, Counters> all;
    for (const Device& device : devices(wanted))
        all[device.name()] = device.counters();
    return all;
}

// The growth since before; a device attached anew counts from 0.
Counters increase(const Counters& now, const Counters& before) {
    Counters grown = now;
    for (std::size_t i = 0; i < grown.size() && i < before.size(); i++) {
        if (grown[i].first == before[i].first && grown[i].second >= before[i].second)
            grown[i].second -= before[i].second;
    }
    return grown;
}

// Runs until a signal, or until the one device is gone.
[[noreturn]] void print_increases(const std::optional<std::string>& wanted, bool json,
                                  std::uint32_t interval_ms) {
    timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    std::map<std::string, Counters> before = read_counters(wanted);
    for (;;) {
        std::uint64_t ns = static_cast<std::uint64_t>(next.tv_nsec) + interval_ms * 1'000'000ULL;
        next.tv_sec += static_cast<time_t>(ns / 1'000'000'000);
        next.tv_nsec = static_cast<long>(ns % 1'000'000'000);
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, nullptr) == EINTR) {
        }
        std::map<std::string, Counters> now = read_counters(wanted);
        std::map<std::string, Counters> grown;
        for (const auto& [device, counters] : now)
            grown[device] = increase(counters, before[device]);
        print_counters(grown, json, -1);
        if (std::fflush(stdout))
            throw Failure("can't write to standard output");
        before = std::move(now);
    }
}

void stats(const std::optional<std::string>& device, bool json,
           const std::optional<std::string>& interval) {
    if (!interval)
        return print_counters(read_counters(device), json, 2);
    print_increases(device, json, parse_seconds_ms(*interval, 1, UINT32_MAX, "--interval"));
}

} // namespace

void add_report_commands(CLI::App& program) {
    CLI::App* status_command = program.add_subcommand("status", "List the devices");
    auto json = std::make_shared<bool>(false);
    status_command->add_flag("--json", *json, "Print JSON");
    status_command->callback([json] { status(*json); });

    CLI::App* stats_command = program.add_subcommand("stats", "Counters of the devices");
    auto device = std::make_shared<std::optional<std::string>>();
    auto interval = std::make_shared<std::optional<std::string>>();
    auto stats_json = std::make_shared<bool>(false);
    stats_command->add_option("DEVICE", *device, "For instance rmb0, /dev/rmem1 or 2; default all");
    stats_command->add_flag("--json", *stats_json,
                            "Print an object; with --interval one for each line");
    stats_command->add_option("--interval", *interval, "Print the changes every SECONDS");
    stats_command->callback([=] { stats(*device, *stats_json, *interval); });
}

} // namespace remora
