// SPDX-License-Identifier: GPL-2.0
#pragma once

#include <ctime>

#include <sys/types.h>

#include "support/failure.hpp"

namespace remora {

// Nanoseconds of processor time that the threads of a process have had, also those that ended.
// Throws Failure.
inline double process_cpu_ns(pid_t pid) {
    clockid_t clock;
    timespec ran;
    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &ran))
        throw Failure("there is no process {}: give the PID of one that runs", pid);
    return 1e9 * static_cast<double>(ran.tv_sec) + static_cast<double>(ran.tv_nsec);
}

} // namespace remora
