// SPDX-License-Identifier: GPL-2.0
// Executes the requests of the control socket on the node.
#pragma once

#include "common/control_server.hpp"
#include "remora-node/node.hpp"

namespace remora::daemon {

class Operator {
public:
    // The node's run_slow() has to have a thread.
    Operator(Node& node, std::uint16_t port) : node_(node), port_(port) {}

    void execute(std::string_view line, Control::Answer answer);
    // A request asked for the node's end.
    bool is_stopped() const { return stopped_; }

private:
    Node& node_;
    std::uint16_t port_;
    bool stopped_ = false;
};

} // namespace remora::daemon
