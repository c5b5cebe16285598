// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "../../core.hpp"

namespace {

using Pairs = std::vector<std::pair<uint64_t, uint64_t>>;

struct Spans : testing::Test {
    Spans() { rmem_spans_init(&spans, 1); }
    void add(const Pairs& pairs) {
        for (auto [begin, end] : pairs)
            rmem_spans_add(&spans, begin, end);
    }
    Pairs all() const {
        Pairs pairs;
        for (uint32_t n = 0; n < spans.count; n++)
            pairs.emplace_back(spans.at[n].begin, spans.at[n].end);
        return pairs;
    }
    uint64_t next(uint64_t vpn, uint64_t pages) const {
        return rmem_spans_next(&spans, vpn, pages);
    }
    rmem_spans spans;
};

TEST_F(Spans, AreInOrderAndJoinWhereTheyTouch) {
    add({{50, 60}, {10, 20}, {30, 40}});
    EXPECT_EQ(all(), (Pairs{{0, 1}, {10, 20}, {30, 40}, {50, 60}}));
    add({{20, 25}, {45, 50}});
    EXPECT_EQ(all(), (Pairs{{0, 1}, {10, 25}, {30, 40}, {45, 60}}));
    add({{1, 10}, {40, 45}, {25, 30}});
    EXPECT_EQ(all(), (Pairs{{0, 60}}));
}

TEST_F(Spans, NextIsTheFirstHoleThatIsLongEnough) {
    add({{10, 20}, {25, 30}});
    EXPECT_EQ(next(0, 1), 1u);
    EXPECT_EQ(next(0, 9), 1u);
    EXPECT_EQ(next(0, 10), 30u);
    EXPECT_EQ(next(2, 9), 30u);
    EXPECT_EQ(next(6, 5), 20u);
    EXPECT_EQ(next(15, 5), 20u);
    EXPECT_EQ(next(21, 4), 21u);
    EXPECT_EQ(next(1000, 1000), 1000u);
}

TEST_F(Spans, HolesBeginWhereASpanEnds) {
    add({{10, 20}});
    for (uint64_t vpn : {1, 5, 9})
        EXPECT_EQ(rmem_spans_hole(&spans, vpn), 1u);
    EXPECT_EQ(rmem_spans_hole(&spans, 20), 20u);
    EXPECT_EQ(rmem_spans_hole(&spans, 1000), 20u);
}

TEST_F(Spans, FullOnesTakeOnlySpansThatTouchAnother) {
    for (uint64_t n = 1; n < RMEM_SPANS_MAX; n++) {
        EXPECT_TRUE(rmem_spans_may_add(&spans, 100 * n, 100 * n + 10));
        add({{100 * n, 100 * n + 10}});
    }
    EXPECT_EQ(spans.count, uint32_t{RMEM_SPANS_MAX});
    EXPECT_FALSE(rmem_spans_may_add(&spans, 395, 397));
    EXPECT_FALSE(rmem_spans_may_add(&spans, 1'000'000, 1'000'001));
    EXPECT_TRUE(rmem_spans_may_add(&spans, 395, 400));
    EXPECT_TRUE(rmem_spans_may_add(&spans, 310, 312));
    add({{395, 400}, {310, 395}});
    EXPECT_EQ(spans.count, uint32_t{RMEM_SPANS_MAX - 1});
    EXPECT_TRUE(rmem_spans_may_add(&spans, 1'000'000, 1'000'001));
}

} // namespace
