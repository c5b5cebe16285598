// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <deque>
#include <memory>

extern "C" {
#include "core/rmem/client/incast.h"
}

namespace {

struct Incast : testing::Test {
    static constexpr uint32_t limit = 2 * RMEM_IWND_ROOM_BYTES;
    rmem_incast i;
    rmem_incast_turn turn[4] = {};
    void SetUp() override { rmem_incast_init(&i, limit); }

    bool acquire(unsigned int who, uint32_t bytes = 4096) {
        return rmem_incast_acquire(&i, &turn[who], who, bytes);
    }
    uint32_t fill() {
        rmem_incast_turn none{};
        EXPECT_TRUE(rmem_incast_acquire(&i, &none, 0, limit));
        return limit;
    }
};

TEST_F(Incast, AdmitsUpToTheLimitAndALargerOneAlone) {
    EXPECT_TRUE(acquire(0, limit / 2));
    EXPECT_TRUE(acquire(1, limit / 2));
    EXPECT_FALSE(acquire(0, 1));
    rmem_incast_pass(&i, &turn[0]);
    rmem_incast_release(&i, limit);
    EXPECT_TRUE(acquire(2, 5 * limit));
    EXPECT_FALSE(acquire(0, 1));
    rmem_incast_release(&i, 5 * limit);
    EXPECT_TRUE(acquire(0, 1));
    EXPECT_EQ(rmem_incast_used_bytes(&i), 1u);
}

TEST_F(Incast, AWaiterIsServedBeforeAllThatComeLater) {
    uint32_t used = fill();
    EXPECT_FALSE(acquire(2));
    EXPECT_FALSE(acquire(1));
    rmem_incast_release(&i, used);
    EXPECT_FALSE(acquire(0)) << "it came later, though there is room";
    EXPECT_FALSE(acquire(1));
    EXPECT_EQ(rmem_incast_next(&i), 2);
    EXPECT_TRUE(acquire(2));
    EXPECT_FALSE(acquire(2)) << "once per turn";
    EXPECT_EQ(rmem_incast_next(&i), 1);
    EXPECT_TRUE(acquire(1));
    EXPECT_TRUE(acquire(0));
    EXPECT_TRUE(acquire(2));
    EXPECT_EQ(rmem_incast_next(&i), RMEM_WAITER_NONE);
}

TEST_F(Incast, WakesWhenAnyOpFits) {
    fill();
    EXPECT_FALSE(acquire(1));
    rmem_incast_release(&i, 4096);
    EXPECT_EQ(rmem_incast_next(&i), RMEM_WAITER_NONE);
    rmem_incast_release(&i, RMEM_IWND_ROOM_BYTES - 4096);
    EXPECT_EQ(rmem_incast_next(&i), 1);
}

TEST_F(Incast, AWaiterThatWantsNothingKeepsItsPlaceUntilItIsTheHead) {
    uint32_t used = fill();
    EXPECT_FALSE(acquire(0));
    EXPECT_FALSE(acquire(1));
    EXPECT_FALSE(acquire(2));
    rmem_incast_pass(&i, &turn[1]);
    EXPECT_TRUE(turn[1].waits);
    rmem_incast_release(&i, used);
    EXPECT_TRUE(acquire(0));
    EXPECT_EQ(rmem_incast_next(&i), 1);
    rmem_incast_pass(&i, &turn[1]);
    EXPECT_FALSE(turn[1].waits);
    EXPECT_EQ(rmem_incast_next(&i), 2);
    EXPECT_TRUE(acquire(2));
}

TEST_F(Incast, EndingWaiterDelaysNoOther) {
    for (unsigned int gone = 0; gone < 3; gone++) {
        uint32_t used = fill();
        for (unsigned int who = 0; who < 3; who++)
            EXPECT_FALSE(acquire(who));
        rmem_incast_leave(&i, &turn[gone]);
        rmem_incast_release(&i, used);
        for (unsigned int who = 0; who < 3; who++) {
            if (who == gone)
                continue;
            EXPECT_EQ(rmem_incast_next(&i), static_cast<int>(who));
            EXPECT_TRUE(acquire(who));
        }
        EXPECT_EQ(rmem_incast_next(&i), RMEM_WAITER_NONE);
        rmem_incast_release(&i, 2 * 4096);
    }
    EXPECT_TRUE(acquire(3));
}

TEST_F(Incast, AFullQueueRefusesWithoutATicket) {
    auto many = std::make_unique<rmem_incast_turn[]>(RMEM_INCAST_SLOTS);
    uint32_t used = fill();
    for (uint32_t n = 0; n < RMEM_INCAST_SLOTS; n++) {
        EXPECT_FALSE(rmem_incast_acquire(&i, &many[n], n, 1));
        ASSERT_TRUE(many[n].waits);
    }
    EXPECT_FALSE(acquire(0));
    EXPECT_FALSE(turn[0].waits);
    rmem_incast_release(&i, used);
    for (uint32_t n = 0; n < RMEM_INCAST_SLOTS; n++) {
        ASSERT_EQ(rmem_incast_next(&i), static_cast<int>(n % RMEM_WAITERS));
        ASSERT_TRUE(rmem_incast_acquire(&i, &many[n], n, 1));
    }
    EXPECT_TRUE(acquire(0));
}

// Longer than tickets have numbers.
TEST_F(Incast, ServesInOrderForEver) {
    std::deque<unsigned int> order;
    uint32_t used = fill();
    for (unsigned int who = 0; who < 4; who++) {
        EXPECT_FALSE(acquire(who, limit));
        order.push_back(who);
    }
    for (int n = 0; n < 200'000; n++) {
        rmem_incast_release(&i, used);
        unsigned int who = order.front();
        ASSERT_EQ(rmem_incast_next(&i), static_cast<int>(who));
        ASSERT_TRUE(acquire(who, limit));
        used = limit;
        order.pop_front();
        ASSERT_FALSE(acquire(who, limit));
        order.push_back(who);
    }
}

} // namespace
