// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

extern "C" {
#include "core/rmem/client/rtt.h"
}

namespace {

constexpr uint64_t us = BASE_NSEC_PER_USEC, ms = BASE_NSEC_PER_MSEC, sec = BASE_NSEC_PER_SEC;

struct Rtt : testing::Test {
    rmem_rtt rtt;
    void SetUp() override { rmem_rtt_init(&rtt); }
};

TEST_F(Rtt, BeforeAnySampleTheTimeoutIsLong) {
    EXPECT_EQ(rmem_rtt_rto_ns(&rtt, 0, 0), RMEM_RTO_NS_FIRST);
}

TEST_F(Rtt, FirstSampleCountsWhole) {
    rmem_rtt_sample(&rtt, 40 * ms);
    EXPECT_EQ(rtt.srtt_ns, 40 * ms);
    EXPECT_EQ(rmem_rtt_rto_ns(&rtt, 0, 0), 120 * ms); // srtt + 4 * srtt / 2
}

TEST_F(Rtt, SteadySamplesBringTheTimeoutToTheRoundTripAndSpikesRaiseIt) {
    for (int i = 0; i < 200; i++)
        rmem_rtt_sample(&rtt, 40 * ms);
    EXPECT_NEAR(double(rmem_rtt_rto_ns(&rtt, 0, 0)), 40e6, 1e6);
    rmem_rtt_sample(&rtt, 200 * ms);
    EXPECT_GT(rmem_rtt_rto_ns(&rtt, 0, 0), 200 * ms);
}

TEST_F(Rtt, IsBounded) {
    for (int i = 0; i < 100; i++)
        rmem_rtt_sample(&rtt, 20 * us);
    EXPECT_EQ(rmem_rtt_rto_ns(&rtt, 0, 0), RMEM_RTO_NS_MIN);
    for (int i = 0; i < 100; i++)
        rmem_rtt_sample(&rtt, 20 * sec);
    EXPECT_EQ(rmem_rtt_rto_ns(&rtt, 0, 0), RMEM_RTO_NS_MAX);
    rmem_rtt_sample(&rtt, 0);
    EXPECT_GT(rtt.srtt_ns, 0u);
}

TEST_F(Rtt, SilenceDoublesUpToASecondAndAQuarter) {
    for (int i = 0; i < 100; i++)
        rmem_rtt_sample(&rtt, 20 * us);
    EXPECT_EQ(rmem_rtt_rto_ns(&rtt, 1, 0), 2 * RMEM_RTO_NS_MIN);
    EXPECT_EQ(rmem_rtt_rto_ns(&rtt, 3, 0), 8 * RMEM_RTO_NS_MIN);
    EXPECT_EQ(rmem_rtt_rto_ns(&rtt, 200, 0), RMEM_RTO_NS_MAX);
    for (uint32_t random = 0; random < 5000; random += 7) {
        uint64_t rto = rmem_rtt_rto_ns(&rtt, 200, random);
        EXPECT_GE(rto, RMEM_RTO_NS_MAX);
        EXPECT_LE(rto, RMEM_RTO_NS_MAX * 5 / 4);
    }
    EXPECT_NE(rmem_rtt_rto_ns(&rtt, 200, 100), rmem_rtt_rto_ns(&rtt, 200, 900));
}

TEST(Base, IsTheLeastOfTheHorizonAndForgetsIt) {
    rmem_base base;
    rmem_base_init(&base);
    EXPECT_EQ(rmem_base_ns(&base), 0u);
    rmem_base_sample(&base, 1 * sec, 300 * us);
    rmem_base_sample(&base, 2 * sec, 100 * us);
    rmem_base_sample(&base, 3 * sec, 200 * us);
    EXPECT_EQ(rmem_base_ns(&base), 100 * us);
    rmem_base_sample(&base, 12 * sec, 200 * us);
    EXPECT_EQ(rmem_base_ns(&base), 100 * us);
    rmem_base_sample(&base, 23 * sec, 250 * us);
    EXPECT_EQ(rmem_base_ns(&base), 200 * us);
    rmem_base_sample(&base, 100 * sec, 900 * us);
    EXPECT_EQ(rmem_base_ns(&base), 900 * us);
}

} // namespace
