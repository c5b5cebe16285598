// SPDX-License-Identifier: GPL-2.0
//
// The agent of a lab machine: runs commands for the host, many at a time, over one port.
#pragma once

#include <string>

namespace lab {

// Opens the virtio-serial port called port_name; -1 with errno if there is none.
int open_port();

// Opens the first serial line, for bytes as they are; -1 with errno.
int open_serial_port();

// Runs a shell script, its output to the console; its exit status.
int run_and_wait(const std::string& script);

// Serves the host until the port fails; `serial`: the port is a serial line.
void serve(int port, bool serial);

} // namespace lab
