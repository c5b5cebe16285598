// SPDX-License-Identifier: GPL-2.0
// COPY of the client: one message each way, retransmitted until it is answered.
#include <gtest/gtest.h>

#include <list>

#include "client_rig.hpp"

namespace {

using net::Bytes;
using net::ms;
using net::noise;
using net::Op;

struct CopyClient : net::ClientTest {
    rmem_client_result copy(uint64_t to, uint64_t from, uint32_t bytes) {
        Op op;
        net::make_copy(op, base + to, base + from, bytes);
        return net::finish(world, op);
    }
};

TEST_F(CopyClient, SendsOneMessageWhateverItsBytes) {
    Bytes data = noise(world.random, 1000);
    ASSERT_EQ(write(3, data), RMEM_CLIENT_OK);
    data.resize(RMEM_COPY_BYTES_MAX);
    uint64_t sent = client().count.sent, received = client().count.received;
    ASSERT_EQ(copy(200'000, 3, RMEM_COPY_BYTES_MAX), RMEM_CLIENT_OK);
    EXPECT_EQ(client().count.sent, sent + 1);
    EXPECT_EQ(client().count.received, received + 1);
    EXPECT_EQ(read(200'000, RMEM_COPY_BYTES_MAX), data);
}

TEST_F(CopyClient, RefusalsCarryTheNodesWord) {
    const struct {
        uint64_t to, from;
        uint8_t status;
    } cases[] = {{0, 8 << 20, RMEM_FAULT}, {8 << 20, 0, RMEM_FAULT}, {0, 99, RMEM_INVALID}};
    for (auto [to, from, status] : cases) {
        Op op;
        net::make_copy(op, base + to, base + from, 100);
        EXPECT_EQ(net::finish(world, op), RMEM_CLIENT_REFUSED);
        EXPECT_EQ(op.op.status, status);
    }
}

// Lost requests and lost answers. A duplicate that comes late copies nothing: else it would undo
// what was written to the target since.
TEST_F(CopyClient, RetransmittedCopyIsExecutedOnce) {
    world.weather = {.loss = 200, .dup = 300, .damage = 20, .cut = 20, .jitter_ns = 3 * ms};
    for (uint8_t round = 1; round < 100; round++) {
        ASSERT_EQ(write(0, Bytes(40, round)), RMEM_CLIENT_OK);
        ASSERT_EQ(copy(65'536 - 20, 0, 40), RMEM_CLIENT_OK);
        ASSERT_EQ(read(65'536 - 20, 40), Bytes(40, round));
        ASSERT_EQ(write(65'536 - 20, {0}), RMEM_CLIENT_OK);
        ASSERT_EQ(read(65'536 - 20, 2), (Bytes{0, round}));
        if (round % 10 == 0)
            world.host->evict_all();
    }
    EXPECT_GT(client().count.timeouts, 20u);
    EXPECT_GT(client().count.reopened, 5u);
}

// The node's work for one datagram has a bound, so many short copies share one and long ones don't.
TEST_F(CopyClient, ShortCopiesShareDatagrams) {
    world.datagram_bytes = 8972;
    attach(world.config(2));
    client(1).window.cwnd = RMEM_CWND_MAX;
    net::Shared shared(world);
    Op data;
    net::make_write(data, base, Bytes(40, 9));
    ASSERT_EQ(net::finish(world, data, 1), RMEM_CLIENT_OK);
    std::list<Op> ops;
    for (uint64_t i = 1; i < 100; i++) {
        Op& op = ops.emplace_back();
        net::make_copy(op, base + 1000 * i, base, 40);
        world.submit(op, 1);
    }
    ASSERT_TRUE(world.run([&] { return world.idle(); }));
    for (Op& op : ops)
        EXPECT_EQ(op.result, RMEM_CLIENT_OK);
    EXPECT_GT(shared.count[0], 3u);
    EXPECT_GT(shared.count[1], 3u);
}

TEST_F(CopyClient, GivenUpCopyHasTheSessionRenewed) {
    Op op;
    uint64_t reopened = client().count.reopened;
    net::make_copy(op, base + 100, base, 8);
    world.submit(op, 0);
    world.cancel(op);
    EXPECT_EQ(client().count.reopened, reopened + 1);
    EXPECT_EQ(write(0, {7}), RMEM_CLIENT_OK);
}

} // namespace
