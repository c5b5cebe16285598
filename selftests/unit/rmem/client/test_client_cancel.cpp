// SPDX-License-Identifier: GPL-2.0
// Ops that their caller takes back, one by one: copies of them may come, but never too late.
#include <gtest/gtest.h>

#include <list>

#include "client_rig.hpp"

namespace {

using net::Bytes;
using net::ms;
using net::Op;
using net::World;

struct Cancel : net::ClientTest {
    std::vector<net::Packet> kept; // copies of packets to the node, while they are kept
    size_t answers = 0;            // lost meanwhile
    std::list<Op> ops;

    void SetUp() override {
        ClientTest::SetUp();
        read(0, 1); // acknowledges its region, so that that outlives the session
    }

    // From now on nothing arrives; it's for send_kept().
    void keep() {
        kept.clear();
        answers = 0;
        world.weather.loss = 1000;
        world.on_sent = [this](const net::Packet& packet) {
            if (packet.to_node)
                kept.push_back(packet);
            else
                answers++;
        };
    }
    void pass() {
        world.weather.loss = 0;
        world.on_sent = nullptr;
    }
    void send_kept() {
        for (net::Packet& packet : kept) {
            packet.at_ns = world.now_ns;
            world.inject(packet);
        }
        world.run([] { return false; }, 100 * ms);
    }

