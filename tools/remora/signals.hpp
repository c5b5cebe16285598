// SPDX-License-Identifier: GPL-2.0
// For commands that must undo their work: SIGINT, SIGTERM and SIGHUP are recorded, and don't end
// them.
#pragma once

namespace remora {

// The signal that came, 0 if none did.
extern volatile int signalled;

// Records signals from now on; they interrupt system calls. flags: of sigaction(2).
void catch_signals(int flags = 0);

} // namespace remora
