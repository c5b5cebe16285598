// SPDX-License-Identifier: GPL-2.0
// The status socket: whoever connects is sent the node's state as JSON.
#pragma once

#include <string>

#include "common/node_report.hpp"
#include "support/descriptor.hpp"

namespace remora::daemon {

class StatusSocket {
public:
    // In place of a socket that nobody listens at any more. Throws Failure.
    explicit StatusSocket(std::string path);
    ~StatusSocket();
    StatusSocket(const StatusSocket&) = delete;
    StatusSocket& operator=(const StatusSocket&) = delete;

    int fd() const { return fd_.get(); }
    // Serves one that connected. Never waits: what the socket's buffer doesn't take is cut off.
    void answer(const NodeReport& report) const;

private:
    std::string path_;
    Descriptor fd_;
};

} // namespace remora::daemon
