// SPDX-License-Identifier: MIT
/*
 * Calls of threads that found the handle's lock taken. The lock's holder starts all of them
 * together with its own work, so threads of a client share one connection and its datagrams (Flock;
 * Orca, HPCA'23, III-A). A thread that has left its call then waits for the lock itself, so no call
 * is left behind.
 */
#pragma once

#include <atomic>
#include <utility>

#include "src/op.hpp"

namespace remora::lib {

class LeftCalls {
public:
    // Without the lock.
    void add(Call& call) {
        call.next_left = last_.load(std::memory_order_relaxed);
        // Pairs with take(): the call.
        while (!last_.compare_exchange_weak(call.next_left, &call, std::memory_order_release,
                                            std::memory_order_relaxed)) {
        }
    }
    // With the lock: all of them by next_left, in the order in which they were added.
    Call* take() {
        if (!last_.load(std::memory_order_relaxed))
            return nullptr;
        Call* last = last_.exchange(nullptr, std::memory_order_acquire);
        Call* first = nullptr;
        while (last) {
            Call* before = std::exchange(last->next_left, first);
            first = std::exchange(last, before);
        }
        return first;
    }

private:
    std::atomic<Call*> last_{nullptr}; // each leads to the one before
};

} // namespace remora::lib
