// SPDX-License-Identifier: GPL-2.0
#pragma once

#include <cstring>

#include <pthread.h>
#include <sched.h>

#include "support/failure.hpp"

namespace remora::bench {

// The calling thread, and those that it creates.
inline void run_on(unsigned processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    if (int error = pthread_setaffinity_np(pthread_self(), sizeof(set), &set))
        throw Failure("no thread can run on processor {}: {}", processor, std::strerror(error));
}

} // namespace remora::bench
