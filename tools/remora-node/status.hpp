// SPDX-License-Identifier: GPL-2.0
// The status socket sends the node's state as JSON to each connection.
#pragma once

#include <string>

#include <sys/types.h>

#include "common/node_report.hpp"
#include "support/descriptor.hpp"

namespace remora::daemon {

class StatusSocket {
public:
    // Replaces a stale socket that has no listener, and no other file. Throws Failure.
    explicit StatusSocket(std::string path);
    ~StatusSocket();
    StatusSocket(const StatusSocket&) = delete;
    StatusSocket& operator=(const StatusSocket&) = delete;

    int fd() const { return fd_.get(); }
    // Serves one connection. Never waits: text beyond the socket's buffer is cut off.
    void answer(const NodeReport& report) const;

private:
    std::string path_;
    Descriptor fd_;
    ino_t inode_ = 0; // of the socket at the path
};

} // namespace remora::daemon
