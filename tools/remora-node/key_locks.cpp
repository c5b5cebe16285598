// SPDX-License-Identifier: GPL-2.0
#include "remora-node/key_locks.hpp"

#include <algorithm>
#include <cerrno>

namespace remora::daemon {

int KeyLocks::lock(rmem_call* call, std::uint64_t key) {
    std::vector<std::uint64_t>& keys = keys_[call];
    const auto asked = std::ranges::find(keys, key);
    if (asked == keys.end()) {
        if (!keys.empty() && keys.back() > key)
            return -EDEADLK;
        if (keys.size() == RMEM_KEYS_MAX)
            return -ENOSPC;
    }
    std::deque<rmem_call*>& calls = locks_[{call->offload, key}];
    if (asked == keys.end()) {
        keys.push_back(key);
        calls.push_back(call);
    }
    return calls.front() == call ? 0 : -EAGAIN;
}

void KeyLocks::release(rmem_call* call, const std::function<void(rmem_call*)>& granted) {
    const auto found = keys_.find(call);
    if (found == keys_.end())
        return;
    for (std::uint64_t key : found->second) {
        const auto lock = locks_.find({call->offload, key});
        std::deque<rmem_call*>& calls = lock->second;
        const bool had = calls.front() == call;
        std::erase(calls, call);
        if (calls.empty())
            locks_.erase(lock);
        else if (had)
            granted(calls.front());
    }
    keys_.erase(found);
}

} // namespace remora::daemon
