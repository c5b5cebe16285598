// SPDX-License-Identifier: MIT
/*
 * Buffers in which a call over the network sends and receives. They are empty between calls, so
 * each thread has them rather than each handle. A thread that uses a thousand handles in turn finds
 * them in the cache, and the handles don't take half a megabyte each.
 */
#pragma once

#include <mutex>

#include "src/transport/incoming.hpp"
#include "src/transport/outgoing.hpp"

namespace remora::lib {

struct Scratch {
    Incoming incoming;
    Outgoing outgoing;
};

// The calling thread's buffers, until the thread ends. Null: no memory for them now.
Scratch* own_scratch();

// Lends buffers to the calling thread, so that it allocates none. The caller must take them back,
// by null, before the thread ends and before it frees them.
void lend_scratch(Scratch* scratch);

// The calling thread's buffers, or, without memory, the reserve that such threads use in turn,
// locked while this object lives. Lock order: a handle's lock, then this.
class ScratchTurn {
public:
    ScratchTurn();
    Scratch* operator->() { return scratch_; }

private:
    std::unique_lock<std::mutex> turn_;
    Scratch* scratch_;
};

} // namespace remora::lib
