// SPDX-License-Identifier: GPL-2.0
// Answers to later packets tell which earlier ones are lost; the timeout is the last resort.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <list>
#include <map>

#include "client_rig.hpp"

extern "C" {
#include "core/rmem/client/loss.h"
}

namespace {

using net::Bytes;
using net::ms;
using net::Op;
using net::Packet;

constexpr uint64_t us = BASE_NSEC_PER_USEC;

// ---- the window for overtaking ----

struct LossWindow : testing::Test {
    rmem_loss loss;
    void SetUp() override { rmem_loss_init(&loss); }
    uint64_t window() { return rmem_loss_window_ns(&loss, 100 * us, 1000 * us); }
};

TEST_F(LossWindow, WidensWhenALossIsDeniedOncePerRoundTripUpToIt) {
    EXPECT_EQ(window(), 25 * us);
    rmem_loss_denied(&loss, 10 * ms, 1000 * us);
    rmem_loss_denied(&loss, 10 * ms + 999 * us, 1000 * us);
    EXPECT_EQ(window(), 50 * us);
    for (uint64_t i = 11; i < 100; i++)
        rmem_loss_denied(&loss, i * ms, 1000 * us);
    EXPECT_EQ(window(), 1000 * us);
}

TEST_F(LossWindow, NarrowsAgainAfterLossesThatAreNotDenied) {
    rmem_loss_denied(&loss, 10 * ms, 1000 * us);
    for (int i = 1; i < RMEM_LOSS_CALM; i++)
        rmem_loss_found(&loss);
    EXPECT_EQ(window(), 50 * us);
    rmem_loss_found(&loss);
    EXPECT_EQ(window(), 25 * us);
}

// ---- channels ----

struct Loss : net::ClientTest {
    std::list<Op> ops;
    std::map<uint64_t, int> copies; // requests of each id

    void SetUp() override {
        ClientTest::SetUp();
        world.weather.jitter_ns = 0;
        for (int i = 0; i < 20; i++)
            ASSERT_EQ(write(0, Bytes(65536, 1)), RMEM_CLIENT_OK);
        world.on_sent = [this](const Packet& packet) {
            if (!packet.to_node)
                return;
            for (const auto& message : net::received(packet.bytes, false, net::space_key()))
                copies[message.head.id]++;
        };
    }

