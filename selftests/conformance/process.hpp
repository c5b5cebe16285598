// SPDX-License-Identifier: GPL-2.0
// A remora-node of the test's own: on a free port, in a process group that ends with the test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

namespace remora::test {

class NodeProcess {
public:
    // Returns when the daemon serves; throws Failure if it doesn't. args follow --port 0.
    NodeProcess(const std::string& program, std::vector<std::string> args);
    ~NodeProcess();
    NodeProcess(const NodeProcess&) = delete;
    NodeProcess& operator=(const NodeProcess&) = delete;

    std::uint16_t port() const { return port_; }
    // SIGTERM; its exit status as of waitpid().
    int stop();

private:
    pid_t pid_ = -1;
    std::uint16_t port_ = 0;
};

} // namespace remora::test
