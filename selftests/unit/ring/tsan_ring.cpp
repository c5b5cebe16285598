// SPDX-License-Identifier: GPL-2.0
// A writer and a reader in threads of their own, under TSan: every record arrives once, in order
// and whole, and neither end touches what is the other's.
#include <algorithm>
#include <thread>

#include <gtest/gtest.h>

#include "pair.hpp"

namespace remora::test {

namespace {

constexpr std::uint32_t records = 20'000;

// The bytes of the record with this number.
std::vector<std::uint8_t> record_of(std::uint32_t number) {
    return std::vector<std::uint8_t>(1 + number % 50, static_cast<std::uint8_t>(number));
}

void write_all(RingPairRig& ring, bool signals) {
    for (std::uint32_t n = 0; n < records;) {
        bool wrote = ring.write(record_of(n));
        n += wrote;
        // Some signals stand for several entries.
        if (signals && (!wrote || n % 3 == 0 || n == records))
            ring.signal();
        if (!wrote)
            std::this_thread::yield();
    }
}

TEST(RingThreads, ReaderThatWatchesTheNextEntryGetsEachRecordOnce) {
    RingPairRig ring(8);
    std::thread writer([&] { write_all(ring, false); });
    for (std::uint32_t n = 0; n < records;) {
        std::vector<std::uint8_t> found = ring.read();
        if (found.empty()) {
            EXPECT_EQ(ring.fault, RING_OK);
            std::this_thread::yield();
            continue;
        }
        EXPECT_EQ(found, record_of(n));
        n++;
    }
    writer.join();
}

TEST(RingThreads, ReaderThatTracksThePointerGetsEachRecordOnce) {
    RingPairRig ring(8);
    std::thread writer([&] { write_all(ring, true); });
    for (std::uint32_t n = 0; n < records;) {
        EXPECT_EQ(ring_in_track(&ring.in, &ring.pointer), RING_OK);
        if (!ring_in_waiting(&ring.in))
            std::this_thread::yield();
        // Entries that were signalled are there.
        for (; ring_in_waiting(&ring.in); n++)
            EXPECT_EQ(ring.read(), record_of(n));
    }
    writer.join();
}

} // namespace

} // namespace remora::test
