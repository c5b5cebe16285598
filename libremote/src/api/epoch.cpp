// SPDX-License-Identifier: MIT
#include "src/api/epoch.hpp"

namespace remora::lib {

std::unique_ptr<Steps> Epoch::steps_of(const remote_op& op) {
    switch (op.kind) {
    case REMOTE_OP_ALLOC:
        return heap.allocating(op.bytes, op.change, op.address);
    case REMOTE_OP_FREE:
        return heap.freeing(op.address);
    case REMOTE_OP_LOCK:
        return locks.taking(op.address);
    case REMOTE_OP_UNLOCK:
        return locks.giving(op.address);
    default:
        return nullptr;
    }
}

} // namespace remora::lib
