// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include "core.hpp"

namespace {

constexpr uint32_t one = EQDS_RATE_ONE;
constexpr uint32_t window = 10 * 1500;

struct EqdsRate : testing::Test {
    EqdsRate() { eqds_rate_init(&rate, 0); }

    // A round of ten packets, marked of them with congestion experienced.
    void round(uint32_t marked) {
        for (uint32_t i = 0; i < 10; i++)
            eqds_rate_arrived(&rate, 0, window, 1500, i < marked, 0);
    }
    // A packet that took delay_ns with clocks that are apart.
    void arrive(uint64_t sent_ns, uint64_t delay_ns, uint32_t bytes = window) {
        uint32_t stamp = uint32_t((sent_ns + 0xfffff000ull * 16) / 16);
        eqds_rate_arrived(&rate, sent_ns + delay_ns, window, bytes, false, stamp ? stamp : 1);
    }
    uint32_t turns(uint32_t of) {
        uint32_t taken = 0;
        for (uint32_t i = 0; i < of; i++)
            taken += eqds_rate_turn(&rate);
        return taken;
    }

    eqds_rate rate;
};

TEST_F(EqdsRate, TunnelWithoutCongestionTakesEveryTurn) {
    for (int i = 0; i < 100; i++)
        round(0);
    EXPECT_EQ(rate.share, one);
    EXPECT_EQ(turns(1000), 1000u);
}

TEST_F(EqdsRate, FirstMarkedRoundHalvesTheShare) {
    round(1);
    EXPECT_EQ(rate.share, one / 2);
    EXPECT_EQ(turns(1000), 500u);
}

TEST_F(EqdsRate, PartsOfATurnAreSavedUp) {
    rate.share = one / 4 * 3;
    EXPECT_EQ(turns(1000), 750u);
}

TEST_F(EqdsRate, ShareChangesOnlyAtTheEndOfARound) {
    for (int i = 0; i < 9; i++)
        eqds_rate_arrived(&rate, 0, window, 1500, true, 0);
    EXPECT_EQ(rate.share, one);
    eqds_rate_arrived(&rate, 0, window, 1500, false, 0);
    EXPECT_EQ(rate.share, one / 2);
    EXPECT_EQ(rate.packets, 0u);
    EXPECT_EQ(rate.marked, 0u);
}

TEST_F(EqdsRate, AlphaFollowsTheShareOfMarkedPackets) {
    for (int i = 0; i < 200; i++)
        round(1);
    EXPECT_NEAR(rate.alpha, one / 10, one / 50);
    for (int i = 0; i < 200; i++)
        round(10);
    EXPECT_NEAR(rate.alpha, one, one / 50);
}

TEST_F(EqdsRate, ShareNeverFallsBelowItsMinimumNorRisesAboveOne) {
    for (int i = 0; i < 100; i++)
        round(10);
    EXPECT_EQ(rate.share, EQDS_RATE_MIN);
    EXPECT_EQ(turns(6400), 100u);
    round(0);
    EXPECT_EQ(rate.share, EQDS_RATE_MIN + one / 32);
    for (int i = 0; i < 40; i++)
        round(0);
    EXPECT_EQ(rate.share, one);
}

TEST_F(EqdsRate, DelayDoesNotCountUnlessConfigured) {
    arrive(0, 1000);
    arrive(100'000, 1'000'000);
    EXPECT_EQ(rate.share, one);
}

TEST_F(EqdsRate, DelayAboveTheLeastOneCountsAsAMark) {
    eqds_rate_init(&rate, 10'000);
    arrive(0, 50'000);
    arrive(100'000, 59'000);
    EXPECT_EQ(rate.share, one);
    arrive(200'000, 61'000);
    uint32_t share = rate.share;
    EXPECT_LT(share, one * 3 / 4);
    arrive(300'000, 20'000); // a new least one
    EXPECT_EQ(rate.share, share + one / 32);
    arrive(400'000, 50'000);
    EXPECT_LT(rate.share, share);
}

TEST_F(EqdsRate, PacketWithoutStampIsNeverLate) {
    eqds_rate_init(&rate, 10'000);
    arrive(0, 1000);
    eqds_rate_arrived(&rate, 90'000'000, window, window, false, 0);
    EXPECT_EQ(rate.share, one);
}

TEST_F(EqdsRate, LeastDelayIsForgottenAfterItsRounds) {
    eqds_rate_init(&rate, 10'000);
    arrive(0, 1000); // a route that is gone
    uint32_t rounds = 1, late = 0;
    for (; rounds < 3 * EQDS_RATE_BASE_ROUNDS; rounds++) {
        uint32_t before = rate.share;
        arrive(rounds * 100'000ull, 50'000);
        late += rate.share < before || rate.share == EQDS_RATE_MIN;
    }
    EXPECT_GT(late, EQDS_RATE_BASE_ROUNDS);
    EXPECT_LT(late, 2 * EQDS_RATE_BASE_ROUNDS + 2);
    EXPECT_EQ(rate.share, one);
}

TEST_F(EqdsRate, PacketLargerThanTheWindowIsARoundOfItsOwn) {
    eqds_rate_arrived(&rate, 0, 1000, 4000, true, 0);
    EXPECT_EQ(rate.share, one / 2);
}

} // namespace
