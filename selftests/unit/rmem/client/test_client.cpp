// SPDX-License-Identifier: GPL-2.0
// The client against the real node, over a network as bad as we like.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <set>
#include <utility>

#include "client_rig.hpp"

namespace {

using net::Bytes;
using net::ms;
using net::noise;
using net::Op;
using net::World;

using Client = net::ClientTest;

TEST_F(Client, ReadAfterWriteReturnsItsData) {
    for (uint32_t len : {1u, 16u, 1400u, 1401u, 4096u, 65536u, RMEM_OP_BYTES_MAX}) {
        Bytes data = noise(world.random, len);
        ASSERT_EQ(write(4096 - len % 7, data), RMEM_CLIENT_OK);
        EXPECT_EQ(read(4096 - len % 7, len), data) << len;
    }
    EXPECT_EQ(client().count.timeouts, 0u);
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

TEST_F(Client, EvictedSessionIsReopenedAndOpsEndWell) {
    Bytes data = noise(world.random, 65536);
    ASSERT_EQ(write(0, data), RMEM_CLIENT_OK);
    uint64_t session = client().session;
    world.host->evict_all();
    EXPECT_EQ(read(0, 65536), data);
    EXPECT_NE(client().session, session);
    EXPECT_EQ(client().count.reopened, 1u);
}

// A FREE that is refused as FAULT may have been executed only if an earlier session had a copy.
TEST_F(Client, RetryIsNotTakenForAnEarlierSessionsCopy) {
    for (bool evicted : {false, true}) {
        Op op;
        op.op.type = RMEM_FREE;
        op.op.range = {.addr = 0x1234'0000'0000, .bytes = 65536, .undoes = false};
        world.weather.loss = 1000;
        world.submit(op, 0);
        ASSERT_TRUE(world.run([&] { return op.op.attempt > 1; }));
        world.weather.loss = 0;
        if (evicted)
            world.host->evict_all();
        ASSERT_TRUE(world.run([&] { return !op.flying; }));
        EXPECT_EQ(op.result, RMEM_CLIENT_REFUSED);
        EXPECT_EQ(op.op.status, RMEM_FAULT);
        EXPECT_EQ(op.op.sent_before, evicted);
    }
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

// An authenticated-encryption level would make its nonce of session and number (rmem.h,
// "Datagrams").
TEST_F(Client, DatagramsOfASessionHaveNumbersOfTheirOwn) {
    std::set<std::pair<uint64_t, uint64_t>> numbers;
    size_t datagrams = 0;
    world.weather.loss = 100;
    world.on_sent = [&](const net::Packet& packet) {
        rmem_hdr header;
        std::memcpy(&header, packet.bytes.data(), sizeof(header));
        if (!packet.to_node || !header.session)
            return; // an OPEN stays in the clear
        datagrams++;
        EXPECT_TRUE(numbers.emplace(header.session, header.number).second);
    };
    std::list<Op> ops;
    for (int i = 0; i < 20; i++) {
        net::make_write(ops.emplace_back(), base + i * 65536ull, Bytes(20000, 1));
        world.submit(ops.back(), 0);
    }
    for (int i = 0; i < 100; i++)
        world.step();
    world.host->evict_all();
    ASSERT_TRUE(world.run([&] { return world.idle(); }));
    EXPECT_GT(datagrams, 20 * 20000u / 1400); // some were retransmitted
    world.on_sent = nullptr;
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

TEST_F(Client, LostChannelHasNoDeadlineOnceFailAfterHasPassed) {
    constexpr uint64_t fail_after_ns = 20'000 * ms;
    auto config = world.config(2);
    config.fail_after_ns = fail_after_ns;
    world.add_channel(config);
    ASSERT_TRUE(world.run([&] { return client(1).state == RMEM_CHANNEL_OPEN; }));
    Op op;
    net::make(op, RMEM_READ, base, 4096);
    world.submit(op, 1);
    world.end(rmem_client_rolled_back(&client(1)), RMEM_CLIENT_LOST);
    ASSERT_EQ(client(1).state, RMEM_CHANNEL_LOST);
    EXPECT_EQ(rmem_client_deadline(&client(1)), 0u);
    Op late;
    net::make(late, RMEM_READ, base, 4096);
    EXPECT_EQ(net::finish(world, late, 1), RMEM_CLIENT_LOST);
    // The rig requires of each expiry that the next deadline is later.
    world.run([] { return false; }, 2 * fail_after_ns);
    EXPECT_EQ(rmem_client_deadline(&client(1)), 0u);
}

// As after a checkpoint: its ids are below the floor that the node has seen.
TEST_F(Client, RolledBackClientGetsAnotherSession) {
    auto saved = std::make_unique<rmem_client>(client());
    for (int i = 0; i < 5; i++)
        ASSERT_EQ(write(0, Bytes(100, 1)), RMEM_CLIENT_OK);
    client() = *saved;
    uint64_t session = client().session;
    Bytes data = noise(world.random, 100);
    EXPECT_EQ(write(0, data), RMEM_CLIENT_OK);
    EXPECT_NE(client().session, session);
    EXPECT_EQ(read(0, 100), data);
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

// A cancelled op keeps its id, and the floor below all that came after it.
TEST_F(Client, CloseWithoutAnIdLeftEndsTheSession) {
    rmem_seq_take(&client().seq, 1, &client());
    while (rmem_seq_take(&client().seq, 1, nullptr)) {
    }
    rmem_client_close(&client(), world.now_ns);
    world.pump(0);
    ASSERT_TRUE(world.run([&] { return client().state == RMEM_CHANNEL_CLOSED; }));
    EXPECT_EQ(world.host->core.sessions.in_use, 0u);
}

TEST_F(Client, CloseIsRepeatedUntilAnswered) {
    world.weather.loss = 500;
    rmem_client_close(&client(), world.now_ns);
    world.pump(0);
    ASSERT_TRUE(world.run([&] { return client().state == RMEM_CHANNEL_CLOSED; }));
}

// The OPEN may have opened a session, whose name isn't known yet.
TEST_F(Client, CloseWhileOpeningClosesTheSessionOnceNamed) {
    rmem_client& other = world.add_channel(world.config(2)).client;
    ASSERT_TRUE(world.run([&] { return other.challenge; }));
    ASSERT_EQ(other.state, RMEM_CHANNEL_OPENING);
    rmem_client_close(&other, world.now_ns);
    ASSERT_TRUE(world.run([&] { return other.state == RMEM_CHANNEL_CLOSED; }));
    EXPECT_EQ(world.host->core.sessions.in_use, 1u);
    rmem_client_open(&other, world.now_ns);
    world.pump(1);
    EXPECT_TRUE(world.run([&] { return other.state == RMEM_CHANNEL_OPEN; }));
}

TEST_F(Client, CloseBeforeAnyAnswerTakesNoTime) {
    rmem_client& other = world.add_channel(world.config(2)).client;
    rmem_client_close(&other, world.now_ns);
    EXPECT_EQ(other.state, RMEM_CHANNEL_CLOSED);
    world.run([] { return false; }, 100 * ms);
    EXPECT_EQ(world.host->core.sessions.in_use, 1u);
}

TEST_F(Client, BusyNodeIsNotSilent) {
    world.host->core.config.session_idle_ms = 1'000'000;
    for (uint8_t name = 2; name <= world.sessions_max; name++) {
        rmem_client& other = world.add_channel(world.config(name)).client;
        ASSERT_TRUE(world.run([&] { return other.state == RMEM_CHANNEL_OPEN; }));
    }
    rmem_client& one_more = world.add_channel(world.config(99)).client;
    ASSERT_TRUE(world.run([&] { return one_more.count.sent > 6; }));
    EXPECT_EQ(one_more.open_status, RMEM_BUSY);
    EXPECT_EQ(one_more.silent, 0u);
}

TEST_F(Client, CopiesOfAChallengeAreIgnored) {
    world.weather.dup = 1000;
    rmem_client& other = world.add_channel(world.config(2)).client;
    ASSERT_TRUE(world.run([&] { return other.state == RMEM_CHANNEL_OPEN; }));
    EXPECT_EQ(other.count.sent, 2u) << "OPENs";
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

TEST_F(Client, WindowBoundsPacketsInFlight) {
    std::list<Op> ops;
    for (int i = 0; i < 200; i++) {
        ops.emplace_back();
        net::make_write(ops.back(), base + i * 4096, Bytes(4096, i));
        world.submit(ops.back(), 0);
        EXPECT_LE(client().window.in_flight, RMEM_CWND_START / RMEM_CWND_ONE);
    }
    EXPECT_EQ(client().window.in_flight, RMEM_CWND_START / RMEM_CWND_ONE);
    ASSERT_TRUE(world.run([&] { return world.idle(); }));
    EXPECT_EQ(client().window.in_flight, 0u);
}

TEST_F(Client, ManyIdsWaitForTheFloor) {
    // 20 ops of 188 ids each, all but the first answered: the window of ids holds them back.
    client().window.cwnd = RMEM_CWND_MAX;
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
        most = std::max<uint64_t>(most, rmem_incast_used_bytes(&world.incast));
    }
    EXPECT_LE(most, 128u * 1024);
    EXPECT_GT(most, 100u * 1024);
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
    EXPECT_LT(world.channels[0]->client.window.cwnd, 32 * RMEM_CWND_ONE);
    EXPECT_GT(ended, 8000u); // of 10000 the node could
    EXPECT_EQ(world.channels[0]->client.count.timeouts, 0u);
}

TEST(ClientLossless, NoWindowHoldsItBack) {
    World world(9);
    rmem_incast_init(&world.incast, 64 * 1024);
    rmem_client_config config = world.config(1);
    config.lossless = true;
    world.add_channel(config);
    uint64_t base = net::allocate(world, 1 << 20);
    std::list<Op> ops(256);
    for (auto& op : ops) {
        net::make(op, RMEM_READ, base, 1024);
        world.submit(op, 0);
    }
    EXPECT_EQ(world.channels[0]->client.window.in_flight, 256u);
    EXPECT_EQ(rmem_incast_used_bytes(&world.incast), 0u);
    world.run(
        [&] { return std::none_of(ops.begin(), ops.end(), [](Op& op) { return op.flying; }); });
    EXPECT_EQ(world.channels[0]->client.window.in_flight, 0u);
    EXPECT_EQ(rmem_incast_used_bytes(&world.incast), 0u);
    EXPECT_EQ(world.channels[0]->client.window.cwnd, RMEM_CWND_MAX);
}

TEST_F(Client, RoomBoundsTheMessagesOfARow) {
    rmem_client_set_room(&client(), 0);
    std::list<Op> ops(10);
    for (auto& op : ops) {
        net::make(op, RMEM_READ, base, 1024);
        world.submit(op, 0);
    }
    EXPECT_EQ(client().window.in_flight, 0u);
    rmem_client_set_room(&client(), 3);
    world.pump(0);
    EXPECT_EQ(client().window.in_flight, 3u);
    // An op that waits for room sets no timer.
    EXPECT_GT(rmem_client_deadline(&client()), world.now_ns);
    rmem_client_set_room(&client(), ~0U);
    world.pump(0);
    EXPECT_EQ(client().window.in_flight, 10u);
}

} // namespace
