// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "../../core.hpp"

namespace {

struct Pool {
    Pool(uint32_t pages, uint32_t ready) : memory(rmem_pool_bytes(pages, ready, spaces_max)) {
        rmem_pool_init(&pool, memory.data(), pages, ready, spaces_max);
    }
    bool take(uint32_t& page, uint32_t space = 0, uint32_t spaces = 1) {
        return rmem_pool_take(&pool, space, spaces, &page);
    }
    // Pages that the space, one of so many, gets one after the other.
    unsigned take_all(uint32_t space, uint32_t spaces) {
        unsigned taken = 0;
        for (uint32_t page; take(page, space, spaces); taken++)
            rmem_pool_put_dirty(&pool, page);
        return taken;
    }
    bool refill_one() {
        uint32_t page;
        bool used;
        if (!rmem_pool_scrub_next(&pool, &page, &used))
            return false;
        rmem_pool_scrub_done(&pool, page);
        return true;
    }
    void refill() {
        while (refill_one()) {
        }
    }
    static constexpr uint32_t spaces_max = 64;
    std::vector<uint8_t> memory;
    rmem_pool pool;
};

TEST(Pool, FreshPagesFirstAndEachOnce) {
    Pool p(10, 4);
    std::set<uint32_t> seen;
    uint32_t page;
    EXPECT_FALSE(p.take(page));
    for (int round = 0; round < 3; round++) {
        p.refill();
        while (p.take(page))
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
    ASSERT_TRUE(p.take(page));
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
        p.take(page);
    EXPECT_FALSE(rmem_pool_scrub_wanted(&p.pool));
    p.take(page);
    EXPECT_TRUE(rmem_pool_scrub_wanted(&p.pool));
}

TEST(Pool, OnlyPagesPastAGracePeriodAreQuiet) {
    Pool p(4, 4);
    uint32_t page, taken[4];
    EXPECT_FALSE(rmem_pool_grace_begin(&p.pool)) << "fresh pages wait for none";
    p.refill();
    for (uint32_t& each : taken)
        ASSERT_TRUE(p.take(each));
    rmem_pool_put_dirty(&p.pool, taken[0]);
    EXPECT_FALSE(rmem_pool_grace_wanted(&p.pool));
    rmem_pool_put_dirty(&p.pool, taken[1]);
    EXPECT_TRUE(rmem_pool_grace_wanted(&p.pool)) << "half the pool";
    EXPECT_FALSE(rmem_pool_scrub_quiet(&p.pool, &page));
    ASSERT_TRUE(rmem_pool_grace_begin(&p.pool));
    EXPECT_FALSE(rmem_pool_grace_wanted(&p.pool));
    rmem_pool_put_dirty(&p.pool, taken[2]);
    EXPECT_FALSE(rmem_pool_scrub_quiet(&p.pool, &page));
    rmem_pool_grace_end(&p.pool);
    for (int n = 0; n < 2; n++) {
        ASSERT_TRUE(rmem_pool_scrub_quiet(&p.pool, &page));
        EXPECT_EQ(page, taken[n]);
        rmem_pool_scrub_later(&p.pool, page); // referred to: it waits again
    }
    EXPECT_FALSE(rmem_pool_scrub_quiet(&p.pool, &page)) << "it came too late";
    ASSERT_TRUE(rmem_pool_grace_begin(&p.pool));
    rmem_pool_grace_end(&p.pool);
    for (int n : {2, 0, 1}) {
        ASSERT_TRUE(rmem_pool_scrub_quiet(&p.pool, &page));
        EXPECT_EQ(page, taken[n]);
    }
    EXPECT_FALSE(rmem_pool_grace_begin(&p.pool));
}

TEST(Pool, PageGivenBackToAFullRingIsScrubbedAgain) {
    Pool p(8, 2);
    uint32_t page, other;
    p.refill();
    ASSERT_TRUE(p.take(page));
    p.refill();
    rmem_pool_untake(&p.pool, page);
    EXPECT_EQ(rmem_pool_ready(&p.pool), 2u);
    EXPECT_EQ(rmem_pool_unused(&p.pool), 8u);
    EXPECT_EQ(base_ring_count(&p.pool.dirty), 1u);
    ASSERT_TRUE(p.take(other));
    rmem_pool_untake(&p.pool, other);
    EXPECT_EQ(rmem_pool_ready(&p.pool), 2u);
}

TEST(Pool, GreedySpaceLeavesTheOthersTheirPart) {
    constexpr uint32_t ready = 64, kept = ready / 4, spaces = 4, part = kept / spaces;
    Pool p(200, ready);
    p.refill();
    EXPECT_EQ(p.take_all(0, spaces), ready - kept + part);
    EXPECT_EQ(p.take_all(0, spaces), 0u);
    EXPECT_EQ(p.take_all(1, spaces), part);
    EXPECT_EQ(p.take_all(2, spaces), part);
    EXPECT_EQ(p.take_all(3, spaces), part);
    EXPECT_EQ(rmem_pool_ready(&p.pool), 0u);
}

// The greedy space takes each page that is zeroed, as soon as it can.
TEST(Pool, PartComesBackWhenTheQuarterIsWhole) {
    constexpr uint32_t ready = 64, kept = ready / 4, spaces = 2, part = kept / spaces;
    Pool p(200, ready);
    p.refill();
    unsigned modest = 0;
    for (int round = 1; round < 100; round++) {
        for (unsigned n = 0; n <= kept; n++) {
            p.take_all(0, spaces);
            ASSERT_TRUE(p.refill_one());
        }
        unsigned got = p.take_all(1, spaces);
        ASSERT_GE(got, part) << round;
        modest += got;
    }
    EXPECT_GE(modest, 99 * part);
}

// With as many spaces as pages, a part is one WRITE's.
TEST(Pool, PartIsTwoPagesAtLeast) {
    Pool p(200, 64);
    p.refill();
    EXPECT_EQ(p.take_all(0, 64), 64u - 16 + 2);
    EXPECT_EQ(p.take_all(1, 64), 2u);
}

// The quarter can't be whole again, so nothing is kept from a space that was promised them.
TEST(Pool, LastPagesAreNotKept) {
    Pool p(66, 64);
    uint32_t page;
    p.refill();
    for (unsigned n = 0; n < 66; n++) {
        ASSERT_TRUE(p.take(page, 0, 2)) << n;
        p.refill();
    }
}

TEST(Pool, OneSpaceTakesAllThereIs) {
    Pool p(200, 64);
    p.refill();
    EXPECT_EQ(p.take_all(0, 1), 64u);
}

TEST(Pool, EveryPageMayBeDirty) {
    Pool p(5, 8); // more ready ones wanted than there are
    uint32_t page;
    p.refill();
    std::vector<uint32_t> all;
    while (p.take(page))
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
