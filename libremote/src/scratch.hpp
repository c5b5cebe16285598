// SPDX-License-Identifier: MIT
/*
 * What a call over the network sends from and receives into. Between calls it's empty, so threads
 * have one each rather than handles: who uses a thousand handles by turns finds it in the cache,
 * and they don't take half a megabyte each.
 */
#pragma once

#include <mutex>

#include "src/incoming.hpp"
#include "src/outgoing.hpp"

namespace remora::lib {

struct Scratch {
    Incoming incoming;
    Outgoing outgoing;
};

// The calling thread's, until the thread ends. Null: there is no memory for it now.
Scratch* own_scratch();

// The calling thread's from now on, so that it allocates none; none again before it ends, and
// before what was lent is gone.
void lend_scratch(Scratch* scratch);

// The calling thread's; or, as long as this lives, the reserve, which those without share by turns.
// So of a handle's lock and this that lock comes first.
class ScratchTurn {
public:
    ScratchTurn();
    Scratch* operator->() { return scratch_; }

private:
    std::unique_lock<std::mutex> turn_;
    Scratch* scratch_;
};

} // namespace remora::lib
