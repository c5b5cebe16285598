// SPDX-License-Identifier: GPL-2.0
// EDM's blocks. Any blocks into a receiver: its memory is not exceeded, a frame has START, data and
// END alone, and what it reads encodes to the same blocks. A message of any content: it is read as
// it was written, through the scrambler and by pieces between frames.
//
// Input: profile (bit 0), checked (bit 1), mode (bit 2); then blocks of 9 bytes, or a head and
// data.
#include "script.hpp"

#include <vector>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "core/base/crc32c.h"
#include "core/edm/mux.h"
}
#pragma GCC diagnostic pop

namespace {

constexpr uint32_t data_max = 256, frame_max = 12;

// Exactly as large as the core was told, so that ASan sees what lies beyond.
struct Receiver {
    explicit Receiver(const edm_line& line) : data(data_max), small(2), frame(frame_max) {
        edm_demux_init(&demux, &line, data.data(), data_max, small.data(), frame.data(), frame_max);
    }
    edm_demux demux;
    std::vector<uint8_t> data, small;
    std::vector<edm_block> frame;
};

std::vector<edm_block> blocks_of(const edm_line& line, const edm_block_head& head,
                                 const uint8_t* data) {
    edm_block_writer writer;
    std::vector<edm_block> blocks;
    edm_block block;
    edm_block_begin(&line, &writer, &head, data);
    while (edm_block_write(&line, &writer, &block))
        blocks.push_back(block);
    require(blocks.size() == edm_block_count(&line, &head));
    return blocks;
}

void check_frame(const edm_demux& demux) {
    require(demux.frame_count >= 2 && demux.frame_count <= frame_max);
    require(demux.frame[0].sync == EDM_SYNC_CONTROL &&
            static_cast<uint8_t>(demux.frame[0].payload) == EDM_TYPE_START);
    for (uint32_t n = 1; n + 1 < demux.frame_count; n++)
        require(demux.frame[n].sync == EDM_SYNC_DATA);
    require(edm_block_is_end(&demux.frame[demux.frame_count - 1]));
}

void any_blocks(const edm_line& line, Script& in) {
    Receiver to(line);
    std::vector<edm_block> message; // since MS, without what may stand between
    while (!in.done()) {
        const edm_block block = {in.take(8), static_cast<uint8_t>(in.take(1) & 3)};
        uint64_t field = 0;
        const edm_block_kind kind = edm_block_kind_of(&line, &block, &field);
        if (kind == EDM_BLOCK_MS)
            message.clear();
        if (kind == EDM_BLOCK_MS || kind == EDM_BLOCK_MT || kind == EDM_BLOCK_DATA)
            message.push_back(block);
        switch (edm_mux_receive(&to.demux, &block)) {
        case EDM_DEMUX_FRAME:
            check_frame(to.demux);
            break;
        case EDM_DEMUX_N:
        case EDM_DEMUX_G: {
            const edm_block again = edm_block_note_write(&line, kind, &to.demux.note);
            require(again.payload == block.payload);
            break;
        }
        case EDM_DEMUX_SMALL: {
            const auto again = blocks_of(line, to.demux.small.head, to.small.data());
            require(again.size() == 1 && again[0].payload == block.payload);
            break;
        }
        case EDM_DEMUX_MESSAGE: {
            const auto again = blocks_of(line, to.demux.reader.head, to.data.data());
            require(again.size() == message.size());
            for (size_t n = 0; n < again.size(); n++)
                require(again[n].payload == message[n].payload);
            break;
        }
        default:
            break;
        }
    }
}

void one_message(const edm_line& line, Script& in) {
    edm_block_head head{};
    head.kind = in.take(1) % 4;
    head.id = in.take(1);
    head.destination = in.take(2) % 512;
    head.size = 1 + in.take(1);
    head.address = head.kind == EDM_RRES ? 0 : in.take(8);
    head.opcode = head.kind == EDM_RMWREQ ? in.take(1) : 0;
    edm_scrambler out = {in.take(8)}, back = {out.history};
    const uint32_t preempted = in.take(1) % 16;
    std::vector<uint8_t> data(edm_block_data_bytes(&head));
    for (uint8_t& byte : data)
        byte = in.take(1);
    Receiver to(line);
    const edm_block start = {EDM_TYPE_START, EDM_SYNC_CONTROL}, end = {0x87, EDM_SYNC_CONTROL};
    uint32_t at = 0, messages = 0, frames = 0;
    auto pass = [&](edm_block block) {
        block.payload = edm_block_descramble(&back, edm_block_scramble(&out, block.payload));
        const edm_demux_event event = edm_mux_receive(&to.demux, &block);
        messages += event == EDM_DEMUX_MESSAGE || event == EDM_DEMUX_SMALL;
        frames += event == EDM_DEMUX_FRAME;
        if (event == EDM_DEMUX_MESSAGE)
            require(std::equal(data.begin(), data.end(), to.data.begin()) &&
                    to.demux.reader.head.address == head.address &&
                    to.demux.reader.head.opcode == head.opcode);
    };
    pass(start);
    for (const edm_block& block : blocks_of(line, head, data.data())) {
        pass(block);
        if (at++ == preempted)
            pass(edm_block_idle());
    }
    pass(end);
    require(messages == 1 && frames == 1 && !to.demux.broken);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    base_crc32c_setup();
    Script in(data, size);
    const uint64_t mode = in.take(1);
    const edm_line line = {static_cast<uint8_t>(mode & 1 ? EDM_PROFILE_SETS : EDM_PROFILE_TYPES),
                           !!(mode & 2)};
    if (mode & 4)
        one_message(line, in);
    else
        any_blocks(line, in);
    return 0;
}
