// SPDX-License-Identifier: GPL-2.0
// The locks of rmem_key_lock(): of keys, among the calls of one offload.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

extern "C" {
#include "core/rmem/offload/run.h"
}

namespace remora::daemon {

// The caller serialises calls.
class KeyLocks {
public:
    // 0: the call has the lock, until release(); -EAGAIN: it waits for it; or another error of
    // rmem_key_lock().
    int lock(rmem_call* call, std::uint64_t key);
    // The call has ended. granted: of each call that waited for a lock and has it now.
    void release(rmem_call* call, const std::function<void(rmem_call*)>& granted);

private:
    using Key = std::pair<const rmem_run_offload*, std::uint64_t>;

    // The first call has the lock, the others wait for it in this order.
    std::map<Key, std::deque<rmem_call*>> locks_;
    std::map<rmem_call*, std::vector<std::uint64_t>> keys_; // a call can wait for its last one
};

} // namespace remora::daemon
