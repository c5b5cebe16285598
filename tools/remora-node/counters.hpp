// SPDX-License-Identifier: GPL-2.0
// Counters of messages, under the names that the kernel's node uses, too.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "node/core.hpp"

namespace remora::daemon {

// Counters of the core's enums come first: verdicts, reasons, types.
// Plain numbers, since they are added to.
inline constexpr unsigned count_wire = 0; // + enum rmem_wire_verdict
inline constexpr unsigned count_reason = count_wire + RMEM_WIRE_VERDICTS; // + enum rmem_node_reason
inline constexpr unsigned count_type = count_reason + RMEM_NODE_REASONS;  // + rmem_type - RMEM_OPEN
inline constexpr unsigned count_read_bytes = count_type + RMEM_TYPE_END - RMEM_OPEN;
inline constexpr unsigned count_write_bytes = count_read_bytes + 1;
inline constexpr unsigned count_answers = count_write_bytes + 1; // datagrams the network took
inline constexpr unsigned count_scrubbed = count_answers + 1;    // pages zeroed
inline constexpr unsigned count_drop_space = count_scrubbed + 1;
inline constexpr unsigned count_drop_xmit = count_drop_space + 1;
inline constexpr unsigned count_drop_queue_full = count_drop_xmit + 1;   // slow path's
inline constexpr unsigned count_ring_closed = count_drop_queue_full + 1; // for a broken rule
inline constexpr unsigned counts = count_ring_closed + 1;

// One thread writes, any can read.
class Counters {
public:
    void add(unsigned which, std::uint64_t value = 1) {
        std::atomic<std::uint64_t>& count = count_[which];
        count.store(count.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
    }
    std::uint64_t get(unsigned which) const {
        return count_[which].load(std::memory_order_relaxed);
    }

private:
    std::array<std::atomic<std::uint64_t>, counts> count_{};
};

const char* count_name(unsigned which);

} // namespace remora::daemon
