// SPDX-License-Identifier: MIT
#include "src/share.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <vector>

namespace remora::lib {

namespace {

// More than a socket may buffer isn't asked for. The kernel grants twice what it says, for its own
// needs.
std::uint64_t incast_bytes() {
    static constexpr std::uint32_t least = RMEM_IWND_ROOM_BYTES;
    static constexpr std::uint32_t most = RMEM_IWND_BYTES;
    std::uint64_t room = most;
    std::ifstream("/proc/sys/net/core/rmem_max") >> room;
    return std::clamp<std::uint64_t>(room, least, most);
}

struct Registry {
    Registry() { rmem_incast_init(&incast, incast_bytes()); }

    std::mutex nodes_lock;
    std::map<std::string, std::weak_ptr<NodeShare>> nodes;
    std::shared_mutex waiters_lock; // before any Pumped's own
    std::array<std::vector<Pumped*>, RMEM_WAITERS> waiters;
    std::uint8_t next = 0;
    rmem_incast incast;
};

// Never destroyed: handles may outlive main().
Registry& registry() {
    static Registry& registry = *new Registry;
    return registry;
}

} // namespace

Pumped::Pumped() {
    std::unique_lock lock(registry().waiters_lock);
    waiter_ = registry().next++ % RMEM_WAITERS;
}

void Pumped::join() {
    std::unique_lock lock(registry().waiters_lock);
    registry().waiters[waiter_].push_back(this);
}

void Pumped::leave() {
    std::unique_lock lock(registry().waiters_lock);
    std::erase(registry().waiters[waiter_], this);
}

std::shared_ptr<NodeShare> node_share(const std::string& address) {
    std::lock_guard lock(registry().nodes_lock);
    std::weak_ptr<NodeShare>& known = registry().nodes[address];
    std::shared_ptr<NodeShare> share = known.lock();
    if (!share)
        known = share = std::make_shared<NodeShare>();
    return share;
}

rmem_incast& incast() {
    return registry().incast;
}

void pump_waiters(std::uint64_t waiters) {
    std::shared_lock lock(registry().waiters_lock);
    for (; waiters; waiters &= waiters - 1) {
        for (Pumped* each : registry().waiters[static_cast<unsigned>(__builtin_ctzll(waiters))])
            each->pump();
    }
}

} // namespace remora::lib
