// SPDX-License-Identifier: GPL-2.0
// READV and WRITEV of the client: many ranges in one message, sent again as a whole.
#include <gtest/gtest.h>

#include <list>
#include <vector>

#include "client_rig.hpp"

namespace {

using net::Bytes;
using net::ms;
using net::noise;
using net::Op;
using net::Range;

struct VectorClient : net::ClientTest {
    // Two bytes and a gap, again and again.
    std::vector<Range> comb(uint64_t at, size_t count, uint32_t bytes = 2, uint32_t stride = 8) {
        std::vector<Range> ranges;
        for (size_t i = 0; i < count; i++)
            ranges.push_back({base + at + i * stride, bytes});
        return ranges;
    }
    rmem_client_result writev(const std::vector<Range>& ranges, const Bytes& data) {
        Op op;
        net::make_vector(op, RMEM_WRITEV, ranges, data);
        return net::finish(world, op);
    }
    Bytes readv(const std::vector<Range>& ranges) {
        Op op;
        net::make_vector(op, RMEM_READV, ranges);
        EXPECT_EQ(net::finish(world, op), RMEM_CLIENT_OK);
        return op.data;
    }
};

TEST_F(VectorClient, ManyRangesAreOneMessageEachWay) {
    std::vector<Range> ranges = comb(65536 - 31, 50);
    Bytes data = noise(world.random, 100);
    uint64_t sent = client().count.sent, received = client().count.received;
    ASSERT_EQ(writev(ranges, data), RMEM_CLIENT_OK);
    EXPECT_EQ(readv(ranges), data);
    EXPECT_EQ(client().count.sent, sent + 2);
    EXPECT_EQ(client().count.received, received + 2);
    for (size_t i = 0; i < 50; i++)
        EXPECT_EQ(read(65536 - 31 + 8 * i, 2),
                  Bytes(data.begin() + 2 * i, data.begin() + 2 * i + 2));
}

TEST_F(VectorClient, TakesAsManyBytesAsAPiece) {
    uint32_t most = rmem_client_vector_bytes(&client());
    EXPECT_EQ(most, 1400u);
    std::vector<Range> two = {{base + 1, most / 2}, {base + 5000, most - most / 2}};
    Bytes there = readv(two);
    EXPECT_EQ(there, Bytes(most));
    two[1].bytes -= 2 * sizeof(rmem_range);
    Bytes data = noise(world.random, most - 2 * sizeof(rmem_range));
    EXPECT_EQ(writev(two, data), RMEM_CLIENT_OK);
    EXPECT_EQ(readv(two), data);
}

TEST_F(VectorClient, RefusalsCarryTheNodesWord) {
    for (uint8_t type : {RMEM_READV, RMEM_WRITEV}) {
        Op op;
        net::make_vector(op, type, {{base, 1}, {base + (8 << 20), 1}}, Bytes(2, 1));
        EXPECT_EQ(net::finish(world, op), RMEM_CLIENT_REFUSED);
        EXPECT_EQ(op.op.status, RMEM_FAULT);
    }
    EXPECT_EQ(read(0, 1), Bytes{0});
}

// Lost requests and lost answers: what is sent again is the whole message, and a copy of a
// write that comes late doesn't undo what was written since.
TEST_F(VectorClient, AreRepeatedUntilTheyAreAnswered) {
    world.weather = {.loss = 200, .dup = 300, .damage = 20, .cut = 20, .jitter_ns = 3 * ms};
    std::vector<Range> ranges = comb(0, 40);
    for (uint8_t round = 1; round < 100; round++) {
        ASSERT_EQ(writev(ranges, Bytes(80, round)), RMEM_CLIENT_OK);
        ASSERT_EQ(readv(ranges), Bytes(80, round));
        if (round % 10 == 0)
            world.host->evict_all();
    }
    EXPECT_GT(client().count.timeouts, 20u);
    EXPECT_GT(client().count.reopened, 5u);
}

// A damaged answer is asked for again at once, as a READ's is.
TEST_F(VectorClient, DamagedAnswersAreAskedForAgain) {
    std::vector<Range> ranges = comb(0, 40);
    Bytes data = noise(world.random, 80);
    ASSERT_EQ(writev(ranges, data), RMEM_CLIENT_OK);
    world.weather.damage = 300;
    for (int i = 0; i < 100; i++)
        ASSERT_EQ(readv(ranges), data);
    EXPECT_GT(client().count.damaged, 5u);
}

TEST_F(VectorClient, ShareDatagrams) {
    world.datagram_bytes = 8972;
    attach(world.config(2));
    client(1).window.cwnd = RMEM_CWND_MAX;
    net::Shared shared(world);
    std::list<Op> ops;
    for (uint8_t type : {RMEM_WRITEV, RMEM_READV}) {
        for (uint64_t i = 0; i < 100; i++) {
            Op& op = ops.emplace_back();
            net::make_vector(op, type, comb(1000 * i, 20),
                             type == RMEM_WRITEV ? Bytes(40, i + 1) : Bytes());
            world.submit(op, 1);
        }
        ASSERT_TRUE(world.run([&] { return world.idle(); }));
    }
    uint64_t i = 0;
    for (Op& op : ops) {
        EXPECT_EQ(op.result, RMEM_CLIENT_OK);
        EXPECT_EQ(op.data, Bytes(40, i++ % 100 + 1));
    }
    EXPECT_GT(shared.count[0], 10u);
    EXPECT_GT(shared.count[1], 10u);
}

// Given up, a change may have a copy on its way, which a session renewed makes harmless; what only
// reads may come as late as it likes.
TEST_F(VectorClient, GivenUpOnlyChangesHaveTheSessionRenewed) {
    for (uint8_t type : {RMEM_READV, RMEM_WRITEV}) {
        Op op;
        uint64_t reopened = client().count.reopened;
        net::make_vector(op, type, comb(0, 3), Bytes(6, 1));
        world.submit(op, 0);
        world.cancel(op);
        EXPECT_EQ(client().count.reopened, reopened + (type == RMEM_WRITEV));
        ASSERT_EQ(write(0, {7}), RMEM_CLIENT_OK);
    }
    ASSERT_TRUE(world.run([&] { return world.idle(); }));
    EXPECT_EQ(read(0, 1), Bytes{7});
}

} // namespace
