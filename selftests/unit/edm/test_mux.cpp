// SPDX-License-Identifier: GPL-2.0
// Frames and memory on one link: waiting times, shares, idle blocks, reassembly.
#include <deque>
#include <functional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "core.hpp"

namespace edm {

namespace {

const edm_line line = {EDM_PROFILE_TYPES, true};

// A link with a backlog of frames and of messages in front of it.
struct Link {
    explicit Link(bool strict, uint32_t frame_blocks_max = 200)
        : data(600), frame(frame_blocks_max) {
        base_crc32c_setup();
        edm_mux_init(&mux, strict);
        edm_demux_init(&demux, &line, data.data(), data.size(), small, frame.data(), frame.size());
    }

    void add_message(uint8_t id, uint16_t bytes) {
        edm_block_head head{};
        head.kind = EDM_RRES;
        head.id = id;
        head.size = bytes;
        std::vector<uint8_t> content(bytes, id);
        edm_block_writer writer;
        edm_block block;
        edm_block_begin(&line, &writer, &head, content.data());
        while (edm_block_write(&line, &writer, &block))
            memory.push_back(block);
    }

    // A frame whose data blocks tell its number and their place.
    void add_frame(uint32_t number, uint32_t data_blocks) {
        frames.push_back({EDM_TYPE_START | static_cast<uint64_t>(number) << 8, EDM_SYNC_CONTROL});
        for (uint32_t n = 0; n < data_blocks; n++)
            frames.push_back({static_cast<uint64_t>(number) << 32 | n, EDM_SYNC_DATA});
        frames.push_back({0x87 | static_cast<uint64_t>(number) << 8, EDM_SYNC_CONTROL});
    }

    // A block's time: the MAC fills the buffer, a block leaves and arrives.
    edm_mux_source step() {
        while (!frames.empty() && edm_mux_has_room(&mux)) {
            edm_mux_frame(&mux, &frames.front());
            frames.pop_front();
        }
        EXPECT_LE(mux.count, EDM_MUX_BLOCKS);
        uint64_t field = 0;
        const edm_block* next = memory.empty() ? nullptr : &memory.front();
        const edm_block_kind kind = next ? edm_block_kind_of(&line, next, &field) : EDM_BLOCK_IDLE;
        edm_block block;
        const edm_mux_source source = edm_mux_send(&mux, next, kind, &block);
        if (source == EDM_MUX_MEMORY)
            memory.pop_front();
        receive(damage(block));
        return source;
    }

    void receive(const edm_block& block) {
        switch (edm_mux_receive(&demux, &block)) {
        case EDM_DEMUX_MESSAGE:
            messages.push_back(demux.reader.head.id);
            break;
        case EDM_DEMUX_FRAME:
            check_frame();
            break;
        case EDM_DEMUX_N:
            notes++;
            break;
        default:
            break;
        }
    }

    void check_frame() {
        const uint64_t number = frame[0].payload >> 8;
        arrived.push_back(number);
        EXPECT_EQ(static_cast<uint8_t>(frame[0].payload), EDM_TYPE_START);
        for (uint32_t n = 1; n + 1 < demux.frame_count; n++)
            EXPECT_EQ(frame[n].payload, number << 32 | (n - 1));
        EXPECT_TRUE(edm_block_is_end(&frame[demux.frame_count - 1]));
    }

