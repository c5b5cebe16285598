// SPDX-License-Identifier: GPL-2.0
#include "mh/map.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <sstream>

#include <nlohmann/json.hpp>

#include "remora/ntb.h"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::mh {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t mib = 1 << 20;
// Above, physical addresses are no longer offsets in the file of a machine's RAM.
constexpr std::uint64_t ram_bytes_max = 2048 * mib, ram_bytes_min = 64 * mib;
constexpr std::uint64_t window_bytes_default = 4 * mib, window_bytes_min = 64 << 10;
constexpr std::size_t name_bytes_max = 63;

constexpr std::pair<std::string_view, Access> accesses[] = {
    {"nothing", Access::nothing},
    {"read", Access::read},
    {"write", Access::write},
};

void check_object(const Json& json, const std::string& where,
                  std::initializer_list<std::string_view> known) {
    if (!json.is_object())
        throw Failure("{} is no object: write {{...}}", where);
    for (const auto& [name, value] : json.items())
        if (std::find(known.begin(), known.end(), name) == known.end())
            throw Failure("{} has an unknown member \"{}\": known are {}", where, name,
                          fmt::join(known, ", "));
}

std::string text_of(const Json& json, const char* member, const std::string& where) {
    if (!json.contains(member) || !json[member].is_string())
        throw Failure("{} has no string \"{}\"", where, member);
    return json[member];
}

std::uint64_t size_of(const Json& json, const char* member, const std::string& where,
                      std::uint64_t min, std::uint64_t max) {
    std::string text = text_of(json, member, where);
    std::uint64_t bytes = 0;
    try {
        bytes = parse_size(text);
    } catch (const Failure& failure) {
        throw Failure("{}: {}: {}", where, member, failure.what());
    }
    if (!std::has_single_bit(bytes) || bytes < min || bytes > max)
        throw Failure("{}: {} {} is no power of two from {} to {}", where, member, text,
                      size_text(min), size_text(max));
    return bytes;
}

const Json& list_of(const Json& json, const char* member) {
    if (!json.contains(member) || !json[member].is_array())
        throw Failure("the map has no list \"{}\"", member);
    return json[member];
}

bool is_name(std::string_view text) {
    auto fits = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
    return !text.empty() && text.size() <= name_bytes_max &&
           std::all_of(text.begin(), text.end(), fits);
}

std::string file_text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text(Map::file_bytes_max + 1, '\0');
    if (!file)
        throw Failure("can't read {}: {}", path, std::strerror(errno));
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (file.bad())
        throw Failure("can't read {}: {}", path, std::strerror(errno));
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > Map::file_bytes_max)
        throw Failure("{} is longer than {} bytes: that is no map", path, Map::file_bytes_max);
    return text;
}

Range range_parse(const Json& json, std::uint64_t ram_bytes, const std::string& where) {
    std::string text = json.is_string() ? json.get<std::string>() : json.dump();
    std::size_t dash = text.find('-');
    Range range{};
    try {
        range = {parse_size(text.substr(0, dash)),
                 dash == std::string::npos ? 0 : parse_size(text.substr(dash + 1))};
    } catch (const Failure&) {
        range = {};
    }
    if (range.begin >= range.end || range.end > ram_bytes || range.begin % NTB_PAGE_BYTES ||
        range.end % NTB_PAGE_BYTES)
        throw Failure("{}: pages {} aren't in RAM of {}: use START-END in multiples of 4K, "
                      "64M-128M say",
                      where, text, size_text(ram_bytes));
    return range;
}

} // namespace

std::string_view access_text(Access access) {
    return accesses[static_cast<std::size_t>(access)].first;
}

Access access_parse(std::string_view text, std::string_view where) {
    for (const auto& [name, access] : accesses)
        if (name == text)
            return access;
    throw Failure("{}: may \"{}\" is unknown: write nothing, read or write", where, text);
}

Map Map::read(const std::string& path) {
    std::string text = file_text(path);
    try {
        return Map(Json::parse(text, nullptr, true, true));
    } catch (const Json::parse_error& error) {
        std::size_t at = std::min(error.byte, text.size());
        auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
        throw Failure("{}: line {} is no JSON: look for a missing comma, quote or bracket", path,
                      line + 1);
    } catch (const Failure& failure) {
        throw Failure("{}: {}", path, failure.what());
    }
}

Map::Map(const Json& json) {
    check_object(json, "the map", {"machines", "window", "access"});
    const Json& machines = list_of(json, "machines");
    if (machines.size() < 2 || machines.size() > NTB_PORTS_MAX)
        throw Failure("the map has {} machines: a fabric joins 2 to {}", machines.size(),
                      NTB_PORTS_MAX);
    for (std::size_t i = 0; i < machines.size(); i++)
        add_machine(machines[i], fmt::format("machines[{}]", i));
    set_windows(json.contains("window")
                    ? size_of(json, "window", "the map", window_bytes_min, window_bytes_default)
                    : window_bytes_default);
    access_.assign(ports(), std::vector<Access>(ports(), Access::nothing));
    pages_.assign(ports(), std::vector<std::vector<Range>>(ports()));
    for (std::vector<std::vector<Range>>& from : pages_)
        for (std::size_t to = 0; to < ports(); to++)
            from[to] = {{0, machines_[to].ram_bytes}};
    const Json& rules = list_of(json, "access");
    for (std::size_t i = 0; i < rules.size(); i++)
        apply_rule(rules[i], fmt::format("access[{}]", i));
}

