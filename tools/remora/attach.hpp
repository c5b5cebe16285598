// SPDX-License-Identifier: GPL-2.0
// Devices come and go, for commands other than remora attach and remora detach.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace remora {

// As the user wrote them.
struct AttachOptions {
    std::string node, key_file, integrity = "digest";
    std::string space = "1";
    std::optional<std::string> size, fail_after, timeout, index, queues, name;
    bool programs = false;
    bool keep = false;        // the region of that name, with its content
    bool take = false;        // the name, from a machine that is gone
    bool wait = false;        // for a node that doesn't answer, for ever
    std::uint64_t cookie = 0; // RMEM_A_COOKIE; 0: none
};

// Its path, "/dev/rmb0". Signals are recorded from now on, and interrupt it. Throws Failure, and
// then nothing is attached; Misuse if the options can't be.
std::string attach(const AttachOptions& options);

// Whether text, a NODE as users write it, can be the address in a device's status: of a host with
// several addresses any of them, and of one that can't be looked up all.
bool is_node(const std::string& text, const std::string& address);

// device: "rmb0". Throws Failure.
void detach(const std::string& device, bool force);

} // namespace remora
