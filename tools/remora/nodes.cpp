// SPDX-License-Identifier: GPL-2.0
#include "remora/nodes.hpp"

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
        spaces.push_back({space.number(RMEM_NODE_A_SPACE), space.number(RMEM_NODE_A_PROMISED),
                          space.number(RMEM_NODE_A_QUOTA), space.number(RMEM_NODE_A_REGIONS),
                          space.number(RMEM_NODE_A_READ_ONLY_OF)});
    return spaces;
}

std::vector<std::string> space_columns() {
    return {"SPACE", "PROMISED", "QUOTA", "REGIONS", "ACCESS"};
}

std::vector<std::string> space_row(const SpaceReport& space) {
    return {fmt::to_string(space.id), size_text(space.promised_bytes),
            space.quota_bytes ? size_text(space.quota_bytes) : "-", fmt::to_string(space.regions),
            space.read_only_of ? fmt::format("read-only of {}", space.read_only_of) : "full"};
}

} // namespace remora