    edm_mux mux;
    edm_demux demux;
    std::vector<uint8_t> data;
    std::vector<edm_block> frame;
    uint8_t small[2];
    std::deque<edm_block> memory, frames;
    std::vector<uint64_t> messages, arrived;
    uint32_t notes = 0;
    std::function<edm_block(const edm_block&)> damage = [](const edm_block& b) { return b; };
};

TEST(EdmMux, StrictMemoryWaitsForOneBlockAtMost) {
    Link link(true);
    for (uint32_t n = 0; n < 20; n++)
        link.add_frame(n, 188);
    for (uint32_t n = 0; n < 100; n++) {
        for (uint32_t quiet = 0; quiet < 7; quiet++)
            EXPECT_EQ(link.step(), EDM_MUX_FRAME);
        link.add_message(n, 64);
        while (!link.memory.empty())
            EXPECT_EQ(link.step(), EDM_MUX_MEMORY);
    }
    EXPECT_EQ(link.messages.size(), 100u);
}

TEST(EdmMux, FairSharesAreEqualWhileBothWait) {
    for (uint16_t bytes : {8, 64, 256, 500}) {
        Link link(false);
        uint32_t sent[3] = {}, frames = 0;
        for (uint32_t n = 0; n < 20'000; n++) {
            if (link.memory.size() < 80)
                link.add_message(n, bytes);
            if (link.frames.size() < 8)
                link.add_frame(frames++, 20 + n % 160);
            sent[link.step()]++;
        }
        EXPECT_NEAR(sent[EDM_MUX_MEMORY] / 20'000.0, 0.5, 0.01) << bytes;
        EXPECT_NEAR(sent[EDM_MUX_FRAME] / 20'000.0, 0.5, 0.01) << bytes;
        EXPECT_GT(link.arrived.size(), 50u);
        EXPECT_EQ(link.demux.broken, 0u);
    }
}

TEST(EdmMux, SideThatWasAwayHasNoClaimToEarlierBlocks) {
    Link link(false);
    link.add_frame(0, 100);
    for (int n = 0; n < 50; n++)
        link.step();
    for (int n = 0; n < 20; n++)
        link.add_message(n, 64);
    uint32_t memory = 0;
    for (int n = 0; n < 42; n++)
        memory += link.step() == EDM_MUX_MEMORY;
    EXPECT_NEAR(memory, 21, 10) << "a message's length";
}

TEST(EdmMux, FramesArriveWholeAndInOrderBetweenMessages) {
    for (bool strict : {false, true}) {
        Link link(strict);
        std::mt19937 random(strict);
        uint32_t frames = 0, messages = 0;
        for (uint32_t n = 0; n < 50'000; n++) {
            if (random() % 40 == 0 && link.frames.size() < 400)
                link.add_frame(frames++, 7 + random() % 180);
            if (random() % 20 == 0)
                link.add_message(messages++, 1 + random() % 256);
            link.step();
        }
        while (!link.memory.empty() || !link.frames.empty() || link.mux.count)
            link.step();
        ASSERT_EQ(link.arrived.size(), frames);
        for (uint32_t n = 0; n < frames; n++)
            EXPECT_EQ(link.arrived[n], n);
        EXPECT_EQ(link.messages.size(), messages);
        EXPECT_EQ(link.demux.broken, 0u);
    }
}

TEST(EdmMux, IdleBlockLeavesOnceInFiveThousand) {
    Link link(true);
    uint32_t since = 0, idles = 0;
    for (uint32_t n = 0; n < 30'000; n++) {
        if (link.memory.size() < 80)
            link.add_message(n, 500);
        since = link.step() == EDM_MUX_IDLE ? 0 : since + 1;
        idles += !since;
        EXPECT_LT(since, static_cast<uint32_t>(EDM_IDLE_BLOCKS));
    }
    EXPECT_EQ(idles, 6u);
    EXPECT_EQ(link.demux.broken, 0u) << "idle within a message is no part of it";
}

TEST(EdmMux, NoteWithinAMessageAndAFrameIsReceived) {
    Link link(true);
    const edm_block_note note = {.destination = 1, .id = 2, .size = 3};
    link.add_frame(0, 5);
    link.step();
    link.memory.push_back(edm_block_note_write(&line, EDM_BLOCK_N, &note));
    link.step();
    link.add_message(1, 64);
    link.memory.insert(link.memory.begin() + 4, edm_block_note_write(&line, EDM_BLOCK_N, &note));
    while (!link.memory.empty() || link.mux.count || !link.frames.empty())
        link.step();
    EXPECT_EQ(link.notes, 2u);
    EXPECT_EQ(link.messages.size(), 1u);
    EXPECT_EQ(link.arrived.size(), 1u);
}

TEST(EdmMux, LostEndOfAMessageCostsNoFrameBehindIt) {
    Link link(true);
    link.add_message(1, 64);
    link.damage = [](const edm_block& b) {
        return b.sync == EDM_SYNC_CONTROL && static_cast<uint8_t>(b.payload) == EDM_TYPE_MT
                   ? edm_block{b.payload, 0}
                   : b;
    };
    while (!link.memory.empty())
        link.step();
    link.add_frame(7, 20);
    while (!link.frames.empty() || link.mux.count)
        link.step();
    EXPECT_EQ(link.demux.invalid, 1u);
    EXPECT_EQ(link.demux.broken, 1u);
    EXPECT_EQ(link.arrived, (std::vector<uint64_t>{7}));
}

TEST(EdmMux, FrameLongerThanTheBufferIsDroppedAndTheNextArrives) {
    Link link(true, 50);
    link.add_frame(1, 60);
    link.add_frame(2, 20);
    while (!link.frames.empty() || link.mux.count)
        link.step();
    EXPECT_EQ(link.arrived, (std::vector<uint64_t>{2}));
    EXPECT_GE(link.demux.broken, 1u);
}

TEST(EdmMux, RandomDamageNeverYieldsAWrongFrame) {
    Link link(false);
    std::mt19937_64 random(5);
    link.damage = [&](edm_block b) {
        if (random() % 50 == 0)
            b.sync ^= 1 + random() % 3;
        return b;
    };
    uint32_t frames = 0;
    for (uint32_t n = 0; n < 50'000; n++) {
        if (link.memory.size() < 40)
            link.add_message(n, 64);
        if (link.frames.size() < 8)
            link.add_frame(frames++, 10);
        link.step();
    }
    EXPECT_GT(link.demux.invalid, 100u);
    EXPECT_GT(link.messages.size(), 500u);
    EXPECT_GT(link.arrived.size(), 500u);
}

} // namespace

} // namespace edm
