// SPDX-License-Identifier: GPL-2.0
// Calls a step at a time: how long each is, and what may happen between.
#include <gtest/gtest.h>

#include <algorithm>

#include "node_test.hpp"

namespace {

using rig::Bytes;
using rig::Client;
using rig::filled;
using rig::page;

// ---- steps ------------------------------------------------------------------------------------

// A call of which each step is to be seen; pages_max: of a region a step.
class NodeSteps : public testing::Test {
protected:
    static constexpr uint32_t pages_max = 3;

    static rmem_node_config config() {
        rmem_node_config config = rig::small_config();
        config.step_pages = pages_max;
        return config;
    }
    NodeSteps() : node(config()) {
        node.add_space(1);
        node.open(client, 100);
        node.open(other, 100);
        node.refill();
        addr = node.alloc(client, 8 * page);
    }

    rmem_node_call begin_alloc(const rmem_head& h, uint64_t bytes) {
        rmem_alloc wanted = wire::alloc_of(bytes, 0, rig::Node::read_write);
        return node.begin(client, h, &wanted);
    }
    rmem_node_call begin_free(const rmem_head& h, uint64_t bytes) {
        rmem_range range{};
        base_store_le64(&range.addr, addr);
        base_store_le64(&range.bytes, bytes);
        return node.begin(client, h, &range);
    }
    bool step(rmem_node_call& call) { return node.step(call); }
    int slot() { return int(rmem_node_slot(&node.core, client.session)); }

