// SPDX-License-Identifier: MIT
// The program's ends of the rings that it shares with the kernel (uapi/remora_eqds_native.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "uapi/remora_eqds_native.h"

namespace libeqds {

inline std::uint32_t load(const __u32& word) {
    return std::atomic_ref<__u32>(const_cast<__u32&>(word)).load(std::memory_order_acquire);
}

inline void store(__u32& word, std::uint32_t value) {
    std::atomic_ref<__u32>(word).store(value, std::memory_order_release);
}

// Writes entries: fill, tx.
template <typename Entry>
class Producer {
public:
    // entries: of a power of two, count.
    void attach(eqds_native_ring* ring, Entry* entries, std::uint32_t count) {
        ring_ = ring;
        entries_ = entries;
        count_ = count;
    }

    std::uint32_t room() const { return count_ - (produced_ - load(ring_->consumed)); }

    // The caller has asked for room.
    void push(const Entry& entry) { entries_[produced_++ & (count_ - 1)] = entry; }

    // The kernel can read the pushed entries from here on.
    void publish() { store(ring_->produced, produced_); }

private:
    eqds_native_ring* ring_ = nullptr;
    Entry* entries_ = nullptr;
    std::uint32_t count_ = 0, produced_ = 0;
};

// Reads entries: rx, completion.
template <typename Entry>
class Consumer {
public:
    void attach(eqds_native_ring* ring, const Entry* entries, std::uint32_t count) {
        ring_ = ring;
        entries_ = entries;
        count_ = count;
    }

    bool empty() const { return load(ring_->produced) == consumed_; }

    // False: there is none.
    bool pop(Entry* entry) {
        if (empty())
            return false;
        *entry = entries_[consumed_++ & (count_ - 1)];
        return true;
    }

    // The places of popped entries are the kernel's again.
    void publish() { store(ring_->consumed, consumed_); }

private:
    eqds_native_ring* ring_ = nullptr;
    const Entry* entries_ = nullptr;
    std::uint32_t count_ = 0, consumed_ = 0;
};

} // namespace libeqds
