// SPDX-License-Identifier: GPL-2.0
#include "remora/daemon.hpp"

#include <nlohmann/json.hpp>

#include "common/control.hpp"
#include "common/control_client.hpp"
#include "remora/nodes.hpp"
#include "support/failure.hpp"

namespace remora {

namespace {

using Json = nlohmann::ordered_json;

// Where a remora-node listens that systemd runs, as a user of its own (remora-node.service).
const std::string service_path = "/run/remora-node/remora-node.sock";

} // namespace

std::string daemon_serving_path(std::chrono::milliseconds patience) {
    for (const std::string& path : {control_path_default(), service_path})
        if (!path.empty() && control_serves(path, patience))
            return path;
    return {};
}

NodeReport Daemon::report() {
    Json answer = client_.call({{"verb", "status"}});
    has_control_ = answer.contains("ok");
    try {
        return node_report_parse(has_control_ ? answer.at("status") : answer);
    } catch (const nlohmann::json::exception&) {
        throw Failure(
            "the program that listens at {} is no memory node: its answer is not a status",
            client_.path());
    }
}

std::vector<SpaceReport> Daemon::spaces() {
    Json answer = client_.call({{"verb", "space list"}});
    std::vector<SpaceReport> spaces;
    try {
        for (const Json& space : answer.at("spaces"))
            spaces.push_back(space_parse(space));
    } catch (const nlohmann::json::exception&) {
        throw Failure("{} is not the control socket of a memory node: it lists no spaces",
                      client_.path());
    }
    return spaces;
}

std::vector<RegionReport> Daemon::regions(std::uint32_t space) {
    std::vector<RegionReport> regions;
    for (Json request{{"verb", "regions"}, {"space", space}};;) {
        Json answer = client_.call(request);
        try {
            const Json& some = answer.at("regions");
            if (some.empty())
                return regions;
            for (const Json& region : some)
                regions.push_back(region_parse(region));
        } catch (const nlohmann::json::exception&) {
            throw Failure("{} is not the control socket of a memory node: it lists no regions",
                          client_.path());
        }
        request["from"] = regions.back().address + 1;
    }
}

void Daemon::add_space(const SpaceOption& option, const Key& key) {
    Json request{{"verb", "space add"}, {"space", option.id}, {"key", key_text(key)}};
    if (option.quota_bytes)
        request["quota_bytes"] = option.quota_bytes;
    if (option.read_only_of)
        request["read_only_of"] = option.read_only_of;
    if (option.member_of)
        request["member_of"] = option.member_of;
    if (option.sealed_only)
        request["sealed_only"] = true;
    change(request);
}

void Daemon::del_space(std::uint32_t id, bool force) {
    change({{"verb", "space del"}, {"space", id}, {"force", force}});
}

void Daemon::revoke_space(std::uint32_t id) {
    change({{"verb", "space revoke"}, {"space", id}});
}

void Daemon::load_offload(const std::string& file, std::uint32_t space, std::uint32_t budget_us,
                          const std::vector<std::uint32_t>& clients,
                          const std::vector<std::string>& links) {
    Json request{{"verb", "offload load"}, {"file", file}, {"space", space}, {"clients", clients}};
    if (budget_us)
        request["budget_us"] = budget_us;
    if (!links.empty())
        request["links"] = links;
    change(request);
}

void Daemon::remove_offload(const std::string& name, std::uint32_t space) {
    change({{"verb", "offload remove"}, {"name", name}, {"space", space}});
}

std::vector<OffloadReport> Daemon::offloads() {
    Json answer = client_.call({{"verb", "offload list"}});
    std::vector<OffloadReport> offloads;
    try {
        for (const Json& offload : answer.at("offloads"))
            offloads.push_back(offload_parse(offload));
    } catch (const nlohmann::json::exception&) {
        throw Failure("{} is not the control socket of a memory node: it lists no offloads",
                      client_.path());
    }
    return offloads;
}

void Daemon::stop() {
    change({{"verb", "stop"}});
    client_.wait_end();
}

// Looks first whether the daemon answers at all, for a change can take long.
void Daemon::change(const Json& request) {
    if (!client_.call({{"verb", "status"}}).contains("ok"))
        throw Failure("{} is not the control socket of a memory node: it shows its status only",
                      client_.path());
    client_.call(request, ControlClient::lengthy);
}

std::string daemon_socket(const std::string& named) {
    if (!named.empty())
        return named;
    const std::string path = daemon_serving_path();
    const bool daemon_serves = !path.empty();
    try {
        const bool kernel_serves = kernel_report().started;
        return daemon_serves && !kernel_serves ? path : "";
    } catch (const netlink::NoFamily& none) {
        if (daemon_serves)
            return path;
        if (none.is_loaded())
            throw;
        throw Failure("the kernel module rmem_node is not loaded, and no remora-node serves at {}: "
                      "modprobe rmem_node, or name a daemon's socket by --socket",
                      control_path_default().empty() ? service_path : control_path_default());
    }
}

} // namespace remora
