// SPDX-License-Identifier: GPL-2.0
// Tells systemd the daemon's state, as sd_notify(3) does: a unit of Type=notify is started once it
// hears READY=1.
#pragma once

#include <string_view>

namespace remora::daemon {

// state: "READY=1", and lines more. Does nothing for a daemon that systemd hasn't started. Never
// throws nor waits: a supervisor that is gone is no reason to end.
void notify(std::string_view state) noexcept;

} // namespace remora::daemon
