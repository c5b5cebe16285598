// SPDX-License-Identifier: GPL-2.0
// Small ops share datagrams, and none waits for company that doesn't come.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>

#include "client_rig.hpp"

namespace {

using net::Bytes;
using net::ms;
using net::Op;
using net::World;

// Small ops share datagrams, if the channel may; a datagram takes a jumbo frame.
struct Gather : testing::Test {
    World world{11};
    uint64_t base = 0;
    std::list<Op> ops;
    std::vector<size_t> sent; // messages of each datagram to the node

    rmem_client& client() { return world.channels[0]->client; }

    std::vector<bool> more;

    void attach(uint32_t datagram_bytes) {
        world.datagram_bytes = datagram_bytes;
        world.add_channel(world.config(1));
        base = net::allocate(world, 4 << 20);
        client().window.cwnd = RMEM_CWND_MAX;
        Op op;
        net::make_write(op, base, Bytes(65536, 1)); // no page is taken later: nobody is told BUSY
        ASSERT_EQ(net::finish(world, op), RMEM_CLIENT_OK);
        world.on_sent = [this](const net::Packet& packet) {
            if (packet.to_node)
                sent.push_back(net::received(packet.bytes, false, net::space_key()).size());
        };
    }

    void SetUp() override { attach(8972); }

    // The More flag of each datagram from now on.
    void record_more() {
        world.on_sent = [this](const net::Packet& packet) {
            if (!packet.to_node)
                return;
            more.push_back(net::received(packet.bytes, false, net::space_key())[0].head.more);
        };
    }

    Op& submit(uint8_t type, uint32_t bytes) {
        Op& op = ops.emplace_back();
        if (type == RMEM_WRITE)
            net::make_write(op, base, Bytes(bytes, 1));
        else
            net::make(op, type, base, bytes);
        world.submit(op, 0);
        return op;
    }

    // So many READs under way, and none that waits.
    void fly(size_t count) {
        while (client().flying.ops < count) {
            submit(RMEM_READ, 512);
            client().burst_ops = waiting();
            world.pump(0);
        }
        ASSERT_EQ(waiting(), 0u);
        sent.clear();
    }

    uint32_t waiting() { return client().waiting.ops + client().again.ops; }

