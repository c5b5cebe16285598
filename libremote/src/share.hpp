// SPDX-License-Identifier: MIT
/*
 * What the handles of a process share: a congestion window for each node, a window of bytes asked
 * for, and who waits for either (core/rmem/window.h).
 */
#pragma once

#include <cstdint>
#include <memory>
#include <string>

extern "C" {
#include "core/rmem/window.h"
}

namespace remora::lib {

// Somebody who may wait for credit.
class Pumped {
public:
    virtual void pump() = 0;

protected:
    Pumped();
    ~Pumped() = default;
    // pump() may come from join() on until leave() has returned.
    void join();
    void leave();
    std::uint8_t waiter() const { return waiter_; }

private:
    std::uint8_t waiter_;
};

// One node's.
struct NodeShare {
    NodeShare() { rmem_window_init(&window); }
    rmem_window window;
};

// The one of the node at this address; it exists as long as somebody has it.
std::shared_ptr<NodeShare> node_share(const std::string& address);

// The process's.
rmem_incast& incast();

// Lets those go on whose bits are set. No lock of a Pumped is held.
void pump_waiters(std::uint64_t waiters);

} // namespace remora::lib
