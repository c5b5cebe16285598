// SPDX-License-Identifier: GPL-2.0
// The ring of frames: frames whole and in order from every offset, room, and a hostile other end.
#include <gtest/gtest.h>

#include "frames.hpp"

namespace remora::test {

namespace {

constexpr std::uint32_t ring_bytes = MARLIN_RING_BYTES_MIN;
constexpr std::uint32_t line = MARLIN_LINE_BYTES;

Frame frame_of(std::uint32_t number, std::uint32_t bytes) {
    Frame frame(bytes);
    std::uint32_t state = number * 2654435761U + 1;
    for (std::uint8_t& byte : frame) {
        state = state * 1664525 + 1013904223;
        byte = static_cast<std::uint8_t>(state >> 24);
    }
    return frame;
}

// A frame whose every word reads as the valid word of a record at a position.
Frame forged(std::uint32_t bytes, std::uint32_t position) {
    Frame frame(bytes);
    std::uint64_t word = base_swap_le64(std::uint64_t{position} << 32 | MARLIN_VALID | 64);
    // The ring's words begin at multiples of 8, frames 2 bytes behind one.
    for (std::size_t at = 6; at + 8 <= bytes; at += 8)
        std::memcpy(&frame[at], &word, 8);
    return frame;
}

TEST(FramesRing, ShapesAreAsTheSpecificationAllows) {
    EXPECT_TRUE(frames_ring_is_valid(MARLIN_RING_BYTES_MIN));
    EXPECT_TRUE(frames_ring_is_valid(MARLIN_RING_BYTES_MAX));
    for (std::uint64_t wrong : {std::uint64_t{0}, std::uint64_t{MARLIN_RING_BYTES_MIN} / 2,
                                std::uint64_t{MARLIN_RING_BYTES_MIN} + 64,
                                std::uint64_t{MARLIN_RING_BYTES_MAX} * 2, std::uint64_t{1} << 32})
        EXPECT_FALSE(frames_ring_is_valid(wrong)) << wrong;
}

TEST(FramesRing, WindowGetsTheLargestRingThatFits) {
    EXPECT_EQ(frames_ring_bytes(0), 0U);
    EXPECT_EQ(frames_ring_bytes(MARLIN_RING_BYTES_MIN), 0U);
    const std::uint64_t others = MARLIN_RING_OFFSET + sizeof(marlin_messages);
    EXPECT_EQ(frames_ring_bytes(others + MARLIN_RING_BYTES_MIN - 1), 0U);
    EXPECT_EQ(frames_ring_bytes(others + MARLIN_RING_BYTES_MIN), MARLIN_RING_BYTES_MIN);
    EXPECT_EQ(frames_ring_bytes(1 << 20), 1U << 18);
    EXPECT_EQ(frames_ring_bytes(4 << 20), 1U << 21);
    EXPECT_EQ(frames_ring_bytes(std::uint64_t{1} << 40), MARLIN_RING_BYTES_MAX);
}

TEST(FramesRing, EveryFaultHasAName) {
    for (int fault = 0; fault < FRAMES_FAULTS; fault++)
        EXPECT_STRNE(frames_fault_name(static_cast<frames_fault>(fault)), "unknown");
    EXPECT_STREQ(frames_fault_name(FRAMES_FAULTS), "unknown");
}

TEST(FramesEnds, FramesArriveWholeFromEveryOffsetOfTheRing) {
    FramesRig rig(ring_bytes, 0U - ring_bytes); // and over the wrap of positions
    for (std::uint32_t number = 0; number < 3 * ring_bytes / line; number++) {
        Frame frame = frame_of(number, MARLIN_FRAME_BYTES_MIN + number % (2 * line));
        ASSERT_TRUE(rig.write(frame));
        ASSERT_EQ(rig.read(), frame) << number;
        ASSERT_EQ(rig.flags, static_cast<std::uint8_t>(frame.size()));
        ASSERT_TRUE(rig.read().empty());
        ASSERT_EQ(rig.fault, FRAMES_OK);
    }
}

TEST(FramesEnds, LargestFrameFitsAnEmptyRingAtEveryOffset) {
    Frame frame = frame_of(1, MARLIN_FRAME_BYTES_MAX);
    for (std::uint32_t first = 0; first < ring_bytes; first += line) {
        FramesRig rig(ring_bytes, first);
        ASSERT_TRUE(rig.write(frame));
        ASSERT_EQ(rig.read(), frame) << first;
    }
}

TEST(FramesEnds, FullRingTakesNothingUntilTheReaderTells) {
    FramesRig rig;
    Frame small(MARLIN_FRAME_BYTES_MIN, 1);
    std::uint32_t written = 0;
    while (rig.write(small))
        written++;
    // A line is free, always.
    EXPECT_EQ(written, ring_bytes / line - 1);
    for (std::uint32_t n = 0; n < ring_bytes / line / 4 - 1; n++) {
        EXPECT_EQ(rig.read(), small);
        EXPECT_FALSE(rig.write(small));
    }
    EXPECT_EQ(rig.read(), small); // the quarter is full
    EXPECT_TRUE(rig.write(small));
}

TEST(FramesEnds, ReaderTellsAtOnceIfItIsAskedTo) {
    FramesRig rig;
    ASSERT_TRUE(rig.write(Frame(100, 1)));
    rig.read(true);
    EXPECT_EQ(base_swap_le32(rig.tail), 2 * line);
    EXPECT_FALSE(frames_in_tell(&rig.in, true)) << "there is no news";
}

// A frame's sender chooses its content, which must not be taken for a record.
TEST(FramesEnds, OldBytesAreNoRecord) {
    FramesRig rig;
    // Fills the ring with words that are valid one round later.
    for (std::uint32_t position = 0; position < ring_bytes; position += 1024) {
        ASSERT_TRUE(rig.write(forged(1000, position + ring_bytes)));
        ASSERT_FALSE(rig.read(true).empty());
    }
    for (std::uint32_t number = 0; number < 2 * ring_bytes / line; number++) {
        ASSERT_TRUE(rig.read().empty()) << number;
        ASSERT_EQ(rig.fault, FRAMES_OK);
        Frame frame = frame_of(number, 14 + number % 50);
        ASSERT_TRUE(rig.write(frame));
        ASSERT_EQ(rig.read(), frame);
    }
}

// ---- hostile ----

TEST(FramesHostile, TailThatCannotBeIsAFault) {
    for (std::uint32_t first : {0U, 5U * line, 0U - line}) {
        FramesRig rig(ring_bytes, first);
        for (int n = 0; n < 4; n++)
            ASSERT_TRUE(rig.write(Frame(20, 1)));
        rig.read();
        rig.read(true);
        ASSERT_EQ(frames_out_learn(&rig.out), FRAMES_OK);
        for (std::uint32_t wrong :
             {first, first + line, first + 5 * line, first + 2 * line + 1, first + 0x80000000U}) {
            rig.tail = base_swap_le32(wrong);
            EXPECT_EQ(frames_out_learn(&rig.out), FRAMES_FAULT_TAIL) << wrong - first;
            EXPECT_EQ(rig.out.freed, first + 2 * line);
        }
    }
}

TEST(FramesHostile, WordThatCannotBeIsAFault) {
    FramesRig rig;
    ASSERT_TRUE(rig.write(Frame(20, 1)));
    std::uint64_t good = base_swap_le64(rig.word(0));
    auto fault_of = [&](std::uint64_t word) {
        rig.word(0) = base_swap_le64(word);
        EXPECT_TRUE(rig.read().empty());
        return rig.fault;
    };
    EXPECT_EQ(fault_of(good & ~std::uint64_t{MARLIN_VALID}), FRAMES_FAULT_WORD);
    EXPECT_EQ(fault_of(1), FRAMES_FAULT_WORD);
    EXPECT_EQ(fault_of(good ^ std::uint64_t{64} << 32), FRAMES_FAULT_POSITION);
    EXPECT_EQ(fault_of(MARLIN_VALID), FRAMES_FAULT_BYTES);
    EXPECT_EQ(fault_of(MARLIN_VALID | (MARLIN_FRAME_BYTES_MIN - 1)), FRAMES_FAULT_BYTES);
    EXPECT_EQ(fault_of(MARLIN_VALID | (MARLIN_FRAME_BYTES_MAX + 1)), FRAMES_FAULT_BYTES);
    EXPECT_EQ(fault_of(0xffffffffU), FRAMES_FAULT_BYTES);
    rig.word(0) = base_swap_le64(good);
    EXPECT_EQ(rig.read(), Frame(20, 1));
}

} // namespace

} // namespace remora::test
