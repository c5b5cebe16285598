// SPDX-License-Identifier: GPL-2.0
#include "remora-kv/turns.hpp"

#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace remora::kv {
namespace {

struct Owner {
    std::deque<int> entries;
};
using Entries = Turns<Owner, int, &Owner::entries>;

TEST(Turns, ModestOwnerWaitsForOneEntryOfEachOther) {
    Owner greedy, other, modest;
    Entries turns;
    for (int n = 0; n < 1000; n++) {
        turns.add(greedy, n);
        turns.add(other, 1000 + n);
    }
    turns.add(modest, -1);
    EXPECT_EQ(turns.take(), 0);
    EXPECT_EQ(turns.take(), 1000);
    EXPECT_EQ(turns.next(), -1);
    EXPECT_EQ(turns.take(), -1);
    EXPECT_EQ(turns.size(), 1998u);
}

TEST(Turns, EntriesOfAnOwnerKeepTheirOrder) {
    Owner first, second;
    Entries turns;
    int last[2] = {-1, 999};
    for (int n = 0; n < 100; n++)
        turns.add(first, n);
    for (int n = 0; n < 10; n++)
        turns.add(second, 1000 + n);
    for (int n = 0; n < 110; n++) {
        const int entry = turns.take();
        EXPECT_EQ(entry, std::exchange(last[entry >= 1000], entry) + 1);
    }
    EXPECT_EQ(turns.size(), 0u);
    turns.add(second, 5);
    EXPECT_EQ(turns.take(), 5);
}

} // namespace
} // namespace remora::kv
