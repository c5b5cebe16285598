// SPDX-License-Identifier: GPL-2.0
#include "remora-kv/budget.hpp"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace remora::kv {
namespace {

constexpr std::size_t limit = 1 << 20, connections = 64, share = limit / 2 / connections;

// All that they get, if they ask for a byte, or for more, as often as they can.
std::vector<std::size_t> greedy(Budget& budget, std::size_t count, std::size_t step) {
    std::vector<std::size_t> held(count);
    for (bool more = true; more;) {
        more = false;
        for (std::size_t& each : held) {
            if (!budget.permits(each, step))
                continue;
            budget.change(each, each + step);
            each += step;
            more = true;
        }
    }
    return held;
}

TEST(Budget, LimitHoldsHoweverMuchConnectionsWant) {
    for (std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{5}, connections}) {
        for (std::size_t step : {std::size_t{64}, std::size_t{5000}, std::size_t{100'000}}) {
            Budget budget(limit, connections);
            const auto held = greedy(budget, count, step);
            EXPECT_LE(std::accumulate(held.begin(), held.end(), std::size_t{0}), limit);
        }
    }
}

TEST(Budget, GreedyConnectionsLeaveAsMuchAsTheyTake) {
    Budget budget(limit, connections);
    const auto held = greedy(budget, 3, 64);
    for (std::size_t each : held)
        EXPECT_NEAR(static_cast<double>(each), share + limit / 2 / 4, 1024);
    EXPECT_GE(budget.room(0), share + limit / 2 / 8 - 1024);
}

TEST(Budget, ShareIsThereWhateverOthersTake) {
    Budget budget(limit, connections);
    const auto held = greedy(budget, connections - 1, 64);
    EXPECT_GE(budget.room(0), share);
    EXPECT_FALSE(budget.exceeds_share(share));
    EXPECT_TRUE(budget.exceeds_share(held[0]));
}

TEST(Budget, CommandsBehindTheFirstLeaveRoomForFirstOnes) {
    for (std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{9}, connections}) {
        Budget budget(limit, connections);
        std::vector<std::size_t> held(count);
        for (std::size_t n = 0; n < 64; n++) {
            for (std::size_t& each : held) {
                const std::size_t more = budget.room_behind(each);
                budget.change(each, each + more);
                each += more;
            }
        }
        for (std::size_t each : held)
            EXPECT_GE(budget.room(each), limit / 2 / 12) << count;
    }
}

TEST(Budget, TellsOnceThatMemoryWasGivenBack) {
    Budget budget(limit, connections);
    budget.change(0, 100);
    EXPECT_FALSE(budget.take_freed());
    budget.change(100, 50);
    EXPECT_TRUE(budget.take_freed());
    EXPECT_FALSE(budget.take_freed());
}

} // namespace
} // namespace remora::kv