    rig::Node node;
    Client client{1}, other{2};
    uint64_t addr = 0;
};

// A request is executed in one hold of its slot's lock, so each lock must be free once.
TEST_F(NodeSteps, FenceHasTheLockOfEachSessionOnce) {
    rmem_node_call call = node.begin(client, client.head(RMEM_FENCE, 0, 0));
    std::vector<int> locked{call.slot};
    while (step(call)) {
        if (call.slot >= 0)
            locked.push_back(call.slot);
    }
    EXPECT_EQ(call.answer.reply.status, RMEM_OK);
    EXPECT_EQ(locked.front(), slot());
    std::vector<int> passed(locked.begin() + 1, locked.end());
    EXPECT_EQ(passed, (std::vector<int>{0, 1}));
    EXPECT_NE(rmem_node_slot(&node.core, client.session),
              rmem_node_slot(&node.core, other.session));
}

TEST_F(NodeSteps, FenceOfNonsense) {
    auto status = [&](rmem_head h) {
        rmem_node_call call = node.begin(client, h);
        return node.run(call).reply.status;
    };
    EXPECT_EQ(status(client.head(RMEM_FENCE, 0, 8)), RMEM_INVALID);
    EXPECT_EQ(status(client.head(RMEM_FENCE, addr, 0)), RMEM_INVALID);
    rmem_head stranger = client.head(RMEM_FENCE, 0, 0);
    stranger.session++;
    EXPECT_EQ(status(stranger), RMEM_NO_SESSION);
}

TEST_F(NodeSteps, SlotLockIsForTheFirstAndTheLastOnly) {
    rmem_node_call call = begin_alloc(client.head(RMEM_ALLOC, 0, sizeof(rmem_alloc)), 32 * page);
    ASSERT_EQ(call.slot, slot());
    uint32_t unlocked = 0;
    while (step(call))
        unlocked += call.slot < 0;
    EXPECT_EQ(call.answer.reply.status, RMEM_OK);
    EXPECT_GE(unlocked, 2 * 32 / pages_max); // reserved, entered
    call = begin_free(client.head(RMEM_FREE, 0, sizeof(rmem_range)), 8 * page);
    ASSERT_EQ(call.slot, slot());
    unlocked = 0;
    while (step(call))
        unlocked += call.slot < 0;
    EXPECT_EQ(call.answer.reply.status, RMEM_OK);
    EXPECT_EQ(unlocked, (8 + pages_max - 1) / pages_max);
}

TEST_F(NodeSteps, RequestsOfTheSessionAreExecutedBetween) {
    rmem_head h = client.head(RMEM_ALLOC, 0, sizeof(rmem_alloc));
    rmem_node_call call = begin_alloc(h, 32 * page);
    for (uint8_t n = 1; step(call); n++) {
        EXPECT_EQ(node.write(client, addr, filled(100, n)).reason, RMEM_NODE_OK);
        EXPECT_EQ(node.read(other, addr, 100), filled(100, n));
    }
    EXPECT_EQ(call.answer.reason, RMEM_NODE_OK);
    uint64_t made = base_load_le64(&call.out.range.addr);
    EXPECT_EQ(node.read(client, made, 32).size(), 32u);
    call = begin_alloc(h, 32 * page);
    EXPECT_EQ(node.run(call).reason, RMEM_NODE_REPEATED);
    EXPECT_EQ(base_load_le64(&call.out.range.addr), made);
    EXPECT_EQ(node.usage().regions, 2u);
}

TEST_F(NodeSteps, AllocGivenUpMeanwhileIsUndone) {
    rmem_head h = client.head(RMEM_ALLOC, 0, sizeof(rmem_alloc));
    for (uint32_t after = 1;; after++) {
        rmem_node_call call = begin_alloc(h, 32 * page);
        for (uint32_t n = 0; n < after; n++)
            ASSERT_TRUE(step(call));
        client.floor = client.next_id;
        node.read(client, addr, 1);
        bool last = call.slot >= 0;
        EXPECT_EQ(node.run(call).reason, RMEM_NODE_STALE);
        EXPECT_EQ(call.answer.reply.status, RMEM_STALE);
        EXPECT_EQ(node.usage().regions, 1u);
        EXPECT_EQ(node.usage().pages_promised, 8u);
        if (last)
            break;
        h = client.head(RMEM_ALLOC, 0, sizeof(rmem_alloc));
    }
    EXPECT_NE(node.alloc(client, 56 * page), 0u);
}

TEST_F(NodeSteps, RegionBeingFreedIsAllThereOrNot) {
    for (uint64_t n = 0; n < 8; n++)
        node.write(client, addr + n * page, filled(100, 1));
    rmem_head h = client.head(RMEM_FREE, 0, sizeof(rmem_range));
    rmem_node_call call = begin_free(h, 8 * page);
    while (step(call)) {
        bool gone = true;
        for (uint64_t n = 0; n < 8; n++) { // from the front they go
            rmem_head read = other.head(RMEM_READ, addr + n * page, 100);
            Bytes data;
            rmem_node_reason reason = node.request(other, read, &data).reason;
            EXPECT_TRUE(reason == RMEM_NODE_FAULT || data == filled(100, 1));
            EXPECT_TRUE(gone || reason == RMEM_NODE_OK);
            gone = reason == RMEM_NODE_FAULT;
        }
    }
    EXPECT_EQ(call.answer.reply.status, RMEM_OK);
    EXPECT_EQ(node.usage().pages_promised, 0u);
    EXPECT_EQ(node.usage().pages_backed, 0u);
    call = begin_free(h, 8 * page);
    EXPECT_EQ(node.run(call).reason, RMEM_NODE_REPEATED);
}

TEST_F(NodeSteps, UndoneInSteps) {
    ASSERT_NE(node.alloc(client, 30 * page), 0u);
    rmem_node_call call = node.begin(client, client.open_head(101), &client.open);
    uint64_t before = node.usage().pages_promised;
    uint32_t locked = 0, steps = 1;
    ASSERT_EQ(before, 38u);
    for (; locked += call.slot >= 0, step(call); steps++)
        node.read(other, addr, 1);
    EXPECT_EQ(locked, 2u); // the old session's end, the new one's begin
    EXPECT_GE(steps, (8 + 30) / pages_max + node.core.config.regions_max / pages_max);
    EXPECT_EQ(node.usage().pages_promised, 0u);
    EXPECT_EQ(call.answer.reply.status, RMEM_OK);
}

TEST_F(NodeSteps, SpaceIsClearedInSteps) {
    ASSERT_NE(node.alloc(client, 30 * page), 0u);
    rmem_node_call call;
    ASSERT_TRUE(rmem_node_call_clear(&node.core, &call, 1));
    uint32_t locked = 0, steps = 1;
    for (; locked += call.slot >= 0, step(call); steps++) {
        if (node.usage().sessions == 0) {
            EXPECT_TRUE(node.read(other, addr + 7 * page, 1).empty());
        }
    }
    EXPECT_EQ(locked, 2u); // a session each
    EXPECT_GE(steps, (8 + 30) / pages_max + node.core.config.regions_max / pages_max);
    EXPECT_EQ(node.usage().regions, 0u);
    EXPECT_EQ(rmem_node_space_del(&node.core, 1), RMEM_SPACE_OK);
}

TEST_F(NodeSteps, RepeatedAllocIsLookedUpInSteps) {
    rmem_head h = client.head(RMEM_ALLOC, 0, sizeof(rmem_alloc));
    rmem_node_call call = begin_alloc(h, page);
    node.run(call);
    uint64_t made = base_load_le64(&call.out.range.addr);
    call = begin_alloc(h, page);
    EXPECT_EQ(node.run(call).reason, RMEM_NODE_REPEATED);
    EXPECT_EQ(base_load_le64(&call.out.range.addr), made);
    addr = made;
    call = begin_free(client.head(RMEM_FREE, 0, sizeof(rmem_range)), page);
    node.run(call);
    call = begin_alloc(h, page); // its region is gone since: nothing to tell
    uint32_t steps = 1;
    while (step(call))
        steps++;
    EXPECT_EQ(call.answer.reason, RMEM_NODE_NO_MEMORY);
    EXPECT_GE(steps, node.core.config.regions_max / pages_max);
}

// ---- ZEROs that take long ---------------------------------------------------------------------

class NodeZero : public testing::Test {
protected:
    static constexpr uint64_t large = 1 << 20; // a page here