    void finish_all() {
        ASSERT_TRUE(world.run([&] { return world.idle(); }));
        for (Op& op : ops)
            EXPECT_EQ(op.result, RMEM_CLIENT_OK);
    }
};

TEST_F(Gather, TheFirstTwoLeaveAtOnceAndThenAsManyAsAreUnderWay) {
    for (size_t i = 1; i <= 8; i++)
        submit(i % 2 ? RMEM_READ : RMEM_WRITE, 512);
    EXPECT_EQ(sent, (std::vector<size_t>{1, 1, 2, 4}));
    finish_all();
}

TEST_F(Gather, WithManyUnderWayItWaitsForCompany) {
    fly(64);
    while (sent.empty()) {
        submit(RMEM_READ, 512);
        ASSERT_LE(ops.size(), 64 + RMEM_BUNDLE_MAX);
    }
    EXPECT_GT(ops.size(), 65u) << "the first left at once";
    EXPECT_EQ(sent, std::vector<size_t>{ops.size() - 64});
    EXPECT_EQ(waiting(), 0u);
    finish_all();
    EXPECT_EQ(client().count.timeouts, 0u);
}

TEST_F(Gather, WaitsForAsManyAsTheirAnswersShareADatagram) {
    fly(200);
    size_t before = ops.size();
    for (const std::vector<size_t>& datagrams : {std::vector<size_t>{13, 3}, {6, 6, 4}}) {
        uint32_t bytes =
            (8972 - RMEM_HDR_BYTES) / static_cast<uint32_t>(datagrams.front()) - RMEM_MSG_BYTES;
        sent.clear();
        for (uint32_t i = 1; i < RMEM_BUNDLE_MAX; i++)
            submit(RMEM_WRITE, std::min(bytes, 1400u));
        EXPECT_TRUE(sent.empty());
        submit(RMEM_WRITE, std::min(bytes, 1400u));
        EXPECT_EQ(sent, datagrams);
    }
    EXPECT_EQ(ops.size(), before + 2 * RMEM_BUNDLE_MAX);
    finish_all();
}

// All but the last; so does a WRITE of several datagrams.
TEST_F(Gather, ABurstSaysThatMoreFollows) {
    record_more();
    fly(64);
    more.clear();
    for (uint32_t i = 0; i < RMEM_BUNDLE_MAX; i++)
        submit(RMEM_WRITE, 1400);
    EXPECT_EQ(more, (std::vector<bool>{true, true, false}));
    more.clear();
    submit(RMEM_WRITE, 4 * 1400);
    EXPECT_EQ(more, (std::vector<bool>{true, true, true, false}));
    more.clear();
    client().window.cwnd = RMEM_CWND_ONE; // room for none
    submit(RMEM_WRITE, 4 * 1400);
    EXPECT_TRUE(more.empty());
    client().window.cwnd = RMEM_CWND_MAX;
    finish_all();
}

// A promise is kept: what closes the window behind a message is known when it is made.
TEST_F(Gather, NoMoreFollowsWhereTheWindowCloses) {
    record_more();
    fly(64);
    client().window.cwnd = (client().window.in_flight + 3) * RMEM_CWND_ONE;
    more.clear();
    for (uint32_t i = 0; i < RMEM_BUNDLE_MAX; i++)
        submit(RMEM_WRITE, 1400);
    EXPECT_EQ(more, std::vector<bool>{false});
    finish_all();
}

TEST_F(Gather, LeavesWithTheNextAnswer) {
    fly(64);
    Op& op = submit(RMEM_READ, 512);
    EXPECT_TRUE(sent.empty());
    ASSERT_TRUE(world.run([&] { return !sent.empty(); }));
    EXPECT_GE(client().flying.ops, 64u - RMEM_BUNDLE_MAX) << "it let a datagram of answers pass";
    ASSERT_TRUE(world.run([&] { return !op.flying; }));
    EXPECT_EQ(client().count.timeouts, 0u);
    finish_all();
}

TEST_F(Gather, LeavesWhenAllAnswersAreLost) {
    fly(64);
    world.node_up = false;
    Op& op = submit(RMEM_READ, 512);
    EXPECT_TRUE(sent.empty());
    ASSERT_TRUE(world.run([&] { return op.op.id != 0; }, 5000 * ms));
    EXPECT_GT(client().count.timeouts, 0u);
    world.node_up = true;
    finish_all();
}

TEST_F(Gather, LargeWritesNeverWait) {
    fly(64);
    size_t before = ops.size();
    for (uint32_t bytes : {4500u, 5000u, 8192u, 65536u}) {
        sent.clear();
        submit(RMEM_WRITE, bytes);
        EXPECT_EQ(sent.size(), (bytes + 1399) / 1400) << bytes;
        EXPECT_EQ(waiting(), 0u);
    }
    sent.clear();
    submit(RMEM_ZERO, 512); // takes the node longer
    EXPECT_EQ(sent.size(), 1u);
    EXPECT_EQ(ops.size(), before + 5);
    finish_all();
}

// The window closes in the middle: the others go as it opens, however few they are.
TEST_F(Gather, BurstGoesWhole) {
    fly(64);
    client().window.cwnd = 66 * RMEM_CWND_ONE;
    while (!client().burst_ops)
        submit(RMEM_READ, 512);
    ASSERT_GT(waiting(), 2u);
    while (client().burst_ops) {
        ASSERT_GE(client().window.in_flight * RMEM_CWND_ONE, client().window.cwnd)
            << "the window is open, but they wait";
        ASSERT_TRUE(world.step());
    }
    finish_all();
}

TEST_F(Gather, LargerDatagramsTakeNoMoreThanTheirMessages) {
    fly(200);
    for (uint32_t i = 0; i < RMEM_BUNDLE_MAX; i++)
        submit(RMEM_READ, 1400);
    EXPECT_EQ(sent, std::vector<size_t>{RMEM_BUNDLE_MAX});
    std::vector<size_t> answers;
    world.on_sent = [&](const net::Packet& packet) {
        if (!packet.to_node)
            answers.push_back(packet.bytes.size());
    };
    finish_all();
    EXPECT_GT(*std::max_element(answers.begin(), answers.end()), RMEM_HEADS_BYTES(1) + 1400u);
    EXPECT_LE(*std::max_element(answers.begin(), answers.end()), 8972u);
}

// Where the path's datagrams take one message only, or the channel is told so.
TEST(GatherNot, WithoutDatagramsForSeveral) {
    for (uint32_t datagram_bytes : {0u, 1u, RMEM_HEADS_BYTES(1) + 0u, RMEM_HEADS_BYTES(2) - 1u}) {
        World world(12);
        world.datagram_bytes = datagram_bytes;
        world.add_channel(world.config(1));
        uint64_t base = net::allocate(world, 1 << 20);
        world.channels[0]->client.window.cwnd = RMEM_CWND_MAX;
        size_t datagrams = 0;
        world.on_sent = [&](const net::Packet& packet) {
            datagrams++;
            EXPECT_EQ(net::received(packet.bytes, !packet.to_node, net::space_key()).size(), 1u);
        };
        std::list<Op> ops;
        for (uint32_t i = 0; i < 200; i++) {
            net::make(ops.emplace_back(), RMEM_READ, base, 512);
            world.submit(ops.back(), 0);
            EXPECT_EQ(datagrams, i + 1) << datagram_bytes;
        }
        ASSERT_TRUE(world.run([&] { return world.idle(); }));
        EXPECT_EQ(datagrams, 400u);
    }
}

// Whatever the network loses, and whenever ops come: none waits for ever.
class GatherLoss : public testing::TestWithParam<int> {};

TEST_P(GatherLoss, EveryOpEnds) {
    SCOPED_TRACE("replay: out/bin/unit --gtest_filter='*GatherLoss*/" + std::to_string(GetParam()) +
                 "'");
    std::mt19937_64 random(GetParam());
    World world(GetParam());
    net::Shared shared(world);
    world.datagram_bytes = random() % 2 ? 1472 : 8972;
    world.weather.loss = random() % 4 * 100;
    world.weather.dup = random() % 50;
    world.weather.damage = random() % 2 * 30;
    world.weather.cut = random() % 2 * 30;
    world.weather.jitter_ns = random() % 500'000;
    world.unsent = random() % 3 ? 0 : 30;
    for (int i = 1; i <= 2; i++)
        world.add_channel(world.config(i));
    uint64_t base = net::allocate(world, 1 << 20);
    std::list<Op> ops;
    try {
        for (int i = 0; i < 1500; i++) {
            Op& op = ops.emplace_back();
            uint32_t bytes = random() % 8 ? 1 + random() % 700 : 1 + random() % 20000;
            if (random() % 3)
                net::make(op, random() % 16 ? RMEM_READ : RMEM_ZERO, base, bytes);
            else if (random() % 3 == 0)
                net::make_add(op, base + 8 * (random() % 100), i);
            else if (random() % 4 == 0)
                net::make_put(op, base, Bytes(std::min(bytes, 1300u), i), base + 32768, 1);
            else
                net::make_write(op, base, Bytes(bytes, i));
            world.submit(op, random() % 2);
            uint64_t until_ns = world.now_ns + (random() % 30 ? 0 : random() % (20 * ms));
            world.run([&] { return world.now_ns >= until_ns; });
        }
        EXPECT_TRUE(world.run([&] { return world.idle(); }, 600'000 * ms));
    } catch (const net::Broken& broken) {
        FAIL() << broken.what();
    }
    for (Op& op : ops)
        EXPECT_EQ(op.result, RMEM_CLIENT_OK);
    EXPECT_GT(shared.count[0], 50u);
    EXPECT_GT(shared.count[1], 50u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, GatherLoss, testing::Range(0, 20));

} // namespace
