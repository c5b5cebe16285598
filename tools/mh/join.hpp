// SPDX-License-Identifier: GPL-2.0
// A machine's QEMU, started as a member of the fabric.
#pragma once

#include <string>
#include <vector>

namespace remora::mh {

// Replaces this process by the command, a QEMU's, with arguments for the machine's RAM, doorbells
// and the RAM of its peers. path: of the management host's control socket. Throws Failure.
[[noreturn]] void join(const std::string& path, const std::string& machine,
                       std::vector<std::string> command);

} // namespace remora::mh
