// SPDX-License-Identifier: GPL-2.0
// When forwards are sent, and sent again.
#include "remora-node/tries.hpp"

#include <cerrno>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace remora::daemon {
namespace {

using namespace std::chrono_literals;

class ForwardTries : public testing::Test {
protected:
    Tries tries{[this](Forward& forward, int error, const void*) {
        ended.emplace_back(forward.function, error);
    }};
    Tries::Clock::time_point now{1h};
    std::size_t room = 100;
    std::vector<Tries::Try*> begun;
    std::vector<std::pair<std::uint32_t, int>> ended;

    void add(std::uint32_t function) {
        auto forward = std::make_shared<Forward>();
        forward->function = function;
        tries.add(std::move(forward), now);
    }
    void start() {
        begun.clear();
        tries.start(now, [this](Tries::Try& each) {
            if (tries.under_way() == room)
                return false;
            begun.push_back(&each);
            return true;
        });
    }
    std::vector<std::uint32_t> functions() const {
        std::vector<std::uint32_t> all;
        for (const Tries::Try* each : begun)
            all.push_back(each->forward->function);
        return all;
    }
};

using Functions = std::vector<std::uint32_t>;
using Ends = std::vector<std::pair<std::uint32_t, int>>;

TEST_F(ForwardTries, StartsInOrderAndSleepsWhileTheyAreUnderWay) {
    add(1);
    add(2);
    start();
    EXPECT_EQ(functions(), (Functions{1, 2}));
    EXPECT_EQ(tries.next(), Tries::Clock::time_point::max());
    Tries::Try* first = begun[0];
    tries.end(*begun[1], 0, now);
    tries.end(*first, -EACCES, now);
    EXPECT_EQ(ended, (Ends{{2, 0}, {1, -EACCES}}));
    EXPECT_EQ(tries.under_way(), 0U);
}

TEST_F(ForwardTries, RefusedFunctionEndsWithItsErrno) {
    add(1);
    start();
    begun[0]->function.detail = ENODATA;
    tries.end(*begun[0], -EREMOTEIO, now);
    EXPECT_EQ(ended, (Ends{{1, -ENODATA}}));
}

TEST_F(ForwardTries, ErrorThatCanPassIsTriedAgainAfterAPause) {
    add(1);
    start();
    tries.end(*begun[0], -ECONNREFUSED, now);
    EXPECT_TRUE(ended.empty());
    const auto next = tries.next();
    EXPECT_GT(next, now);
    EXPECT_LT(next, now + 1s);
    // Behind those that wait, not before them.
    add(2);
    start();
    EXPECT_TRUE(begun.empty());
    now = next;
    start();
    EXPECT_EQ(functions(), (Functions{1, 2}));
}

TEST_F(ForwardTries, ForwardTimesOutWhenNoTimeIsLeft) {
    add(1);
    start();
    now += std::chrono::milliseconds(RMEM_FORWARD_MS_MAX);
    tries.end(*begun[0], -ESTALE, now);
    EXPECT_EQ(ended, (Ends{{1, -ETIMEDOUT}}));
    // The same while it waits.
    room = 0;
    add(2);
    start();
    now += std::chrono::milliseconds(RMEM_FORWARD_MS_MAX);
    start();
    EXPECT_EQ(ended, (Ends{{1, -ETIMEDOUT}, {2, -ETIMEDOUT}}));
    EXPECT_EQ(tries.next(), Tries::Clock::time_point::max());
}

TEST_F(ForwardTries, FullQueueIsAskedAgainWhenATryHasEndedAndNotBefore) {
    room = 2;
    for (std::uint32_t n = 1; n <= 5; n++)
        add(n);
    start();
    EXPECT_EQ(functions(), (Functions{1, 2}));
    EXPECT_EQ(tries.next(), Tries::Clock::time_point::max()) << "no try before an end";
    tries.end(*begun[0], 0, now);
    EXPECT_LE(tries.next(), now);
    start();
    EXPECT_EQ(functions(), (Functions{3}));
    EXPECT_EQ(tries.next(), Tries::Clock::time_point::max());
}

TEST_F(ForwardTries, QueueThatTakesNothingIsAskedAgainAfterAPause) {
    room = 0;
    add(1);
    start();
    EXPECT_GT(tries.next(), now);
    EXPECT_LT(tries.next(), now + 1s);
}

} // namespace
} // namespace remora::daemon