    Op& submit(uint8_t type, uint64_t at, uint32_t len) {
        Op& op = ops.emplace_back();
        net::make(op, type, type == RMEM_FENCE ? 0 : base + at, len);
        if (type == RMEM_WRITE)
            op.data = Bytes(len, 1);
        if (type == RMEM_ATOMIC)
            op.op.atomic = {{1, 0}, {0, 0}, {0, 0}, RMEM_ADD};
        if (type == RMEM_PUT)
            net::make_put(op, base + 4096, Bytes(len, 1), base + at, 1);
        world.submit(op, 0);
        return op;
    }
};

// The floor alone doesn't see to it: an older op holds it below the id of the one taken back.
TEST_F(Cancel, ALateCopyDoesNoHarm) {
    for (uint8_t type : {RMEM_WRITE, RMEM_ZERO, RMEM_DISCARD, RMEM_ATOMIC}) {
        SCOPED_TRACE(type);
        keep();
        Op& older = submit(RMEM_WRITE, 1 << 20, 100);
        uint64_t reopened = client().count.reopened;
        Op& op = submit(type, 0, type == RMEM_ATOMIC ? 8 : 65536);
        ASSERT_GE(kept.size(), 2U);
        pass();
        world.cancel(op);
        EXPECT_EQ(op.result, RMEM_CLIENT_CANCELLED);
        EXPECT_EQ(client().count.reopened, reopened + 1);
        ASSERT_EQ(write(0, Bytes(65536, 2)), RMEM_CLIENT_OK);
        send_kept();
        EXPECT_EQ(read(0, 65536), Bytes(65536, 2));
        ASSERT_TRUE(world.run([&] { return world.idle(); }));
        EXPECT_EQ(older.result, RMEM_CLIENT_OK);
    }
}

// Of what changes nothing, or never left, nothing can come late.
TEST_F(Cancel, TheSessionIsKeptWhereNothingCanComeLate) {
    uint64_t session = client().session;
    keep();
    Op& read_op = submit(RMEM_READ, 0, 3000);
    Op& fence = submit(RMEM_FENCE, 0, 0);
    client().window.cwnd = RMEM_CWND_ONE; // full
    Op& unsent = submit(RMEM_WRITE, 0, 100);
    pass();
    // First the one that the others' credit would let go.
    for (Op* op : {&unsent, &read_op, &fence})
        world.cancel(*op);
    EXPECT_EQ(client().session, session);
    EXPECT_EQ(client().count.reopened, 0U);
    EXPECT_EQ(client().window.in_flight, 0U);
    send_kept(); // the answers find nobody
    EXPECT_EQ(write(0, Bytes(100, 2)), RMEM_CLIENT_OK);
    EXPECT_EQ(client().session, session);
}

// Once each, whichever of their copies came first: before the one was taken back, or after.
TEST_F(Cancel, OtherOpsEndWell) {
    for (bool executed : {false, true}) {
        for (uint8_t type : {RMEM_ATOMIC, RMEM_PUT}) {
            SCOPED_TRACE(testing::Message() << unsigned(type) << (executed ? ", executed" : ""));
            uint64_t was = base_load_le64(read(8, 8).data());
            keep();
            Op& add = submit(type, 8, 8);
            Op& write_op = submit(RMEM_WRITE, 65536, 3000);
            Op& zero = submit(RMEM_ZERO, 1 << 20, 1 << 20);
            Op& op = submit(RMEM_WRITE, 131072, 3000);
            client().window.cwnd = RMEM_CWND_ONE;
            Op& unsent = submit(RMEM_ATOMIC, 16, 8);
            if (executed)
                send_kept();
            EXPECT_EQ(answers >= 4, executed);
            pass();
            client().window.cwnd = RMEM_CWND_START;
            world.cancel(op);
            ASSERT_TRUE(world.run([&] { return world.idle(); }));
            for (Op* each : {&add, &write_op, &zero, &unsent})
                EXPECT_EQ(each->result, RMEM_CLIENT_OK);
            EXPECT_EQ(type == RMEM_PUT ? add.op.put.found : add.op.atomic.found[0], was);
            // Their session has another name now.
            ASSERT_EQ(write(65536, Bytes(3000, 2)), RMEM_CLIENT_OK);
            ASSERT_EQ(write(1 << 20, Bytes(1, 2)), RMEM_CLIENT_OK);
            send_kept();
            EXPECT_EQ(base_load_le64(read(8, 8).data()), was + 1);
            EXPECT_EQ(read(65536, 3000), Bytes(3000, 2));
            EXPECT_EQ(read(1 << 20, 1), Bytes(1, 2));
        }
    }
}

// Answers come later than the next one is given up.
TEST_F(Cancel, OthersGetOnWhereOneGivesUpAllTheTime) {
    world.weather = {.delay_ns = 5 * ms};
    Op& add = submit(RMEM_ATOMIC, 8, 8);
    Op& read_op = submit(RMEM_READ, 65536, 20000);
    Op& alloc = ops.emplace_back();
    alloc.op.type = RMEM_ALLOC;
    alloc.op.alloc = {1 << 16, 0, RMEM_PERM_READ};
    world.submit(alloc, 0);
    for (int i = 0; i < 100; i++) {
        Op& op = submit(RMEM_WRITE, 131072, 100);
        world.run([] { return false; }, 1 * ms);
        if (op.flying)
            world.cancel(op);
    }
    for (Op* op : {&add, &read_op, &alloc}) {
        EXPECT_FALSE(op->flying);
        EXPECT_EQ(op->result, RMEM_CLIENT_OK);
    }
    ASSERT_TRUE(world.run([&] { return world.idle(); }));
    EXPECT_EQ(read(8, 8), (Bytes{1, 0, 0, 0, 0, 0, 0, 0}));
    EXPECT_GT(client().count.reopened, 1U);
}

// The node doesn't have the session any more that is to be renewed.
TEST_F(Cancel, InANewSessionOtherOpsEndWellButAtomicsAreUnknown) {
    keep();
    Op& add = submit(RMEM_ATOMIC, 8, 8);
    Op& other = submit(RMEM_WRITE, 65536, 3000);
    Op& op = submit(RMEM_WRITE, 0, 3000);
    client().window.cwnd = RMEM_CWND_ONE;
    Op& unsent = submit(RMEM_ATOMIC, 16, 8);
    pass();
    client().window.cwnd = RMEM_CWND_START;
    world.host->evict_all();
    world.cancel(op);
    EXPECT_TRUE(add.flying);
    ASSERT_TRUE(world.run([&] { return world.idle(); }));
    EXPECT_EQ(add.result, RMEM_CLIENT_UNKNOWN);
    EXPECT_EQ(other.result, RMEM_CLIENT_OK);
    EXPECT_EQ(unsent.result, RMEM_CLIENT_OK);
    EXPECT_EQ(read(65536, 3000), Bytes(3000, 1));
    send_kept();
    EXPECT_EQ(read(8, 8), Bytes(8, 0)) << "executed after it was reported unknown";
}

// Its session, too, which hasn't been opened yet.
TEST_F(Cancel, WhileTheNodeIsSilent) {
    world.node_up = false;
    Op& first = submit(RMEM_WRITE, 0, 3000);
    Op& second = submit(RMEM_WRITE, 65536, 3000);
    world.cancel(first);
    EXPECT_EQ(client().state, RMEM_CHANNEL_OPENING);
    world.run([] { return false; }, 3000 * ms);
    world.cancel(second);
    EXPECT_EQ(client().count.reopened, 1U) << "it waits for the same renewal";
    Op& third = submit(RMEM_WRITE, 0, 3000);
    third.data = Bytes(3000, 3);
    world.node_up = true;
    ASSERT_TRUE(world.run([&] { return world.idle(); }));
    EXPECT_EQ(read(0, 3000), Bytes(3000, 3));
}

// Given up while its session is being renewed for another's sake: that isn't enough for it.
TEST_F(Cancel, AnAllocationIsUndoneThoughItsSessionWasRenewed) {
    keep();
    Op& op = ops.emplace_back();
    op.op.type = RMEM_ALLOC;
    op.op.alloc = {60 << 16, 0, RMEM_PERM_READ};
    world.submit(op, 0);
    Op& other = submit(RMEM_WRITE, 0, 3000);
    send_kept();
    world.cancel(other);
    ASSERT_EQ(client().state, RMEM_CHANNEL_OPENING);
    world.cancel(op);
    pass();
    ASSERT_TRUE(world.run([&] { return client().state == RMEM_CHANNEL_OPEN; }));
    net::allocate(world, 60 << 16);
    EXPECT_EQ(client().abandons, false);
}

// Answered, but nobody will know of it: neither the READ that is to tell the node nor the FREE of
// it arrives, whether it left or the session was just being renewed.
TEST_F(Cancel, OfAnAllocationsUndoingFreeEndsTheSession) {
    for (bool is_opening : {false, true}) {
        Op& alloc = ops.emplace_back();
        alloc.op.type = RMEM_ALLOC;
        alloc.op.alloc = {60 << 16, 0, RMEM_PERM_READ};
        world.submit(alloc, 0);
        ASSERT_TRUE(world.run([&] { return !alloc.flying; }));
        ASSERT_EQ(alloc.result, RMEM_CLIENT_OK);
        keep();
        if (is_opening)
            world.cancel(submit(RMEM_WRITE, 0, 100));
        Op& undo = ops.emplace_back();
        undo.op.type = RMEM_FREE;
        undo.op.range = alloc.op.range;
        undo.op.range.undoes = true;
        world.submit(undo, 0);
        world.cancel(undo);
        pass();
        ASSERT_TRUE(world.run([&] { return client().state == RMEM_CHANNEL_OPEN; }));
        send_kept();
    }
    net::allocate(world, 60 << 16);
}

// Executed, but nobody knows where: it ends with its session.
TEST_F(Cancel, AnAllocationIsUndone) {
    for (int i = 0; i < 3; i++) {
        ASSERT_TRUE(world.run([&] { return client().state == RMEM_CHANNEL_OPEN; }));
        Op& op = ops.emplace_back();
        op.op.type = RMEM_ALLOC;
        op.op.alloc = {60 << 16, 0, RMEM_PERM_READ};
        bool executed = false;
        world.on_sent = [&](const net::Packet& packet) { executed |= !packet.to_node; };
        world.submit(op, 0);
        ASSERT_TRUE(world.run([&] { return executed; }));
        world.on_sent = nullptr;
        world.cancel(op);
    }
    net::allocate(world, 60 << 16);
}

// Ops are taken back at any moment, and datagrams of the past come again: what is there is known,
// but for what the one taken back may have changed.
class CancelStorm : public testing::TestWithParam<int> {
protected:
    struct Place {
        Bytes now;
        bool known = true;
        Op op;
    };

