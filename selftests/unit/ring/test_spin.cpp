// SPDX-License-Identifier: GPL-2.0
// How long an end looks at its rings before it sleeps: by the gaps of the traffic, and never beyond
// the bound.
#include <gtest/gtest.h>

extern "C" {
#include "core/ring/spin.h"
}

namespace remora::test {

namespace {

constexpr std::uint64_t us = 1000, max_ns = 200 * us;

struct Spinner {
    // The answer after so many events with that gap between them.
    std::uint64_t events(unsigned count, std::uint64_t gap_ns) {
        std::uint64_t spin_ns = 0;
        for (unsigned n = 0; n < count; n++) {
            now_ns += gap_ns;
            spin_ns = ring_spin_event(&spin, now_ns, bound_ns);
        }
        return spin_ns;
    }

    ring_spin spin{};
    std::uint64_t now_ns = 1'000'000 * us, bound_ns = max_ns;
};

TEST(RingSpin, FirstEventSleepsAtOnce) {
    EXPECT_EQ(Spinner().events(1, 0), 0U);
}

TEST(RingSpin, DenseTrafficIsLookedForTwiceItsGap) {
    Spinner each;
    std::uint64_t spin_ns = each.events(100, 20 * us);
    EXPECT_GE(spin_ns, 39 * us);
    EXPECT_LE(spin_ns, 42 * us);
}

TEST(RingSpin, RareTrafficSleepsAtOnce) {
    for (std::uint64_t gap_ns : {max_ns + us, 10 * max_ns, 1'000'000 * us})
        EXPECT_EQ(Spinner().events(100, gap_ns), 0U) << gap_ns;
}

TEST(RingSpin, RestIsForgottenAfterAFewEvents) {
    Spinner each;
    each.events(100, 10 * us);
    each.events(1, 3'600'000'000 * us);
    unsigned events = 0;
    while (!each.events(1, 10 * us))
        ASSERT_LT(events++, 8U);
}

TEST(RingSpin, TrafficThatEndsStopsTheLookingAfterAFewEvents) {
    Spinner each;
    each.events(100, 10 * us);
    unsigned events = 0;
    while (each.events(1, 100 * max_ns))
        ASSERT_LT(events++, 8U);
}

TEST(RingSpin, NeverLooksLongerThanTheBound) {
    Spinner each;
    for (std::uint64_t n = 1; n < 10'000; n++) {
        each.bound_ns = n % 7 * 50 * us; // the operator may change it
        EXPECT_LE(each.events(1, n * n % 977 * us), each.bound_ns);
    }
}

TEST(RingSpin, ClockThatStandsStillIsTaken) {
    EXPECT_LE(Spinner().events(100, 0), max_ns);
}

} // namespace

} // namespace remora::test
