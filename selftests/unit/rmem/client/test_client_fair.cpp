// SPDX-License-Identifier: GPL-2.0
// Channels of one machine share a node: each gets its part, and none waits for a greedy one.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <list>
#include <numeric>

#include "client_rig.hpp"

namespace {

using net::Bytes;
using net::ms;
using net::Op;
using net::World;

// A user of a channel that keeps so many ops out, from its begin on.
struct User {
    User(World& its_world, size_t its_channel, uint8_t its_type, uint32_t its_bytes,
         uint64_t its_addr)
        : world(its_world),
          channel(its_channel),
          type(its_type),
          bytes(its_bytes),
          addr(its_addr) {}
    User(const User&) = delete;
    User& operator=(const User&) = delete;

    void keep_out(size_t depth) {
        for (size_t i = 0; i < depth; i++) {
            Op& op = ops.emplace_back();
            op.ended = [this](Op& self) {
                net::require(self.result == RMEM_CLIENT_OK, "an op failed");
                longest_ns = std::max(longest_ns, world.now_ns - self.op.submitted_ns);
                ended_bytes += bytes;
                submit(self);
            };
            submit(op);
        }
    }

    // The longest wait that ended or goes on.
    uint64_t waited_ns() const {
        uint64_t longest = longest_ns;
        for (const Op& op : ops)
            longest = std::max(longest, world.now_ns - op.op.submitted_ns);
        return longest;
    }

    World& world;
    size_t channel;
    uint8_t type;
    uint32_t bytes;
    uint64_t addr;
    uint64_t ended_bytes = 0, longest_ns = 0;

private:
    void submit(Op& op) {
        if (type == RMEM_WRITE)
            net::make_write(op, addr, Bytes(bytes, 1));
        else
            net::make(op, type, addr, bytes);
        world.submit(op, channel);
    }

    std::list<Op> ops;
};

struct Fair : testing::Test {
    World world{21};
    uint64_t base = 0;
    std::deque<User> users;

    void attach(size_t channels) {
        world.keeps_books = false;
        world.sessions_max = 256;
        world.boot_node();
        for (size_t i = 0; i < channels; i++)
            world.add_channel(world.config(i + 1));
        base = net::allocate(world, 1 << 20);
        Op op;
        net::make_write(op, base, Bytes(1 << 17, 1)); // no client gets BUSY for want of a page
        ASSERT_EQ(net::finish(world, op), RMEM_CLIENT_OK);
    }

    User& add(uint8_t type, uint32_t bytes, size_t depth) {
        User& user = users.emplace_back(world, users.size(), type, bytes, base);
        user.keep_out(depth);
        return user;
    }

    void pass(uint64_t for_ns) {
        uint64_t end_ns = world.now_ns + for_ns;
        world.run([&] { return world.now_ns >= end_ns; });
    }

