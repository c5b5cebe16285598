// SPDX-License-Identifier: GPL-2.0
// A node's link to another one: when its thread sleeps, and what ends with it.
#include "remora-node/link.hpp"

#include <cerrno>
#include <condition_variable>
#include <mutex>

#include <gtest/gtest.h>

#include "../fake_remote.hpp"
#include "support/failure.hpp"

namespace remora::daemon {
namespace {

class NodeLink : public testing::Test {
protected:
    test::FakeRemote remote;
    std::mutex lock;
    std::condition_variable changed;
    std::size_t ended = 0;
    Links links = open_links({"next=there"}, [this](Forward&, int error, const void*) {
        EXPECT_EQ(error, 0);
        std::lock_guard guard(lock);
        ended++;
        changed.notify_all();
    });

    void send() { links.at("next")->send(std::make_shared<Forward>()); }
    void wait_ended(std::size_t count) {
        std::unique_lock guard(lock);
        changed.wait(guard, [&] { return ended >= count; });
    }
};

TEST_F(NodeLink, SleepsUntilAnAnswerComes) {
    send();
    EXPECT_EQ(remote.wait_sleeper(), UINT64_MAX);
    remote.end(0);
    wait_ended(1);
}

TEST_F(NodeLink, SendsMoreForwardsThanTheQueueHoldsAsAnswersCome) {
    constexpr std::size_t count = 20;
    remote.room = 4;
    for (std::size_t n = 0; n < count; n++)
        send();
    for (std::size_t n = 0; n < count; n++) {
        remote.wait_submitted(n + 1);
        remote.end(0);
    }
    wait_ended(count);
    EXPECT_EQ(remote.submitted(), count);
    // Each forward can be refused when it is sent, and another one after each answer.
    EXPECT_LE(remote.refused(), 2 * count);
}

TEST_F(NodeLink, RestartedNodeGetsTheForwardAgain) {
    send();
    remote.wait_submitted(1);
    remote.end(-ESTALE);
    remote.wait_submitted(2);
    EXPECT_EQ(remote.losses(), 1U);
    remote.end(0);
    wait_ended(1);
}

TEST_F(NodeLink, EndsWithForwardsUnderWay) {
    send();
    remote.wait_sleeper();
    links.clear();
    EXPECT_EQ(remote.closed(), 1U);
    EXPECT_EQ(ended, 0U);
}

TEST_F(NodeLink, NameAndTargetAreDemanded) {
    for (const char* text : {"next", "=there", "next="})
        EXPECT_THROW(open_links({text}, {}), Misuse) << text;
    EXPECT_THROW(open_links({"a=x", "a=y"}, {}), Misuse);
}

} // namespace
} // namespace remora::daemon
