// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <vector>

extern "C" {
#include "core/rmem/node/lanes.h"
}

namespace {

// Jobs are named by what they belong to: lane, and which one of it.
class Lanes : public testing::Test {
protected:
    struct Job {
        rmem_lane_job in_lane; // first
        uint32_t number;
    };

    static constexpr uint32_t count = 8;

    Lanes() : memory_(rmem_lanes_bytes(count), 0xa5) {
        rmem_lanes_init(&lanes, memory_.data(), count);
    }

    Job* add(uint32_t lane) {
        Job& job = jobs_.emplace_back();
        job.number = added_[lane]++;
        rmem_lanes_add(&lanes, &job.in_lane, lane);
        return &job;
    }

    static Job* job(rmem_lane_job* in_lane) { return reinterpret_cast<Job*>(in_lane); }

    std::vector<uint32_t> take_all() {
        std::vector<uint32_t> order;
        while (rmem_lane_job* taken = rmem_lanes_take(&lanes))
            order.push_back(taken->lane);
        return order;
    }

    rmem_lanes lanes;

private:
    std::vector<uint8_t> memory_;
    std::deque<Job> jobs_;
    std::map<uint32_t, uint32_t> added_;
};

using Order = std::vector<uint32_t>;

TEST_F(Lanes, TakeFromEmptyLanesGivesNothing) {
    EXPECT_FALSE(rmem_lanes_any(&lanes));
    EXPECT_EQ(rmem_lanes_take(&lanes), nullptr);
    EXPECT_EQ(rmem_lanes_longest(&lanes), 0u);
}

TEST_F(Lanes, LanesWithJobsTakeTurns) {
    for (uint32_t lane : {1, 1, 1, 1, 2, 4, 4})
        add(lane);
    EXPECT_EQ(take_all(), (Order{1, 2, 4, 1, 4, 1, 1}));
    EXPECT_FALSE(rmem_lanes_any(&lanes));
}

TEST_F(Lanes, ModestTenantWaitsForOneJobOfTheGreedyOne) {
    for (int n = 0; n < 100; n++)
        add(3);
    rmem_lanes_take(&lanes);
    add(5);
    EXPECT_EQ(rmem_lanes_take(&lanes)->lane, 3u);
    EXPECT_EQ(rmem_lanes_take(&lanes)->lane, 5u);
}

// A tenant that always comes back at once, with one job, doesn't overtake those that wait.
TEST_F(Lanes, ReturningTenantGoesToTheEndOfTheRound) {
    add(1);
    add(2);
    add(2);
    add(3);
    Order order;
    for (int n = 0; n < 6; n++) {
        order.push_back(rmem_lanes_take(&lanes)->lane);
        if (order.back() == 1)
            add(1);
    }
    EXPECT_EQ(order, (Order{1, 2, 3, 1, 2, 1}));
}

TEST_F(Lanes, LongestLosesItsOldestJob) {
    for (uint32_t lane : {0, 6, 6, 6, 2, 2})
        add(lane);
    EXPECT_EQ(rmem_lanes_longest(&lanes), 3u);
    Job* dropped = job(rmem_lanes_drop(&lanes));
    EXPECT_EQ(dropped->in_lane.lane, 6u);
    EXPECT_EQ(dropped->number, 0u);
    EXPECT_EQ(rmem_lanes_longest(&lanes), 2u);
    EXPECT_EQ(take_all(), (Order{0, 6, 2, 6, 2}));
}

TEST_F(Lanes, OnlyLaneCanBeDroppedFromUntilItIsEmpty) {
    add(7);
    add(7);
    rmem_lanes_drop(&lanes);
    rmem_lanes_drop(&lanes);
    EXPECT_FALSE(rmem_lanes_any(&lanes));
    add(7);
    EXPECT_EQ(take_all(), Order{7});
}

// Against a plain model: jobs of a lane leave in their order, none is lost, and between two jobs of
// a waiting lane each other lane is served once at most.
TEST_F(Lanes, HoldUnderAnyOrderOfUse) {
    std::mt19937 random(1);
    std::map<uint32_t, std::deque<uint32_t>> model;
    std::map<uint32_t, std::map<uint32_t, int>> passed; // by who waits: jobs of others since
    for (int n = 0; n < 20000; n++) {
        uint32_t lane = random() % count;
        switch (random() % 5) {
        case 0:
        case 1:
            if (model[lane].empty())
                passed[lane].clear();
            model[lane].push_back(add(lane)->number);
            continue;
        case 2:
            if (rmem_lanes_any(&lanes)) {
                Job* dropped = job(rmem_lanes_drop(&lanes));
                std::deque<uint32_t>& of = model[dropped->in_lane.lane];
                for (auto& [other, jobs] : model)
                    ASSERT_LE(jobs.size(), of.size());
                ASSERT_EQ(dropped->number, of.front());
                of.pop_front();
            }
            continue;
        default:
            rmem_lane_job* taken = rmem_lanes_take(&lanes);
            if (!taken) {
                for (auto& [other, jobs] : model)
                    ASSERT_TRUE(jobs.empty());
                continue;
            }
            ASSERT_EQ(job(taken)->number, model[taken->lane].front());
            model[taken->lane].pop_front();
            passed[taken->lane].clear();
            for (auto& [other, jobs] : model) {
                if (other != taken->lane && !jobs.empty()) {
                    ASSERT_LE(++passed[other][taken->lane], 1);
                }
            }
        }
    }
}

} // namespace
