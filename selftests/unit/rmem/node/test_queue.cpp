// SPDX-License-Identifier: GPL-2.0
// Slow requests that wait (core/rmem/node/queue.h): one greedy tenant beside a modest one.
#include <gtest/gtest.h>

#include <vector>

#include "node_rig.hpp"

extern "C" {
#include "core/rmem/node/queue.h"
}

namespace {

constexpr uint32_t greedy = 1, modest = 2;

class SlowQueue : public testing::Test {
protected:
    SlowQueue()
        : memory_(rmem_queue_bytes(rig::small_config().spaces_max), 0xa5), jobs_(RMEM_QUEUE_JOBS) {
        EXPECT_TRUE(node.add_space(greedy));
        EXPECT_TRUE(node.add_space(modest));
        rmem_queue_init(&queue, memory_.data(), node.core.config.spaces_max);
        for (rmem_job& job : jobs_)
            rmem_queue_give(&queue, &job);
    }

    rmem_job* add(uint32_t space, uint8_t type, bool* dropped = nullptr) {
        rmem_head head{};
        head.space = space;
        head.type = type;
        bool any;
        return rmem_queue_add(&queue, &node.core, &head, dropped ? dropped : &any);
    }

    void fill(uint32_t space, uint8_t type) {
        for (unsigned n = 0; n < RMEM_QUEUE_JOBS; n++)
            ASSERT_NE(add(space, type), nullptr);
    }

    uint32_t space_of(rmem_job* job) { return job ? job->head.space : 0; }

    rig::Node node;
    rmem_queue queue;

private:
    std::vector<uint8_t> memory_;
    std::vector<rmem_job> jobs_;
};

TEST_F(SlowQueue, BriefRequestsAndWorkWaitApart) {
    EXPECT_FALSE(rmem_queue_any(&queue));
    add(greedy, RMEM_ALLOC);
    EXPECT_EQ(rmem_queue_take_brief(&queue), nullptr);
    add(greedy, RMEM_OPEN);
    rmem_job* brief = rmem_queue_take_brief(&queue);
    ASSERT_NE(brief, nullptr);
    EXPECT_EQ(brief->head.type, RMEM_OPEN);
    EXPECT_EQ(rmem_queue_take_work(&queue)->head.type, RMEM_ALLOC);
    EXPECT_FALSE(rmem_queue_any(&queue));
}

TEST_F(SlowQueue, APutOffRequestWaitsAmongTheWork) {
    add(modest, RMEM_FENCE);
    rmem_queue_put_off(&queue, rmem_queue_take_brief(&queue));
    EXPECT_EQ(rmem_queue_take_brief(&queue), nullptr);
    EXPECT_EQ(space_of(rmem_queue_take_work(&queue)), modest);
}

TEST_F(SlowQueue, ATenantWaitsForOneRequestOfEachOther) {
    for (int n = 0; n < 10; n++)
        add(greedy, RMEM_ALLOC);
    add(modest, RMEM_ALLOC);
    uint32_t first = space_of(rmem_queue_take_work(&queue));
    uint32_t second = space_of(rmem_queue_take_work(&queue));
    EXPECT_TRUE(first == modest || second == modest);
}

TEST_F(SlowQueue, InAFullOneTheTenantWithMostMakesRoom) {
    fill(greedy, RMEM_ALLOC);
    bool dropped = false;
    EXPECT_EQ(add(greedy, RMEM_ALLOC, &dropped), nullptr);
    EXPECT_FALSE(dropped);
    EXPECT_NE(add(modest, RMEM_OPEN, &dropped), nullptr);
    EXPECT_TRUE(dropped);
    EXPECT_EQ(space_of(rmem_queue_take_brief(&queue)), modest);
}

TEST_F(SlowQueue, AJobOfADeletedSpaceIsNotCurrent) {
    rmem_job* job = add(modest, RMEM_FENCE);
    EXPECT_TRUE(rmem_job_is_current(job, &node.core));
    node.remove_space(modest);
    EXPECT_FALSE(rmem_job_is_current(job, &node.core));
    ASSERT_TRUE(node.add_space(modest));
    EXPECT_FALSE(rmem_job_is_current(job, &node.core));
}

} // namespace
