// SPDX-License-Identifier: GPL-2.0
#include "remora/signals.hpp"

#include <csignal>
#include <initializer_list>

namespace remora {

volatile int signalled;
static_assert(sizeof(signalled) == sizeof(sig_atomic_t), "a handler may write it");

extern "C" void note_signal(int number) {
    signalled = number;
}

void catch_signals(int flags) {
    struct sigaction action {};
    action.sa_handler = note_signal;
    action.sa_flags = flags; // no SA_RESTART: the kernel's wait shall end
    for (int number : {SIGINT, SIGTERM, SIGHUP})
        sigaction(number, &action, nullptr);
}

} // namespace remora
