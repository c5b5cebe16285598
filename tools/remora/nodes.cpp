// SPDX-License-Identifier: GPL-2.0
#include "remora/nodes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "support/parse.hpp"
#include "uapi/remora_node.h"

namespace remora {

namespace {

using netlink::Attributes;
using netlink::Request;

NodeReport report_of(const Attributes& answer) {
    auto number32 = [&](std::uint16_t type) {
        return static_cast<std::uint32_t>(answer.number(type));
    };
    NodeReport report;
    report.started = answer.has(RMEM_NODE_A_STARTED);
    report.boot = answer.number(RMEM_NODE_A_BOOT);
    report.port = number32(RMEM_NODE_A_PORT);
    report.memory_bytes = answer.number(RMEM_NODE_A_MEMORY);
    report.page_bytes = answer.number(RMEM_NODE_A_PAGE_BYTES);
    report.promised_bytes = answer.number(RMEM_NODE_A_PROMISED);
    report.backed_bytes = answer.number(RMEM_NODE_A_BACKED);
    report.ready_bytes = answer.number(RMEM_NODE_A_READY);
    report.pool_pages = number32(RMEM_NODE_A_POOL_PAGES);
    report.spaces = number32(RMEM_NODE_A_SPACES);
    report.spaces_max = number32(RMEM_NODE_A_SPACES_MAX);
    report.sessions = number32(RMEM_NODE_A_SESSIONS);
    report.sessions_max = number32(RMEM_NODE_A_SESSIONS_MAX);
    report.regions = number32(RMEM_NODE_A_REGIONS);
    report.regions_max = number32(RMEM_NODE_A_REGIONS_MAX);
    report.session_idle_ms = number32(RMEM_NODE_A_SESSION_IDLE_MS);
    for (const Attributes& counter : answer.nests(RMEM_NODE_A_COUNTERS))
        report.counters.emplace_back(counter.string(RMEM_NODE_COUNTER_NAME),
                                     counter.number(RMEM_NODE_COUNTER_VALUE));
    return report;
}

} // namespace

netlink::Family node_family() {
    return {RMEM_NODE_GENL_NAME, RMEM_NODE_GENL_VERSION, "rmem_node"};
}

NodeReport kernel_report() {
    return report_of(node_family().call(Request(RMEM_NODE_CMD_STATUS)));
}

std::vector<SpaceReport> kernel_spaces() {
    std::vector<SpaceReport> spaces;
    for (const Attributes& space : node_family().dump(Request(RMEM_NODE_CMD_SPACES)))
        spaces.push_back(
            {space.number(RMEM_NODE_A_SPACE), space.number(RMEM_NODE_A_PROMISED),
             space.number(RMEM_NODE_A_QUOTA), space.number(RMEM_NODE_A_REGIONS),
             space.number(RMEM_NODE_A_READ_ONLY_OF), space.number(RMEM_NODE_A_USED_NS),
             space.number(RMEM_NODE_A_OPERATIONS), space.number(RMEM_NODE_A_READ_BYTES),
             space.number(RMEM_NODE_A_WRITTEN_BYTES), space.has(RMEM_NODE_A_SEALED_ONLY),
             space.number(RMEM_NODE_A_MEMBER_OF), space.has(RMEM_NODE_A_REVOKED)});
    return spaces;
}

std::vector<OffloadReport> kernel_offloads() {
    std::vector<OffloadReport> offloads;
    for (const Attributes& offload : node_family().dump(Request(RMEM_NODE_CMD_OFFLOADS))) {
        const std::vector<std::uint8_t>& bytes = offload.bytes(RMEM_NODE_A_CLIENTS);
        std::vector<std::uint32_t> clients(bytes.size() / sizeof(std::uint32_t));
        std::memcpy(clients.data(), bytes.data(), clients.size() * sizeof(clients[0]));
        offloads.push_back(
            {offload.string(RMEM_NODE_A_OFFLOAD), offload.number(RMEM_NODE_A_OFFLOAD_ID),
             offload.number(RMEM_NODE_A_SPACE), clients, offload.number(RMEM_NODE_A_BUDGET_US),
             offload.number(RMEM_NODE_A_RUNNING), offload.number(RMEM_NODE_A_ENDED),
             offload.number(RMEM_NODE_A_FAILED), offload.number(RMEM_NODE_A_OVER_BUDGET),
             offload.number(RMEM_NODE_A_USED_NS)});
    }
    return offloads;
}

std::vector<RegionReport> kernel_regions(std::uint32_t space) {
    std::vector<RegionReport> regions;
    Request request(RMEM_NODE_CMD_REGIONS);
    request.u32(RMEM_NODE_A_SPACE, space);
    try {
        for (const Attributes& region : node_family().dump(std::move(request))) {
            const std::vector<std::uint8_t>& name = region.bytes(RMEM_NODE_A_NAME);
            regions.push_back(
                {region.number(RMEM_NODE_A_ADDRESS), region.number(RMEM_NODE_A_BYTES),
                 static_cast<std::uint32_t>(region.number(RMEM_NODE_A_PERMISSION)),
                 static_cast<std::uint32_t>(region.number(RMEM_NODE_A_NAMES)),
                 name_text({reinterpret_cast<const char*>(name.data()), name.size()})});
        }
    } catch (const netlink::Refused& refused) {
        if (refused.error() == ENOENT)
            throw Failure("no space {}: 'remora node space list' has them", space);
        throw;
    }
    std::ranges::sort(regions, {}, &RegionReport::address);
    return regions;
}

std::vector<std::string> space_columns() {
    return {"SPACE", "PROMISED", "QUOTA", "REGIONS", "ACCESS", "CALLS"};
}

std::vector<std::string> region_columns() {
    return {"ADDRESS", "BYTES", "PERMISSION", "NAME"};
}

std::vector<std::string> region_row(const RegionReport& region) {
    std::string name = region.names ? region.name : "-";
    if (region.names > 1)
        name += fmt::format(" and {} more", region.names - 1);
    return {fmt::format("{:#x}", region.address), fmt::to_string(region.bytes),
            region.permission & 2 ? "read-write" : "read", name};
}

std::string access_text(const SpaceReport& space) {
    std::string text = space.read_only_of ? fmt::format("read-only of {}", space.read_only_of)
                       : space.member_of  ? fmt::format("member of {}", space.member_of)
                       : space.revoked    ? "revoked"
                                          : "full";
    return text + (space.sealed_only ? ", sealed" : "");
}

std::vector<std::string> space_row(const SpaceReport& space) {
    return {fmt::to_string(space.id),
            size_text(space.promised_bytes),
            space.quota_bytes ? size_text(space.quota_bytes) : "-",
            fmt::to_string(space.regions),
            access_text(space),
            fmt::format("{} us", space.calls_ns / 1000)};
}

std::vector<std::string> offload_columns() {
    return {"OFFLOAD", "ID",    "SPACE",  "CLIENTS", "BUDGET",
            "RUNNING", "ENDED", "FAILED", "STOPPED", "TIME"};
}

std::vector<std::string> offload_row(const OffloadReport& offload) {
    return {offload.name,
            fmt::to_string(offload.id),
            fmt::to_string(offload.space),
            offload.clients.empty() ? "-" : fmt::format("{}", fmt::join(offload.clients, ",")),
            fmt::format("{} us", offload.budget_us),
            fmt::to_string(offload.running),
            fmt::to_string(offload.ended),
            fmt::to_string(offload.failed),
            fmt::to_string(offload.over_budget),
            fmt::format("{} us", offload.used_ns / 1000)};
}

} // namespace remora
