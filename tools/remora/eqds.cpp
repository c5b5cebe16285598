// SPDX-License-Identifier: GPL-2.0
// remora eqds: the tunnels of eqds devices, and their paths.
#include <algorithm>
#include <array>
#include <memory>
#include <tuple>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "remora/commands.hpp"
#include "remora/netlink.hpp"
#include "remora/table.hpp"
#include "support/failure.hpp"
#include "uapi/remora_eqds.h"

namespace remora {

namespace {

using netlink::Attributes;

std::string peer_text(const Attributes& tunnel) {
    const auto& bytes = tunnel.bytes(EQDS_A_PEER);
    if (bytes.size() != sizeof(in6_addr))
        throw Failure("the kernel module eqds tells a peer's address in {} bytes: it is of another "
                      "version than this program",
                      bytes.size());
    std::array<char, INET6_ADDRSTRLEN> text{};
    inet_ntop(AF_INET6, bytes.data(), text.data(), text.size());
    std::string_view peer(text.data());
    constexpr std::string_view mapped = "::ffff:";
    bool v4 = peer.starts_with(mapped) && peer.find('.') != peer.npos;
    return std::string(v4 ? peer.substr(mapped.size()) : peer);
}

// Sorted, for the kernel's order is that of a hash table.
std::vector<Attributes> tunnels() {
    netlink::Family family(EQDS_GENL_NAME, EQDS_GENL_VERSION, "eqds");
    std::vector<Attributes> list = family.dump(netlink::Request(EQDS_CMD_TUNNELS));
    auto key = [](const Attributes& each) {
        return std::tuple(each.string(EQDS_A_DEVICE), !each.has(EQDS_A_SENDING),
                          each.bytes(EQDS_A_PEER));
    };
    std::sort(list.begin(), list.end(),
              [&](const Attributes& a, const Attributes& b) { return key(a) < key(b); });
    return list;
}

void peers(bool json) {
    auto list = nlohmann::ordered_json::array();
    Table table(
        {"DEVICE", "PEER", "WAY", "STATE", "QUEUED", "IN FLIGHT", "CREDIT", "PULLS", "RTT"});
    for (const Attributes& each : tunnels()) {
        bool sending = each.has(EQDS_A_SENDING);
        const char* way = sending ? "to" : "from";
        const char* state = each.has(EQDS_A_ESTABLISHED) ? "open" : "opening";
        list.push_back({{"device", each.string(EQDS_A_DEVICE)},
                        {"peer", peer_text(each)},
                        {"way", way},
                        {"state", state},
                        {"queued_packets", each.number(EQDS_A_QUEUED)},
                        {"queued_bytes", each.number(EQDS_A_QUEUED_BYTES)},
                        {"in_flight_packets", each.number(EQDS_A_IN_FLIGHT)},
                        {"credit_bytes", each.number(EQDS_A_CREDIT)},
                        {"pulls_owed", each.number(EQDS_A_PULLS)},
                        {"rtt_ns", each.number(EQDS_A_RTT_NS)}});
        auto of_sender = [&](std::uint16_t type) {
            return sending ? fmt::to_string(each.number(type)) : "-";
        };
        table.add({each.string(EQDS_A_DEVICE), peer_text(each), way, state,
                   fmt::to_string(each.number(EQDS_A_QUEUED)), of_sender(EQDS_A_IN_FLIGHT),
                   of_sender(EQDS_A_CREDIT), fmt::to_string(each.number(EQDS_A_PULLS)),
                   time_text(each.number(EQDS_A_RTT_NS))});
    }
    if (json)
        fmt::print("{}\n", list.dump(2));
    else
        table.print();
}

void paths(bool json) {
    auto list = nlohmann::ordered_json::array();
    Table table({"DEVICE", "PEER", "PATH", "RTT", "SENT", "TRIMMED", "LOST", "MARKED"});
    for (const Attributes& tunnel : tunnels()) {
        std::size_t number = 0;
        for (const Attributes& path : tunnel.nests(EQDS_A_PATHS)) {
            list.push_back({{"device", tunnel.string(EQDS_A_DEVICE)},
                            {"peer", peer_text(tunnel)},
                            {"path", number},
                            {"rtt_ns", path.number(EQDS_PATH_A_RTT_NS)},
                            {"sent", path.number(EQDS_PATH_A_SENT)},
                            {"trimmed", path.number(EQDS_PATH_A_TRIMMED)},
                            {"lost", path.number(EQDS_PATH_A_LOST)},
                            {"marked", path.number(EQDS_PATH_A_MARKED)}});
            table.add({tunnel.string(EQDS_A_DEVICE), peer_text(tunnel), fmt::to_string(number),
                       time_text(path.number(EQDS_PATH_A_RTT_NS)),
                       fmt::to_string(path.number(EQDS_PATH_A_SENT)),
                       fmt::to_string(path.number(EQDS_PATH_A_TRIMMED)),
                       fmt::to_string(path.number(EQDS_PATH_A_LOST)),
                       fmt::to_string(path.number(EQDS_PATH_A_MARKED))});
            number++;
        }
    }
    if (json)
        fmt::print("{}\n", list.dump(2));
    else
        table.print();
}

void add_report(CLI::App& eqds, const char* name, const char* help, void (*report)(bool json)) {
    CLI::App* command = eqds.add_subcommand(name, help);
    auto json = std::make_shared<bool>(false);
    command->add_flag("--json", *json, "Print JSON.");
    command->callback([=] { report(*json); });
}

} // namespace

void add_eqds_commands(CLI::App& program) {
    CLI::App* eqds = program.add_subcommand("eqds", "Tunnels whose receivers clock every packet.");
    eqds->require_subcommand(1);
    add_report(*eqds, "peers", "Print the tunnels of this network namespace.", peers);
    add_report(*eqds, "paths", "Print the paths of the sending tunnels.", paths);
}

} // namespace remora
