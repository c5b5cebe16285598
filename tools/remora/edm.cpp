// SPDX-License-Identifier: GPL-2.0
// remora edm: EDM's scheduler on this machine, and this machine's membership at one (edm.ko).
#include <limits>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "remora/commands.hpp"
#include "remora/edm.hpp"
#include "remora/netlink.hpp"
#include "support/failure.hpp"
#include "support/key.hpp"
#include "support/parse.hpp"
#include "uapi/remora_edm.h"

namespace remora {

namespace {

using netlink::Attributes;
using netlink::Request;

netlink::Family edm_family() {
    return {EDM_GENL_NAME, EDM_GENL_VERSION, "edm"};
}

void edm_call(Request request, std::string_view what) {
    try {
        edm_family().call(std::move(request));
    } catch (const netlink::Refused& refused) {
        throw Failure("can't {}: {}", what, refused.what());
    }
}

void put_key(Request& request, const std::string& file) {
    Key key = key_read_warning(file, "remora");
    request.bytes(EDM_A_KEY, key.data(), key.size());
}

std::uint32_t number32(const std::string& text, std::uint64_t min, std::uint64_t max,
                       std::string_view what) {
    return static_cast<std::uint32_t>(parse_number(text, min, max, what));
}

// ---- the scheduler ----

struct StartOptions {
    std::string key_file;
    std::optional<std::string> ports, chunk, lease, udp_port;
};

void edm_start(const StartOptions& options) {
    Request request(EDM_CMD_START);
    put_key(request, options.key_file);
    if (options.ports)
        request.u16(EDM_A_PORTS,
                    static_cast<std::uint16_t>(number32(*options.ports, 2, 512, "--ports")));
    if (options.chunk) {
        std::uint64_t bytes = parse_size(*options.chunk);
        if (bytes < 4096 || bytes > (1 << 20) || bytes % 1024)
            throw Misuse("--chunk {} is out of range: write 4K to 1M, in steps of 1K",
                         *options.chunk);
        request.u32(EDM_A_CHUNK_BYTES, static_cast<std::uint32_t>(bytes));
    }
    if (options.lease)
        request.u32(EDM_A_LEASE_US, number32(*options.lease, 1, 10'000, "--lease") * 1000);
    if (options.udp_port)
        request.u16(EDM_A_UDP_PORT,
                    static_cast<std::uint16_t>(number32(*options.udp_port, 1, 65535, "--port")));
    edm_call(std::move(request), "start the scheduler");
}

// ---- membership ----

struct JoinOptions {
    std::string scheduler, standby, key_file, port, rate;
};

void edm_join(const JoinOptions& options) {
    Request request(EDM_CMD_JOIN);
    put_key(request, options.key_file);
    request.string(EDM_A_SCHEDULER, options.scheduler);
    if (!options.standby.empty())
        request.string(EDM_A_STANDBY, options.standby);
    request.u16(EDM_A_PORT, static_cast<std::uint16_t>(number32(options.port, 0, 511, "--as")));
    request.u32(EDM_A_RATE_MBPS, number32(options.rate, 1, 1'600'000, "--rate"));
    edm_call(std::move(request), fmt::format("join {}", options.scheduler));
}

// ---- status ----

nlohmann::ordered_json status_json(const Attributes& answer) {
    nlohmann::ordered_json json;
    json["scheduler"] = answer.has(EDM_A_STARTED);
    if (answer.has(EDM_A_STARTED)) {
        json["udp_port"] = answer.number(EDM_A_UDP_PORT);
        json["ports"] = answer.number(EDM_A_PORTS);
        json["members"] = answer.number(EDM_A_MEMBERS);
        json["chunk_bytes"] = answer.number(EDM_A_CHUNK_BYTES);
        json["lease_us"] = answer.number(EDM_A_LEASE_US);
    }
    json["member"] = answer.has(EDM_A_STATE);
    if (answer.has(EDM_A_STATE)) {
        json["member_of"] = answer.string(EDM_A_SCHEDULER);
        json["standby"] = answer.string(EDM_A_STANDBY);
        json["port"] = answer.number(EDM_A_PORT);
        json["rate_mbps"] = answer.number(EDM_A_RATE_MBPS);
        json["state"] = answer.string(EDM_A_STATE);
    }
    json["counters"] = nlohmann::ordered_json::object();
    for (const Attributes& counter : answer.nests(EDM_A_COUNTERS))
        json["counters"][counter.string(EDM_COUNTER_NAME)] = counter.number(EDM_COUNTER_VALUE);
    return json;
}

void edm_status(bool as_json) {
    nlohmann::ordered_json json = status_json(edm_report());
    if (as_json) {
        fmt::print("{}\n", json.dump(2));
        return;
    }
    for (const auto& [name, value] : json.items())
        if (name != "counters")
            fmt::print("{:18} {}\n", name,
                       value.is_string() ? value.get<std::string>() : value.dump());
    for (const auto& [name, value] : json["counters"].items())
        fmt::print("{:18} {}\n", name, value.dump());
}

void add_start(CLI::App& edm) {
    CLI::App* start = edm.add_subcommand("start", "Schedule the messages of a rack");
    auto options = std::make_shared<StartOptions>();
    start->add_option("--key", options->key_file, "FILE of the operator's key")->required();
    start->add_option("--ports", options->ports, "At most N hosts; default 64");
    start->add_option("--chunk", options->chunk, "SIZE of a grant; default 16K");
    start->add_option("--lease", options->lease, "MILLISECONDS; default 50");
    start->add_option("--port", options->udp_port, "UDP port; default 7673");
    start->callback([=] { edm_start(*options); });
}

void add_join(CLI::App& edm) {
    CLI::App* join = edm.add_subcommand("join", "Make this machine a host of a scheduler");
    auto options = std::make_shared<JoinOptions>();
    join->add_option("SCHEDULER", options->scheduler, "IP, IP:PORT or [IP]:PORT")->required();
    join->add_option("--as", options->port, "PORT of this machine at the scheduler, 0 to 511")
        ->required();
    join->add_option("--rate", options->rate, "MBIT/S of this machine's link")->required();
    join->add_option("--key", options->key_file, "FILE of the operator's key")->required();
    join->add_option("--standby", options->standby, "ADDRESS of a second scheduler");
    join->callback([=] { edm_join(*options); });
}

void add_port(CLI::App& edm) {
    CLI::App* port =
        edm.add_subcommand("port", "Let memory messages go before other frames of a device");
    auto device = std::make_shared<std::string>();
    auto undo = std::make_shared<bool>(false);
    port->add_option("DEVICE", *device, "Network device, eth0 say")->required();
    port->add_flag("--undo", *undo, "Give the device the system's own queues again");
    port->callback([=] { *undo ? edm_port_undo(*device) : edm_port(*device); });
}

} // namespace

Attributes edm_report() {
    return edm_family().call(Request(EDM_CMD_STATUS));
}

std::string edm_member_state() {
    return edm_report().string(EDM_A_STATE);
}

void add_edm_commands(CLI::App& program) {
    CLI::App* edm = program.add_subcommand("edm", "Scheduled memory messages");
    edm->require_subcommand(1);
    add_start(*edm);
    edm->add_subcommand("stop", "Stop the scheduler")->callback([] {
        edm_call(Request(EDM_CMD_STOP), "stop the scheduler");
    });
    add_join(*edm);
    edm->add_subcommand("leave", "End this machine's membership")->callback([] {
        edm_call(Request(EDM_CMD_LEAVE), "leave the scheduler");
    });
    add_port(*edm);
    CLI::App* status = edm->add_subcommand("status", "Scheduler, membership, counters");
    auto json = std::make_shared<bool>(false);
    status->add_flag("--json", *json, "Print JSON");
    status->callback([=] { edm_status(*json); });
}

} // namespace remora
