// SPDX-License-Identifier: GPL-2.0
// The rings' core: records in order at every offset of the ring, credit, and a hostile other end.
#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

#include "pair.hpp"

namespace remora::test {

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes record_of(std::uint32_t number, std::size_t bytes) {
    Bytes record(bytes);
    std::uint32_t state = number * 2654435761U + 1;
    for (std::uint8_t& byte : record) {
        state = state * 1664525 + 1013904223;
        byte = static_cast<std::uint8_t>(state >> 24);
    }
    return record;
}

TEST(RingShape, AcceptsPowersOfTwoOfWholeLines) {
    EXPECT_TRUE(ring_shape_is_valid(2, 64));
    EXPECT_TRUE(ring_shape_is_valid(1024, 65536));
    for (auto [entries, bytes] : {std::pair{0U, 64U},
                                  {1U, 64U},
                                  {3U, 64U},
                                  {2048U, 64U},
                                  {2U, 0U},
                                  {2U, 63U},
                                  {2U, 65U},
                                  {2U, 65536U + 64U}})
        EXPECT_FALSE(ring_shape_is_valid(entries, bytes)) << entries << " " << bytes;
}

TEST(RingShape, EveryFaultHasAName) {
    for (int fault = 0; fault < RING_FAULTS; fault++)
        EXPECT_STRNE(ring_fault_name(static_cast<ring_fault>(fault)), "unknown");
    EXPECT_STREQ(ring_fault_name(RING_FAULTS), "unknown");
}

// From each offset of the ring, and across the wrap of the counts, so many records as twice around.
TEST(RingEnds, RecordsArriveWholeAndInOrderFromEveryOffset) {
    constexpr std::uint32_t entries = 8, entry_bytes = 128;
    for (std::uint32_t first = -2 * entries; first != 2 * entries; first++) {
        RingPairRig ring(entries, entry_bytes, first);
        std::uint32_t written = 0, read = 0;
        for (std::uint32_t burst = 1; read < 2 * entries; burst = burst % entries + 1) {
            for (std::uint32_t n = 0; n < burst; n++) {
                std::size_t bytes = (first + written) % (entry_bytes - RING_HEAD_BYTES + 1);
                written += ring.write(record_of(written, bytes));
            }
            ring.signal();
            ASSERT_EQ(ring_in_track(&ring.in, &ring.pointer), RING_OK);
            ASSERT_EQ(ring_in_waiting(&ring.in), written - read);
            for (; ring_in_waiting(&ring.in); read++) {
                std::size_t bytes = (first + read) % (entry_bytes - RING_HEAD_BYTES + 1);
                ASSERT_EQ(ring.read(), record_of(read, bytes)) << first << " " << read;
                ASSERT_EQ(ring.fault, RING_OK);
            }
        }
    }
}

TEST(RingEnds, FullRingTakesNothingUntilTheReaderTells) {
    for (std::uint32_t entries : {2U, 4U, 64U}) {
        RingPairRig ring(entries);
        Bytes record{1};
        for (std::uint32_t n = 0; n < entries; n++)
            EXPECT_TRUE(ring.write(record));
        EXPECT_FALSE(ring.write(record));
        std::uint32_t quarter = std::max(entries / 4, 1U);
        for (std::uint32_t n = 0; n < quarter; n++) {
            EXPECT_FALSE(ring.write(record));
            EXPECT_EQ(ring.read(), record);
        }
        for (std::uint32_t n = 0; n < quarter; n++)
            EXPECT_TRUE(ring.write(record));
        EXPECT_FALSE(ring.write(record));
    }
}

TEST(RingEnds, ReaderClearsEachEntryItHasTaken) {
    RingPairRig ring(4);
    for (std::uint32_t n = 0; n < 4; n++)
        ring.write(Bytes{1});
    for (std::uint32_t n = 0; n < 4; n++) {
        EXPECT_NE(ring.word(n), 0U);
        ring.read();
        EXPECT_EQ(ring.word(n), 0U);
    }
    EXPECT_TRUE(ring.read().empty());
    EXPECT_EQ(ring.fault, RING_OK);
}

TEST(RingTracker, CoalescedSignalsCountAllEntries) {
    RingPairRig ring(8);
    for (std::uint32_t n = 0; n < 5; n++) {
        ring.write(Bytes{1});
        ring.signal();
    }
    EXPECT_EQ(ring_in_track(&ring.in, &ring.pointer), RING_OK);
    EXPECT_EQ(ring_in_waiting(&ring.in), 5U);
}

TEST(RingTracker, EntriesThatWereNotSignalledDoNotCount) {
    RingPairRig ring(8);
    ring.write(Bytes{1});
    EXPECT_EQ(ring_in_track(&ring.in, &ring.pointer), RING_OK);
    EXPECT_EQ(ring_in_waiting(&ring.in), 0U);
}

TEST(RingTracker, SignalBeforeItsEntryFindsNothingYet) {
    RingPairRig ring(8);
    ring.write(Bytes{1});
    std::uint64_t late = std::exchange(ring.word(0), 0);
    ring.signal();
    EXPECT_EQ(ring_in_track(&ring.in, &ring.pointer), RING_OK);
    EXPECT_TRUE(ring.read().empty());
    EXPECT_EQ(ring.fault, RING_OK);
    ring.word(0) = late;
    EXPECT_EQ(ring.read(), Bytes{1});
}

TEST(RingTracker, EntriesTakenBeforeTheirSignalDoNotCountAgain) {
    for (std::uint32_t first : {0U, 5U, 0xfffffffeU}) {
        RingPairRig ring(4, 64, first);
        for (std::uint32_t n = 0; n < 12; n++) {
            ASSERT_TRUE(ring.write(Bytes{1}));
            ASSERT_EQ(ring.read(), Bytes{1});
        }
        ASSERT_EQ(ring_in_track(&ring.in, &ring.pointer), RING_OK);
        EXPECT_EQ(ring_in_waiting(&ring.in), 0U);
        // The word may come late, and through values that were taken long ago.
        ring.pointer = base_swap_le32(first + 3);
        ASSERT_EQ(ring_in_track(&ring.in, &ring.pointer), RING_OK);
        EXPECT_EQ(ring_in_waiting(&ring.in), 0U);
        ASSERT_TRUE(ring.write(Bytes{2}));
        ring.signal();
        ASSERT_EQ(ring_in_track(&ring.in, &ring.pointer), RING_OK);
        EXPECT_EQ(ring_in_waiting(&ring.in), 1U);
        EXPECT_EQ(ring.read(), Bytes{2});
    }
}

// ---- hostile ----

// Also of a reader that has taken entries before their signal.
TEST(RingHostile, LaggingPointerBackwardsOrBeyondTheRingIsAFault) {
    RingPairRig ring(8);
    for (std::uint32_t n = 0; n < 6; n++) {
        ring.write(Bytes{1});
        ring.read();
    }
    ring.pointer = base_swap_le32(4);
    ASSERT_EQ(ring_in_track(&ring.in, &ring.pointer), RING_OK);
    for (std::uint32_t wrong : {3U, 15U, 0x80000000U, 0xffffffffU}) {
        ring.pointer = base_swap_le32(wrong);
        EXPECT_EQ(ring_in_track(&ring.in, &ring.pointer), RING_FAULT_POINTER) << wrong;
        EXPECT_EQ(ring_in_waiting(&ring.in), 0U);
    }
}

TEST(RingHostile, PointerBackwardsOrBeyondTheRingIsAFault) {
    for (std::uint32_t first : {0U, 5U, 0xfffffffeU}) {
        RingPairRig ring(8, 64, first);
        ring.write(Bytes{1});
        ring.write(Bytes{1});
        ring.signal();
        ASSERT_EQ(ring_in_track(&ring.in, &ring.pointer), RING_OK);
        for (std::uint32_t wrong : {first - 1, first, first + 1, first + 9, first + 0x80000000U}) {
            ring.pointer = base_swap_le32(wrong);
            EXPECT_EQ(ring_in_track(&ring.in, &ring.pointer), RING_FAULT_POINTER) << wrong - first;
            EXPECT_EQ(ring_in_waiting(&ring.in), 2U);
        }
    }
}

TEST(RingHostile, CreditBackwardsOrBeyondThePostedIsAFault) {
    for (std::uint32_t first : {0U, 5U, 0xfffffffeU}) {
        RingPairRig ring(8, 64, first);
        for (int n = 0; n < 4; n++)
            ring.write(Bytes{1});
        ring.read();
        ring.read();
        ASSERT_EQ(ring_out_learn(&ring.out), RING_OK);
        ASSERT_EQ(ring_out_room(&ring.out), 6U);
        for (std::uint32_t wrong : {first, first + 1, first + 5, first + 0x80000000U}) {
            ring.credit = base_swap_le32(wrong);
            EXPECT_EQ(ring_out_learn(&ring.out), RING_FAULT_CREDIT) << wrong - first;
            EXPECT_EQ(ring_out_room(&ring.out), 6U);
        }
    }
}

TEST(RingHostile, AnotherNumberOrNoFlagIsAFault) {
    RingPairRig ring(8);
    ring.write(Bytes{1});
    std::uint64_t good = ring.word(0);
    for (std::uint64_t wrong : {good ^ std::uint64_t{1} << 32, good ^ std::uint64_t{1} << 63,
                                good & ~std::uint64_t{RING_VALID}, std::uint64_t{1}}) {
        ring.word(0) = wrong;
        EXPECT_TRUE(ring.read().empty());
        EXPECT_EQ(ring.fault, RING_FAULT_WORD);
    }
}

TEST(RingHostile, RecordLongerThanAnEntryIsAFault) {
    RingPairRig ring(8);
    for (std::uint32_t bytes : {64U - RING_HEAD_BYTES + 1, 0x7fffffffU}) {
        ring.word(0) = base_swap_le64(RING_VALID | bytes);
        EXPECT_TRUE(ring.read().empty());
        EXPECT_EQ(ring.fault, RING_FAULT_BYTES);
    }
}

// ---- sleep ----

TEST(RingSleep, FlagThatIsSetWakesOnce) {
    std::uint32_t flag = 0;
    EXPECT_FALSE(ring_must_wake(&flag));
    ring_doze(&flag);
    EXPECT_TRUE(ring_must_wake(&flag));
    EXPECT_FALSE(ring_must_wake(&flag));
    ring_doze(&flag);
    ring_rise(&flag);
    EXPECT_FALSE(ring_must_wake(&flag));
}

} // namespace

} // namespace remora::test
