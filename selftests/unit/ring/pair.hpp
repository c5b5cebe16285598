// SPDX-License-Identifier: GPL-2.0
// One ring, its writer and its reader, in memory that both have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

extern "C" {
#include "core/ring/ring.h"
}

namespace remora::test {

struct RingPairRig {
    explicit RingPairRig(std::uint32_t entries, std::uint32_t entry_bytes = RING_LINE_BYTES,
                         std::uint32_t first = 0)
        : lines(std::size_t{entries} * entry_bytes / RING_LINE_BYTES) {
        ring_out_init(&out, lines.data(), entries, entry_bytes, &credit);
        ring_in_init(&in, lines.data(), entries, entry_bytes, &credit);
        out.posted = out.freed = in.taken = in.told = in.signalled = first;
        credit = pointer = base_swap_le32(first);
    }
    // False: no room.
    bool write(std::span<const std::uint8_t> record) {
        if (!ring_out_room(&out) && (ring_out_learn(&out) || !ring_out_room(&out)))
            return false;
        std::copy(record.begin(), record.end(), ring_out_record(&out));
        ring_out_post(&out, static_cast<std::uint32_t>(record.size()));
        return true;
    }
    void signal() { ring_out_signal(&out, &pointer); }
    // Empty and fault RING_OK: there is none.
    std::vector<std::uint8_t> read() {
        std::uint32_t bytes;
        const std::uint8_t* record = ring_in_record(&in, &bytes, &fault);
        if (!record)
            return {};
        std::vector<std::uint8_t> found(record, record + bytes);
        ring_in_take(&in);
        ring_in_tell(&in);
        return found;
    }
    std::uint64_t& word(std::uint32_t number) {
        return *reinterpret_cast<std::uint64_t*>(
            ring_entry(in.entries, in.mask, in.entry_bytes, number));
    }

    struct alignas(RING_LINE_BYTES) Line {
        std::uint8_t bytes[RING_LINE_BYTES] = {};
    };
    std::vector<Line> lines;
    std::uint32_t credit = 0, pointer = 0;
    ring_out out;
    ring_in in;
    ring_fault fault = RING_OK;
};

} // namespace remora::test
