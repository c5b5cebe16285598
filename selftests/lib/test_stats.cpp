// SPDX-License-Identifier: GPL-2.0
// What a handle says of itself.
#include <cerrno>
#include <vector>

#include "backend.hpp"

namespace remora::test {

namespace {

class Stats : public Backends {};

INSTANTIATE_TEST_SUITE_P(Lib, Stats, testing::ValuesIn(kinds()), kind_name);

TEST_P(Stats, CountEndedOperations) {
    raddr_t a = alloc(1 << 20);
    const remote_counters before = counters_of(r);
    std::vector<std::uint8_t> data(1000);
    for (int i = 0; i < 10; i++)
        ASSERT_EQ(rwrite(r, a, data.data(), data.size()), 0);
    ASSERT_EQ(rread(r, a, data.data(), 500), 0);
    ASSERT_EQ(remote_fetch(r, a, 8, REMOTE_ADD, 1, nullptr), 0);
    remote_signal signal{a, 8, REMOTE_ADD, 1};
    ASSERT_EQ(remote_put(r, a + 8, data.data(), 100, &signal), 0);
    ASSERT_EQ(rread(r, raddr_t{1} << 50, data.data(), 500), -EFAULT);
    const remote_counters after = counters_of(r);
    auto done = [&](remote_kind kind) { return after.kind[kind].done - before.kind[kind].done; };
    EXPECT_EQ(done(REMOTE_KIND_WRITE), 11U);
    EXPECT_EQ(done(REMOTE_KIND_READ), 1U);
    EXPECT_EQ(done(REMOTE_KIND_INTEGER), 1U);
    EXPECT_EQ(after.kind[REMOTE_KIND_READ].failed - before.kind[REMOTE_KIND_READ].failed, 1U);
    EXPECT_EQ(after.kind[REMOTE_KIND_WRITE].bytes - before.kind[REMOTE_KIND_WRITE].bytes, 10'100U);
    if (GetParam() == Kind::embedded) {
        EXPECT_GE(before.kind[REMOTE_KIND_OTHER].done, 1U) << "the allocation";
        EXPECT_EQ(after.sent, 0U);
    }
    if (GetParam() != Kind::given && GetParam() != Kind::embedded) {
        EXPECT_GE(after.sent - before.sent, 13U);
        EXPECT_GE(after.received - before.received, 13U);
    }
}

TEST_P(Stats, RejectsInvalidArguments) {
    remote_counters stats{};
    EXPECT_EQ(remote_stats(r, &stats), -EINVAL) << "no size";
    stats.size = sizeof(stats);
    EXPECT_EQ(remote_stats(nullptr, &stats), -EINVAL);
    EXPECT_EQ(remote_stats(r, nullptr), -EINVAL);
}

} // namespace

} // namespace remora::test
