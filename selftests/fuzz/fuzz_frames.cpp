// SPDX-License-Identifier: GPL-2.0
// A hostile other end of a pair of rings of frames: it writes anything into the shared memory while
// this end goes about its work.
//
// Input: a script. A step is a byte: which call, or what the other end writes, where (4 bytes), and
// what (8 bytes).
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "script.hpp"

extern "C" {
#include "core/marlin/frames.h"
}

namespace {

constexpr uint32_t ring_bytes = MARLIN_RING_BYTES_MIN;
constexpr uint32_t words = ring_bytes / 8;

// Memory that the other end may write; exact in size, so that ASan notices what lies beyond it.
struct Shared {
    Shared() : words(static_cast<uint64_t*>(std::aligned_alloc(MARLIN_LINE_BYTES, ring_bytes))) {}
    ~Shared() { std::free(words); }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    void clear() { std::memset(words, 0, ring_bytes); }
    uint64_t* words;
};

void copy_out(const frames_in& in, uint32_t bytes) {
    frames_span span = frames_in_span(&in, bytes);
    require(span.bytes[0] + span.bytes[1] == bytes);
    static std::vector<uint8_t> copy(MARLIN_FRAME_BYTES_MAX);
    std::memcpy(copy.data(), span.at[0], span.bytes[0]);
    std::memcpy(copy.data() + span.bytes[0], span.at[1], span.bytes[1]);
}

void write(frames_out& out, uint32_t bytes) {
    frames_span span = frames_out_span(&out, bytes);
    std::memset(span.at[0], 0x5a, span.bytes[0]);
    std::memset(span.at[1], 0x5a, span.bytes[1]);
    std::memset(frames_out_offload(&out), 0, sizeof(marlin_offload));
    frames_out_close(&out, bytes);
    frames_out_post(&out, bytes);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Script script(data, size);
    // Allocated once: page faults would take most of the time.
    static Shared ours, theirs;
    ours.clear();
    theirs.clear();
    uint32_t tail = 0, their_tail = 0;
    frames_in in;
    frames_out out;
    frames_in_init(&in, ours.words, ring_bytes, &their_tail);
    frames_out_init(&out, theirs.words, ring_bytes, &tail);
    // Near the rings' end, where records are in two pieces, and the positions wrap.
    if (script.take(1) % 2)
        out.head = out.freed = tail = in.taken = in.told = their_tail = 0U - 4 * MARLIN_LINE_BYTES;
    bool ended = false;
    while (!script.done() && !ended) {
        switch (script.take(1) % 6) {
        case 0: // anything, into either ring
            (script.take(1) % 2 ? ours : theirs).words[script.take(4) % words] = script.take(8);
            break;
        case 1: // a record that is valid
            ours.words[(in.taken & in.mask) / 8] = base_swap_le64(
                static_cast<uint64_t>(in.taken) << 32 | MARLIN_VALID | script.take(3));
            break;
        case 2:
            tail = static_cast<uint32_t>(script.take(4));
            break;
        case 3: {
            frames_fault fault;
            uint32_t before = in.taken;
            uint32_t bytes = frames_in_record(&in, &fault);
            ended = fault;
            require(!bytes || !fault);
            if (!bytes)
                break;
            copy_out(in, bytes);
            frames_in_take(&in, bytes);
            require(in.taken - before <= ring_bytes - MARLIN_LINE_BYTES);
            if (frames_in_tell(&in, script.take(1) % 2))
                require(base_swap_le32(their_tail) == in.taken);
            break;
        }
        case 4:
            ended = frames_out_learn(&out);
            require(out.head - out.freed <= ring_bytes - MARLIN_LINE_BYTES);
            break;
        case 5: {
            uint32_t bytes = static_cast<uint32_t>(
                MARLIN_FRAME_BYTES_MIN +
                script.take(3) % (MARLIN_FRAME_BYTES_MAX - MARLIN_FRAME_BYTES_MIN + 1));
            if (frames_out_fits(&out, bytes))
                write(out, bytes);
            require(out.head - out.freed <= ring_bytes - MARLIN_LINE_BYTES);
            break;
        }
        }
    }
    return 0;
}
