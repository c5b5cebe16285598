// SPDX-License-Identifier: GPL-2.0
// A remora-node, by its control socket (common/control.hpp).
#pragma once

#include <string>
#include <vector>

#include "common/control_client.hpp"
#include "common/node_report.hpp"
#include "support/key.hpp"
#include "support/parse.hpp"

namespace remora {

class Daemon {
public:
    // Throws Failure, as all functions do: nobody listens there; no answer; the node refuses the
    // request.
    explicit Daemon(const std::string& path, ControlClient::Clock::time_point until =
                                                 ControlClient::Clock::time_point::max())
        : client_("memory node", path, until) {}

    // Also from a status socket, which serves nothing else.
    NodeReport report();
    // After report(): the socket serves the other functions, too.
    bool has_control() const { return has_control_; }
    std::vector<SpaceReport> spaces();
    std::vector<RegionReport> regions(std::uint32_t space);
    void add_space(const SpaceOption& option, const Key& key);
    void del_space(std::uint32_t id, bool force);
    void revoke_space(std::uint32_t id);
    // file: seen from the daemon, so without a relative path.
    // budget_us: 0: the program's own.
    void load_offload(const std::string& file, std::uint32_t space, std::uint32_t budget_us,
                      const std::vector<std::uint32_t>& clients,
                      const std::vector<std::string>& links);
    void remove_offload(const std::string& name, std::uint32_t space);
    std::vector<OffloadReport> offloads();
    // Returns when the node has ended.
    void stop();

private:
    void change(const nlohmann::ordered_json& request);

    ControlClient client_;
    bool has_control_ = false;
};

// The default path at which a remora-node serves, a user's or the service's; empty: none does.
// patience: for each of the two.
std::string daemon_serving_path(std::chrono::milliseconds patience = ControlClient::brief);

// The control socket of the node that a command is about: the one named; if none is, and the
// kernel's node isn't started, that of a remora-node that serves at the default path. Empty: the
// kernel's node. Throws Failure if there is neither.
std::string daemon_socket(const std::string& named);

} // namespace remora