    static rmem_node_config config() {
        rmem_node_config config = rig::small_config();
        config.page_shift = 20;
        config.pages = 6;
        config.pool_pages = 4;
        return config;
    }
    NodeZero() : node(config()) {
        node.add_space(1);
        node.open(client, 100);
        node.open(other, 100);
        node.refill();
        addr = node.alloc(client, 4 * large);
        fill(0, 4 * large, 1);
    }

    void fill(uint64_t from, uint64_t bytes, uint8_t value) {
        for (uint64_t at = 0; at < bytes; at += 4096)
            ASSERT_EQ(node.write(client, addr + from + at,
                                 filled(std::min<uint64_t>(4096, bytes - at), value))
                          .reason,
                      RMEM_NODE_OK);
    }
    // The bytes from .. to - 1 of the region all have that value.
    void expect(uint64_t from, uint64_t to, uint8_t value) {
        for (uint64_t at = from; at < to; at += 65536) {
            auto bytes = static_cast<uint32_t>(std::min<uint64_t>(65536, to - at));
            ASSERT_EQ(node.read(other, addr + at, bytes), filled(bytes, value)) << at;
        }
    }
    rmem_head zero(uint64_t from, uint64_t bytes) {
        return client.head(RMEM_ZERO, addr + from, static_cast<uint32_t>(bytes));
    }
    bool is_slow(const rmem_head& h) { return rmem_node_is_slow(&node.core, &h); }

