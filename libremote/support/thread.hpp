// SPDX-License-Identifier: MIT
#pragma once

#include <csignal>
#include <thread>
#include <utility>

#include <pthread.h>

namespace remora {

// A thread on which no signal handler of the program runs.
template <typename Fn>
std::thread thread_without_signals(Fn fn) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread thread(std::move(fn));
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return thread;
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
}

} // namespace remora