void Map::add_machine(const Json& json, const std::string& where) {
    check_object(json, where, {"name", "ram"});
    std::string name = text_of(json, "name", where);
    if (!is_name(name))
        throw Failure("{}: name \"{}\" is invalid: use up to {} letters, digits and . - _", where,
                      name, name_bytes_max);
    for (const Machine& other : machines_)
        if (other.name == name)
            throw Failure("{}: name \"{}\" is that of another machine", where, name);
    machines_.push_back({name, size_of(json, "ram", where, ram_bytes_min, ram_bytes_max), 0, 0});
}

void Map::set_windows(std::uint64_t bytes_max) {
    window_bytes_max_ = bytes_max;
    for (Machine& machine : machines_) {
        std::uint64_t share = (machine.ram_bytes >> 3) / (ports() - 1);
        machine.windows_base = machine.ram_bytes / 4 * 3;
        machine.window_bytes = std::min(bytes_max, std::bit_floor(share));
    }
}

std::vector<std::size_t> Map::ports_named(const Json& json, const char* member,
                                          const std::string& where) const {
    std::string name = text_of(json, member, where);
    std::vector<std::size_t> found;
    for (std::size_t port = 0; port < ports(); port++)
        if (name == "*" || name == machines_[port].name)
            found.push_back(port);
    if (found.empty())
        throw Failure("{}: {} \"{}\" is no machine of the map", where, member, name);
    return found;
}

void Map::apply_rule(const Json& json, const std::string& where) {
    check_object(json, where, {"from", "to", "may", "pages"});
    Access access = access_parse(text_of(json, "may", where), where);
    for (std::size_t from : ports_named(json, "from", where))
        for (std::size_t to : ports_named(json, "to", where))
            if (from != to) {
                access_[from][to] = access;
                set_pages(from, to, json.contains("pages") ? json["pages"] : Json("all"), where);
            }
}

void Map::set_pages(std::size_t from, std::size_t to, const Json& ranges,
                    const std::string& where) {
    std::uint64_t ram_bytes = machines_[to].ram_bytes;
    std::vector<Range> pages;
    if (ranges == "all") {
        pages = {{0, ram_bytes}};
    } else {
        if (!ranges.is_array() || ranges.size() > NTB_RANGES)
            throw Failure("{}: pages are no list of up to {} ranges: write [\"64M-128M\"] say",
                          where, NTB_RANGES);
        for (const Json& each : ranges)
            pages.push_back(range_parse(each, ram_bytes, where));
    }
    pages_[from][to] = std::move(pages);
}

Json Map::pages_json(std::size_t from, std::size_t to) const {
    auto text = [](std::uint64_t bytes) {
        return bytes % mib ? fmt::format("{}K", bytes >> 10) : fmt::format("{}M", bytes / mib);
    };
    Json list = Json::array();
    for (const Range& each : pages_[from][to])
        list.push_back(text(each.begin) + "-" + text(each.end));
    return list;
}

std::size_t Map::port_of(std::string_view name) const {
    for (std::size_t port = 0; port < ports(); port++)
        if (machines_[port].name == name)
            return port;
    throw Failure("no machine of the map is called \"{}\": 'remora mh status' lists them", name);
}

bool Map::linked(std::size_t one, std::size_t other) const {
    return access_[one][other] == Access::write && access_[other][one] == Access::write;
}

std::string Map::kernel_parameter(std::size_t port) const {
    const Machine& machine = machines_[port];
    std::uint64_t bytes = machine.window_bytes * (ports() - 1);
    return fmt::format("memmap={}M${}M", (bytes + mib - 1) / mib, machine.windows_base / mib);
}

Json Map::json() const {
    Json json{{"machines", Json::array()}, {"access", Json::array()}};
    for (const Machine& machine : machines_)
        json["machines"].push_back({{"name", machine.name}, {"ram", size_text(machine.ram_bytes)}});
    json["window"] = size_text(window_bytes_max_);
    for (std::size_t from = 0; from < ports(); from++)
        for (std::size_t to = 0; to < ports(); to++)
            if (access_[from][to] != Access::nothing)
                json["access"].push_back({{"from", machines_[from].name},
                                          {"to", machines_[to].name},
                                          {"may", access_text(access_[from][to])},
                                          {"pages", pages_json(from, to)}});
    return json;
}

} // namespace remora::mh
