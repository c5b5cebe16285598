// SPDX-License-Identifier: GPL-2.0
// All of Remora on this machine at one moment: what top and export show.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/node_report.hpp"
#include "remora/devices.hpp"
#include "remora/netlink.hpp"

namespace remora {

struct NodeLook {
    std::string name; // kernel, or a daemon's socket
    NodeReport report;
    std::vector<SpaceReport> spaces;     // none by a daemon's status socket
    std::vector<OffloadReport> offloads; // the same
};

struct Look {
    std::chrono::steady_clock::time_point when;
    std::vector<NodeLook> nodes;
    std::vector<std::string> silent; // sockets of daemons that stand still
    std::map<std::string, Device> devices;
    std::map<std::string, netlink::Attributes> eqds;
    std::optional<netlink::Attributes> edm;
    std::string why_nothing; // set if no module and no daemon was there to ask
};

// sockets: of daemons; none: the one at the default path, if it serves. A daemon that hasn't
// answered within patience is told of on stderr; all are asked at once. Throws Failure: a socket
// that was named has no memory node.
Look look(const std::vector<std::string>& sockets,
          std::chrono::milliseconds patience = std::chrono::seconds(5));

} // namespace remora
