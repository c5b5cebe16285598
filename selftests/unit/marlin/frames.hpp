// SPDX-License-Identifier: GPL-2.0
// A ring of frames, its writer and its reader, in memory that both have.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

extern "C" {
#include "core/marlin/frames.h"
}

namespace remora::test {

using Frame = std::vector<std::uint8_t>;

struct FramesRig {
    explicit FramesRig(std::uint32_t ring_bytes = MARLIN_RING_BYTES_MIN, std::uint32_t first = 0)
        : lines(ring_bytes / MARLIN_LINE_BYTES) {
        frames_out_init(&out, lines.data(), ring_bytes, &tail);
        frames_in_init(&in, lines.data(), ring_bytes, &tail);
        out.head = out.freed = in.taken = in.told = first;
        tail = base_swap_le32(first);
    }
    // False: no room.
    bool write(std::span<const std::uint8_t> frame) {
        auto bytes = static_cast<std::uint32_t>(frame.size());
        if (!frames_out_fits(&out, bytes) &&
            (frames_out_learn(&out) || !frames_out_fits(&out, bytes)))
            return false;
        frames_span span = frames_out_span(&out, bytes);
        std::memcpy(span.at[0], frame.data(), span.bytes[0]);
        std::memcpy(span.at[1], frame.data() + span.bytes[0], span.bytes[1]);
        frames_out_offload(&out)->flags = static_cast<std::uint8_t>(bytes);
        frames_out_close(&out, bytes);
        frames_out_post(&out, bytes);
        return true;
    }
    // Empty and fault FRAMES_OK: there is none.
    Frame read(bool tell = false) {
        std::uint32_t bytes = frames_in_record(&in, &fault);
        if (!bytes)
            return {};
        frames_span span = frames_in_span(&in, bytes);
        Frame frame(bytes);
        std::memcpy(frame.data(), span.at[0], span.bytes[0]);
        std::memcpy(frame.data() + span.bytes[0], span.at[1], span.bytes[1]);
        flags = frames_in_offload(&in)->flags;
        frames_in_take(&in, bytes);
        frames_in_tell(&in, tell);
        return frame;
    }
    // The word of the record at a position.
    std::uint64_t& word(std::uint32_t position) {
        return *reinterpret_cast<std::uint64_t*>(in.ring + (position & in.mask));
    }

    struct alignas(MARLIN_LINE_BYTES) Line {
        std::uint8_t bytes[MARLIN_LINE_BYTES] = {};
    };
    std::vector<Line> lines;
    std::uint32_t tail = 0;
    frames_out out;
    frames_in in;
    frames_fault fault = FRAMES_OK;
    std::uint8_t flags = 0;
};

} // namespace remora::test
