// SPDX-License-Identifier: GPL-2.0
#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "sim/events.hpp"

namespace {

using namespace sim;

struct Log : Handler {
    explicit Log(Events& owner) : events(owner) {}
    virtual ~Log() = default;
    void fire(std::uint64_t arg) override { seen.push_back({events.now(), arg}); }
    Events& events;
    std::vector<std::pair<Time, std::uint64_t>> seen;
};

TEST(SimEvents, EqualTimesKeepTheOrderOfScheduling) {
    Events events(ns);
    Log log(events);
    for (std::uint64_t i = 0; i < 100; i++)
        events.at(500 * ns, log, i);
    events.run(never);
    for (std::uint64_t i = 0; i < 100; i++)
        EXPECT_EQ(log.seen[i].second, i);
}

// Random times, from the same slot to far beyond the wheel, scheduled from within handlers too: the
// order is that of a stable sort by time.
TEST(SimEvents, OrderIsThatOfAStableSort) {
    struct Spawner final : Log {
        Spawner(Events& owner, Rng& source) : Log(owner), rng(source) {}
        void fire(std::uint64_t arg) override {
            Log::fire(arg);
            if (scheduled.size() < 20'000)
                spawn();
        }
        void spawn() {
            for (int i = 0; i < 2; i++) {
                Time when = events.now() + (rng.next() >> (20 + rng.below(44)));
                scheduled.push_back({when, scheduled.size()});
                events.at(when, *this, scheduled.size() - 1);
            }
        }
        Rng& rng;
        std::vector<std::pair<Time, std::uint64_t>> scheduled;
    };
    for (std::uint64_t seed = 1; seed <= 5; seed++) {
        Events events(10 * ns);
        Rng rng(seed);
        Spawner spawner(events, rng);
        spawner.spawn();
        events.run(never);
        auto expected = spawner.scheduled;
        std::stable_sort(expected.begin(), expected.end(),
                         [](auto& a, auto& b) { return a.first < b.first; });
        EXPECT_EQ(spawner.seen, expected) << "seed " << seed;
        EXPECT_EQ(events.pending(), 0u);
    }
}

TEST(SimEvents, RunStopsAtTheEndAndClockStandsThere) {
    Events events(ns);
    Log log(events);
    events.at(10 * us, log, 1);
    events.at(30 * ms, log, 2);
    events.run(20 * us);
    EXPECT_EQ(log.seen.size(), 1u);
    EXPECT_EQ(events.now(), 20 * us);
    // Earlier than the pending one, and within a slot that was already looked at.
    events.after(1, log, 3);
    events.run(never);
    EXPECT_EQ(log.seen[1], (std::pair<Time, std::uint64_t>(20 * us + 1, 3)));
    EXPECT_EQ(log.seen[2].second, 2u);
}

TEST(SimRandom, ExponentialHasItsMean) {
    Rng rng(7);
    std::uint64_t sum = 0;
    for (int i = 0; i < 100'000; i++)
        sum += rng.exponential(1000);
    EXPECT_NEAR(static_cast<double>(sum) / 100'000, 1000, 15);
}

TEST(SimRandom, SeedFixesTheSequence) {
    // Written down once: another value on another machine would change every published result.
    Rng rng(1);
    std::uint64_t first = rng.next();
    EXPECT_EQ(Rng(1).next(), first);
    EXPECT_NE(Rng(2).next(), first);
    EXPECT_EQ(first, 14233695028433725123u);
}

} // namespace
