// SPDX-License-Identifier: GPL-2.0
#include "common/node_report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "support/parse.hpp"

namespace remora {

namespace {

// The one list of plain numbers; visit(name, member) goes through it either way.
template <typename Report, typename Visit>
void each_number(Report& report, Visit visit) {
    visit("port", report.port);
    visit("memory_bytes", report.memory_bytes);
    visit("page_bytes", report.page_bytes);
    visit("promised_bytes", report.promised_bytes);
    visit("backed_bytes", report.backed_bytes);
    visit("ready_bytes", report.ready_bytes);
    visit("pool_pages", report.pool_pages);
    visit("spaces", report.spaces);
    visit("spaces_max", report.spaces_max);
    visit("sessions", report.sessions);
    visit("sessions_max", report.sessions_max);
    visit("regions", report.regions);
    visit("regions_max", report.regions_max);
    visit("session_idle_ms", report.session_idle_ms);
}

template <typename Report, typename Visit>
void each_space_number(Report& report, Visit visit) {
    visit("space", report.id);
    visit("promised_bytes", report.promised_bytes);
    visit("quota_bytes", report.quota_bytes);
    visit("regions", report.regions);
    visit("read_only_of", report.read_only_of);
    visit("calls_ns", report.calls_ns);
}

// Older daemons don't tell these.
template <typename Report, typename Visit>
void each_newer_space_number(Report& report, Visit visit) {
    visit("operations", report.operations);
    visit("read_bytes", report.read_bytes);
    visit("written_bytes", report.written_bytes);
    visit("sealed_only", report.sealed_only);
    visit("member_of", report.member_of);
    visit("revoked", report.revoked);
}

template <typename Report, typename Visit>
void each_offload_member(Report& report, Visit visit) {
    visit("name", report.name);
    visit("id", report.id);
    visit("space", report.space);
    visit("clients", report.clients);
    visit("budget_us", report.budget_us);
    visit("running", report.running);
    visit("ended", report.ended);
    visit("failed", report.failed);
    visit("over_budget", report.over_budget);
    visit("used_ns", report.used_ns);
}

} // namespace

nlohmann::ordered_json offload_json(const OffloadReport& offload) {
    nlohmann::ordered_json json;
    each_offload_member(offload, [&](const char* name, const auto& value) { json[name] = value; });
    return json;
}

OffloadReport offload_parse(const nlohmann::ordered_json& json) {
    OffloadReport offload{};
    each_offload_member(offload,
                        [&](const char* name, auto& value) { json.at(name).get_to(value); });
    return offload;
}

nlohmann::ordered_json space_json(const SpaceReport& space) {
    nlohmann::ordered_json json;
    each_space_number(space, [&](const char* name, auto value) { json[name] = value; });
    each_newer_space_number(space, [&](const char* name, auto value) { json[name] = value; });
    return json;
}

SpaceReport space_parse(const nlohmann::ordered_json& json) {
    SpaceReport space{};
    each_space_number(space, [&](const char* name, auto& value) { json.at(name).get_to(value); });
    each_newer_space_number(
        space, [&](const char* name, auto& value) { value = json.value(name, value); });
    return space;
}

std::string name_text(std::string_view bytes) {
    std::string text;
    for (const char c : bytes.substr(0, bytes.find('\0'))) {
        if (c >= ' ' && c <= '~' && c != '\\')
            text += c;
        else
            text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    return text;
}

// The address is a string, as boot below.
nlohmann::ordered_json region_json(const RegionReport& region) {
    return {{"address", fmt::format("{:#x}", region.address)},
            {"bytes", region.bytes},
            {"permission", region.permission & 2 ? "read-write" : "read"},
            {"names", region.names},
            {"name", region.name}};
}

RegionReport region_parse(const nlohmann::ordered_json& json) {
    return {std::stoull(json.at("address").get<std::string>(), nullptr, 16),
            json.at("bytes").get<std::uint64_t>(),
            json.at("permission").get<std::string>() == "read-write" ? 3U : 1U,
            json.at("names").get<std::uint32_t>(), json.at("name").get<std::string>()};
}

nlohmann::ordered_json node_report_json(const NodeReport& report) {
    nlohmann::ordered_json json;
    json["started"] = report.started;
    if (report.started) {
        // A string, since readers of JSON keep numbers to 53 bits only.
        json["boot"] = fmt::format("{:016x}", report.boot);
        each_number(report, [&](const char* name, auto value) { json[name] = value; });
    }
    json["counters"] = nlohmann::ordered_json::object();
    for (const auto& [name, value] : report.counters)
        json["counters"][name] = value;
    return json;
}

NodeReport node_report_parse(const nlohmann::ordered_json& json) {
    NodeReport report;
    report.started = json.at("started").get<bool>();
    if (report.started) {
        report.boot = std::stoull(json.at("boot").get<std::string>(), nullptr, 16);
        each_number(report, [&](const char* name, auto& value) { json.at(name).get_to(value); });
    }
    for (const auto& [name, value] : json.at("counters").items())
        report.counters.emplace_back(name, value.get<std::uint64_t>());
    return report;
}

std::string node_report_text(const NodeReport& report) {
    if (!report.started)
        return "not started\n";
    std::string text = fmt::format(
        "started   port {}, boot {:016x}\n"
        "memory    {} in pages of {}\n"
        "promised  {}, of which {} written to\n"
        "ready     {} zeroed, pool of {} pages\n"
        "spaces    {} of {}\n"
        "sessions  {} of {}\n"
        "regions   {} of {}\n",
        report.port, report.boot, size_text(report.memory_bytes), size_text(report.page_bytes),
        size_text(report.promised_bytes), size_text(report.backed_bytes),
        size_text(report.ready_bytes), report.pool_pages, report.spaces, report.spaces_max,
        report.sessions, report.sessions_max, report.regions, report.regions_max);
    for (const auto& [name, value] : report.counters) {
        if (value)
            text += fmt::format("  {:<20} {}\n", name, value);
    }
    return text;
}

} // namespace remora
