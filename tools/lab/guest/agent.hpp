// SPDX-License-Identifier: GPL-2.0
//
// The agent of a lab machine: runs commands for the host, many at a time, over one virtio-serial
// port.
#pragma once

#include <string>

namespace lab {

// Opens the port called port_name; -1 with errno if there is none.
int open_port();

// Runs a shell script, its output to the console; its exit status.
int run_and_wait(const std::string& script);

// Serves the host until the port fails.
void serve(int port);

} // namespace lab
