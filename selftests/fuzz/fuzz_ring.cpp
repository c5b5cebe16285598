// SPDX-License-Identifier: GPL-2.0
// A hostile other end of a pair of rings: it writes anything into the shared memory while this end
// goes about its work.
//
// Input: entries (1 byte), then a script. A step is a byte: which call, or what the other end
// writes, where (1 byte), and what (8 bytes).
#include <cstdlib>
#include <cstring>
#include <vector>

#include "script.hpp"

extern "C" {
#include "core/ring/ring.h"
}

namespace {

constexpr uint32_t entry_bytes = 2 * RING_LINE_BYTES;

// Memory that the other end may write; exact in size, so that ASan notices what lies beyond it.
struct Shared {
    explicit Shared(uint32_t entries)
        : words(static_cast<uint64_t*>(
              std::aligned_alloc(RING_LINE_BYTES, static_cast<size_t>(entries) * entry_bytes))) {
        std::memset(words, 0, static_cast<size_t>(entries) * entry_bytes);
    }
    ~Shared() { std::free(words); }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    uint64_t* words;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Script script(data, size);
    uint32_t entries = 2U << script.take(1) % 4;
    Shared request(entries), response(entries);
    uint32_t request_credit = 0, response_credit = 0, pointer = 0;
    ring_in in;
    ring_out out;
    ring_in_init(&in, request.words, entries, entry_bytes, &request_credit);
    ring_out_init(&out, response.words, entries, entry_bytes, &response_credit);
    size_t words = static_cast<size_t>(entries) * entry_bytes / 8;
    bool closed = false;
    while (!script.done() && !closed) {
        uint8_t step = static_cast<uint8_t>(script.take(1));
        uint32_t before = in.taken;
        switch (step % 8) {
        case 0: // the other end may overwrite entries of both rings
            request.words[script.take(1) % words] = script.take(8);
            break;
        case 1:
            response.words[script.take(1) % words] = script.take(8);
            break;
        case 2: // an entry that is valid
            request.words[(in.taken & in.mask) * (entry_bytes / 8)] =
                base_swap_le64(static_cast<uint64_t>(in.taken) << 32 | RING_VALID | script.take(1));
            break;
        case 3:
            pointer = static_cast<uint32_t>(script.take(4));
            break;
        case 4:
            response_credit = static_cast<uint32_t>(script.take(4));
            break;
        case 5:
            closed = ring_in_track(&in, &pointer);
            require(ring_in_waiting(&in) <= entries);
            break;
        case 6: {
            uint32_t bytes;
            ring_fault fault;
            const uint8_t* record = ring_in_record(&in, &bytes, &fault);
            closed = fault;
            require(!record || !fault);
            // The reader may look at the entry before the pointer word tells of it.
            bool ahead = step & 8;
            if (!record || !(ring_in_waiting(&in) || ahead))
                break;
            require(bytes <= entry_bytes - RING_HEAD_BYTES);
            std::vector<uint8_t> copy(record, record + bytes);
            ring_in_take(&in);
            require(in.taken == before + 1 && !ring_in_has_record(&in) == !*ring_in_word(&in));
            ring_in_tell(&in);
            require(base_swap_le32(request_credit) - in.told == 0);
            break;
        }
        case 7:
            closed = ring_out_learn(&out);
            require(ring_out_room(&out) <= entries);
            if (!ring_out_room(&out))
                break;
            uint32_t bytes = static_cast<uint32_t>(script.take(1)) % (ring_out_bytes_max(&out) + 1);
            std::memset(ring_out_record(&out), 0x5a, bytes);
            ring_out_post(&out, bytes);
            break;
        }
    }
    return 0;
}
