// SPDX-License-Identifier: GPL-2.0
// Tells systemd the daemon's state, as sd_notify(3) does: a unit of Type=notify is started once it
// hears READY=1.
#pragma once

#include <string_view>

namespace remora::daemon {

// state: "READY=1", and lines more. Does nothing for a daemon that systemd hasn't started. Never
// throws nor waits: a supervisor that is gone is no reason to end. descriptor: that systemd is to
// store; below 0: none. False: nothing was sent.
bool notify(std::string_view state, int descriptor = -1) noexcept;

} // namespace remora::daemon
