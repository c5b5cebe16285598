// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include "core.hpp"

namespace {

struct Class {
    explicit Class(eqds_class_kind kind) {
        eqds_class_init(&policy, kind);
        eqds_class_queue_init(&queue);
    }
    eqds_class_verdict arrive(uint32_t packets, uint32_t bytes, bool ecn = false,
                              uint32_t random = 0, uint64_t now_ns = 0) {
        return eqds_class_arrive(&policy, &queue, now_ns, packets, bytes, ecn, random);
    }
    eqds_class policy;
    eqds_class_queue queue;
};

TEST(EqdsClass, TcpDropsThePacketAfterTheHundredth) {
    Class tcp(EQDS_CLASS_TCP);
    EXPECT_FALSE(tcp.arrive(99, 99 * 1500).drop);
    EXPECT_TRUE(tcp.arrive(100, 100 * 1500).drop);
}

TEST(EqdsClass, EveryClassIsBounded) {
    for (auto kind : {EQDS_CLASS_TCP, EQDS_CLASS_RDMA, EQDS_CLASS_NATIVE}) {
        Class c(kind);
        EXPECT_FALSE(c.arrive(c.policy.packets_max - 1, 0).drop);
        EXPECT_TRUE(c.arrive(c.policy.packets_max, 0).drop);
    }
}

TEST(EqdsClass, TcpMarksOnlyEcnCapablePackets) {
    Class tcp(EQDS_CLASS_TCP);
    tcp.policy.average_shift = 0;
    EXPECT_TRUE(tcp.arrive(95, 95 * 1500, true).mark);
    EXPECT_FALSE(tcp.arrive(95, 95 * 1500, false).mark);
    EXPECT_FALSE(tcp.arrive(100, 100 * 1500, true).mark); // dropped
}

TEST(EqdsClass, RedMarksByALineBetweenItsThresholds) {
    Class tcp(EQDS_CLASS_TCP);
    tcp.policy.average_shift = 0;
    tcp.policy.low_bytes = 10'000;
    tcp.policy.high_bytes = 20'000;
    tcp.policy.probability_q16 = 0x4000;
    struct {
        uint32_t bytes, probability_q16;
    } const cases[] = {{10'000, 0}, {15'000, 0x2000}, {17'500, 0x3000}, {20'000, 0x10000}};
    for (auto c : cases) {
        // Marked if the upper 16 random bits are below the probability.
        uint32_t marked = 0;
        for (uint32_t random = 0; random < 0x10000; random += 0x40)
            marked += tcp.arrive(1, c.bytes, true, random << 16).mark;
        EXPECT_EQ(marked * 0x40, c.probability_q16) << c.bytes;
    }
}

TEST(EqdsClass, RedFollowsTheAverageAndNotTheQueue) {
    Class tcp(EQDS_CLASS_TCP);
    EXPECT_FALSE(tcp.arrive(95, 95 * 1500, true).mark); // a burst after nothing
    int calls = 0;
    while (!tcp.arrive(95, 95 * 1500, true).mark)
        ASSERT_LT(++calls, 100);
    EXPECT_GE(calls, 4);
    for (int i = 0; i < 200; i++)
        tcp.arrive(95, 95 * 1500, true);
    EXPECT_NEAR(tcp.queue.average_q16 >> 16, 95 * 1500, 1500);
    EXPECT_TRUE(tcp.arrive(1, 1500, true).mark); // the average is still high
}

TEST(EqdsClass, RdmaPausesOnceAtTheHighMarkAndResumesOnceAtTheLow) {
    Class rdma(EQDS_CLASS_RDMA);
    const uint32_t low = rdma.policy.low_bytes, high = rdma.policy.high_bytes;
    EXPECT_FALSE(rdma.arrive(1, high - 1).pause);
    EXPECT_FALSE(eqds_class_depart(&rdma.policy, &rdma.queue, 0).resume);
    EXPECT_TRUE(rdma.arrive(1, high).pause);
    EXPECT_FALSE(rdma.arrive(1, high + 1).pause);
    EXPECT_FALSE(eqds_class_depart(&rdma.policy, &rdma.queue, low + 1).resume);
    EXPECT_TRUE(eqds_class_depart(&rdma.policy, &rdma.queue, low).resume);
    EXPECT_FALSE(eqds_class_depart(&rdma.policy, &rdma.queue, 0).resume);
    EXPECT_TRUE(rdma.arrive(1, high).pause);
}

TEST(EqdsClass, RdmaWithCnpsSendsThemNoCloserThanTheirGap) {
    Class rdma(EQDS_CLASS_RDMA);
    rdma.policy.cnp = true;
    const uint32_t high = rdma.policy.high_bytes;
    const uint64_t gap = rdma.policy.cnp_gap_ns;
    EXPECT_FALSE(rdma.arrive(1, rdma.policy.low_bytes, false, 0, 1000).cnp);
    EXPECT_TRUE(rdma.arrive(1, high, false, 0, 1000).cnp);
    EXPECT_FALSE(rdma.arrive(1, high, false, 0, 1000 + gap - 1).cnp);
    eqds_class_verdict later = rdma.arrive(1, high, false, 0, 1000 + gap);
    EXPECT_TRUE(later.cnp);
    EXPECT_FALSE(later.pause);
    EXPECT_FALSE(later.mark);
}

TEST(EqdsClass, NativeClassNeitherMarksNorPauses) {
    Class native(EQDS_CLASS_NATIVE);
    eqds_class_verdict v = native.arrive(1, ~0u, true);
    EXPECT_FALSE(v.drop || v.mark || v.cnp || v.pause || v.resume);
}

} // namespace
