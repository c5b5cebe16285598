// SPDX-License-Identifier: GPL-2.0
// The status socket sends the node's state as JSON to each connection, for programs that can look
// but not control.
#pragma once

#include "common/listener.hpp"
#include "common/node_report.hpp"

namespace remora::daemon {

class StatusSocket {
public:
    explicit StatusSocket(std::string path)
        : listener_("--json-status", std::move(path), 0777) {} // the umask takes from it

    int fd() const { return listener_.fd(); }
    // Serves one connection. Never waits: text beyond the socket's buffer is cut off.
    void answer(const NodeReport& report) const;

private:
    UnixListener listener_;
};

} // namespace remora::daemon