    rig::Node node;
    Client client{1}, other{2};
    uint64_t addr = 0;
};

TEST_F(NodeZero, IsSlowByTheBytesItClears) {
    const uint64_t most = RMEM_NODE_FILL_BYTES_MAX;
    EXPECT_FALSE(is_slow(zero(0, 4 * large)));
    EXPECT_FALSE(is_slow(zero(0, most)));
    EXPECT_TRUE(is_slow(zero(0, most + 1)));
    EXPECT_FALSE(is_slow(zero(large - most, most + large)));
    EXPECT_TRUE(is_slow(zero(large - most - 1, most + 1 + large)));
    EXPECT_FALSE(is_slow(zero(large - most / 2, most / 2 + large + most / 2)));
    EXPECT_TRUE(is_slow(zero(large - most / 2, most / 2 + large + most / 2 + 1)));
    EXPECT_TRUE(is_slow(zero(1, large - 1)));
    EXPECT_TRUE(is_slow(zero(1, 2 * large - 2)));
    rmem_head h = zero(1, 2 * large - 2);
    for (uint8_t type : {RMEM_READ, RMEM_WRITE, RMEM_DISCARD}) {
        h.type = type;
        EXPECT_FALSE(is_slow(h));
    }
    for (uint8_t type : {RMEM_OPEN, RMEM_CLOSE, RMEM_ALLOC, RMEM_FREE}) {
        h.type = type;
        EXPECT_TRUE(is_slow(h));
    }
    rig::Node small; // two pages cut are never more than that
    h = client.head(RMEM_ZERO, page + 1, 3 * page - 2);
    EXPECT_FALSE(rmem_node_is_slow(&small.core, &h));
}

TEST_F(NodeZero, IsRefusedToAView) {
    ASSERT_TRUE(node.add_view(2, 1));
    Client reader(3, 2);
    node.open(reader, 1);
    rmem_head h = reader.head(RMEM_ZERO, addr + 1, large - 1);
    ASSERT_TRUE(is_slow(h));
    for (int copy = 0; copy < 2; copy++) {
        rmem_answer answer = node.request(reader, h);
        EXPECT_EQ(answer.reason, RMEM_NODE_PERM);
        EXPECT_EQ(answer.reply.status, RMEM_PERM);
    }
    expect(0, 4 * large, 1);
}

TEST_F(NodeZero, ClearsToTheByteInBoundedSteps) {
    rmem_head h = zero(1, 4 * large - 3);
    rmem_node_call call = node.begin(client, h);
    uint64_t cleared = 0;
    bool more = true;
    while (more) {
        EXPECT_EQ(call.slot, int(rmem_node_slot(&node.core, client.session)));
        more = node.step(call);
        EXPECT_LE(call.fill.bytes, RMEM_NODE_FILL_BYTES_MAX);
        cleared += call.fill.bytes;
    }
    EXPECT_EQ(call.answer.reply.status, RMEM_OK);
    EXPECT_EQ(cleared, 2 * large - 3);
    EXPECT_EQ(node.usage().pages_backed, 2u);
    expect(0, 1, 1);
    expect(1, 4 * large - 2, 0);
    expect(4 * large - 2, 4 * large, 1);
    fill(large / 2, 4096, 2);
    call = node.begin(client, h);
    EXPECT_EQ(node.run(call).reason, RMEM_NODE_REPEATED);
    expect(large / 2, large / 2 + 4096, 2);
}

TEST_F(NodeZero, WithinOnePage) {
    EXPECT_EQ(node.request(client, zero(100, large - 200)).reply.status, RMEM_OK);
    expect(0, 100, 1);
    expect(100, large - 100, 0);
    expect(large - 100, large + 100, 1);
    // Memory never written takes no page by it.
    EXPECT_EQ(node.request(client, client.head(RMEM_DISCARD, addr, large)).reply.status, RMEM_OK);
    EXPECT_EQ(node.request(client, zero(100, large - 200)).reply.status, RMEM_OK);
    EXPECT_EQ(node.usage().pages_backed, 3u);
}

TEST_F(NodeZero, GivenUpItClearsNothingMore) {
    rmem_node_call call = node.begin(client, zero(1, large - 1));
    ASSERT_TRUE(node.step(call));
    ASSERT_TRUE(node.step(call));
    client.floor = client.next_id;
    fill(0, large, 2);
    EXPECT_EQ(node.run(call).reply.status, RMEM_STALE);
    expect(0, large, 2);
}

TEST_F(NodeZero, PageTakenAwayMeanwhile) {
    rmem_node_call call = node.begin(client, zero(1, large - 1));
    ASSERT_TRUE(node.step(call));
    ASSERT_TRUE(node.step(call));
    node.request(client, client.head(RMEM_DISCARD, addr, large));
    while (node.step(call))
        EXPECT_EQ(call.fill.bytes, 0u);
    EXPECT_EQ(call.answer.reply.status, RMEM_OK);
    expect(0, large, 0);
}

TEST_F(NodeZero, Refusals) {
    rmem_head h = zero(1, 5 * large);
    EXPECT_EQ(node.request(client, h).reply.status, RMEM_FAULT);
    EXPECT_EQ(node.usage().pages_backed, 4u);
    expect(0, 4 * large, 1);
    EXPECT_EQ(node.request(client, h).reply.status, RMEM_FAULT);
    EXPECT_EQ(node.request(client, zero(1, RMEM_ZERO_BYTES_MAX + 1)).reply.status, RMEM_INVALID);
    h = zero(1, large - 1);
    h.boot++;
    EXPECT_EQ(node.request(client, h).reply.status, RMEM_REBOOTED);
}

} // namespace
