// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <random>
#include <set>

extern "C" {
#include "core/rmem/client/seq.h"
}

namespace {

struct Seq : testing::Test {
    void* owners[8];
    rmem_seq seq;
    int a, b;
    void SetUp() override { rmem_seq_init(&seq, owners, 8); }
};

TEST_F(Seq, StartsAtOneWithTheFloorAtTheNextId) {
    EXPECT_EQ(rmem_seq_floor(&seq), 1u);
    EXPECT_EQ(rmem_seq_take(&seq, 1, &a), 1u);
    EXPECT_EQ(rmem_seq_floor(&seq), 1u);
    rmem_seq_put(&seq, 1);
    EXPECT_EQ(rmem_seq_floor(&seq), 2u);
}

TEST_F(Seq, FloorIsTheOldestOutstanding) {
    rmem_seq_take(&seq, 4, &a);
    rmem_seq_put(&seq, 2);
    rmem_seq_put(&seq, 3);
    EXPECT_EQ(rmem_seq_floor(&seq), 1u);
    rmem_seq_put(&seq, 1);
    EXPECT_EQ(rmem_seq_floor(&seq), 4u);
}

TEST_F(Seq, GivesNothingBeyondTheWindow) {
    EXPECT_EQ(rmem_seq_take(&seq, 9, &a), 0u);
    EXPECT_EQ(rmem_seq_take(&seq, 8, &a), 1u);
    EXPECT_EQ(rmem_seq_take(&seq, 1, &b), 0u);
    rmem_seq_put(&seq, 2);
    EXPECT_EQ(rmem_seq_take(&seq, 1, &b), 0u);
    rmem_seq_put(&seq, 1);
    EXPECT_EQ(rmem_seq_take(&seq, 3, &b), 0u);
    EXPECT_EQ(rmem_seq_take(&seq, 2, &b), 9u);
}

TEST_F(Seq, KnowsOwnersOfOutstandingIdsAlone) {
    rmem_seq_take(&seq, 2, &a);
    rmem_seq_take(&seq, 1, &b);
    EXPECT_EQ(rmem_seq_owner(&seq, 2), &a);
    EXPECT_EQ(rmem_seq_owner(&seq, 3), &b);
    for (uint64_t id : {uint64_t(0), uint64_t(4), uint64_t(9), uint64_t(10), ~uint64_t(0)})
        EXPECT_EQ(rmem_seq_owner(&seq, id), nullptr) << id;
    rmem_seq_put(&seq, 1);
    EXPECT_EQ(rmem_seq_owner(&seq, 1), nullptr);
}

TEST_F(Seq, ResetForgetsAll) {
    rmem_seq_take(&seq, 8, &a);
    rmem_seq_reset(&seq);
    EXPECT_EQ(rmem_seq_owner(&seq, 1), nullptr);
    EXPECT_EQ(rmem_seq_take(&seq, 8, &b), 1u);
}

TEST_F(Seq, AgreesWithASetForLong) {
    std::mt19937 random(1);
    std::set<uint64_t> out;
    uint64_t next = 1;
    for (int i = 0; i < 20000; i++) {
        uint64_t floor = out.empty() ? next : *out.begin();
        ASSERT_EQ(rmem_seq_floor(&seq), floor);
        if (random() % 2) {
            uint32_t count = 1 + random() % 4;
            uint64_t id = rmem_seq_take(&seq, count, &a);
            ASSERT_EQ(id, next + count <= floor + 8 ? next : 0);
            for (; id && count; count--)
                out.insert(next++);
        } else if (!out.empty()) {
            auto it = std::next(out.begin(), random() % out.size());
            rmem_seq_put(&seq, *it);
            ASSERT_EQ(rmem_seq_owner(&seq, *it), nullptr);
            out.erase(it);
        }
    }
}

} // namespace