    static constexpr uint32_t place_bytes = 9000;
    static constexpr size_t places_count = 24;

    void submit(size_t index) {
        Place& place = places[index];
        uint64_t at = base + index * place_bytes;
        place.op.data.clear();
        if (!place.known || random() % 3 == 0) {
            Bytes data(1 + random() % 8, random());
            data.resize(place_bytes, random());
            net::make_write(place.op, at, data);
        } else {
            net::make(place.op, random() % 6 ? RMEM_READ : RMEM_ZERO, at, place_bytes);
        }
        world.submit(place.op, index % channels);
    }
    void ended(Place& place) {
        const Op& op = place.op;
        if (op.result == RMEM_CLIENT_CANCELLED) {
            cancelled++;
            place.known &= op.op.type == RMEM_READ;
            return;
        }
        net::require(op.result == RMEM_CLIENT_OK, "an op failed");
        if (op.op.type == RMEM_READ)
            net::require(op.data == place.now, "read what wasn't written last");
        else
            place.now = op.op.type == RMEM_ZERO ? Bytes(place_bytes) : op.data;
        place.known = true;
    }
    // Ops that were cancelled.
    void interfere() {
        Place& place = places[random() % places_count];
        if (random() % 20 == 0 && place.op.flying)
            world.cancel(place.op);
        if (random() % 10 == 0 && !old.empty()) {
            net::Packet packet = old[random() % old.size()];
            packet.at_ns = world.now_ns;
            world.inject(packet);
        }
        if (random() % 5000 == 0)
            world.host->evict_all();
    }

