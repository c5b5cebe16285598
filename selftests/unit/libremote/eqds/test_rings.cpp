// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "../../../../libremote/eqds/src/buffers.hpp"
#include "../../../../libremote/eqds/src/ring.hpp"

namespace {

constexpr std::uint32_t count = 8;

// The kernel's end of a ring is the other class over the same words.
struct Pair {
    eqds_native_ring ring{};
    std::vector<eqds_native_fill> entries = std::vector<eqds_native_fill>(count);
    libeqds::Producer<eqds_native_fill> in;
    libeqds::Consumer<eqds_native_fill> out;

    Pair() {
        in.attach(&ring, entries.data(), count);
        out.attach(&ring, entries.data(), count);
    }
};

TEST(EqdsRing, EntriesComeOutInOrderOverManyTurns) {
    Pair pair;
    std::uint64_t pushed = 0, popped = 0;
    for (std::uint32_t turn = 0; turn < 100; turn++) {
        for (std::uint32_t i = 0; i < turn % (count + 1); i++)
            pair.in.push({.at = pushed++, .bytes = 1, .reserved = 0});
        pair.in.publish();
        for (eqds_native_fill entry; pair.out.pop(&entry);)
            EXPECT_EQ(entry.at, popped++);
        pair.out.publish();
        EXPECT_EQ(popped, pushed);
    }
}

TEST(EqdsRing, NothingIsSeenBeforeItIsPublished) {
    Pair pair;
    eqds_native_fill entry;
    pair.in.push({.at = 1, .bytes = 1, .reserved = 0});
    EXPECT_TRUE(pair.out.empty());
    EXPECT_FALSE(pair.out.pop(&entry));
    pair.in.publish();
    EXPECT_TRUE(pair.out.pop(&entry));
    EXPECT_EQ(entry.at, 1u);
}

TEST(EqdsRing, PlaceOfAnEntryIsFreeOnceItsConsumptionIsPublished) {
    Pair pair;
    for (std::uint32_t room = count; room; room--) {
        EXPECT_EQ(pair.in.room(), room);
        pair.in.push({});
    }
    EXPECT_EQ(pair.in.room(), 0u);
    pair.in.publish();
    eqds_native_fill entry;
    EXPECT_TRUE(pair.out.pop(&entry));
    EXPECT_EQ(pair.in.room(), 0u);
    pair.out.publish();
    EXPECT_EQ(pair.in.room(), 1u);
}

TEST(EqdsBuffers, EachBufferHasOneOwner) {
    libeqds::Buffers buffers(4, 2048);
    std::set<std::size_t> taken;
    while (buffers.free())
        taken.insert(buffers.take(libeqds::Owner::Caller));
    EXPECT_EQ(taken.size(), 4u);
    for (std::size_t index : taken) {
        EXPECT_EQ(buffers.owner(index), libeqds::Owner::Caller);
        buffers.give(index, libeqds::Owner::Sending);
        EXPECT_EQ(buffers.free(), 0u);
    }
    buffers.give(2, libeqds::Owner::Library);
    EXPECT_EQ(buffers.take(libeqds::Owner::Filling), 2u);
}

TEST(EqdsBuffers, OnlyTheBeginningOfABufferIsFound) {
    libeqds::Buffers buffers(4, 2048);
    EXPECT_EQ(buffers.at(0), 0);
    EXPECT_EQ(buffers.at(3 * 2048), 3);
    for (std::uint64_t offset : {1ull, 2047ull, 4 * 2048ull, ~0ull})
        EXPECT_EQ(buffers.at(offset), -1) << offset;
}

} // namespace
