// SPDX-License-Identifier: GPL-2.0
// WRITEs whose data the node fetches: a message has several parts.
#include <gtest/gtest.h>

#include "client_rig.hpp"

namespace {

using net::Bytes;
using net::ms;
using net::noise;
using net::Op;

struct LentClient : net::ClientTest {
    void SetUp() override {
        ClientTest::SetUp();
        world.lends_bytes_min = 4000;
        world.weather.jitter_ns = 0;
    }
};

TEST_F(LentClient, AWriteIsOneMessageAndEachPartIsAnswered) {
    Bytes data = noise(world.random, 40'000); // 29 parts
    uint64_t sent = client().count.sent, received = client().count.received;
    ASSERT_EQ(write(1, data), RMEM_CLIENT_OK);
    EXPECT_EQ(client().count.sent, sent + 1);
    EXPECT_EQ(client().count.received, received + 29);
    EXPECT_EQ(world.lent_messages, 1u);
    EXPECT_EQ(read(1, data.size()), data);
}

TEST_F(LentClient, SmallWritesCarryTheirData) {
    Bytes data = noise(world.random, 3999);
    ASSERT_EQ(write(1, data), RMEM_CLIENT_OK);
    EXPECT_EQ(world.lent_messages, 0u);
    EXPECT_EQ(read(1, data.size()), data);
}

TEST_F(LentClient, ARefusedWriteGoesByItsPartsAtOnce) {
    world.refuses = 1000;
    Bytes data = noise(world.random, 40'000);
    uint64_t began = world.now_ns, sent = client().count.sent;
    ASSERT_EQ(write(1, data), RMEM_CLIENT_OK);
    EXPECT_EQ(world.lent_messages, 1u);
    EXPECT_EQ(client().count.damaged, 0u);
    EXPECT_EQ(client().count.retries, 1u);
    EXPECT_EQ(client().count.timeouts, 0u);
    EXPECT_EQ(client().count.sent, sent + 1 + 29);
    EXPECT_LT(world.now_ns - began, 2 * ms);
    EXPECT_EQ(read(1, data.size()), data);
    // The next one is lent again.
    world.refuses = 0;
    ASSERT_EQ(write(1, data), RMEM_CLIENT_OK);
    EXPECT_GT(world.lent_messages, 1u);
}

TEST_F(LentClient, OnlyTheMissingPartsAreSentAgain) {
    Bytes data = noise(world.random, 40'000);
    Op op;
    make_write(op, base, data);
    size_t requests = 0;
    world.on_sent = [&](const net::Packet& packet) {
        world.weather.loss = packet.to_node && ++requests > 20 && requests <= 29 ? 1000 : 0;
    };
    EXPECT_EQ(finish(world, op), RMEM_CLIENT_OK);
    EXPECT_EQ(world.lent_messages, 2u);
    EXPECT_EQ(requests, 29u + 9u);
    EXPECT_EQ(read(0, data.size()), data);
}

} // namespace
