// SPDX-License-Identifier: GPL-2.0
// remora eqds: the tunnels of eqds devices, and their paths.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <tuple>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/pkt_sched.h>
#include <net/if.h>
#include <nlohmann/json.hpp>

#include "remora/commands.hpp"
#include "remora/eqds.hpp"
#include "remora/netlink.hpp"
#include "remora/table.hpp"
#include "support/failure.hpp"
#include "support/key.hpp"
#include "support/parse.hpp"
#include "uapi/remora_eqds.h"
#include "uapi/remora_trim.h"

namespace remora {

namespace {

using netlink::Attributes;

constexpr std::string_view mapped_prefix = "::ffff:";

std::string address_text(const std::vector<std::uint8_t>& bytes) {
    if (bytes.size() != sizeof(in6_addr))
        throw Failure("the kernel module eqds tells an address in {} bytes: it is of another "
                      "version than this program",
                      bytes.size());
    std::array<char, INET6_ADDRSTRLEN> text{};
    inet_ntop(AF_INET6, bytes.data(), text.data(), text.size());
    std::string_view address(text.data());
    bool v4 = address.starts_with(mapped_prefix) && address.find('.') != address.npos;
    return std::string(v4 ? address.substr(mapped_prefix.size()) : address);
}

std::string peer_text(const Attributes& tunnel) {
    return address_text(tunnel.bytes(EQDS_A_PEER));
}

// IPv4 as mapped address.
std::array<std::uint8_t, 16> parse_address(const std::string& text) {
    std::array<std::uint8_t, 16> bytes{};
    std::string as_v6 = text.find(':') == text.npos ? std::string(mapped_prefix) + text : text;
    if (inet_pton(AF_INET6, as_v6.c_str(), bytes.data()) != 1)
        throw Misuse("'{}' is not an address: use 10.0.0.2 or fd00::2, for instance", text);
    return bytes;
}

// ADDRESS or ADDRESS/LENGTH.
struct Prefix {
    std::array<std::uint8_t, 16> bytes;
    std::uint8_t length;

