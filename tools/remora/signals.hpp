// SPDX-License-Identifier: GPL-2.0
// For commands that must undo what they began: SIGINT, SIGTERM and SIGHUP are noted, not obeyed.
#pragma once

namespace remora {

// The signal that came, 0 if none did.
extern volatile int signalled;

// From now on. System calls under way end by them.
void catch_signals();

} // namespace remora
