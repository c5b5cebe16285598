// SPDX-License-Identifier: MIT
// Functions that fork() calls.
#pragma once

#include <new>

#include <pthread.h>

namespace remora {

// For a static object, which makes them known once. Its initialisation throws std::bad_alloc if
// there is no memory; the next caller then tries again.
struct AtFork {
    AtFork(void (*before)(), void (*in_parent)(), void (*in_child)()) {
        if (pthread_atfork(before, in_parent, in_child))
            throw std::bad_alloc();
    }
};

} // namespace remora
