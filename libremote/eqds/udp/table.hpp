// SPDX-License-Identifier: MIT
// Descriptors of this process that are UDP sockets of the layer.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace eqds_udp {

// The state of a socket that its process needs; eqds-run has the rest. Packed into one word, so
// that threads read it without a lock.
struct Slot {
    std::uint32_t id; // 0: no socket of the layer
    bool v6, connected;
};

class Table {
public:
    Slot get(int fd) const {
        std::uint64_t word = in(fd) ? slots_[static_cast<std::size_t>(fd)].load() : 0;
        return {static_cast<std::uint32_t>(word >> 2), (word & 2) != 0, (word & 1) != 0};
    }

    // False: the descriptor's number is beyond the table.
    bool set(int fd, Slot slot) {
        if (!in(fd))
            return false;
        slots_[static_cast<std::size_t>(fd)].store(static_cast<std::uint64_t>(slot.id) << 2 |
                                                   std::uint64_t{slot.v6} << 1 |
                                                   std::uint64_t{slot.connected});
        return true;
    }

    void clear(int fd) { set(fd, {}); }

    // The same socket by another number.
    void copy(int from, int to) { set(to, get(from)); }

    static constexpr int size = 65536;

private:
    static bool in(int fd) { return fd >= 0 && fd < size; }

    std::array<std::atomic<std::uint64_t>, size> slots_{};
};

} // namespace eqds_udp
