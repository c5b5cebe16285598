// SPDX-License-Identifier: GPL-2.0
// What a handle says of itself.
#include <cerrno>
#include <limits>
#include <numeric>
#include <vector>

#include "backend.hpp"
#include "src/backend/stats.hpp"

namespace remora::test {

namespace {

class Stats : public Backends {};

INSTANTIATE_TEST_SUITE_P(Lib, Stats, testing::ValuesIn(kinds()), kind_name);

TEST_P(Stats, CountEndedOperations) {
    raddr_t a = alloc(1 << 20);
    remote_counters before, after;
    ASSERT_EQ(remote_stats(r, &before), 0);
    std::vector<std::uint8_t> data(1000);
    for (int i = 0; i < 10; i++)
        ASSERT_EQ(rwrite(r, a, data.data(), data.size()), 0);
    ASSERT_EQ(rread(r, a, data.data(), 500), 0);
    ASSERT_EQ(rfetch(r, a, 8, REMOTE_ADD, 1, nullptr), 0);
    rsignal signal{a, 8, REMOTE_ADD, 1};
    ASSERT_EQ(rput(r, a + 8, data.data(), 100, &signal), 0);
    ASSERT_EQ(rread(r, raddr_t{1} << 50, data.data(), 500), -EFAULT);
    ASSERT_EQ(remote_stats(r, &after), 0);
    auto done = [&](remote_kind kind) { return after.kind[kind].done - before.kind[kind].done; };
    EXPECT_EQ(done(REMOTE_KIND_WRITE), 11U);
    EXPECT_EQ(done(REMOTE_KIND_READ), 1U);
    EXPECT_EQ(done(REMOTE_KIND_INTEGER), 1U);
    EXPECT_EQ(after.kind[REMOTE_KIND_READ].failed - before.kind[REMOTE_KIND_READ].failed, 1U);
    EXPECT_EQ(after.kind[REMOTE_KIND_WRITE].bytes - before.kind[REMOTE_KIND_WRITE].bytes, 10'100U);
    if (GetParam() == Kind::embedded) {
        EXPECT_GE(before.kind[REMOTE_KIND_OTHER].done, 1U) << "the allocation";
        EXPECT_EQ(after.sent, 0U);
        EXPECT_GT(remote_percentile_ns(&before.kind[REMOTE_KIND_OTHER], 50), 0U);
        for (int i = 0; i < 16; i++)
            ASSERT_EQ(rwrite(r, a, data.data(), data.size()), 0);
        ASSERT_EQ(remote_stats(r, &after), 0);
    }
    if (GetParam() != Kind::given && GetParam() != Kind::embedded) {
        EXPECT_GE(after.sent - before.sent, 13U);
        EXPECT_GE(after.received - before.received, 13U);
    }
    std::uint64_t half = remote_percentile_ns(&after.kind[REMOTE_KIND_WRITE], 50);
    EXPECT_GT(half, 0U);
    EXPECT_LE(half, remote_percentile_ns(&after.kind[REMOTE_KIND_WRITE], 99));
}

TEST_P(Stats, RejectsInvalidArguments) {
    remote_counters stats;
    EXPECT_EQ(remote_stats(nullptr, &stats), -EINVAL);
    EXPECT_EQ(remote_stats(r, nullptr), -EINVAL);
    EXPECT_EQ(remote_percentile_ns(nullptr, 50), 0U);
}

// Every time lies in one bucket, below its upper bound, and not far below.
TEST(Buckets, AreRightToAFifth) {
    for (std::uint64_t ns = 1; ns < std::uint64_t{1} << 36; ns += 1 + ns / 7) {
        std::size_t bucket = lib::Tally::bucket_of(ns);
        ASSERT_LT(ns, lib::Tally::upper_bound_ns(bucket));
        if (ns >= 64) {
            ASSERT_LE(lib::Tally::upper_bound_ns(bucket), ns + ns / 4 + 1) << ns;
            ASSERT_GE(ns, lib::Tally::upper_bound_ns(bucket - 1));
        }
    }
    EXPECT_EQ(lib::Tally::bucket_of(0), 0U);
    EXPECT_EQ(lib::Tally::bucket_of(~0ULL), REMOTE_BUCKETS - 1U);
    EXPECT_EQ(lib::Tally::upper_bound_ns(REMOTE_BUCKETS - 1), ~0ULL);
}

TEST(Buckets, Percentiles) {
    remote_kind_stats kind{};
    EXPECT_EQ(remote_percentile_ns(&kind, 50), 0U);
    kind.times[lib::Tally::bucket_of(1000)] = 90;
    kind.times[lib::Tally::bucket_of(100'000)] = 10;
    EXPECT_EQ(remote_percentile_ns(&kind, 0), 1024U);
    EXPECT_EQ(remote_percentile_ns(&kind, 50), 1024U);
    EXPECT_EQ(remote_percentile_ns(&kind, 90), 1024U);
    EXPECT_GT(remote_percentile_ns(&kind, 91), 100'000U);
    EXPECT_GT(remote_percentile_ns(&kind, 1000), 100'000U);
}

} // namespace

} // namespace remora::test
