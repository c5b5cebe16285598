// SPDX-License-Identifier: GPL-2.0
#include "remora/nodes.hpp"

#include <cerrno>
#include <cstring>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/descriptor.hpp"
#include "support/failure.hpp"
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

// A daemon writes its status to each connection, and closes it.
std::string read_socket(const std::string& path) {
    static constexpr std::size_t bytes_max = 65536;
    static constexpr timeval patience{5, 0};
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path))
        throw Failure("socket path {} is longer than {} bytes", path, sizeof(address.sun_path) - 1);
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd || setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ||
        connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)))
        throw Failure("no memory node listens at {}: {}", path, std::strerror(errno));
    std::string text(bytes_max, '\0');
    std::size_t got = 0;
    ssize_t bytes;
    while ((bytes = read(fd.get(), text.data() + got, text.size() - got)) > 0)
        got += static_cast<std::size_t>(bytes);
    if (bytes < 0)
        throw Failure("the memory node at {} doesn't answer: {}", path, std::strerror(errno));
    text.resize(got);
    return text;
}

} // namespace

netlink::Family node_family() {
    return {RMEM_NODE_GENL_NAME, RMEM_NODE_GENL_VERSION, "rmem_node"};
}

NodeReport kernel_report() {
    return report_of(node_family().call(Request(RMEM_NODE_CMD_STATUS)));
}

NodeReport daemon_report(const std::string& path) {
    try {
        return node_report_parse(nlohmann::ordered_json::parse(read_socket(path)));
    } catch (const nlohmann::json::exception&) {
        throw Failure(
            "the program that listens at {} is no memory node: its answer is not a status", path);
    }
}

std::vector<SpaceReport> kernel_spaces() {
    std::vector<SpaceReport> spaces;
    for (const Attributes& space : node_family().dump(Request(RMEM_NODE_CMD_SPACES)))
        spaces.push_back({space.number(RMEM_NODE_A_SPACE), space.number(RMEM_NODE_A_PROMISED),
                          space.number(RMEM_NODE_A_QUOTA), space.number(RMEM_NODE_A_REGIONS),
                          space.number(RMEM_NODE_A_READ_ONLY_OF)});
    return spaces;
}

nlohmann::ordered_json space_json(const SpaceReport& space) {
    return {{"space", space.id},
            {"promised_bytes", space.promised_bytes},
            {"quota_bytes", space.quota_bytes},
            {"regions", space.regions},
            {"read_only_of", space.read_only_of}};
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
