// SPDX-License-Identifier: GPL-2.0
// What is executed once or reported unknown, never twice: atomics and puts.
#include <gtest/gtest.h>

#include <functional>
#include <list>
#include <utility>
#include <vector>

#include "client_rig.hpp"

namespace {

using net::Bytes;
using net::ms;
using net::noise;
using net::Op;
using net::World;

// ---- atomics ----

struct AtomicClient : net::ClientTest {
    void SetUp() override {
        net::ClientTest::SetUp();
        world.on_sent = [this](const net::Packet& packet) {
            if (packet.to_node)
                request = packet.bytes;
        };
    }

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

    // The node's answers to a copy of the last request that a stranger sends from another address.
    std::vector<Bytes> answers_to_copy(uint16_t port = 1) {
        rmem_peer stranger = world.channels[0]->peer;
        stranger.port += port;
        return world.host->handle(world.now_ns, request, stranger);
    }
    // To the client, which then sends something.
    void relay(std::vector<Bytes> answers) {
        const uint64_t sent = client().count.sent;
        for (Bytes& answer : answers)
            world.inject({std::move(answer), 0, false, world.now_ns, 0});
        ASSERT_TRUE(world.run([&] { return client().count.sent > sent; }));
    }
    Bytes request;

    // Sessions end all the time: what add_one() submits, each adding 1 at 8, is executed once, or
    // it isn't known whether once or never.
    void end_sessions_during(int count, uint64_t unknown_least,
                             const std::function<void()>& add_one) {
        world.weather = {.loss = 100, .dup = 100, .jitter_ns = 3 * ms};
        for (int i = 0; i < count; i++) {
            add_one();
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
        EXPECT_GT(unknown, unknown_least);
        EXPECT_GE(value(8), done);
        EXPECT_LE(value(8), done + unknown);
        EXPECT_GT(client().count.reopened, 10u);
    }
};

TEST_F(AtomicClient, ReturnsTheFormerValue) {
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

// The stranger's NO_SESSION is sealed, and names the client's session and id.
TEST_F(AtomicClient, CopySentFromAnotherAddressEndsNoSession) {
    Op& op = add(0, 5);
    Op write;
    net::make_write(write, base + 64, Bytes(100, 7));
    world.submit(write, 0);
    uint64_t id = write.op.id;
    relay(answers_to_copy());
    EXPECT_EQ(client().state, RMEM_CHANNEL_OPENING);
    EXPECT_EQ(write.op.id, id) << "a write that may be executed goes under another id";
    finish_all();
    EXPECT_EQ(op.result, RMEM_CLIENT_OK);
    EXPECT_EQ(write.result, RMEM_CLIENT_OK);
    EXPECT_EQ(value(0), 5u);
}

// An attacker withholds all that the client sends, sends copies from its own address, and relays
// the answers. So its OPEN meets the challenge, before the client's own arrives.
TEST_F(AtomicClient, RelayedChallengeEndsNoSession) {
    world.weather.loss = 1000;
    Op& op = add(0, 5);
    world.host->handle(world.now_ns, request, world.channels[0]->peer); // executed
    const uint64_t session = client().session;
    relay(answers_to_copy()); // NO_SESSION
    ASSERT_EQ(client().state, RMEM_CHANNEL_OPENING);
    EXPECT_EQ(client().renews, session);
    relay(answers_to_copy()); // CHALLENGE
    relay(answers_to_copy()); // the OPEN's
    ASSERT_EQ(client().state, RMEM_CHANNEL_OPEN);
    world.weather.loss = 0;
    finish_all();
    EXPECT_EQ(op.result, RMEM_CLIENT_OK);
    EXPECT_EQ(value(0), 5u);
    EXPECT_EQ(client().count.reopened, 2u);
}

TEST_F(AtomicClient, RelayedChallengesCauseABoundedRateOfOpens) {
    world.weather.loss = 1000;
    Op& op = add(0, 5);
    relay(answers_to_copy());
    const uint64_t end_ns = world.now_ns + 1000 * ms;
    const uint64_t sent = client().count.sent;
    for (uint16_t port = 1; world.now_ns < end_ns && port < 1000; port++)
        relay(answers_to_copy(port));
    EXPECT_LE(client().count.sent - sent, 21u);
    world.weather.loss = 0;
    finish_all();
    EXPECT_EQ(op.result, RMEM_CLIENT_OK);
    EXPECT_EQ(value(0), 5u);
}

TEST_F(AtomicClient, DamagedCopySentFromAnotherAddressIsNotAnswered) {
    Op write;
    net::make_write(write, base, Bytes(100, 7));
    world.submit(write, 0);
    request.back() ^= 1;
    EXPECT_TRUE(answers_to_copy().empty());
    finish_all();
    EXPECT_EQ(client().count.damaged, 0u);
}

// The first datagram is lost: the others run ahead of the floor as far as results are kept, no
// further, and all end when it has been sent again.
TEST_F(AtomicClient, RunNoFurtherAheadThanResultsAreKept) {
    client().window.cwnd = RMEM_CWND_MAX;
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
    EXPECT_GE(client().count.lost, 1u);
}

// The same of WRITEs and all ids there are.
TEST_F(AtomicClient, OldestIsSentAgainWhereIdsHaveRunOut) {
    client().window.cwnd = RMEM_CWND_MAX;
    // No answer comes, and no op times out, before all ids are given out.
    world.weather.delay_ns = 1;
    world.weather.jitter_ns = 0;
    auto write = [&] {
        net::make_write(ops.emplace_back(), base, Bytes(1, 1));
        world.submit(ops.back(), 0);
    };
    // No copy of the first arrives before.
    uint64_t first = client().seq.next;
    world.on_sent = [&](const net::Packet& packet) {
        net::Received message = net::received(packet.bytes, !packet.to_node, net::space_key())[0];
        world.weather.loss = packet.to_node && message.head.id == first ? 1000 : 0;
    };
    write();
    for (uint32_t i = 0; i < RMEM_WINDOW + 100; i++) {
        write();
        world.run([&] { return world.channels[0]->client.flying.ops < 3; }, 1);
    }
    EXPECT_EQ(rmem_seq_span(&client().seq), RMEM_WINDOW);
    world.on_sent = nullptr;
    world.weather.loss = 0;
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
    EXPECT_GT(client().count.lost, 100u);
}

TEST_F(AtomicClient, UnknownWhenItsSessionEnded) {
    end_sessions_during(3000, 50, [&] { add(8, 1); });
}

// One that was never handed out is known not to have been executed: it goes in the next session.
TEST_F(AtomicClient, NotUnknownIfItNeverLeft) {
    client().window.cwnd = RMEM_CWND_ONE;
    for (int i = 0; i < 10; i++)
        add(0, 1);
    world.host->evict_all();
    finish_all();
    uint64_t done = 0;
    for (Op& op : ops)
        done += op.result == RMEM_CLIENT_OK;
    EXPECT_GE(done, 8u); // except the one sent, and the one looked ahead at
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
    client(1).window.cwnd = RMEM_CWND_MAX;
    net::Shared shared(world);
    for (uint64_t i = 0; i < 200; i++)
        put(64 + 8 * i, Bytes(8, i + 1), 0, 1, 1);
    finish_all();
    EXPECT_EQ(value(0), 200u);
    EXPECT_EQ(read(64 + 8 * 199, 8), Bytes(8, 200));
    EXPECT_GT(shared.count[0], 10u);
    EXPECT_GT(shared.count[1], 10u);
}

// Each has an item of its own and a bit of the signal. A reader that saw the bit reads the item,
// whole; all bits are set once, so the sum is all of them.
TEST_F(PutClient, ReaderThatSeesTheSignalFindsTheData) {
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
    EXPECT_GT(client().count.lost, 20u);
}

TEST_F(PutClient, UnknownWhenItsSessionEnded) {
    end_sessions_during(1500, 20, [&] { put(64, Bytes(64, 1), 8, 1); });
}

// As far ahead as results are kept, mixed with ATOMICs, no further.
TEST_F(PutClient, RunNoFurtherAheadThanResultsAreKept) {
    client().window.cwnd = RMEM_CWND_MAX;
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
    EXPECT_GE(client().count.lost, 1u);
}

} // namespace