    // Jain's index of what each user got from now on.
    double jain(uint64_t for_ns) {
        std::vector<double> got;
        for (User& user : users)
            user.ended_bytes = 0;
        pass(for_ns);
        for (User& user : users)
            got.push_back(double(user.ended_bytes));
        double sum = std::accumulate(got.begin(), got.end(), 0.0), squares = 0;
        for (double one : got)
            squares += one * one;
        auto [least, most] = std::minmax_element(got.begin(), got.end());
        RecordProperty("least_of_mean", std::to_string(*least * got.size() / sum));
        RecordProperty("most_of_mean", std::to_string(*most * got.size() / sum));
        return squares ? sum * sum / (double(got.size()) * squares) : 0;
    }
};

// ---- shares ----

class FairShares : public Fair, public testing::WithParamInterface<size_t> {};

TEST_P(FairShares, OfTheNodesTime) {
    attach(GetParam());
    world.slow_service_ns = 100'000;
    for (size_t i = 0; i < GetParam(); i++)
        add(RMEM_WRITE, 4096, 32);
    pass(1000 * ms);
    EXPECT_GE(jain(2000 * ms), 0.99);
}

TEST_P(FairShares, WhereHalfOfThemStartLate) {
    attach(GetParam());
    world.slow_service_ns = 100'000;
    for (size_t i = 0; i < GetParam() / 2; i++)
        add(RMEM_WRITE, 4096, 32);
    pass(1000 * ms);
    while (users.size() < GetParam())
        add(RMEM_WRITE, 4096, 32);
    pass(2000 * ms);
    EXPECT_GE(jain(2000 * ms), 0.99);
}

TEST_P(FairShares, OfTheLinkWhateverTheSizes) {
    attach(GetParam());
    world.link_ns_per_kib = 60'000;
    for (size_t i = 0; i < GetParam(); i++)
        add(i / 2 % 2 ? RMEM_READ : RMEM_WRITE, i % 2 ? 11200 : 44800, i % 2 ? 16 : 4);
    pass(1000 * ms);
    // Each way is a link of its own.
    double sum[2] = {}, squares[2] = {}, count[2] = {};
    jain(2000 * ms);
    for (const User& user : users) {
        bool reads = user.type == RMEM_READ;
        sum[reads] += double(user.ended_bytes);
        squares[reads] += double(user.ended_bytes) * double(user.ended_bytes);
        count[reads]++;
    }
    for (int way = 0; way < 2; way++) {
        if (!count[way])
            continue;
        EXPECT_GE(sum[way] * sum[way] / (count[way] * squares[way]), 0.99) << way;
    }
}

INSTANTIATE_TEST_SUITE_P(Channels, FairShares, testing::Values(2, 8, 64));

// ---- one greedy, one modest ----

TEST_F(Fair, AReadBesideAWriterThatNeverStopsWaitsForTheNodeOnly) {
    attach(2);
    world.slow_service_ns = 12'000;
    User& greedy = add(RMEM_WRITE, 4096, 128);
    pass(100 * ms);
    User& modest = add(RMEM_READ, 4096, 1);
    pass(1000 * ms);
    EXPECT_GT(greedy.ended_bytes, 50'000'000u);
    EXPECT_GT(modest.ended_bytes, 4096u * 200);
    EXPECT_LT(modest.waited_ns(), 25 * ms);
}

// Of another node, too: iwnd is the machine's.
TEST_F(Fair, AReadBesideReadsThatFillTheIncastWindowHasItsTurn) {
    rmem_incast_init(&world.incast, 128 * 1024);
    attach(2);
    world.link_ns_per_kib = 5'000;
    User& greedy = add(RMEM_READ, 8192, 64);
    pass(100 * ms);
    greedy.longest_ns = 0;
    User& modest = add(RMEM_READ, 8192, 1);
    pass(1000 * ms);
    EXPECT_GT(greedy.ended_bytes, 50'000'000u);
    EXPECT_GT(modest.ended_bytes, 8192u * 500);
    EXPECT_LT(modest.waited_ns(), 5 * ms);
}

// iwnd is shared with channels to other nodes, whose READs it would stop until the last timeout.
TEST_F(Fair, ReadsOfASilentNodeHoldNothingOfTheIncastWindow) {
    constexpr size_t channels = 8;
    attach(channels);
    world.link_ns_per_kib = 5'000;
    for (size_t i = 0; i < channels; i++)
        add(RMEM_READ, 65536, 4);
    pass(20 * ms);
    ASSERT_GT(rmem_incast_used_bytes(&world.incast), 0u);
    world.weather.loss = 1000;
    auto silent = [&] {
        return std::ranges::all_of(world.channels,
                                   [](const auto& each) { return each->client.silent; });
    };
    ASSERT_TRUE(world.run(silent, 2000 * ms));
    EXPECT_EQ(rmem_incast_used_bytes(&world.incast), 0u);
    uint64_t sent = world.channels[0]->client.count.sent;
    uint64_t end_ns = world.now_ns + 5000 * ms;
    world.run([&] {
        EXPECT_EQ(rmem_incast_used_bytes(&world.incast), 0u);
        return world.now_ns >= end_ns;
    });
    EXPECT_GT(world.channels[0]->client.count.sent, sent) << "nobody asks whether it is back";
    world.weather.loss = 0;
    for (User& user : users)
        user.ended_bytes = 0;
    world.run([&] {
        return std::ranges::all_of(users, [](const User& user) { return user.ended_bytes > 0; });
    });
}

TEST_F(Fair, ChannelThatEndsWhileWaitingDelaysNoOther) {
    rmem_incast_init(&world.incast, 64 * 1024);
    attach(3);
    add(RMEM_READ, 65536, 8);
    Op gone;
    net::make(gone, RMEM_READ, base, 65536);
    world.submit(gone, 1);
    ASSERT_TRUE(world.channels[1]->client.place.turn.waits);
    world.end(rmem_client_cancel_all(&world.channels[1]->client), RMEM_CLIENT_CANCELLED);
    Op op;
    net::make(op, RMEM_READ, base, 4096);
    uint64_t begun_ns = world.now_ns;
    EXPECT_EQ(net::finish(world, op, 2), RMEM_CLIENT_OK);
    EXPECT_LT(world.now_ns - begun_ns, 5 * ms);
}

// Each of a device's 32 channels always has READs that wait; so has the other device's one.
TEST_F(Fair, DeviceOfManyChannelsHasOneTurn) {
    constexpr size_t greedy = 32;
    rmem_incast_share devices[2];
    for (rmem_incast_share& device : devices)
        rmem_incast_share_init(&device);
    rmem_incast_init(&world.incast, 256 * 1024);
    world.link_ns_per_kib = 1000;
    attach(greedy + 1);
    for (size_t i = 0; i <= greedy; i++)
        rmem_client_set_share(&world.channels[i]->client, &devices[i == greedy]);
    for (size_t i = 0; i <= greedy; i++)
        add(RMEM_READ, 65536, 4);
    pass(20 * ms);
    for (User& user : users)
        user.ended_bytes = 0;
    pass(100 * ms);
    uint64_t others = 0;
    for (size_t i = 0; i < greedy; i++) {
        EXPECT_GT(users[i].ended_bytes, 0u) << "channel " << i;
        others += users[i].ended_bytes;
    }
    EXPECT_GT(users[greedy].ended_bytes, others / 2);
    EXPECT_LT(users[greedy].ended_bytes, others * 2);
}

TEST_F(Fair, ChannelThatEndsHandsItsDevicesTurnOn) {
    rmem_incast_share device;
    rmem_incast_share_init(&device);
    rmem_incast_init(&world.incast, 64 * 1024);
    attach(1);
    for (uint8_t name = 2; name < 5; name++) {
        rmem_client& other = world.add_channel(world.config(name), 0, &device).client;
        ASSERT_TRUE(world.run([&] { return other.state == RMEM_CHANNEL_OPEN; }));
    }
    add(RMEM_READ, 65536, 8);
    Op waits[3];
    for (size_t i = 0; i < 3; i++) {
        net::make(waits[i], RMEM_READ, base, 65536);
        world.submit(waits[i], i + 1);
    }
    ASSERT_TRUE(world.channels[1]->client.place.holds);
    ASSERT_TRUE(world.channels[2]->client.place.turn.waits);
    for (size_t gone : {2, 1})
        world.end(rmem_client_cancel_all(&world.channels[gone]->client), RMEM_CLIENT_CANCELLED);
    ASSERT_TRUE(world.run([&] { return !waits[2].flying; }, 50 * ms));
    EXPECT_EQ(waits[2].result, RMEM_CLIENT_OK);
}

// ---- the lock ----

TEST_F(Fair, ARowOfMessagesEndsAndTheNextOneFollowsAtOnce) {
    attach(1);
    rmem_client& client = world.channels[0]->client;
    client.window.cwnd = RMEM_CWND_MAX;
    size_t sent = 0;
    world.on_sent = [&](const net::Packet& packet) { sent += packet.to_node; };
    std::list<Op> ops(30);
    world.node_up = false;
    for (Op& op : ops)
        net::make_write(op, base, Bytes(14000, 1));
    for (Op& op : ops) {
        size_t before = sent;
        world.submit(op, 0);
        EXPECT_LE(sent - before, size_t{RMEM_ROW_MAX});
    }
    EXPECT_LE(sent, 300u);
    Op large;
    net::make_write(large, base, Bytes(RMEM_OP_BYTES_MAX, 1));
    sent = 0;
    world.submit(large, 0);
    EXPECT_EQ(sent, RMEM_ROW_MAX);
    EXPECT_EQ(rmem_client_deadline(&client), world.now_ns);
    ASSERT_TRUE(world.run([&] { return sent == large.op.parts; }, 0));
    world.node_up = true;
    EXPECT_TRUE(world.run([&] { return world.idle(); }));
}

// ---- the head of the line ----

// The first is slow at the node and keeps the floor down; far above it, an ATOMIC has to wait.
TEST_F(Fair, BlockedOpDelaysNoOpBehindIt) {
    attach(1);
    rmem_client& client = world.channels[0]->client;
    client.window.cwnd = RMEM_CWND_MAX;
    std::list<Op> ops;
    auto write = [&]() -> Op& {
        net::make_write(ops.emplace_back(), base, Bytes(8, 1));
        world.submit(ops.back(), 0);
        return ops.back();
    };
    auto add_one = [&]() -> Op& {
        net::make_add(ops.emplace_back(), base + 64, 1);
        world.submit(ops.back(), 0);
        return ops.back();
    };
    world.weather.loss = 1000;
    Op zero;
    net::make(zero, RMEM_ZERO, base + 65536, 4096);
    world.submit(zero, 0); // 100 ms until it is sent again
    world.weather.loss = 0;
    for (uint32_t i = 0; i < RMEM_REPLAY; i++)
        write();
    Op& held = add_one();
    Op& behind = write();
    ASSERT_TRUE(world.run([&] { return !behind.flying; }, 10 * ms));
    EXPECT_TRUE(held.flying);
    EXPECT_TRUE(zero.flying);
    ASSERT_TRUE(world.run([&] { return world.idle(); }));
    EXPECT_EQ(held.result, RMEM_CLIENT_OK);
}

// However many others there are, and however many of its kind.
TEST_F(Fair, HeldOpIsSentBesideEndlessOthers) {
    attach(1);
    world.channels[0]->client.window.cwnd = RMEM_CWND_MAX;
    User& greedy = add(RMEM_WRITE, 512, 4 * RMEM_REPLAY);
    std::list<Op> ops;
    for (int i = 0; i < 300; i++) {
        net::make_add(ops.emplace_back(), base + 64, 1);
        world.submit(ops.back(), 0);
    }
    EXPECT_TRUE(world.run(
        [&] {
            return std::none_of(ops.begin(), ops.end(), [](const Op& op) { return op.flying; });
        },
        100 * ms));
    EXPECT_GT(greedy.ended_bytes, 0u);
}

} // namespace
