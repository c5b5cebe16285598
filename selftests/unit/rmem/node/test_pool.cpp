// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "../../core.hpp"

namespace {

struct Pool {
    Pool(uint32_t pages, uint32_t ready) : memory(rmem_pool_bytes(pages, ready)) {
        rmem_pool_init(&pool, memory.data(), pages, ready);
    }
    void refill() {
        uint32_t page;
        bool used;
        while (rmem_pool_scrub_next(&pool, &page, &used))
            rmem_pool_scrub_done(&pool, page);
    }
    std::vector<uint8_t> memory;
    rmem_pool pool;
};

TEST(Pool, FreshPagesFirstAndEachOnce) {
    Pool p(10, 4);
    std::set<uint32_t> seen;
    uint32_t page;
    EXPECT_FALSE(rmem_pool_take(&p.pool, &page));
    for (int round = 0; round < 3; round++) {
        p.refill();
        while (rmem_pool_take(&p.pool, &page))
            EXPECT_TRUE(seen.insert(page).second);
    }
    EXPECT_EQ(seen.size(), 10u);
    EXPECT_EQ(*seen.rbegin(), 9u);
    EXPECT_EQ(rmem_pool_unused(&p.pool), 0u);
    EXPECT_FALSE(rmem_pool_scrub_wanted(&p.pool));
}

TEST(Pool, SaysWhetherAPageWasUsed) {
    Pool p(2, 2);
    uint32_t page;
    bool used = true;
    ASSERT_TRUE(rmem_pool_scrub_next(&p.pool, &page, &used));
    EXPECT_FALSE(used);
    rmem_pool_scrub_done(&p.pool, page);
    p.refill();
    ASSERT_TRUE(rmem_pool_take(&p.pool, &page));
    rmem_pool_put_dirty(&p.pool, page);
    uint32_t again;
    ASSERT_TRUE(rmem_pool_scrub_next(&p.pool, &again, &used));
    EXPECT_TRUE(used);
    EXPECT_EQ(again, page);
    rmem_pool_scrub_later(&p.pool, again);
    EXPECT_EQ(rmem_pool_unused(&p.pool), 2u);
    ASSERT_TRUE(rmem_pool_scrub_next(&p.pool, &again, &used));
    EXPECT_TRUE(used);
    EXPECT_EQ(again, page);
}

TEST(Pool, HandsOutNoMoreThanTheReadyRingHolds) {
    Pool p(100, 8);
    uint32_t page;
    bool used;
    for (int n = 0; n < 8; n++)
        EXPECT_TRUE(rmem_pool_scrub_next(&p.pool, &page, &used));
    EXPECT_FALSE(rmem_pool_scrub_next(&p.pool, &page, &used));
    EXPECT_EQ(rmem_pool_unused(&p.pool), 100u);
}

TEST(Pool, WantedAtHalf) {
    Pool p(100, 8);
    uint32_t page;
    EXPECT_TRUE(rmem_pool_scrub_wanted(&p.pool));
    p.refill();
    EXPECT_EQ(rmem_pool_ready(&p.pool), 8u);
    for (int n = 0; n < 3; n++)
        rmem_pool_take(&p.pool, &page);
    EXPECT_FALSE(rmem_pool_scrub_wanted(&p.pool));
    rmem_pool_take(&p.pool, &page);
    EXPECT_TRUE(rmem_pool_scrub_wanted(&p.pool));
}

TEST(Pool, PageGivenBackToAFullRingIsScrubbedAgain) {
    Pool p(8, 2);
    uint32_t page, other;
    p.refill();
    ASSERT_TRUE(rmem_pool_take(&p.pool, &page));
    p.refill();
    rmem_pool_untake(&p.pool, page);
    EXPECT_EQ(rmem_pool_ready(&p.pool), 2u);
    EXPECT_EQ(rmem_pool_unused(&p.pool), 8u);
    EXPECT_EQ(base_ring_count(&p.pool.dirty), 1u);
    ASSERT_TRUE(rmem_pool_take(&p.pool, &other));
    rmem_pool_untake(&p.pool, other);
    EXPECT_EQ(rmem_pool_ready(&p.pool), 2u);
}

TEST(Pool, EveryPageMayBeDirty) {
    Pool p(5, 8); // more ready ones wanted than there are
    uint32_t page;
    p.refill();
    std::vector<uint32_t> all;
    while (rmem_pool_take(&p.pool, &page))
        all.push_back(page);
    EXPECT_EQ(all.size(), 5u);
    for (uint32_t each : all)
        rmem_pool_put_dirty(&p.pool, each);
    EXPECT_EQ(rmem_pool_unused(&p.pool), 5u);
    p.refill();
    EXPECT_EQ(rmem_pool_ready(&p.pool), 5u);
    EXPECT_FALSE(rmem_pool_scrub_wanted(&p.pool));
}

} // namespace
