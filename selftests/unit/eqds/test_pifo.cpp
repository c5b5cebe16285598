// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "lone_receiver.hpp"

namespace {

struct Pifo : testing::Test {
    Pifo() { eqds_pifo_init(&pifo); }

    eqds_pifo_node* push(uint8_t priority, uint64_t rank) {
        auto node = std::make_unique<eqds_pifo_node>();
        eqds_pifo_push(&pifo, node.get(), priority, rank);
        nodes.push_back(std::move(node));
        return nodes.back().get();
    }

    std::vector<uint64_t> pop_ranks() {
        std::vector<uint64_t> ranks;
        while (eqds_pifo_node* node = eqds_pifo_pop(&pifo))
            ranks.push_back(node->rank);
        return ranks;
    }

    eqds_pifo pifo;
    std::vector<std::unique_ptr<eqds_pifo_node>> nodes;
};

TEST_F(Pifo, EmptyQueuePopsNothing) {
    EXPECT_EQ(eqds_pifo_pop(&pifo), nullptr);
    push(0, 1);
    EXPECT_NE(eqds_pifo_pop(&pifo), nullptr);
    EXPECT_EQ(eqds_pifo_pop(&pifo), nullptr);
}

TEST_F(Pifo, LowerRankLeavesFirst) {
    for (uint64_t rank : {5, 1, ~0, 3, 0, 4})
        push(0, rank);
    EXPECT_EQ(pop_ranks(), (std::vector<uint64_t>{0, 1, 3, 4, 5, ~0ull}));
}

TEST_F(Pifo, LowerPriorityNumberLeavesFirstWhateverItsRank) {
    push(2, 0);
    push(1, 7);
    push(0, 9);
    EXPECT_EQ(pop_ranks(), (std::vector<uint64_t>{9, 7, 0}));
}

TEST_F(Pifo, EqualRanksLeaveInTheOrderTheyCame) {
    std::vector<eqds_pifo_node*> came;
    for (int i = 0; i < 100; i++)
        came.push_back(push(1, 42));
    for (eqds_pifo_node* node : came)
        EXPECT_EQ(eqds_pifo_pop(&pifo), node);
}

TEST_F(Pifo, RemovedNodeDoesNotLeaveAndMayComeAgain) {
    eqds_pifo_node* low = push(0, 1);
    eqds_pifo_node* middle = push(0, 2);
    push(0, 3);
    eqds_pifo_remove(&pifo, middle);
    eqds_pifo_remove(&pifo, low); // the root
    eqds_pifo_push(&pifo, middle, 0, 4);
    EXPECT_EQ(pop_ranks(), (std::vector<uint64_t>{3, 4}));
}

TEST_F(Pifo, RandomCallsLeaveTheSameOrderAsASortedList) {
    std::mt19937 random(1);
    std::vector<eqds_pifo_node*> in, out;
    auto before = [](const eqds_pifo_node* a, const eqds_pifo_node* b) {
        return std::tie(a->priority, a->rank, a->came) < std::tie(b->priority, b->rank, b->came);
    };
    for (int step = 0; step < 20000; step++) {
        uint32_t what = random() % 8;
        if (what < 4 && in.size() < 100) {
            if (out.empty()) {
                in.push_back(push(random() % 3, random() % 20));
            } else {
                eqds_pifo_push(&pifo, out.back(), random() % 3, random() % 20);
                in.push_back(out.back());
                out.pop_back();
            }
        } else if (what < 6 && !in.empty()) {
            auto at = in.begin() + random() % in.size();
            eqds_pifo_remove(&pifo, *at);
            out.push_back(*at);
            in.erase(at);
        } else {
            auto least = std::min_element(in.begin(), in.end(), before);
            ASSERT_EQ(eqds_pifo_pop(&pifo), least == in.end() ? nullptr : *least);
            if (least == in.end())
                continue;
            out.push_back(*least);
            in.erase(least);
        }
    }
}

// Turns that a tunnel had at one priority do not count at another.
TEST(AslPifo, TunnelThatChangesPriorityTakesTurnsThereAtOnce) {
    eqds::LoneReceiver one(0), other(0);
    eqds_asl_init(&one.asl, EQDS_ASL_PIFO, 1500, 10'000'000'000, 1);
    other.r.share.asl = &one.asl;
    eqds_asl_set(&one.r.share, 0, 1);
    eqds_asl_set(&other.r.share, 7, 1);
    eqds_asl_update(&one.r.share, 100, 0);
    u64 now_ns = 0;
    auto next = [&] {
        eqds_head head;
        now_ns += 2000;
        return eqds_receiver_next(&one.asl, now_ns, &head);
    };
    for (int i = 0; i < 100; i++) {
        ASSERT_EQ(next(), &one.r);
        one.r.unused_bytes = 0; // its sender uses the pull
    }
    eqds_asl_set(&one.r.share, 7, 1);
    eqds_asl_update(&one.r.share, 200, 0);
    eqds_asl_update(&other.r.share, 100, 0);
    int turns = 0;
    for (int i = 0; i < 20; i++)
        turns += next() == &one.r;
    EXPECT_EQ(turns, 10);
}

// Two tunnels that always want more, and how many of so many pulls the first one gets.
int turns_of_first(u8 first_priority, u32 first_weight, u8 other_priority, u32 other_weight,
                   int pulls) {
    eqds::LoneReceiver one(0), other(0);
    eqds_asl_init(&one.asl, EQDS_ASL_PIFO, 1500, 10'000'000'000, 1);
    other.r.share.asl = &one.asl;
    eqds_asl_set(&one.r.share, first_priority, first_weight);
    eqds_asl_set(&other.r.share, other_priority, other_weight);
    int turns = 0;
    u64 now_ns = 0;
    for (int i = 0; i < pulls; i++) {
        eqds_asl_update(&one.r.share, one.r.share.pull + 1, 0);
        eqds_asl_update(&other.r.share, other.r.share.pull + 1, 0);
        eqds_head head;
        now_ns += 2000;
        turns += eqds_receiver_next(&one.asl, now_ns, &head) == &one.r;
        one.r.unused_bytes = other.r.unused_bytes = 0; // both senders use their pulls
    }
    return turns;
}

TEST(AslPifo, WeightsDivideTheTurns) {
    EXPECT_EQ(turns_of_first(3, 1, 3, 1, 400), 200);
    EXPECT_NEAR(turns_of_first(3, 3, 3, 1, 400), 300, 1);
    EXPECT_NEAR(turns_of_first(3, 1, 3, 7, 400), 50, 1);
}

TEST(AslPifo, LowerPriorityNumberTakesEveryTurnWhileItWantsThem) {
    EXPECT_EQ(turns_of_first(0, 1, 1, EQDS_WEIGHT_MAX, 400), 400);
    EXPECT_EQ(turns_of_first(7, EQDS_WEIGHT_MAX, 6, 1, 400), 0);
}

} // namespace
