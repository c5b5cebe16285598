// SPDX-License-Identifier: GPL-2.0
// The client against the real node, over a network as bad as we like.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>

#include "net_rig.hpp"

namespace {

using net::Bytes;
using net::ms;
using net::Op;
using net::World;

Bytes noise(std::mt19937_64& random, size_t bytes) {
    Bytes data(bytes);
    for (auto& byte : data)
        byte = random();
    return data;
}

struct Client : testing::Test {
    World world{42};
    uint64_t base = 0;

    rmem_client& client(size_t i = 0) { return world.channels[i]->client; }

    void attach(rmem_client_config config) {
        world.add_channel(config);
        base = net::allocate(world, 4 << 20);
    }

    void SetUp() override { attach(world.config(1)); }

    rmem_client_result write(uint64_t at, const Bytes& data) {
        Op op;
        net::make_write(op, base + at, data);
        return net::finish(world, op);
    }

    Bytes read(uint64_t at, uint32_t len) {
        Op op;
        net::make(op, RMEM_READ, base + at, len);
        EXPECT_EQ(net::finish(world, op), RMEM_CLIENT_OK);
        return op.data;
    }

    rmem_client_result simple(uint8_t type, uint64_t at, uint32_t len) {
        Op op;
        net::make(op, type, base + at, len);
        return net::finish(world, op);
    }
};

TEST_F(Client, ReadsWhatItWrote) {
    for (uint32_t len : {1u, 16u, 1400u, 1401u, 4096u, 65536u, RMEM_OP_BYTES_MAX}) {
        Bytes data = noise(world.random, len);
        ASSERT_EQ(write(4096 - len % 7, data), RMEM_CLIENT_OK);
        EXPECT_EQ(read(4096 - len % 7, len), data) << len;
    }
    EXPECT_EQ(client().count.retries, 0u);
    EXPECT_EQ(client().count.timeouts, 0u);
}

TEST_F(Client, LearnsTheNode) {
    EXPECT_EQ(client().state, RMEM_CHANNEL_OPEN);
    EXPECT_EQ(client().node.page_bytes, 65536u);
    EXPECT_EQ(client().node.memory_bytes, 128u * 65536);
    EXPECT_EQ(client().piece, 1400u);
    EXPECT_EQ(client().boot, world.host->core.config.boot);
}

TEST_F(Client, SmallerPieceOfTheNodeHolds) {
    World other(1);
    other.node_piece_bytes = 1024;
    other.boot_node();
    other.add_channel(other.config(1));
    net::allocate(other, 65536);
    EXPECT_EQ(other.channels[0]->client.piece, 1024u);
}

TEST_F(Client, DiscardAndZeroReadAsZero) {
    Bytes data = noise(world.random, 131072);
    for (uint8_t type : {RMEM_ZERO, RMEM_DISCARD}) {
        ASSERT_EQ(write(0, data), RMEM_CLIENT_OK);
        ASSERT_EQ(simple(type, 0, 131072), RMEM_CLIENT_OK);
        EXPECT_EQ(read(0, 131072), Bytes(131072));
    }
}

TEST_F(Client, RefusalsCarryTheNodesWord) {
    Op op;
    net::make(op, RMEM_READ, base + (64ull << 30), 4096);
    EXPECT_EQ(net::finish(world, op), RMEM_CLIENT_REFUSED);
    EXPECT_EQ(op.op.status, RMEM_FAULT);
    Op huge;
    huge.op.type = RMEM_ALLOC;
    huge.op.alloc = {1ull << 40, 0, RMEM_PERM_READ};
    EXPECT_EQ(net::finish(world, huge), RMEM_CLIENT_REFUSED);
    EXPECT_EQ(huge.op.status, RMEM_NO_MEMORY);
}

// Half of it lies beyond the region: refused, but only when no part is on its way any more.
TEST_F(Client, RefusedWriteEndsWithItsLastPart) {
    Op op;
    net::make_write(op, base + (4 << 20) - 70'000, Bytes(140'000, 3));
    world.weather.loss = 200;
    EXPECT_EQ(net::finish(world, op), RMEM_CLIENT_REFUSED);
    EXPECT_EQ(op.op.status, RMEM_FAULT);
    EXPECT_EQ(op.op.parts_done, op.op.parts);
    world.weather.loss = 0;
    EXPECT_EQ(read((4 << 20) - 70'000, 70'000), Bytes(70'000, 3));
}

TEST_F(Client, FreedRangeFaults) {
    Op op;
    op.op.type = RMEM_FREE;
    op.op.range = {base, 4 << 20};
    EXPECT_EQ(net::finish(world, op), RMEM_CLIENT_OK);
    EXPECT_EQ(write(0, Bytes(100)), RMEM_CLIENT_REFUSED);
}

TEST_F(Client, LostPacketsGoAgainAndOnlyTheirParts) {
    size_t packets = 0;
    world.on_sent = [&](const net::Packet& packet) { packets += packet.to_node; };
    world.weather.loss = 100;
    Bytes data = noise(world.random, RMEM_OP_BYTES_MAX);
    ASSERT_EQ(write(0, data), RMEM_CLIENT_OK);
    size_t parts = (RMEM_OP_BYTES_MAX + 1399) / 1400;
    EXPECT_GT(packets, parts);
    EXPECT_LT(packets, parts * 3 / 2); // a fifth fails each time
    packets = 0;
    EXPECT_EQ(read(0, RMEM_OP_BYTES_MAX), data);
    EXPECT_LT(packets, parts);
    EXPECT_GT(client().count.timeouts, 0u);
}

TEST_F(Client, DamagedPartGoesAgainAtOnce) {
    uint64_t damaged = 0;
    world.weather.damage = 0;
    ASSERT_EQ(write(0, Bytes(1400, 1)), RMEM_CLIENT_OK);
    uint64_t start = world.now_ns;
    world.weather.damage = 200;
    for (int i = 0; i < 50; i++)
        ASSERT_EQ(write(0, Bytes(14000, i)), RMEM_CLIENT_OK);
    world.weather.damage = 0;
    damaged = client().count.damaged;
    EXPECT_GT(damaged, 10u);
    EXPECT_EQ(read(0, 14000), Bytes(14000, 49));
    EXPECT_LT(world.now_ns - start, 50 * 60 * ms);
}

TEST_F(Client, BusyNodeIsAskedAgainLater) {
    World tight(3);
    tight.add_channel(tight.config(1));
    uint64_t at = net::allocate(tight, 4 << 20);
    // Eight pages in the pool, refilled as packets come in: first touches beyond them are told
    // BUSY.
    std::list<Op> ops;
    for (int i = 0; i < 60; i++) {
        ops.emplace_back();
        net::make_write(ops.back(), at + i * 65536ull, Bytes(4096, i));
        tight.submit(ops.back(), 0);
    }
    ASSERT_TRUE(tight.run([&] { return tight.idle(); }));
    for (auto& op : ops)
        EXPECT_EQ(op.result, RMEM_CLIENT_OK);
}

TEST_F(Client, EvictedSessionIsReopenedAndWorkGoesOn) {
    Bytes data = noise(world.random, 65536);
    ASSERT_EQ(write(0, data), RMEM_CLIENT_OK);
    uint64_t session = client().session;
    world.host->evict_all();
    EXPECT_EQ(read(0, 65536), data);
    EXPECT_NE(client().session, session);
    EXPECT_EQ(client().count.reopened, 1u);
}

TEST_F(Client, EvictionInTheMiddleOfManyOps) {
    std::list<Op> ops;
    std::vector<Bytes> data;
    for (int i = 0; i < 40; i++) {
        data.push_back(noise(world.random, 50000));
        ops.emplace_back();
        net::make_write(ops.back(), base + i * 65536ull, data.back());
        world.submit(ops.back(), 0);
    }
    for (int i = 0; i < 300; i++)
        world.step();
    world.host->evict_all();
    ASSERT_TRUE(world.run([&] { return world.idle(); }));
    EXPECT_GE(client().count.reopened, 1u);
    for (int i = 0; i < 40; i++)
        EXPECT_EQ(read(i * 65536ull, 50000), data[i]);
}

TEST_F(Client, RestartedNodeMeansLostForGood) {
    ASSERT_EQ(write(0, Bytes(5000, 1)), RMEM_CLIENT_OK);
    world.boot_node();
    std::list<Op> ops;
    for (int i = 0; i < 10; i++) {
        ops.emplace_back();
        net::make(ops.back(), RMEM_READ, base + i * 4096, 4096);
        world.submit(ops.back(), 0);
    }
    ASSERT_TRUE(world.run([&] { return world.idle(); }));
    for (auto& op : ops)
        EXPECT_EQ(op.result, RMEM_CLIENT_LOST);
    EXPECT_EQ(client().state, RMEM_CHANNEL_LOST);
    Op late;
    net::make(late, RMEM_READ, base, 4096);
    EXPECT_EQ(net::finish(world, late), RMEM_CLIENT_LOST);
    rmem_client_open(&client(), world.now_ns);
    EXPECT_EQ(client().state, RMEM_CHANNEL_LOST);
}

TEST_F(Client, RestartDuringReopenMeansLost) {
    world.host->evict_all();
    Op op;
    net::make(op, RMEM_READ, base, 4096);
    world.submit(op, 0);
    ASSERT_TRUE(world.run([&] { return client().state == RMEM_CHANNEL_OPENING; }));
    world.boot_node();
    ASSERT_TRUE(world.run([&] { return !op.flying; }));
    EXPECT_EQ(op.result, RMEM_CLIENT_LOST);
}

TEST_F(Client, ChannelOfAKnownBootIsLostUnderAnother) {
    uint64_t boot = client().boot;
    world.boot_node();
    auto config = world.config(2);
    world.add_channel(config, boot);
    ASSERT_TRUE(world.run([&] { return client(1).state != RMEM_CHANNEL_OPENING; }));
    EXPECT_EQ(client(1).state, RMEM_CHANNEL_LOST);
}

TEST_F(Client, WaitsForASilentNodeForEver) {
    Bytes data = noise(world.random, 20000);
    ASSERT_EQ(write(0, data), RMEM_CLIENT_OK);
    world.node_up = false;
    Op op;
    net::make(op, RMEM_READ, base, 20000);
    world.submit(op, 0);
    uint64_t sent = client().count.sent;
    world.run([] { return false; }, 600'000 * ms);
    EXPECT_TRUE(op.flying);
    EXPECT_LT(client().count.sent - sent, 700u); // about one a second
    EXPECT_GT(client().count.sent - sent, 400u);
    world.node_up = true;
    uint64_t back = world.now_ns;
    ASSERT_TRUE(world.run([&] { return !op.flying; }));
    EXPECT_LT(world.now_ns - back, 1300 * ms);
    EXPECT_EQ(op.data, data);
}

TEST_F(Client, FailAfterEndsOpsOfASilentNodeOnly) {
    World w(5);
    auto config = w.config(1);
    config.fail_after_ns = 3000 * ms;
    w.add_channel(config);
    uint64_t at = net::allocate(w, 1 << 20);
    w.node_up = false;
    Op first, second;
    net::make(first, RMEM_READ, at, 4096);
    net::make(second, RMEM_READ, at, 4096);
    uint64_t start = w.now_ns;
    w.submit(first, 0);
    w.run([&] { return w.now_ns >= start + 1000 * ms; });
    uint64_t later = w.now_ns;
    w.submit(second, 0);
    ASSERT_TRUE(w.run([&] { return !first.flying; }));
    EXPECT_EQ(first.result, RMEM_CLIENT_TIMEOUT);
    EXPECT_GE(w.now_ns, start + 3000 * ms);
    EXPECT_LT(w.now_ns, start + 3100 * ms);
    EXPECT_TRUE(second.flying);
    ASSERT_TRUE(w.run([&] { return !second.flying; }));
    EXPECT_GE(w.now_ns, later + 3000 * ms);
    w.node_up = true;
    net::make(first, RMEM_READ, at, 4096);
    EXPECT_EQ(net::finish(w, first), RMEM_CLIENT_OK);
}

TEST_F(Client, CancelledOpsAreGoneAndLateAnswersHarmless) {
    std::list<Op> ops;
    for (int i = 0; i < 20; i++) {
        ops.emplace_back();
        net::make(ops.back(), RMEM_READ, base, 65536);
        world.submit(ops.back(), 0);
    }
    world.step();
    rmem_op* chain = rmem_client_cancel_all(&client());
    size_t count = 0;
    for (rmem_op* op = chain; op; op = op->next)
        count++;
    EXPECT_EQ(count, 20u);
    world.end(chain, RMEM_CLIENT_CANCELLED);
    world.check_books();
    world.run([] { return false; }, 100 * ms);
    EXPECT_EQ(write(0, Bytes(10, 1)), RMEM_CLIENT_OK);
}

TEST_F(Client, ClosesAndOpensAgain) {
    rmem_client_close(&client(), world.now_ns);
    world.pump(0);
    ASSERT_TRUE(world.run([&] { return client().state == RMEM_CHANNEL_CLOSED; }));
    EXPECT_EQ(world.host->core.sessions.in_use, 0u);
    EXPECT_EQ(rmem_client_deadline(&client()), 0u);
    rmem_client_open(&client(), world.now_ns);
    world.pump(0);
    EXPECT_EQ(write(0, Bytes(10, 1)), RMEM_CLIENT_OK);
}

TEST_F(Client, CloseIsRepeatedUntilAnswered) {
    world.weather.loss = 500;
    rmem_client_close(&client(), world.now_ns);
    world.pump(0);
    ASSERT_TRUE(world.run([&] { return client().state == RMEM_CHANNEL_CLOSED; }));
}

TEST_F(Client, PacketsTheCarrierRefusesGoAgain) {
    world.unsent = 300;
    Bytes data = noise(world.random, 100000);
    ASSERT_EQ(write(0, data), RMEM_CLIENT_OK);
    EXPECT_EQ(read(0, 100000), data);
}

// The first copy of a write is held back until the place was written again: it must not land.
TEST_F(Client, StaleCopyOfAFinishedWriteIsRefused) {
    std::vector<net::Packet> old;
    world.on_sent = [&](const net::Packet& packet) {
        if (packet.to_node)
            old.push_back(packet);
    };
    ASSERT_EQ(write(0, Bytes(5000, 1)), RMEM_CLIENT_OK);
    world.on_sent = nullptr;
    ASSERT_EQ(write(0, Bytes(5000, 2)), RMEM_CLIENT_OK);
    for (auto& packet : old) {
        packet.at_ns = world.now_ns;
        world.inject(packet);
    }
    world.run([] { return false; }, 100 * ms);
    EXPECT_EQ(read(0, 5000), Bytes(5000, 2));
}

// A round trip far above the timeout: the first answer tells, and retransmission ends.
TEST_F(Client, TimeoutLearnsALongRoundTrip) {
    ASSERT_EQ(write(0, Bytes(100, 1)), RMEM_CLIENT_OK);
    for (int i = 0; i < 50; i++)
        read(0, 100);
    world.weather.delay_ns = 150 * ms;
    for (int i = 0; i < 20; i++)
        read(0, 100);
    uint64_t retries = client().count.retries;
    for (int i = 0; i < 20; i++)
        read(0, 100);
    EXPECT_LE(client().count.retries - retries, 1u);
}

TEST_F(Client, WindowBoundsWhatIsUnderWay) {
    std::list<Op> ops;
    for (int i = 0; i < 200; i++) {
        ops.emplace_back();
        net::make_write(ops.back(), base + i * 4096, Bytes(4096, i));
        world.submit(ops.back(), 0);
        EXPECT_LE(rmem_window_in_flight(&world.window), RMEM_CWND_START / RMEM_CWND_ONE);
    }
    EXPECT_EQ(rmem_window_in_flight(&world.window), RMEM_CWND_START / RMEM_CWND_ONE);
    ASSERT_TRUE(world.run([&] { return world.idle(); }));
    EXPECT_EQ(rmem_window_in_flight(&world.window), 0u);
}

TEST_F(Client, ManyIdsWaitForTheFloor) {
    // 20 ops of 188 ids each, all but the first answered: the window of ids holds them back.
    world.window.cwnd = RMEM_CWND_MAX;
    std::list<Op> ops;
    for (int i = 0; i < 60; i++) {
        ops.emplace_back();
        net::make_write(ops.back(), base + i * 65536ull % (3 << 20), Bytes(RMEM_OP_BYTES_MAX, i));
        world.submit(ops.back(), 0);
        ASSERT_LE(client().seq.next, client().seq.floor + RMEM_WINDOW);
    }
    ASSERT_TRUE(world.run([&] { return world.idle(); }));
}

TEST(ClientIncast, BoundsReadBytesOverAllChannels) {
    World world(7, 128 * 1024);
    world.add_channel(world.config(1));
    world.add_channel(world.config(2));
    uint64_t base = net::allocate(world, 1 << 20);
    std::list<Op> ops;
    uint64_t most = 0;
    for (int i = 0; i < 60; i++) {
        ops.emplace_back();
        net::make(ops.back(), RMEM_READ, base, i % 10 == 9 ? RMEM_OP_BYTES_MAX : 20000);
        world.submit(ops.back(), i % 2);
    }
    while (!world.idle()) {
        ASSERT_TRUE(world.step());
        most = std::max(most, rmem_incast_used_bytes(&world.incast));
    }
    EXPECT_EQ(most, RMEM_OP_BYTES_MAX); // that one alone
    EXPECT_EQ(rmem_incast_used_bytes(&world.incast), 0u);
}

TEST(ClientWindow, ShrinksWhenTheNodeQueuesAndKeepsItBusy) {
    World world(8);
    world.slow_service_ns = 200'000; // 5000 packets a second
    world.weather.jitter_ns = 0;
    world.add_channel(world.config(1));
    uint64_t base = net::allocate(world, 1 << 20);
    std::list<Op> ops(256);
    size_t ended = 0;
    for (auto& op : ops) {
        net::make(op, RMEM_READ, base, 1024);
        op.ended = [&](Op& self) {
            ended++;
            world.submit(self, 0);
        };
        world.submit(op, 0);
    }
    uint64_t start = world.now_ns;
    world.run([&] { return world.now_ns > start + 2000 * ms; });
    EXPECT_LT(rmem_window_cwnd(&world.window), 32 * RMEM_CWND_ONE);
    EXPECT_GT(ended, 8000u); // of 10000 the node could
    EXPECT_EQ(world.channels[0]->client.count.timeouts, 0u);
}

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
        world.window.cwnd = RMEM_CWND_MAX;
        Op op;
        net::make_write(op, base, Bytes(65536, 1)); // no page is taken later: nobody is told BUSY
        ASSERT_EQ(net::finish(world, op), RMEM_CLIENT_OK);
        world.on_sent = [this](const net::Packet& packet) {
            if (packet.to_node)
                sent.push_back(net::received(packet.bytes, false, net::space_key()).size());
        };
    }

    void SetUp() override { attach(8972); }

    // What each request from now on says of those behind it.
    void record_more() {
        world.on_sent = [this](const net::Packet& packet) {
            if (!packet.to_node)
                return;
            for (const auto& message : net::received(packet.bytes, false, net::space_key()))
                more.push_back(message.head.more);
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
    EXPECT_EQ(client().count.retries, 0u);
}

TEST_F(Gather, WaitsForAsManyAsTheirAnswersShareADatagram) {
    fly(200);
    size_t before = ops.size();
    for (const std::vector<size_t>& datagrams : {std::vector<size_t>{13, 3}, {6, 6, 4}}) {
        uint32_t bytes = 8972 / static_cast<uint32_t>(datagrams.front()) - RMEM_HDR_BYTES;
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

// All but the last, in whichever datagram; so does a WRITE of several datagrams.
TEST_F(Gather, ABurstSaysThatMoreFollows) {
    record_more();
    fly(64);
    more.clear();
    for (uint32_t i = 0; i < RMEM_BUNDLE_MAX; i++)
        submit(RMEM_WRITE, 1400);
    std::vector<bool> burst(RMEM_BUNDLE_MAX, true);
    burst.back() = false;
    EXPECT_EQ(more, burst);
    more.clear();
    submit(RMEM_WRITE, 4 * 1400);
    EXPECT_EQ(more, (std::vector<bool>{true, true, true, false}));
    more.clear();
    world.window.cwnd = RMEM_CWND_ONE; // room for none
    submit(RMEM_WRITE, 4 * 1400);
    EXPECT_TRUE(more.empty());
    world.window.cwnd = RMEM_CWND_MAX;
    finish_all();
}

// A promise is kept: what closes the window behind a message is known when it is made.
TEST_F(Gather, NoMoreFollowsWhereTheWindowCloses) {
    record_more();
    fly(64);
    world.window.cwnd = (rmem_window_in_flight(&world.window) + 3) * RMEM_CWND_ONE;
    more.clear();
    for (uint32_t i = 0; i < RMEM_BUNDLE_MAX; i++)
        submit(RMEM_WRITE, 1400);
    EXPECT_EQ(more, (std::vector<bool>{true, true, false}));
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
    world.window.cwnd = 66 * RMEM_CWND_ONE;
    while (!client().burst_ops)
        submit(RMEM_READ, 512);
    ASSERT_GT(waiting(), 2u);
    while (client().burst_ops) {
        ASSERT_GE(rmem_window_in_flight(&world.window) * RMEM_CWND_ONE,
                  rmem_window_cwnd(&world.window))
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
    EXPECT_GT(*std::max_element(answers.begin(), answers.end()), RMEM_HDR_BYTES + 1400u);
    EXPECT_LE(*std::max_element(answers.begin(), answers.end()), 8972u);
}

// Where the path's datagrams take one message only, or the channel is told so.
TEST(GatherNot, WithoutDatagramsForSeveral) {
    for (uint32_t datagram_bytes : {0u, 1u, RMEM_HDR_BYTES + 0u, 2u * RMEM_HDR_BYTES - 1}) {
        World world(12);
        world.datagram_bytes = datagram_bytes;
        world.add_channel(world.config(1));
        uint64_t base = net::allocate(world, 1 << 20);
        world.window.cwnd = RMEM_CWND_MAX;
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

// ---- atomics ----

struct AtomicClient : Client {
    std::list<Op> ops;

    uint64_t value(uint64_t at) {
        Bytes bytes = read(at, 8);
        return base_load_le64(bytes.data());
    }
    Op& add(uint64_t at, uint64_t value, size_t channel = 0) {
        Op& op = ops.emplace_back();
        net::make_add(op, base + at, value);
        world.submit(op, channel);
        return op;
    }
    void finish_all() {
        ASSERT_TRUE(world.run([&] { return world.idle(); }, 600'000 * ms));
    }
};

TEST_F(AtomicClient, FindsWhatWasThere) {
    Op add, swap, cas;
    net::make_add(add, base + 64, 5);
    EXPECT_EQ(net::finish(world, add), RMEM_CLIENT_OK);
    EXPECT_EQ(add.op.atomic.found[0], 0u);
    net::make(swap, RMEM_ATOMIC, base + 64, 8);
    swap.op.atomic = {{9, 0}, {0, 0}, {0, 0}, RMEM_SWAP};
    EXPECT_EQ(net::finish(world, swap), RMEM_CLIENT_OK);
    EXPECT_EQ(swap.op.atomic.found[0], 5u);
    net::make(cas, RMEM_ATOMIC, base + 64, 16);
    cas.op.atomic = {{1, 2}, {9, 0}, {0, 0}, RMEM_CAS};
    ASSERT_EQ(net::finish(world, cas), RMEM_CLIENT_OK);
    EXPECT_EQ(cas.op.atomic.found[0], 9u);
    EXPECT_EQ(value(64), 1u);
    EXPECT_EQ(value(72), 2u);
}

TEST_F(AtomicClient, RefusalsCarryTheNodesWord) {
    Op op;
    net::make_add(op, base + 4, 5);
    EXPECT_EQ(net::finish(world, op), RMEM_CLIENT_REFUSED);
    EXPECT_EQ(op.op.status, RMEM_INVALID);
}

// The first datagram is lost: the others run ahead of the floor as far as results are kept, no
// further, and all end when it has been sent again.
TEST_F(AtomicClient, RunNoFurtherAheadThanResultsAreKept) {
    world.window.cwnd = RMEM_CWND_MAX;
    world.weather.loss = 1000;
    add(0, 1);
    world.weather.loss = 0;
    for (int i = 1; i < 1000; i++)
        add(0, 1);
    finish_all();
    for (Op& op : ops)
        EXPECT_EQ(op.result, RMEM_CLIENT_OK);
    EXPECT_EQ(value(0), 1000u);
    EXPECT_EQ(client().count.busy, 0u);
    EXPECT_GE(client().count.timeouts, 1u);
}

// The same of WRITEs and all ids there are.
TEST_F(AtomicClient, OldestIsSentAgainWhereIdsHaveRunOut) {
    world.window.cwnd = RMEM_CWND_MAX;
    // Nobody is heard of, and so nothing times out, before all ids are given out.
    world.weather.delay_ns = 1;
    world.weather.jitter_ns = 0;
    auto write = [&] {
        net::make_write(ops.emplace_back(), base, Bytes(1, 1));
        world.submit(ops.back(), 0);
    };
    world.weather.loss = 1000;
    write();
    world.weather.loss = 0;
    for (uint32_t i = 0; i < RMEM_WINDOW + 100; i++) {
        write();
        world.run([&] { return world.channels[0]->client.flying.ops < 3; }, 1);
    }
    EXPECT_EQ(rmem_seq_span(&client().seq), RMEM_WINDOW);
    finish_all();
    for (Op& op : ops)
        EXPECT_EQ(op.result, RMEM_CLIENT_OK);
}

// Two of one number, or of one too many, would show: every sum that was there was found once.
TEST_F(AtomicClient, OncePerOpWhateverTheNetworkDoes) {
    world.weather = {.loss = 150, .dup = 200, .damage = 20, .cut = 20, .jitter_ns = 5 * ms};
    world.add_channel(world.config(2));
    for (int i = 0; i < 2000; i++) {
        add(8, 1, i % 2);
        if (i % 5 == 0)
            world.run([&] { return world.channels[0]->ops.size() < 60; });
    }
    finish_all();
    std::vector<bool> seen(ops.size());
    for (Op& op : ops) {
        ASSERT_EQ(op.result, RMEM_CLIENT_OK);
        ASSERT_LT(op.op.atomic.found[0], seen.size());
        EXPECT_FALSE(seen[op.op.atomic.found[0]]);
        seen[op.op.atomic.found[0]] = true;
    }
    EXPECT_EQ(value(8), ops.size());
    EXPECT_GT(client().count.timeouts, 100u);
}

// Sessions end all the time: an op is executed once, or it isn't known whether once or never.
TEST_F(AtomicClient, UnknownWhenItsSessionEnded) {
    world.weather = {.loss = 100, .dup = 100, .jitter_ns = 3 * ms};
    for (int i = 0; i < 3000; i++) {
        add(8, 1);
        if (i % 100 == 99)
            world.host->evict_all();
        if (i % 5 == 0)
            world.run([&] { return world.channels[0]->ops.size() < 40; });
    }
    finish_all();
    uint64_t done = 0, unknown = 0;
    for (Op& op : ops) {
        ASSERT_TRUE(op.result == RMEM_CLIENT_OK || op.result == RMEM_CLIENT_UNKNOWN);
        done += op.result == RMEM_CLIENT_OK;
        unknown += op.result == RMEM_CLIENT_UNKNOWN;
    }
    EXPECT_GT(unknown, 50u);
    EXPECT_GE(value(8), done);
    EXPECT_LE(value(8), done + unknown);
    EXPECT_GT(client().count.reopened, 10u);
}

// One that was never handed out is known not to have been executed: it goes in the next session.
TEST_F(AtomicClient, NotUnknownIfItNeverLeft) {
    world.window.cwnd = RMEM_CWND_ONE;
    for (int i = 0; i < 10; i++)
        add(0, 1);
    world.host->evict_all();
    finish_all();
    uint64_t done = 0;
    for (Op& op : ops)
        done += op.result == RMEM_CLIENT_OK;
    EXPECT_GE(done, 8u); // but for the one sent, and the one looked ahead at
    EXPECT_EQ(value(0), done);
}

// ---- puts ----

struct PutClient : AtomicClient {
    Op& put(uint64_t at, Bytes data, uint64_t signal, uint64_t value, size_t channel = 0) {
        Op& op = ops.emplace_back();
        net::make_put(op, base + at, std::move(data), base + signal, value);
        world.submit(op, channel);
        return op;
    }
};

TEST_F(PutClient, BringsDataAndThenTheSignal) {
    uint32_t most = rmem_client_put_bytes(&client());
    EXPECT_EQ(most, 1400 - sizeof(rmem_put));
    uint64_t sum = 0;
    for (uint32_t bytes : {1u, 7u, 100u, most}) {
        Bytes data = noise(world.random, bytes);
        Op& op = put(65536 - bytes / 2, data, 64, bytes);
        finish_all();
        EXPECT_EQ(op.result, RMEM_CLIENT_OK);
        EXPECT_EQ(op.op.put.found, sum);
        sum += bytes;
        EXPECT_EQ(read(65536 - bytes / 2, bytes), data);
        EXPECT_EQ(value(64), sum);
    }
}

TEST_F(PutClient, RefusalsCarryTheNodesWord) {
    put(0, {1}, 4, 1);
    put(0, {1}, 8 << 20, 1);
    finish_all();
    EXPECT_EQ(ops.front().result, RMEM_CLIENT_REFUSED);
    EXPECT_EQ(ops.front().op.status, RMEM_INVALID);
    EXPECT_EQ(ops.back().result, RMEM_CLIENT_REFUSED);
    EXPECT_EQ(ops.back().op.status, RMEM_FAULT);
    EXPECT_EQ(read(0, 1), Bytes{0});
}

// One datagram for what is small; every answer in one, too.
TEST_F(PutClient, ShareDatagrams) {
    world.datagram_bytes = 8972;
    attach(world.config(2));
    world.window.cwnd = RMEM_CWND_MAX;
    unsigned shared[2] = {};
    world.on_sent = [&](const net::Packet& packet) {
        bool response = !packet.to_node;
        shared[response] += net::received(packet.bytes, response, net::space_key()).size() > 1;
    };
    for (uint64_t i = 0; i < 200; i++)
        put(64 + 8 * i, Bytes(8, i + 1), 0, 1, 1);
    finish_all();
    EXPECT_EQ(value(0), 200u);
    EXPECT_EQ(read(64 + 8 * 199, 8), Bytes(8, 200));
    EXPECT_GT(shared[0], 10u);
    EXPECT_GT(shared[1], 10u);
}

// Each has an item of its own and a bit of the signal. Whoever saw the bit asks for the item, and
// gets it whole; all bits are set once, so the sum is all of them.
TEST_F(PutClient, WhoSeesTheSignalFindsTheData) {
    world.weather = {.loss = 150, .dup = 200, .damage = 20, .cut = 20, .jitter_ns = 5 * ms};
    world.add_channel(world.config(2));
    constexpr uint64_t bits = 63, bytes = 1000;
    for (int round = 0; round < 20; round++) {
        uint64_t signal = 8 * round, items = 65536;
        uint64_t seen = 0;
        ASSERT_EQ(simple(RMEM_ZERO, items, bits * bytes), RMEM_CLIENT_OK);
        for (uint64_t i = 0; i < bits; i++)
            put(items + i * bytes, Bytes(bytes, round * 7 + i + 1), signal, 1ull << i);
        while (seen != (1ull << bits) - 1) {
            Op look;
            net::make(look, RMEM_READ, base + signal, 8);
            ASSERT_EQ(net::finish(world, look, 1), RMEM_CLIENT_OK);
            uint64_t now = base_load_le64(look.data.data());
            ASSERT_EQ(now & seen, seen);
            for (uint64_t i = 0; i < bits; i++) {
                if (!((now ^ seen) >> i & 1))
                    continue;
                Op item;
                net::make(item, RMEM_READ, base + items + i * bytes, bytes);
                ASSERT_EQ(net::finish(world, item, 1), RMEM_CLIENT_OK);
                ASSERT_EQ(item.data, Bytes(bytes, round * 7 + i + 1));
            }
            seen = now;
        }
        finish_all();
        EXPECT_EQ(value(signal), (1ull << bits) - 1);
    }
    for (Op& op : ops)
        EXPECT_EQ(op.result, RMEM_CLIENT_OK);
    EXPECT_GT(client().count.timeouts, 20u);
}

TEST_F(PutClient, UnknownWhenItsSessionEnded) {
    world.weather = {.loss = 100, .dup = 100, .jitter_ns = 3 * ms};
    for (int i = 0; i < 1500; i++) {
        put(64, Bytes(64, 1), 8, 1);
        if (i % 100 == 99)
            world.host->evict_all();
        if (i % 5 == 0)
            world.run([&] { return world.channels[0]->ops.size() < 40; });
    }
    finish_all();
    uint64_t done = 0, unknown = 0;
    for (Op& op : ops) {
        ASSERT_TRUE(op.result == RMEM_CLIENT_OK || op.result == RMEM_CLIENT_UNKNOWN);
        done += op.result == RMEM_CLIENT_OK;
        unknown += op.result == RMEM_CLIENT_UNKNOWN;
    }
    EXPECT_GT(unknown, 20u);
    EXPECT_GE(value(8), done);
    EXPECT_LE(value(8), done + unknown);
}

// As far ahead as results are kept, mixed with ATOMICs, no further.
TEST_F(PutClient, RunNoFurtherAheadThanResultsAreKept) {
    world.window.cwnd = RMEM_CWND_MAX;
    world.weather.loss = 1000;
    put(64, {1}, 0, 1);
    world.weather.loss = 0;
    for (int i = 1; i < 500; i++) {
        if (i % 3)
            put(64, {1}, 0, 1);
        else
            add(0, 1);
    }
    finish_all();
    EXPECT_EQ(value(0), 500u);
    EXPECT_EQ(client().count.busy, 0u);
    EXPECT_GE(client().count.timeouts, 1u);
}

// Whatever the network loses, and whenever ops come: none waits for ever.
class GatherLoss : public testing::TestWithParam<int> {};

TEST_P(GatherLoss, EveryOpEnds) {
    SCOPED_TRACE("replay: out/bin/unit --gtest_filter='*GatherLoss*/" + std::to_string(GetParam()) +
                 "'");
    std::mt19937_64 random(GetParam());
    World world(GetParam());
    size_t shared[2] = {}; // datagrams of several messages, each way
    world.on_sent = [&](const net::Packet& packet) {
        bool response = !packet.to_node;
        shared[response] += net::received(packet.bytes, response, net::space_key()).size() > 1;
    };
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
    EXPECT_GT(shared[0], 50u);
    EXPECT_GT(shared[1], 50u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, GatherLoss, testing::Range(0, 20));

// Random work, random weather, and all the node may do to us but restart.
// The seed is the test's number, or REMORA_SEED.
class Storm : public testing::TestWithParam<int> {
protected:
    std::mt19937_64 random{seed()};

    static uint64_t seed() {
        const char* given = std::getenv("REMORA_SEED");
        return given ? std::strtoull(given, nullptr, 0) : GetParam();
    }

    void run(World& world, const std::function<void()>& storm) {
        const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
        SCOPED_TRACE("replay: REMORA_SEED=" + std::to_string(seed()) +
                     " out/bin/unit --gtest_filter='*" + name + "'");
        world.weather.loss = random() % 3 ? random() % 100 : 0;
        world.weather.dup = random() % 100;
        world.weather.damage = random() % 30;
        world.weather.delay_ns = 10'000 + random() % 1'000'000;
        world.weather.jitter_ns = random() % 3'000'000;
        world.unsent = random() % 3 ? 0 : random() % 50;
        try {
            storm();
        } catch (const net::Broken& broken) {
            FAIL() << broken.what();
        }
    }
};

struct Slot {
    Bytes now;
    Op op;
};

void storm(World& world, std::mt19937_64& random, size_t channels, size_t wanted,
           uint32_t slot_bytes = 40000) {
    std::vector<std::unique_ptr<Slot>> slots;
    for (size_t i = 0; i < channels; i++)
        world.add_channel(world.config(i + 1));
    uint64_t base = net::allocate(world, 4 << 20);
    size_t ended = 0;
    std::function<void(Op&)> again;
    auto submit = [&](size_t index) {
        Slot& slot = *slots[index];
        uint64_t at = base + index * slot_bytes;
        slot.op.data.clear();
        switch (random() % 8) {
        case 0:
            net::make(slot.op, RMEM_ZERO, at, slot_bytes);
            break;
        case 1:
        case 2:
        case 3:
            net::make_write(slot.op, at, noise(random, slot_bytes));
            break;
        default:
            net::make(slot.op, RMEM_READ, at, slot_bytes);
        }
        world.submit(slot.op, random() % channels);
    };
    again = [&](Op& op) {
        size_t index = 0;
        while (&slots[index]->op != &op)
            index++;
        Slot& slot = *slots[index];
        net::require(op.result == RMEM_CLIENT_OK, "an op failed");
        if (op.op.type == RMEM_WRITE)
            slot.now = op.data;
        else if (op.op.type == RMEM_ZERO)
            slot.now.assign(slot_bytes, 0);
        else
            net::require(op.data == slot.now, "read what wasn't written last");
        ended++;
        if (ended < wanted)
            submit(index);
    };
    for (size_t i = 0; i < 24; i++) {
        slots.push_back(std::make_unique<Slot>());
        slots.back()->now.assign(slot_bytes, 0);
        slots.back()->op.ended = again;
    }
    for (size_t i = 0; i < slots.size(); i++)
        submit(i);
    uint64_t next_eviction = world.now_ns + 200 * ms;
    bool done = world.run(
        [&] {
            if (world.now_ns > next_eviction) {
                world.host->evict_all();
                next_eviction = world.now_ns + 100 * ms + random() % (400 * ms);
            }
            return ended >= wanted && world.idle();
        },
        3'600'000 * ms);
    net::require(done, "work came to a standstill");
    net::require(!rmem_window_in_flight(&world.window) && !rmem_incast_used_bytes(&world.incast),
                 "credit is out though nothing is");
}

TEST_P(Storm, EveryByteIsRight) {
    World world(seed(), random() % 2 ? RMEM_IWND_BYTES : 100'000);
    world.slow_service_ns = random() % 2 ? random() % 20'000 : 0;
    run(world, [&] { storm(world, random, 1 + random() % 3, 150); });
}

// Small ops, many to a datagram.
TEST_P(Storm, EveryByteIsRightInSharedDatagrams) {
    World world(seed());
    world.datagram_bytes = random() % 2 ? 1472 : 8972;
    world.weather.cut = random() % 30;
    run(world, [&] { storm(world, random, 1 + random() % 2, 600, random() % 3 ? 300 : 3000); });
}

INSTANTIATE_TEST_SUITE_P(Seeds, Storm, testing::Range(0, 25));

// Ten of a hundred packets lost each way: slow, but all of it gets there.
TEST(ClientLoss, TenPercentMakesProgress) {
    World world(9);
    world.weather.loss = 100;
    std::mt19937_64 random(9);
    storm(world, random, 2, 300);
    EXPECT_LT(world.now_ns, 120'000 * ms);
}

} // namespace