    explicit Prefix(const std::string& text) {
        auto slash = text.find('/');
        std::string address = text.substr(0, slash);
        unsigned bits = address.find(':') == address.npos ? 32 : 128, given = bits;
        bytes = parse_address(address);
        if (slash != text.npos) {
            const char *begin = text.c_str() + slash + 1, *end = text.c_str() + text.size();
            auto [stop, error] = std::from_chars(begin, end, given);
            if (error != std::errc() || stop != end || given > bits)
                throw Misuse("'{}' is not a prefix: use a length of 0 to {}", text, bits);
        }
        length = static_cast<std::uint8_t>(given + 128 - bits);
    }
};

netlink::Family family() {
    return {EQDS_GENL_NAME, EQDS_GENL_VERSION, "eqds"};
}

// Sorted, for the kernel's order is that of a hash table.
std::vector<Attributes> tunnels() {
    std::vector<Attributes> list = family().dump(netlink::Request(EQDS_CMD_TUNNELS));
    auto key = [](const Attributes& each) {
        return std::tuple(each.string(EQDS_A_DEVICE), !each.has(EQDS_A_SENDING),
                          each.bytes(EQDS_A_PEER), each.number(EQDS_A_CLASS));
    };
    std::sort(list.begin(), list.end(),
              [&](const Attributes& a, const Attributes& b) { return key(a) < key(b); });
    return list;
}

// A peer can choose any number for its own tunnels.
std::string class_text(const Attributes& tunnel) {
    constexpr std::array<const char*, 3> names = {"tcp", "rdma", "native"};
    auto id = tunnel.number(EQDS_A_CLASS);
    return id < names.size() ? names[id] : fmt::to_string(id);
}

void peers(bool json) {
    auto list = nlohmann::ordered_json::array();
    Table table({"DEVICE", "PEER", "CLASS", "WAY", "STATE", "QUEUED", "IN FLIGHT", "CREDIT",
                 "PULLS", "RTT"});
    for (const Attributes& each : tunnels()) {
        bool sending = each.has(EQDS_A_SENDING);
        const char* way = sending ? "to" : "from";
        const char* state = each.has(EQDS_A_ESTABLISHED) ? "open" : "opening";
        list.push_back({{"device", each.string(EQDS_A_DEVICE)},
                        {"peer", peer_text(each)},
                        {"class", class_text(each)},
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
        table.add({each.string(EQDS_A_DEVICE), peer_text(each), class_text(each), way, state,
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
    Table table({"DEVICE", "PEER", "CLASS", "PATH", "RTT", "SENT", "TRIMMED", "LOST", "MARKED"});
    for (const Attributes& tunnel : tunnels()) {
        std::size_t number = 0;
        for (const Attributes& path : tunnel.nests(EQDS_A_PATHS)) {
            list.push_back({{"device", tunnel.string(EQDS_A_DEVICE)},
                            {"peer", peer_text(tunnel)},
                            {"class", class_text(tunnel)},
                            {"path", number},
                            {"rtt_ns", path.number(EQDS_PATH_A_RTT_NS)},
                            {"sent", path.number(EQDS_PATH_A_SENT)},
                            {"trimmed", path.number(EQDS_PATH_A_TRIMMED)},
                            {"lost", path.number(EQDS_PATH_A_LOST)},
                            {"marked", path.number(EQDS_PATH_A_MARKED)}});
            table.add({tunnel.string(EQDS_A_DEVICE), peer_text(tunnel), class_text(tunnel),
                       fmt::to_string(number), time_text(path.number(EQDS_PATH_A_RTT_NS)),
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

void queues(bool json) {
    auto list = nlohmann::ordered_json::array();
    Table table({"DEVICE", "PEER", "CLASS", "WAITS FOR", "PACKETS", "BYTES", "IN FLIGHT"});
    for (const Attributes& each : tunnels()) {
        bool sending = each.has(EQDS_A_SENDING);
        if (!each.number(EQDS_A_QUEUED) && !each.number(EQDS_A_IN_FLIGHT))
            continue;
        const char* why = sending ? "credit" : "order";
        list.push_back({{"device", each.string(EQDS_A_DEVICE)},
                        {"peer", peer_text(each)},
                        {"class", class_text(each)},
                        {"waits_for", why},
                        {"packets", each.number(EQDS_A_QUEUED)},
                        {"bytes", each.number(EQDS_A_QUEUED_BYTES)},
                        {"in_flight_packets", each.number(EQDS_A_IN_FLIGHT)}});
        table.add({each.string(EQDS_A_DEVICE), peer_text(each), class_text(each), why,
                   fmt::to_string(each.number(EQDS_A_QUEUED)),
                   fmt::to_string(each.number(EQDS_A_QUEUED_BYTES)),
                   fmt::to_string(each.number(EQDS_A_IN_FLIGHT))});
    }
    if (json)
        fmt::print("{}\n", list.dump(2));
    else
        table.print();
}

void credit(bool json) {
    auto list = nlohmann::ordered_json::array();
    Table table({"DEVICE", "LINK", "MBIT/S", "MTU", "WINDOW", "TO", "FROM", "ACTIVE", "OWED MTUS",
                 "BUSY", "KEY", "REFUSED"});
    for (const Attributes& each : eqds_devices()) {
        list.push_back({{"device", each.string(EQDS_A_DEVICE)},
                        {"link", each.string(EQDS_A_LINK)},
                        {"mbits_per_s", each.number(EQDS_A_MBITS)},
                        {"mtu_bytes", each.number(EQDS_A_MTU)},
                        {"window_bytes", each.number(EQDS_A_WINDOW)},
                        {"window_mtus", each.number(EQDS_A_WINDOW_MTUS)},
                        {"tunnels_to", each.number(EQDS_A_TX_TUNNELS)},
                        {"tunnels_from", each.number(EQDS_A_RX_TUNNELS)},
                        {"active", each.number(EQDS_A_ACTIVE)},
                        {"owed_mtus", each.number(EQDS_A_OWED)},
                        {"busy_us", each.number(EQDS_A_BUSY_US)},
                        {"key", each.has(EQDS_A_KEYED)},
                        {"rdma", each.number(EQDS_A_CNP) ? "cnp" : "pause"},
                        {"refused_packets", each.number(EQDS_A_REFUSED)},
                        {"tunnels_max", each.number(EQDS_A_TUNNELS_MAX)},
                        {"held_bytes", each.number(EQDS_A_HELD)},
                        {"held_max_bytes", each.number(EQDS_A_HELD_MAX)}});
        table.add(
            {each.string(EQDS_A_DEVICE), each.string(EQDS_A_LINK),
             fmt::to_string(each.number(EQDS_A_MBITS)), fmt::to_string(each.number(EQDS_A_MTU)),
             fmt::to_string(each.number(EQDS_A_WINDOW)),
             fmt::to_string(each.number(EQDS_A_TX_TUNNELS)),
             fmt::to_string(each.number(EQDS_A_RX_TUNNELS)),
             fmt::to_string(each.number(EQDS_A_ACTIVE)), fmt::to_string(each.number(EQDS_A_OWED)),
             time_text(each.number(EQDS_A_BUSY_US) * 1000), each.has(EQDS_A_KEYED) ? "yes" : "no",
             fmt::to_string(each.number(EQDS_A_REFUSED))});
    }
    if (json)
        fmt::print("{}\n", list.dump(2));
    else
        table.print();
}

// How late pulls were: the timer's, for one that is due at once leaves with the packet before.
void jitter(bool json) {
    auto list = nlohmann::ordered_json::array();
    Table table({"DEVICE", "TIMERS", "MEAN", "P50 BELOW", "P99 BELOW", "MAX"});
    for (const Attributes& each : eqds_devices()) {
        std::vector<std::uint64_t> late(each.bytes(EQDS_A_LATE).size() / sizeof(std::uint64_t));
        std::memcpy(late.data(), each.bytes(EQDS_A_LATE).data(), late.size() * sizeof(late[0]));
        std::uint64_t timers = each.number(EQDS_A_TIMERS), max = each.number(EQDS_A_LATE_NS_MAX);
        std::uint64_t mean = timers ? each.number(EQDS_A_LATE_NS_SUM) / timers : 0;
        auto below_ns = [&](std::uint64_t percent) -> std::uint64_t {
            std::uint64_t seen = 0;
            for (std::size_t i = 0; timers && i + 1 < late.size(); i++) {
                seen += late[i];
                if (seen * 100 >= timers * percent)
                    return 1000ULL << i;
            }
            return max;
        };
        list.push_back({{"device", each.string(EQDS_A_DEVICE)},
                        {"timers", timers},
                        {"mean_ns", mean},
                        {"p50_below_ns", below_ns(50)},
                        {"p99_below_ns", below_ns(99)},
                        {"max_ns", max},
                        {"late_below_2_to_n_us", late}});
        table.add({each.string(EQDS_A_DEVICE), fmt::to_string(timers), time_text(mean),
                   time_text(below_ns(50)), time_text(below_ns(99)), time_text(max)});
    }
    if (json)
        fmt::print("{}\n", list.dump(2));
    else
        table.print();
}

constexpr std::array<const char*, 3> kind_names = {"map", "allow", "share"};

std::string prefix_text(const std::vector<std::uint8_t>& bytes, std::uint64_t length) {
    const std::string address = address_text(bytes);
    return fmt::format("{}/{}", address, address.find(':') == address.npos ? length - 96 : length);
}

void rules(bool json) {
    auto list = nlohmann::ordered_json::array();
    Table table({"DEVICE", "RULE", "PREFIX", "PEER", "PRIORITY", "WEIGHT"});
    for (const EqdsRule& rule : eqds_rules()) {
        nlohmann::ordered_json json_rule = {
            {"device", rule.device}, {"rule", rule.kind}, {"prefix", rule.prefix}};
        bool map = rule.kind == kind_names[EQDS_RULE_KIND_MAP];
        bool share = rule.kind == kind_names[EQDS_RULE_KIND_SHARE];
        if (map)
            json_rule["peer"] = rule.peer;
        if (share) {
            json_rule["priority"] = rule.priority;
            json_rule["weight"] = rule.weight;
        }
        list.push_back(json_rule);
        table.add({rule.device, rule.kind, rule.prefix, map ? rule.peer : "-",
                   share ? fmt::to_string(rule.priority) : "-",
                   share ? fmt::to_string(rule.weight) : "-"});
    }
    if (json)
        fmt::print("{}\n", list.dump(2));
    else
        table.print();
}

void add_report(CLI::App& eqds, const char* name, const char* help, void (*report)(bool json)) {
    CLI::App* command = eqds.add_subcommand(name, help);
    auto json = std::make_shared<bool>(false);
    command->add_flag("--json", *json, "Print JSON");
    command->callback([=] { report(*json); });
}

netlink::Request rule_request(std::uint8_t command, const EqdsRule& rule) {
    Prefix parsed(rule.prefix);
    auto kind = std::ranges::find(kind_names, rule.kind) - kind_names.begin();
    netlink::Request request(command);
    request.string(EQDS_A_DEVICE, rule.device)
        .u8(EQDS_A_RULE_KIND, static_cast<std::uint8_t>(kind))
        .bytes(EQDS_A_PREFIX, parsed.bytes.data(), parsed.bytes.size())
        .u8(EQDS_A_LENGTH, parsed.length);
    return request;
}

void add_rule(CLI::App& eqds, std::uint8_t kind, const char* help) {
    CLI::App* command = eqds.add_subcommand(kind_names[kind], help);
    auto rule = std::make_shared<EqdsRule>();
    auto remove = std::make_shared<bool>(false);
    rule->kind = kind_names[kind];
    command->add_option("DEVICE", rule->device, "eqds device")->required();
    command->add_option("PREFIX", rule->prefix, "ADDRESS or ADDRESS/LENGTH")->required();
    if (kind == EQDS_RULE_KIND_MAP)
        command->add_option("PEER", rule->peer, "Address of the tunnel's other end");
    if (kind == EQDS_RULE_KIND_SHARE) {
        command->add_option("--weight", rule->weight, "Share among equals, 1 to 1024; default 1")
            ->check(CLI::Range(1, 1024));
        command->add_option("--priority", rule->priority, "0, served first, to 7; default 0")
            ->check(CLI::Range(0, 7));
    }
    command->add_flag("--remove", *remove, "Remove the rule");
    command->callback([=] { *remove ? eqds_remove_rule(*rule) : eqds_set_rule(*rule); });
}

void add_set(CLI::App& eqds) {
    struct Words {
        std::string device, tos, rdma, memory;
        std::optional<std::uint8_t> ttl;
        std::optional<std::uint32_t> tunnels;
        std::optional<std::uint16_t> window;
    };
    CLI::App* command = eqds.add_subcommand(
        "set", "Change outer packets, the window, notices of queues to RDMA, bounds on memory");
    auto words = std::make_shared<Words>();
    command->add_option("DEVICE", words->device, "eqds device")->required();
    command->add_option("--ttl", words->ttl, "Hop limit; 0: the route's")
        ->check(CLI::Range(0, 255));
    command->add_option("--tos", words->tos, "0 to 255, or inherit");
    command->add_option("--window", words->window, "MTUs on their way to a peer; ends tunnels")
        ->check(CLI::Range(1, 512));
    command->add_option("--rdma", words->rdma, "Queues that grow: pause, or cnp as well")
        ->check(CLI::IsMember({"pause", "cnp"}));
    command->add_option("--tunnels", words->tunnels, "Maximum tunnels per direction")
        ->check(CLI::Range(1, 16384));
    command->add_option("--memory", words->memory, "Maximum SIZE of memory of waiting packets");
    command->callback([=] {
        EqdsSettings settings{words->ttl, {}, words->window, {}, words->tunnels, {}};
        unsigned tos = eqds_tos_inherit;
        const std::string& text = words->tos;
        if (!text.empty() && text != "inherit") {
            auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), tos);
            if (error != std::errc() || stop != text.data() + text.size() || tos > 255)
                throw Misuse("--tos {}: write 0 to 255, or inherit", text);
        }
        if (!text.empty())
            settings.tos = static_cast<std::uint16_t>(tos);
        if (!words->rdma.empty())
            settings.cnp = words->rdma == "cnp";
        if (!words->memory.empty())
            settings.held_bytes = parse_size(words->memory);
        eqds_set(words->device, settings);
    });
}

// As tc(8) writes it: MAJOR:MINOR, hexadecimal, MINOR 0 if there is none.
std::uint32_t parse_handle(const std::string& text) {
    std::uint32_t major = 0, minor = 0;
    const char *begin = text.c_str(), *end = begin + text.size();
    auto [colon, bad_major] = std::from_chars(begin, end, major, 16);
    if (bad_major == std::errc() && colon != end && *colon == ':' && major <= 0xffff) {
        auto [stop, bad_minor] = std::from_chars(colon + 1, end, minor, 16);
        if ((colon + 1 == end || bad_minor == std::errc()) && stop == end && minor <= 0xffff)
            return major << 16 | minor;
    }
    throw Misuse("'{}' names no qdisc or class: write 1: or 1:1, as for tc", text);
}

void add_trim(CLI::App& eqds) {
    struct Words {
        std::string link, parent, handle, which;
        std::optional<std::uint32_t> data, headers;
    };
    CLI::App* command = eqds.add_subcommand("trim", "Make a link's queue that of a switch that "
                                                    "trims, or change it");
    auto words = std::make_shared<Words>();
    command->add_option("LINK", words->link, "Network device")->required();
    command->add_option("--parent", words->parent, "Class that it stands below; default the root");
    command->add_option("--handle", words->handle, "Its number, as for tc");
    command->add_option("--data", words->data, "Packets, after which payloads are cut off")
        ->check(CLI::Range(1, 16384));
    command->add_option("--headers", words->headers, "Headers, after which they are dropped")
        ->check(CLI::Range(1, 16384));
    command->add_option("--trim", words->which, "Packet to be cut: arriving, tail or either")
        ->check(CLI::IsMember({"arriving", "tail", "either"}));
    command->callback([=] {
        netlink::Qdisc qdisc{if_nametoindex(words->link.c_str()), "trim", TC_H_ROOT, 0};
        if (!qdisc.link_index)
            throw Failure("there is no network device {}", words->link);
        if (!words->parent.empty())
            qdisc.parent = parse_handle(words->parent);
        if (!words->handle.empty())
            qdisc.handle = parse_handle(words->handle);
        netlink::set_qdisc(qdisc, [&](nlmsghdr* message) {
            if (words->data)
                mnl_attr_put_u32(message, EQDS_TRIM_A_DATA, *words->data);
            if (words->headers)
                mnl_attr_put_u32(message, EQDS_TRIM_A_HEADERS, *words->headers);
            if (!words->which.empty())
                mnl_attr_put_u8(message, EQDS_TRIM_A_WHICH,
                                words->which == "tail"     ? EQDS_TRIM_TAIL
                                : words->which == "either" ? EQDS_TRIM_EITHER
                                                           : EQDS_TRIM_ARRIVING);
        });
    });
}

void add_key(CLI::App& eqds) {
    struct Words {
        std::string device, file;
        bool remove = false;
    };
    CLI::App* command = eqds.add_subcommand("key", "Drop packets without the tag of a key");
    auto words = std::make_shared<Words>();
    command->add_option("DEVICE", words->device, "eqds device")->required();
    command->add_option("--key", words->file, "FILE with the key, alike at all peers");
    command->add_flag("--remove", words->remove, "Send and expect packets without a tag");
    command->callback([=] {
        if (words->file.empty() != words->remove)
            throw Misuse("either name the file of a key, --key FILE, or say --remove");
        if (!words->remove)
            return eqds_set_key(words->device, words->file);
        netlink::Request request(EQDS_CMD_KEY);
        request.string(EQDS_A_DEVICE, words->device);
        family().call(std::move(request));
    });
}

} // namespace

std::vector<netlink::Attributes> eqds_devices() {
    return family().dump(netlink::Request(EQDS_CMD_DEVICES));
}

void eqds_add(const std::string& link, const std::string& name) {
    unsigned index = if_nametoindex(link.c_str());
    if (!index)
        throw Failure("there is no network device {}", link);
    netlink::add_link(name, "eqds", index);
}

void eqds_remove(const std::string& name) {
    unsigned index = if_nametoindex(name.c_str());
    if (!index)
        throw Failure("there is no network device {}", name);
    netlink::remove_link(index);
}

void eqds_set(const std::string& device, const EqdsSettings& settings) {
    netlink::Request request(EQDS_CMD_SET);
    request.string(EQDS_A_DEVICE, device);
    if (settings.ttl)
        request.u8(EQDS_A_TTL, *settings.ttl);
    if (settings.tos)
        request.u16(EQDS_A_TOS, *settings.tos);
    if (settings.window_mtus)
        request.u16(EQDS_A_WINDOW_MTUS, *settings.window_mtus);
    if (settings.cnp)
        request.u8(EQDS_A_CNP, *settings.cnp);
    if (settings.tunnels)
        request.u32(EQDS_A_TUNNELS_MAX, *settings.tunnels);
    if (settings.held_bytes)
        request.u64(EQDS_A_HELD_MAX, *settings.held_bytes);
    family().call(std::move(request));
}

void eqds_set_key(const std::string& device, const std::string& file) {
    netlink::Request request(EQDS_CMD_KEY);
    Key key = key_read_warning(file, "remora");
    request.string(EQDS_A_DEVICE, device).bytes(EQDS_A_KEY, key.data(), key.size());
    family().call(std::move(request));
}

std::vector<EqdsRule> eqds_rules() {
    std::vector<EqdsRule> list;
    for (const Attributes& each : family().dump(netlink::Request(EQDS_CMD_RULES))) {
        const auto kind = each.number(EQDS_A_RULE_KIND);
        EqdsRule rule;
        rule.device = each.string(EQDS_A_DEVICE);
        rule.kind = kind < kind_names.size() ? kind_names[kind] : fmt::to_string(kind);
        rule.prefix = prefix_text(each.bytes(EQDS_A_PREFIX), each.number(EQDS_A_LENGTH));
        if (kind == EQDS_RULE_KIND_MAP)
            rule.peer = peer_text(each);
        if (kind == EQDS_RULE_KIND_SHARE) {
            rule.priority = static_cast<std::uint8_t>(each.number(EQDS_A_PRIORITY));
            rule.weight = static_cast<std::uint32_t>(each.number(EQDS_A_WEIGHT));
        }
        list.push_back(rule);
    }
    return list;
}

void eqds_set_rule(const EqdsRule& rule) {
    netlink::Request request = rule_request(EQDS_CMD_RULE_SET, rule);
    if (rule.kind == kind_names[EQDS_RULE_KIND_MAP]) {
        if (rule.peer.empty())
            throw Misuse("name the PEER that packets to {} go to", rule.prefix);
        auto peer = parse_address(rule.peer);
        request.bytes(EQDS_A_PEER, peer.data(), peer.size());
    }
    if (rule.kind == kind_names[EQDS_RULE_KIND_SHARE])
        request.u32(EQDS_A_WEIGHT, rule.weight).u8(EQDS_A_PRIORITY, rule.priority);
    family().call(std::move(request));
}

void eqds_remove_rule(const EqdsRule& rule) {
    family().call(rule_request(EQDS_CMD_RULE_REMOVE, rule));
}

std::string eqds_prefix_text(const std::string& prefix) {
    const Prefix parsed(prefix);
    return prefix_text({parsed.bytes.begin(), parsed.bytes.end()}, parsed.length);
}

void add_eqds_commands(CLI::App& program) {
    CLI::App* eqds = program.add_subcommand("eqds", "Tunnels whose receivers clock every packet");
    eqds->require_subcommand(1);
    CLI::App* add = eqds->add_subcommand("add", "Make a tunnel device on a link, and set it up");
    auto link = std::make_shared<std::string>(), name = std::make_shared<std::string>("eqds0");
    add->add_option("LINK", *link, "Network device that outer packets use")->required();
    add->add_option("--name", *name, "NAME of the device; default eqds0");
    add->callback([=] { eqds_add(*link, *name); });
    add_set(*eqds);
    add_key(*eqds);
    add_trim(*eqds);
    add_rule(*eqds, EQDS_RULE_KIND_MAP, "Packets to PREFIX go through a tunnel to PEER");
    add_rule(*eqds, EQDS_RULE_KIND_ALLOW, "Only such peers may open tunnels to this machine");
    add_rule(*eqds, EQDS_RULE_KIND_SHARE, "Priority and weight of peers when credit is given");
    add_report(*eqds, "rules", "Print the rules of this network namespace", rules);
    add_report(*eqds, "peers", "Print the tunnels of this network namespace", peers);
    add_report(*eqds, "paths", "Print the paths of the sending tunnels", paths);
    add_report(*eqds, "queues", "Print the tunnels that hold packets", queues);
    add_report(*eqds, "credit", "Print the devices, and their links' debts", credit);
    add_report(*eqds, "jitter", "Print how late the timers of pulls were", jitter);
}

} // namespace remora