    static constexpr size_t channels = 2;
    std::mt19937_64 random{static_cast<uint64_t>(GetParam())};
    World world{random()};
    uint64_t base = 0;
    std::vector<Place> places{places_count};
    std::vector<net::Packet> old;
    size_t cancelled = 0;
};

TEST_P(CancelStorm, EveryByteThatIsKnownIsRight) {
    SCOPED_TRACE("replay: out/bin/unit --gtest_filter='*CancelStorm*/" +
                 std::to_string(GetParam()) + "'");
    world.datagram_bytes = random() % 2 ? 1472 : 8972;
    world.weather = {.loss = static_cast<uint32_t>(random() % 100),
                     .dup = static_cast<uint32_t>(random() % 100),
                     .jitter_ns = random() % (3 * ms)};
    world.late_ns = 50 * ms;
    for (size_t i = 0; i < channels; i++)
        world.add_channel(world.config(i + 1));
    base = net::allocate(world, 4 << 20);
    world.on_sent = [&](const net::Packet& packet) {
        if (packet.to_node && random() % 20 == 0)
            old.push_back(packet);
    };
    bool last = false;
    for (size_t i = 0; i < places_count; i++) {
        places[i].now.assign(place_bytes, 0);
        places[i].op.ended = [this, i, &last](Op&) {
            ended(places[i]);
            if (!last || !places[i].known)
                submit(i);
        };
        submit(i);
    }
    try {
        for (int i = 0; i < 10'000; i++) {
            world.step();
            interfere();
        }
        last = true;
        EXPECT_TRUE(world.run([&] { return world.idle(); }, 600'000 * ms));
        for (size_t i = 0; i < places_count; i++) {
            places[i].op.data.clear();
            net::make(places[i].op, RMEM_READ, base + i * place_bytes, place_bytes);
            net::finish(world, places[i].op, i % channels);
        }
    } catch (const net::Broken& broken) {
        FAIL() << broken.what();
    }
    EXPECT_GT(cancelled, 100U);
    for (const auto& channel : world.channels)
        EXPECT_GE(channel->client.count.reopened, 5U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CancelStorm, testing::Range(0, 10));

} // namespace
