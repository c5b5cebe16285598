// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

extern "C" {
#include "core/rmem/client/window.h"
}

namespace {

constexpr uint64_t us = BASE_NSEC_PER_USEC, ms = BASE_NSEC_PER_MSEC;

struct Window : testing::Test {
    rmem_window w;
    uint64_t now = 1000 * ms;
    uint64_t until = 0;
    void SetUp() override { rmem_window_init(&w, false); }

    bool acquire(uint32_t packets = 1) { return rmem_window_acquire(&w, now, packets, &until); }

    void fill() {
        while (acquire())
            ;
    }

    // A round trip in which the window is always full, and each packet answered once.
    void round(uint64_t delay_ns, uint64_t base_ns) {
        fill();
        now += delay_ns;
        for (uint32_t n = w.in_flight; n; n--) {
            rmem_window_answered(&w, now, 1, delay_ns, base_ns);
            rmem_window_release(&w, 1);
            fill();
        }
    }
};

TEST_F(Window, AdmitsWhileLessThanItIsUnderWay) {
    EXPECT_TRUE(acquire(63));
    EXPECT_TRUE(acquire(100)); // may overshoot by itself
    EXPECT_FALSE(acquire());
    EXPECT_EQ(until, 0u);
    rmem_window_release(&w, 99);
    EXPECT_FALSE(acquire());
    rmem_window_release(&w, 1);
    EXPECT_TRUE(acquire());
    EXPECT_EQ(w.in_flight, 64u);
}

TEST_F(Window, GrowsByAPacketPerRoundTripBelowTheTarget) {
    uint32_t before = w.cwnd;
    for (int i = 0; i < 10; i++)
        round(200 * us, 100 * us);
    EXPECT_NEAR(double(w.cwnd), before + 10.0 * RMEM_CWND_ONE, 2.0 * RMEM_CWND_ONE);
}

TEST_F(Window, DoesNotGrowUnlessUsed) {
    for (int i = 0; i < 1000; i++) {
        ASSERT_TRUE(acquire());
        rmem_window_answered(&w, now, 1, 200 * us, 100 * us);
        rmem_window_release(&w, 1);
    }
    EXPECT_EQ(w.cwnd, RMEM_CWND_START);
}

TEST_F(Window, FixedOneStaysAtItsMost) {
    rmem_window_init(&w, true);
    rmem_window_answered(&w, now, 1, 100 * ms, 100 * us);
    rmem_window_lost(&w, now, 100 * us);
    rmem_window_timeout(&w, now, 10 * ms);
    EXPECT_EQ(w.cwnd, RMEM_CWND_MAX);
}

TEST_F(Window, StopsAtTheMaximum) {
    for (int i = 0; i < 5000; i++)
        round(200 * us, 100 * us);
    EXPECT_EQ(w.cwnd, RMEM_CWND_MAX);
}

TEST_F(Window, ShrinksInProportionToTheExcessOncePerRoundTrip) {
    round(1 * ms, 100 * us); // at the target of 1 ms
    uint32_t before = w.cwnd;
    EXPECT_GE(before, RMEM_CWND_START);
    rmem_window_init(&w, false);
    w.delay_us = 1250;
    rmem_window_answered(&w, now, 1, 1250 * us, 100 * us);
    uint32_t after = w.cwnd; // excess is a fifth, 0.8 of it goes
    EXPECT_NEAR(double(after), RMEM_CWND_START * 0.84, RMEM_CWND_START * 0.01);
    rmem_window_answered(&w, now + 1 * ms, 1, 1250 * us, 100 * us);
    EXPECT_EQ(w.cwnd, after);
    rmem_window_answered(&w, now + 2 * ms, 1, 1250 * us, 100 * us);
    EXPECT_LT(w.cwnd, after);
}

TEST_F(Window, NeverShrinksByMoreThanHalfAtOnce) {
    w.delay_us = 100000;
    rmem_window_answered(&w, now, 1, 100 * ms, 100 * us);
    EXPECT_GE(w.cwnd, RMEM_CWND_START / 2 - 1);
    rmem_window_init(&w, false);
    rmem_window_timeout(&w, now, 10 * ms);
    rmem_window_timeout(&w, now + 9 * ms, 10 * ms);
    EXPECT_EQ(w.cwnd, RMEM_CWND_START / 2);
}

TEST_F(Window, TargetFollowsTheBaseWithinBounds) {
    for (auto [base_us, delay_us, shrinks] : {std::tuple{10, 900, false},
                                              {10, 1100, true},
                                              {1000, 7000, false},
                                              {1000, 9000, true},
                                              {50000, 19000, false},
                                              {50000, 21000, true}}) {
        rmem_window_init(&w, false);
        w.delay_us = delay_us;
        acquire(64);
        rmem_window_answered(&w, now, 1, delay_us * us, base_us * us);
        EXPECT_EQ(w.cwnd < RMEM_CWND_START, shrinks) << base_us << " " << delay_us;
    }
}

TEST_F(Window, HowFarItShrinksDependsOnTheSign) {
    const uint64_t base = 100 * us, target = 1 * ms;
    acquire(64);
    for (int i = 0; i < 100; i++, now += 100 * ms)
        rmem_window_answered(&w, now, 1, 4 * target, base); // late, as a busy machine is
    EXPECT_EQ(w.cwnd, RMEM_CWND_FLOOR);
    for (int i = 0; i < 40; i++, now += 10 * ms)
        rmem_window_timeout(&w, now, 10 * ms); // lost
    EXPECT_EQ(w.cwnd, RMEM_CWND_ONE);
    for (int i = 0; i < 100; i++, now += 100 * ms)
        rmem_window_answered(&w, now, 1, 100 * target, base); // an incast
    EXPECT_EQ(w.cwnd, RMEM_CWND_MIN);
    for (int i = 0; i < 200; i++, now += 100 * ms)
        rmem_window_answered(&w, now, 1, base, base); // over
    EXPECT_GE(w.cwnd, RMEM_CWND_FLOOR);
    for (int i = 0; i < 40; i++, now += 10 * ms)
        rmem_window_lost(&w, now, base); // a bad cable
    EXPECT_EQ(w.cwnd, RMEM_CWND_FLOOR);
    w.delay_us = 2000;
    for (int i = 0; i < 40; i++, now += 10 * ms)
        rmem_window_lost(&w, now, base); // a full queue
    EXPECT_EQ(w.cwnd, RMEM_CWND_MIN);
}

TEST_F(Window, BelowOnePacketTimeOpensIt) {
    w.cwnd = RMEM_CWND_MIN;
    w.delay_us = 500;
    EXPECT_TRUE(acquire());
    EXPECT_FALSE(acquire()); // one is under way: a release is wanted
    EXPECT_EQ(until, 0u);
    rmem_window_release(&w, 1);
    EXPECT_FALSE(acquire());
    EXPECT_EQ(until, now + 32 * ms); // round trip / cwnd
    now = until - 1;
    EXPECT_FALSE(acquire());
    now = until;
    EXPECT_TRUE(acquire());
    rmem_window_answered(&w, now, 1, 1 * ms, 1 * ms);
    rmem_window_release(&w, 1);
    EXPECT_GT(w.cwnd, RMEM_CWND_ONE); // one good answer brings it back to life
}

TEST_F(Window, PacesAtTheLeastWhateverWasMeasured) {
    w.cwnd = RMEM_CWND_MIN;
    w.delay_us = 4000000;
    EXPECT_TRUE(acquire(256));
    rmem_window_release(&w, 256);
    EXPECT_FALSE(acquire());
    EXPECT_LE(until, now + RMEM_PACE_NS_MAX);
}

TEST_F(Window, AbsurdDelaysAreHarmless) {
    for (uint64_t delay : {uint64_t(1), ~uint64_t(0), uint64_t(1) << 40}) {
        for (uint64_t base : {uint64_t(0), uint64_t(1), uint64_t(1) << 40}) {
            now += 10 * BASE_NSEC_PER_SEC;
            rmem_window_answered(&w, now, 1, delay, base);
            EXPECT_GE(w.cwnd, RMEM_CWND_MIN);
            EXPECT_LE(w.cwnd, RMEM_CWND_MAX);
        }
    }
}

} // namespace