    Op& submit(uint8_t type, uint32_t len) {
        Op& op = ops.emplace_back();
        if (type == RMEM_WRITE)
            net::make_write(op, base, Bytes(len, 1));
        else
            net::make(op, type, base, len);
        world.submit(op, 0);
        return op;
    }
    Op& submit_lost(uint8_t type, uint32_t len) {
        world.weather.loss = 1000;
        Op& op = submit(type, len);
        world.weather.loss = 0;
        return op;
    }
    int most_copies() {
        int most = 0;
        for (const auto& [id, count] : copies)
            most = std::max(most, count);
        return most;
    }
    void finish_all() {
        ASSERT_TRUE(world.run([&] { return world.idle(); }));
    }
};

TEST_F(Loss, AnOpOvertakenIsSentAgainWithinTwoRoundTrips) {
    for (uint8_t type : {RMEM_READ, RMEM_WRITE}) {
        uint64_t lost = client().count.lost;
        Op& first = submit_lost(type, 512);
        Op& second = submit(type, 512);
        uint64_t begun_ns = world.now_ns;
        ASSERT_TRUE(world.run([&] { return !first.flying && !second.flying; }));
        EXPECT_LT(world.now_ns - begun_ns, 250 * us); // of 100 us each
        EXPECT_EQ(client().count.lost, lost + 1);
    }
    EXPECT_EQ(client().count.timeouts, 0u);
    EXPECT_EQ(most_copies(), 2);
}

// A burst of it, of which the last alone arrives.
TEST_F(Loss, AllThatWereOvertakenAreSentAgainOnce) {
    for (int i = 0; i < 20; i++)
        submit_lost(RMEM_READ, 512);
    submit(RMEM_READ, 512);
    uint64_t begun_ns = world.now_ns;
    finish_all();
    EXPECT_LT(world.now_ns - begun_ns, 300 * us);
    EXPECT_EQ(client().count.lost, 20u);
    EXPECT_EQ(client().count.timeouts, 0u);
    EXPECT_EQ(most_copies(), 2);
}

TEST_F(Loss, AHoleInOneOpIsFilledWithoutATimeout) {
    for (uint8_t type : {RMEM_WRITE, RMEM_READ}) {
        bool drop = true;
        auto was = world.on_sent;
        size_t number = 0;
        world.on_sent = [&](const Packet& packet) {
            was(packet);
            // The fourth packet with data.
            if (packet.to_node == (type == RMEM_WRITE) && packet.bytes.size() > 1000)
                world.weather.loss = drop && ++number == 4 ? 1000 : 0;
        };
        Op& op = submit(type, 14000);
        uint64_t begun_ns = world.now_ns;
        ASSERT_TRUE(world.run([&] { return !op.flying; }));
        EXPECT_LT(world.now_ns - begun_ns, 300 * us);
        world.on_sent = was;
        world.weather.loss = 0;
    }
    EXPECT_EQ(client().count.lost, 2u);
    EXPECT_EQ(client().count.timeouts, 0u);
}

// With nothing behind it.
TEST_F(Loss, TheLastOneHasTheTimeout) {
    Op& op = submit_lost(RMEM_READ, 512);
    uint64_t begun_ns = world.now_ns;
    ASSERT_TRUE(world.run([&] { return !op.flying; }));
    EXPECT_GE(world.now_ns - begun_ns, RMEM_RTO_NS_MIN);
    EXPECT_EQ(client().count.lost, 0u);
    EXPECT_EQ(client().count.timeouts, 1u);
}

// An op of the node's slow path does not count as overtaken.
TEST_F(Loss, OpsOfTheSlowPathAreNotOvertaken) {
    Op& zero = submit_lost(RMEM_ZERO, 512);
    for (int i = 0; i < 100; i++) {
        Op& op = submit(RMEM_READ, 512);
        ASSERT_TRUE(world.run([&] { return !op.flying; }));
    }
    EXPECT_TRUE(zero.flying);
    EXPECT_EQ(client().count.lost, 0u);
    finish_all();
}

// Packets overtake each other all the time: after a few retransmissions in vain, no more.
TEST_F(Loss, APathThatReordersIsLearnt) {
    world.weather.jitter_ns = 100 * us; // the base round trip
    auto some = [&](int count) {
        for (int i = 0; i < count; i++) {
            submit(RMEM_READ, 512);
            world.run([&] { return world.channels[0]->ops.size() < 16; });
        }
    };
    some(3000);
    uint64_t before = client().count.lost;
    some(3000);
    EXPECT_LE(client().count.lost - before, 30u);
    finish_all();
    EXPECT_EQ(client().count.timeouts, 0u);
}

// A hundredth lost, 32 out: of a hundred ops all but a few last a few round trips.
TEST_F(Loss, AHundredthLostCostsRoundTripsNotTimeouts) {
    world.weather.loss = 10;
    world.weather.jitter_ns = 20 * us;
    std::vector<uint64_t> times_ns;
    std::function<void(Op&)> again = [&](Op& op) {
        times_ns.push_back(world.now_ns - op.op.submitted_ns);
        if (times_ns.size() < 20'000)
            world.submit(op, 0);
    };
    for (int i = 0; i < 32; i++) {
        Op& op = ops.emplace_back();
        net::make(op, RMEM_READ, base, 1024);
        op.ended = again;
        world.submit(op, 0);
    }
    finish_all();
    std::sort(times_ns.begin(), times_ns.end());
    EXPECT_LT(times_ns[times_ns.size() * 99 / 100], 500 * us);
    EXPECT_LT(times_ns[times_ns.size() * 999 / 1000], 1 * ms);
    EXPECT_LE(client().count.timeouts, 10u);
    EXPECT_GT(client().count.lost, 300u);
}

// Packets of one size never arrive: that is no reason to send them all the time.
TEST_F(Loss, AnOpLostAgainAndAgainWaitsAGrowingTime) {
    world.on_sent = [&](const Packet& packet) {
        bool large = packet.to_node && packet.bytes.size() > 1000;
        copies[0] += large;
        world.weather.loss = large ? 1000 : 0;
    };
    submit(RMEM_WRITE, 1400);
    uint64_t end_ns = world.now_ns + 300 * ms; // not so long that ids run out
    while (world.now_ns < end_ns) {
        Op& op = submit(RMEM_READ, 512);
        ASSERT_TRUE(world.run([&] { return !op.flying; }));
        ops.pop_back();
    }
    EXPECT_GT(copies[0], 4);
    EXPECT_LT(copies[0], 12);
    EXPECT_EQ(client().count.timeouts, 0u);
}

} // namespace
