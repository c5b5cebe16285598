// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "node_test.hpp"

namespace {

using rig::Bytes;
using rig::Client;
using rig::filled;
using rig::NodeTest;
using rig::page;

// ---- data -------------------------------------------------------------------------------------

TEST_F(NodeTest, NeverWrittenReadsAsZeroAndTakesNoPage) {
    EXPECT_EQ(node.read(client, addr, 2 * page), filled(2 * page, 0));
    EXPECT_EQ(node.usage().pages_backed, 0u);
}

TEST_F(NodeTest, WriteThenRead) {
    Bytes data(4096);
    std::iota(data.begin(), data.end(), 0);
    rmem_answer answer = node.write(client, addr + 100, data);
    EXPECT_EQ(answer.action, RMEM_ACT_COPY_IN);
    EXPECT_EQ(answer.reason, RMEM_NODE_OK);
    EXPECT_EQ(answer.reply.status, RMEM_OK);
    EXPECT_EQ(answer.reply.attempt, 7);
    EXPECT_EQ(node.read(client, addr + 100, 4096), data);
    // No page is handed out with what it held before.
    EXPECT_EQ(node.read(client, addr, 100), filled(100, 0));
    EXPECT_EQ(node.read(client, addr + 4196, page - 4196), filled(page - 4196, 0));
    EXPECT_EQ(node.usage().pages_backed, 1u);
}

TEST_F(NodeTest, WriteAcrossAPageBoundary) {
    Bytes data(4096);
    std::iota(data.begin(), data.end(), 0);
    rmem_answer answer = node.write(client, addr + page - 1000, data);
    EXPECT_EQ(answer.extents, 2u);
    EXPECT_EQ(answer.extent[0].bytes, 1000u);
    EXPECT_EQ(answer.extent[1].offset, 0u);
    EXPECT_EQ(node.read(client, addr + page - 1000, 4096), data);
    EXPECT_EQ(node.usage().pages_backed, 2u);
}

TEST_F(NodeTest, ReadIsCutAtMultiplesOfThePiece) {
    rmem_head h = client.head(RMEM_READ, addr + page - 1500, 10000);
    h.piece = 2048;
    rmem_answer answer = node.request(client, h);
    EXPECT_EQ(answer.action, RMEM_ACT_SEND_OUT);
    uint32_t offset = 0;
    for (uint32_t bytes; (bytes = rmem_node_read_part(&node.core, &h, offset, &answer)) != 0;) {
        EXPECT_EQ(offset % 2048, 0u);
        EXPECT_EQ(answer.reply.offset, offset);
        EXPECT_EQ(answer.reply.len, bytes);
        EXPECT_EQ(answer.reply.addr, h.addr);
        EXPECT_EQ(answer.reply.piece, 0u);
        EXPECT_EQ(rmem_wire_payload_bytes(&answer.reply), bytes);
        EXPECT_EQ(answer.extents, offset == 0 ? 2u : 1u);
        offset += bytes;
    }
    EXPECT_EQ(offset, 10000u);
}

TEST_F(NodeTest, LargePieceIsClamped) {
    rmem_head h = client.head(RMEM_READ, addr, 8192);
    h.piece = 65535;
    node.request(client, h);
    EXPECT_EQ(node.parts, 2u);
}

TEST_F(NodeTest, LargestRead) {
    rmem_head h = client.head(RMEM_READ, addr + 1, RMEM_READ_BYTES_MAX);
    Bytes data;
    EXPECT_EQ(node.request(client, h, &data).reason, RMEM_NODE_OK);
    EXPECT_EQ(data.size(), RMEM_READ_BYTES_MAX);
}

TEST_F(NodeTest, ReadIsRefusedWhereSomeIsFreedMeanwhile) {
    node.write(client, addr, filled(4096, 1));
    rmem_head h = client.head(RMEM_READ, addr, 20000);
    rmem_answer answer;
    rmem_node_request(&node.core, 1, &h, nullptr, &client.peer, &answer);
    ASSERT_EQ(answer.action, RMEM_ACT_SEND_OUT);
    EXPECT_EQ(rmem_node_read_part(&node.core, &h, 0, &answer), 4096u);
    EXPECT_EQ(answer.reply.status, RMEM_OK);
    EXPECT_EQ(answer.extents, 1u);
    node.free(client, addr, 8 * page);
    EXPECT_EQ(rmem_node_read_part(&node.core, &h, 4096, &answer), 20000u - 4096);
    EXPECT_EQ(answer.reply.status, RMEM_FAULT);
    EXPECT_EQ(answer.extents, 0u);
    EXPECT_EQ(rmem_node_read_part(&node.core, &h, 20000, &answer), 0u);
}

// Its page is, the region isn't.
TEST_F(NodeTest, ReadFindsZerosWhereSomeIsDiscardedMeanwhile) {
    node.write(client, addr, filled(4096, 1));
    rmem_head h = client.head(RMEM_READ, addr, 4096);
    rmem_answer answer;
    rmem_node_request(&node.core, 1, &h, nullptr, &client.peer, &answer);
    node.request(client, client.head(RMEM_DISCARD, addr, page));
    EXPECT_EQ(rmem_node_read_part(&node.core, &h, 0, &answer), 4096u);
    EXPECT_EQ(answer.reply.status, RMEM_OK);
    EXPECT_EQ(answer.extent[0].page, RMEM_PAGE_NONE);
}

// A caller in the node's process sees the same memory as messages, and the same refusals.
TEST_F(NodeTest, AccessWithoutMessages) {
    uint32_t space = rmem_sessions_find(&node.core.sessions, client.session)->place.memory;
    rmem_answer found;
    auto access = [&](uint8_t type, uint64_t at, uint32_t bytes) {
        return rmem_node_access(&node.core, space, type, at, bytes, &found);
    };
    EXPECT_EQ(access(RMEM_READ, addr + page - 8, 16), RMEM_NODE_OK);
    ASSERT_EQ(found.extents, 2u);
    EXPECT_EQ(found.extent[0].page, RMEM_PAGE_NONE);
    EXPECT_EQ(node.usage().pages_backed, 0u);
    EXPECT_EQ(access(RMEM_WRITE, addr + page - 8, 16), RMEM_NODE_OK);
    ASSERT_EQ(found.extents, 2u);
    for (unsigned n = 0; n < 2; n++) {
        EXPECT_EQ(found.extent[n].bytes, 8u);
        std::memset(&node.memory[found.extent[n].page * page + found.extent[n].offset], 5, 8);
    }
    EXPECT_EQ(node.read(client, addr + page - 9, 18),
              (Bytes{0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 0}));
    EXPECT_EQ(access(RMEM_READ, addr + page, 8), RMEM_NODE_OK);
    ASSERT_EQ(found.extents, 1u);
    EXPECT_EQ(node.memory[found.extent[0].page * page], 5);

    uint64_t fixed = node.alloc(client, page, 0, RMEM_PERM_READ);
    EXPECT_EQ(access(RMEM_READ, fixed, 8), RMEM_NODE_OK);
    EXPECT_EQ(access(RMEM_WRITE, fixed, 8), RMEM_NODE_PERM);
    for (uint8_t type : {RMEM_READ, RMEM_WRITE}) {
        EXPECT_EQ(access(type, addr + 8 * page - 8, 16), RMEM_NODE_FAULT);
        EXPECT_EQ(access(type, addr, 0), RMEM_NODE_LENGTH);
        EXPECT_EQ(access(type, addr, node.core.config.piece_bytes + 1), RMEM_NODE_LENGTH);
        EXPECT_EQ(access(type, ~0ull, 2), RMEM_NODE_LENGTH);
    }
}

TEST_F(NodeTest, ZeroFreesWholePagesAndClearsParts) {
    for (uint64_t at = 0; at < 4 * page; at += 4096)
        node.write(client, addr + at, filled(4096, 1));
    EXPECT_EQ(node.usage().pages_backed, 4u);
    rmem_answer answer = node.request(client, client.head(RMEM_ZERO, addr + 10, 3 * page));
    EXPECT_EQ(answer.action, RMEM_ACT_FILL);
    EXPECT_EQ(answer.extents, 2u);
    EXPECT_EQ(node.usage().pages_backed, 2u);
    EXPECT_EQ(node.read(client, addr, 10), filled(10, 1));
    EXPECT_EQ(node.read(client, addr + 10, 3 * page), filled(3 * page, 0));
    EXPECT_EQ(node.read(client, addr + 3 * page + 10, 100), filled(100, 1));
}

TEST_F(NodeTest, ZeroOfPartOfOnePage) {
    node.write(client, addr, filled(4096, 1));
    rmem_answer answer = node.request(client, client.head(RMEM_ZERO, addr + 10, 20));
    EXPECT_EQ(answer.extents, 1u);
    EXPECT_EQ(node.read(client, addr + 9, 22).front(), 1);
    EXPECT_EQ(node.read(client, addr + 10, 20), filled(20, 0));
    EXPECT_EQ(node.request(client, client.head(RMEM_ZERO, addr + page, 20)).extents, 0u);
}

TEST_F(NodeTest, DiscardFreesWholePagesOnly) {
    for (uint64_t at = 0; at < 3 * page; at += 4096)
        node.write(client, addr + at, filled(4096, 1));
    rmem_answer answer = node.request(client, client.head(RMEM_DISCARD, addr + 10, 2 * page));
    EXPECT_EQ(answer.action, RMEM_ACT_FILL);
    EXPECT_EQ(answer.extents, 0u);
    EXPECT_EQ(answer.reply.status, RMEM_OK);
    EXPECT_EQ(node.usage().pages_backed, 2u);
    EXPECT_EQ(node.read(client, addr + page, 4096), filled(4096, 0));
    EXPECT_EQ(node.read(client, addr + page - 10, 10), filled(10, 1));
}

TEST_F(NodeTest, DiscardedPageComesBackZeroed) {
    for (int round = 0; round < 300; round++) { // many times round all 64 pages
        node.write(client, addr + page, filled(1024, 0xcc));
        EXPECT_EQ(node.read(client, addr + page + 1024, 4096), filled(4096, 0));
        node.request(client, client.head(RMEM_DISCARD, addr, 8 * page));
        node.refill();
    }
}

// ---- refusals: every reason, nothing changed ---------------------------------------------------

TEST_F(NodeTest, RefusesLengths) {
    node.read(client, addr, 1); // the session is in use from here on
    refused(client.head(RMEM_READ, addr, 0), RMEM_NODE_LENGTH, RMEM_INVALID);
    refused(client.head(RMEM_WRITE, addr, 0), RMEM_NODE_LENGTH, RMEM_INVALID);
    refused(client.head(RMEM_ZERO, addr, 0), RMEM_NODE_LENGTH, RMEM_INVALID);
    refused(client.head(RMEM_DISCARD, addr, 0), RMEM_NODE_LENGTH, RMEM_INVALID);
    refused(client.head(RMEM_READ, addr, RMEM_READ_BYTES_MAX + 1), RMEM_NODE_LENGTH, RMEM_INVALID);
    refused(client.head(RMEM_WRITE, addr, 4097), RMEM_NODE_LENGTH, RMEM_INVALID);
    refused(client.head(RMEM_ZERO, addr, RMEM_ZERO_BYTES_MAX + 1), RMEM_NODE_LENGTH, RMEM_INVALID);
    refused(client.head(RMEM_READ, ~0ull, 2), RMEM_NODE_LENGTH, RMEM_INVALID);
    refused(client.head(RMEM_WRITE, ~0ull - 10, 100), RMEM_NODE_LENGTH, RMEM_INVALID);
    refused(client.head(RMEM_ZERO, ~0ull - 10, 100), RMEM_NODE_LENGTH, RMEM_INVALID);
    rmem_head small = client.head(RMEM_READ, addr, 4096);
    small.piece = RMEM_PIECE_BYTES_MIN - 1;
    refused(small, RMEM_NODE_LENGTH, RMEM_INVALID);
    for (uint32_t bytes : {0u, 1u, 2u, 3u, 5u, 12u, 24u, 32u, ~0u})
        refused(client.head(RMEM_ATOMIC, addr, bytes), RMEM_NODE_LENGTH, RMEM_INVALID);
    for (uint64_t off : {1, 2, 4, 7})
        refused(client.head(RMEM_ATOMIC, addr + off, 8), RMEM_NODE_LENGTH, RMEM_INVALID);
    rmem_head unknown = client.head(RMEM_ATOMIC, addr, 8);
    unknown.op = RMEM_ATOMIC_OP_END;
    refused(unknown, RMEM_NODE_LENGTH, RMEM_INVALID);
    refused(client.head(RMEM_ATOMIC, addr, 16), RMEM_NODE_LENGTH, RMEM_INVALID); // ADD
}

TEST_F(NodeTest, RefusesAddressesNotAllocated) {
    node.read(client, addr, 1);
    refused(client.head(RMEM_ATOMIC, 0, 8), RMEM_NODE_FAULT, RMEM_FAULT);
    refused(client.head(RMEM_ATOMIC, addr + 8 * page, 8), RMEM_NODE_FAULT, RMEM_FAULT);
    for (uint8_t type : {RMEM_READ, RMEM_WRITE, RMEM_ZERO, RMEM_DISCARD}) {
        refused(client.head(type, 0, 100), RMEM_NODE_FAULT, RMEM_FAULT);
        refused(client.head(type, addr - 1, 1), RMEM_NODE_FAULT, RMEM_FAULT);
        refused(client.head(type, addr + 8 * page, 1), RMEM_NODE_FAULT, RMEM_FAULT);
        refused(client.head(type, addr + 8 * page - 1, 2), RMEM_NODE_FAULT, RMEM_FAULT);
        refused(client.head(type, ~0ull, 1), RMEM_NODE_FAULT, RMEM_FAULT);
    }
}

TEST_F(NodeTest, RefusesAccessWithoutTheRegionsPermission) {
    uint64_t fixed = node.alloc(client, page, 0, RMEM_PERM_READ);
    EXPECT_EQ(node.read(client, fixed, 10), filled(10, 0));
    for (uint8_t type : {RMEM_WRITE, RMEM_ZERO, RMEM_DISCARD})
        refused(client.head(type, fixed, 100), RMEM_NODE_PERM, RMEM_PERM);
    refused(client.head(RMEM_ATOMIC, fixed, 8), RMEM_NODE_PERM, RMEM_PERM);
}

TEST_F(NodeTest, RefusesOtherSpacesSessionsLevelsPeersBoots) {
    node.read(client, addr, 1);
    ASSERT_TRUE(node.add_space(2));
    rmem_head h = client.head(RMEM_WRITE, addr, 100);
    rmem_head changed = h;
    changed.session ^= 1ull << 20;
    refused(changed, RMEM_NODE_NO_SESSION, RMEM_NO_SESSION);
    changed.session = 0xffff;
    refused(changed, RMEM_NODE_NO_SESSION, RMEM_NO_SESSION);
    changed = h;
    changed.space = 2;
    refused(changed, RMEM_NODE_LEVEL, RMEM_INVALID);
    changed = h;
    changed.integrity = RMEM_FULL;
    refused(changed, RMEM_NODE_LEVEL, RMEM_INVALID);
    changed = h;
    changed.boot++;
    refused(changed, RMEM_NODE_REBOOTED, RMEM_REBOOTED);
    Client moved = client;
    moved.peer.port++;
    refused_from(moved, h, RMEM_NODE_PEER, RMEM_NO_SESSION);
    moved = client;
    moved.peer.addr[0] ^= 1;
    refused_from(moved, h, RMEM_NODE_PEER, RMEM_NO_SESSION);
}

// Each of these would take the lock of another tenant's slot, whose requests would wait.
TEST_F(NodeTest, RefusesStrangersWithoutTheirSlotsLock) {
    node.read(client, addr, 1);
    ASSERT_TRUE(node.add_space(2));
    rmem_head h = client.head(RMEM_WRITE, addr, 100);
    auto reason = [&](auto change) {
        rmem_head changed = h;
        rmem_answer answer;
        change(changed);
        if (!rmem_node_refuses(&node.core, &changed, &answer))
            return RMEM_NODE_OK;
        EXPECT_EQ(answer.action, RMEM_ACT_REPLY);
        EXPECT_EQ(answer.session, nullptr);
        return answer.reason;
    };
    EXPECT_EQ(reason([](rmem_head&) {}), RMEM_NODE_OK);
    EXPECT_EQ(reason([](rmem_head& head) { head.session ^= 1ull << 20; }), RMEM_NODE_NO_SESSION);
    EXPECT_EQ(reason([](rmem_head& head) { head.session = 0; }), RMEM_NODE_NO_SESSION);
    EXPECT_EQ(reason([](rmem_head& head) { head.session = 0xffff; }), RMEM_NODE_NO_SESSION);
    EXPECT_EQ(reason([](rmem_head& head) { head.space = 2; }), RMEM_NODE_LEVEL);
    EXPECT_EQ(reason([](rmem_head& head) { head.boot++; }), RMEM_NODE_REBOOTED);
    rmem_sessions_close(&node.core.sessions, rmem_node_slot(&node.core, client.session));
    EXPECT_EQ(reason([](rmem_head&) {}), RMEM_NODE_NO_SESSION);
}

TEST_F(NodeTest, RefusesAnotherSpacesMemory) {
    node.write(client, addr, filled(100, 1));
    ASSERT_TRUE(node.add_space(2));
    Client stranger(2, 2);
    node.open(stranger, 1);
    node.read(stranger, addr, 1);
    refused_from(stranger, stranger.head(RMEM_READ, addr, 100), RMEM_NODE_FAULT, RMEM_FAULT);
    // The same address is another page there.
    ASSERT_EQ(node.alloc(stranger, page), addr);
    EXPECT_EQ(node.read(stranger, addr, 100), filled(100, 0));
}

TEST_F(NodeTest, BusyWhenThePoolIsEmpty) {
    for (int n = 0; n < 7; n++)
        node.write(client, addr + n * page, filled(10, 1));
    uint64_t more = node.alloc(client, 16 * page);
    for (int n = 0; n < 9; n++)
        node.write(client, more + n * page, filled(10, 1));
    EXPECT_EQ(node.usage().pages_ready, 0u);
    rmem_head h = client.head(RMEM_WRITE, more + 9 * page, 100);
    refused(h, RMEM_NODE_BUSY, RMEM_BUSY);
    EXPECT_TRUE(rmem_node_scrub_wanted(&node.core));
    node.refill();
    Bytes data = filled(100, 9);
    EXPECT_EQ(node.request(client, h, &data).reason, RMEM_NODE_OK); // the id was not marked
}

// However often the greedy tenant asks, the other one's WRITE to two pages finds them ready.
TEST_F(NodeTest, GreedySpaceLeavesAnotherItsFirstWrite) {
    ASSERT_TRUE(node.add_space(2));
    Client modest(2, 2);
    ASSERT_EQ(node.open(modest, 1).reply.status, RMEM_OK);
    uint64_t mine = node.alloc(modest, 2 * page);
    uint64_t more = node.alloc(client, 32 * page);
    unsigned written = 0;
    for (int n = 0; n < 32; n++)
        written += node.write(client, more + n * page, filled(1, 1)).reason == RMEM_NODE_OK;
    EXPECT_EQ(written, 16u - 2);
    EXPECT_EQ(node.write(modest, mine + page - 50, filled(100, 1)).reason, RMEM_NODE_OK);
    EXPECT_EQ(node.usage().pages_ready, 0u);
}

TEST_F(NodeTest, BusyWithOnePageOfTwoTakesNone) {
    uint64_t more = node.alloc(client, 32 * page);
    for (int n = 0; n < 15; n++)
        node.write(client, more + n * page, filled(10, 1));
    ASSERT_EQ(node.usage().pages_ready, 1u);
    rmem_head h = client.head(RMEM_WRITE, more + 16 * page - 50, 100);
    Bytes data = filled(100, 9);
    EXPECT_EQ(node.request(client, h, &data).reason, RMEM_NODE_BUSY);
    EXPECT_EQ(node.usage().pages_ready, 1u);
    EXPECT_EQ(node.usage().pages_backed, 15u);
    h = client.head(RMEM_WRITE, addr + 8 * page - 50, 100); // second page isn't allocated
    EXPECT_EQ(node.request(client, h, &data).reason, RMEM_NODE_FAULT);
    EXPECT_EQ(node.usage().pages_ready, 1u);
}

TEST_F(NodeTest, Damaged) {
    rmem_head h = client.head(RMEM_WRITE, addr, 100);
    rmem_head reply;
    auto before = node.snapshot();
    ASSERT_TRUE(rmem_node_damaged(&node.core, node.now_ns, &h, &client.peer, &reply));
    EXPECT_EQ(reply.status, RMEM_DAMAGED);
    EXPECT_EQ(reply.id, h.id);
    EXPECT_EQ(reply.attempt, h.attempt);
    EXPECT_EQ(rmem_wire_payload_bytes(&reply), 0u);
    EXPECT_TRUE(before == node.snapshot());
}

TEST_F(NodeTest, DamagedCopyFromElsewhereIsNotAnswered) {
    rmem_head h = client.head(RMEM_WRITE, addr, 100);
    rmem_head reply;
    Client moved = client;
    moved.peer.port++;
    EXPECT_FALSE(rmem_node_damaged(&node.core, node.now_ns, &h, &moved.peer, &reply));
    rmem_head old = h;
    old.boot++;
    EXPECT_FALSE(rmem_node_damaged(&node.core, node.now_ns, &old, &client.peer, &reply));
    old = h;
    old.session ^= 1ull << 20;
    EXPECT_FALSE(rmem_node_damaged(&node.core, node.now_ns, &old, &client.peer, &reply));
}

// ---- atomics ----------------------------------------------------------------------------------

struct Atomics : NodeTest {
    // ADD of value to the integer of 8 bytes.
    rmem_answer add(const rmem_head& head, uint64_t value) {
        rmem_operands operands{};
        base_store_le64(&operands.value[0], value);
        auto* bytes = reinterpret_cast<const uint8_t*>(&operands);
        Bytes data(bytes, bytes + sizeof(operands));
        return node.request(client, head, &data);
    }
    rmem_head head() { return client.head(RMEM_ATOMIC, addr + 8, 8); }
    static uint64_t found(const rmem_answer& answer) {
        return base_load_le64(&answer.found.value[0]);
    }
    uint64_t value() {
        Bytes bytes = node.read(client, addr + 8, 8);
        return base_load_le64(bytes.data());
    }
};

TEST_F(Atomics, FirstTouchFindsZero) {
    rmem_answer answer = add(head(), 5);
    EXPECT_EQ(answer.reason, RMEM_NODE_OK);
    EXPECT_EQ(answer.reply.status, RMEM_OK);
    EXPECT_EQ(rmem_wire_payload_bytes(&answer.reply), sizeof(rmem_found));
    EXPECT_EQ(found(answer), 0u);
    EXPECT_EQ(found(add(head(), 2)), 5u);
    EXPECT_EQ(value(), 7u);
}

TEST_F(Atomics, ACopyIsAnsweredAsTheFirstWas) {
    rmem_head first = head();
    EXPECT_EQ(found(add(first, 5)), 0u);
    EXPECT_EQ(found(add(head(), 2)), 5u);
    node.write(client, addr, filled(100, 0xff));
    for (int copies = 0; copies < 3; copies++) {
        rmem_answer answer = add(first, 5);
        EXPECT_EQ(answer.action, RMEM_ACT_REPLY);
        EXPECT_EQ(answer.reason, RMEM_NODE_REPEATED);
        EXPECT_EQ(answer.reply.status, RMEM_OK);
        EXPECT_EQ(found(answer), 0u);
    }
    EXPECT_EQ(value(), ~0ull);
    client.floor = client.next_id;
    add(head(), 1);
    refused(first, RMEM_NODE_STALE, RMEM_STALE);
}

TEST_F(Atomics, WithoutAPlaceForTheResultItIsBusy) {
    rmem_head oldest = head();
    client.next_id = oldest.id + RMEM_REPLAY;
    rmem_head beyond = head();
    refused(beyond, RMEM_NODE_BUSY, RMEM_BUSY);
    EXPECT_EQ(add(oldest, 1).reason, RMEM_NODE_OK);
    beyond.floor = oldest.id + 1;
    EXPECT_EQ(found(add(beyond, 1)), 1u);
    EXPECT_EQ(value(), 2u);
}

TEST_F(Atomics, OfARegionThatCameLaterStayRefused) {
    uint64_t place = node.core.spaces.slot[0].spans.at[0].end * page;
    rmem_head late = client.head(RMEM_ATOMIC, place, 8);
    EXPECT_EQ(add(late, 1).reply.status, RMEM_FAULT);
    ASSERT_EQ(node.alloc(client, page), place);
    EXPECT_EQ(add(late, 1).reply.status, RMEM_FAULT);
}

// ---- the stale write --------------------------------------------------------------------------

TEST_F(NodeTest, LateCopyOfAFinishedWriteIsHarmless) {
    rmem_head first = client.head(RMEM_WRITE, addr, 100);
    Bytes old = filled(100, 1);
    EXPECT_EQ(node.request(client, first, &old).reason, RMEM_NODE_OK);
    node.write(client, addr, filled(100, 2)); // another id, floor not yet moved
    rmem_answer answer = node.request(client, first, &old);
    EXPECT_EQ(answer.reason, RMEM_NODE_REPEATED);
    EXPECT_EQ(answer.action, RMEM_ACT_REPLY);
    EXPECT_EQ(answer.reply.status, RMEM_OK);
    EXPECT_EQ(node.read(client, addr, 100), filled(100, 2));
    client.floor = client.next_id;
    node.write(client, addr, filled(100, 3));
    refused(first, RMEM_NODE_STALE, RMEM_STALE);
    EXPECT_EQ(node.read(client, addr, 100), filled(100, 3));
}

TEST_F(NodeTest, LateFirstCopyThatNeverArrivedIsStale) {
    rmem_head lost = client.head(RMEM_WRITE, addr, 100);
    client.floor = client.next_id; // its sender gave up
    node.write(client, addr, filled(100, 2));
    refused(lost, RMEM_NODE_STALE, RMEM_STALE);
    lost.type = RMEM_READ;
    lost.piece = 4096;
    refused(lost, RMEM_NODE_STALE, RMEM_STALE);
}

TEST_F(NodeTest, LateDiscardAndZeroAreHarmless) {
    for (uint8_t type : {RMEM_DISCARD, RMEM_ZERO}) {
        rmem_head h = client.head(type, addr, 2 * page);
        EXPECT_EQ(node.request(client, h).reason, RMEM_NODE_OK);
        node.write(client, addr, filled(100, 2));
        EXPECT_EQ(node.request(client, h).reason, RMEM_NODE_REPEATED);
        EXPECT_EQ(node.read(client, addr, 100), filled(100, 2));
    }
}

// The place is allocated by another session, so nobody has told the first one's floor.
TEST_F(NodeTest, LateCopyOfARefusedChange) {
    Client other(2);
    node.open(other, 1);
    for (uint8_t type : {RMEM_WRITE, RMEM_DISCARD, RMEM_ZERO}) {
        uint64_t place = node.core.spaces.slot[0].spans.at[0].end * page;
        rmem_head late = client.head(type, place, type == RMEM_WRITE ? 100 : page);
        Bytes data = filled(100, 1);
        EXPECT_EQ(node.request(client, late, &data).reply.status, RMEM_FAULT);
        ASSERT_EQ(node.alloc(other, 2 * page), place);
        node.write(other, place, filled(100, 2));
        for (int copies = 0; copies < 2; copies++) {
            rmem_answer answer = node.request(client, late, &data);
            EXPECT_EQ(answer.reason, RMEM_NODE_FAULT);
            EXPECT_EQ(answer.action, RMEM_ACT_REPLY);
            EXPECT_EQ(answer.reply.status, RMEM_FAULT);
            EXPECT_EQ(node.read(other, place, 100), filled(100, 2));
        }
        // An operation issued again is a new request.
        EXPECT_EQ(node.write(client, place, filled(100, 3)).reason, RMEM_NODE_OK);
        EXPECT_EQ(node.read(client, place, 100), filled(100, 3));
    }
}

TEST_F(NodeTest, LateCopyOfARefusedFree) {
    Client other(2);
    node.open(other, 1);
    uint64_t place = node.core.spaces.slot[0].spans.at[0].end * page;
    rmem_head late = client.head(RMEM_FREE, 0, sizeof(rmem_range));
    EXPECT_EQ(node.free(client, late, place, 2 * page).reply.status, RMEM_FAULT);
    ASSERT_EQ(node.alloc(other, 2 * page), place);
    EXPECT_EQ(node.free(client, late, place, 2 * page).reply.status, RMEM_FAULT);
    EXPECT_EQ(node.usage().regions, 2u);
    EXPECT_EQ(node.free(client, place, 2 * page).reply.status, RMEM_OK);
}

TEST_F(NodeTest, ReadUnderARefusedIdIsAnswered) {
    rmem_head h = client.head(RMEM_WRITE, 0, 100);
    Bytes data = filled(100, 1);
    EXPECT_EQ(node.request(client, h, &data).reason, RMEM_NODE_FAULT);
    rmem_head read = client.head(RMEM_READ, addr, 100);
    read.id = h.id;
    EXPECT_EQ(node.request(client, read, &data).action, RMEM_ACT_SEND_OUT);
}

TEST_F(NodeTest, BeyondTheWindow) {
    node.read(client, addr, 1);
    rmem_head h = client.head(RMEM_WRITE, addr, 100);
    h.id = 1 + RMEM_WINDOW;
    refused(h, RMEM_NODE_WINDOW, RMEM_INVALID);
    h.id--;
    Bytes data = filled(100, 1);
    EXPECT_EQ(node.request(client, h, &data).reason, RMEM_NODE_OK);
    h = client.head(RMEM_READ, addr, 100); // reads change nothing, so they may
    h.id = 1 + RMEM_WINDOW;
    EXPECT_EQ(node.request(client, h, &data).reason, RMEM_NODE_OK);
    h.id = RMEM_WINDOW; // the write's
    EXPECT_EQ(node.request(client, h, &data).action, RMEM_ACT_SEND_OUT);
    EXPECT_EQ(data, filled(100, 1));
}

TEST_F(NodeTest, LateCopyFromASupersededSession) {
    client.floor = client.next_id; // acknowledges the region
    node.read(client, addr, 1);
    rmem_head late = client.head(RMEM_WRITE, addr, 100);
    Client old = client;
    ASSERT_EQ(node.open(client, 101).reply.status, RMEM_OK);
    ASSERT_NE(client.session, old.session);
    node.write(client, addr, filled(100, 2));
    refused_from(old, late, RMEM_NODE_NO_SESSION, RMEM_NO_SESSION);
    EXPECT_EQ(node.read(client, addr, 100), filled(100, 2));
}

TEST_F(NodeTest, LateCopyFromAnEvictedSession) {
    rmem_head late = client.head(RMEM_WRITE, addr, 100);
    node.now_ns += 2000 * BASE_NSEC_PER_MSEC;
    for (uint8_t n = 2; n < 6; n++) { // more clients than sessions
        Client other(n);
        ASSERT_EQ(node.open(other, n).reply.status, RMEM_OK);
    }
    refused(late, RMEM_NODE_NO_SESSION, RMEM_NO_SESSION);
}

TEST_F(NodeTest, LateCopyToAFreedRegion) {
    ASSERT_TRUE(node.add_space(2));
    rmem_head late = client.head(RMEM_WRITE, addr, 100);
    node.free(client, addr, 8 * page);
    uint64_t again = node.alloc(client, 8 * page, addr); // wants the same place
    EXPECT_NE(again, addr);
    refused(late, RMEM_NODE_FAULT, RMEM_FAULT);
}

TEST_F(NodeTest, LateCopyAfterTheSpaceWasAddedAgain) {
    rmem_head late = client.head(RMEM_WRITE, addr, 100);
    EXPECT_EQ(rmem_node_space_del(&node.core, 1), RMEM_SPACE_BUSY);
    node.free(client, addr, 8 * page);
    EXPECT_EQ(rmem_node_space_del(&node.core, 1), RMEM_SPACE_OK);
    EXPECT_EQ(rmem_node_key(&node.core, 1), nullptr);
    refused(late, RMEM_NODE_NO_SESSION, RMEM_NO_SESSION);
    ASSERT_TRUE(node.add_space(1));
    Client next(2);
    node.open(next, 1);
    ASSERT_EQ(node.alloc(next, 8 * page), addr);
    refused(late, RMEM_NODE_NO_SESSION, RMEM_NO_SESSION);
}

// ---- configuration ----------------------------------------------------------------------------

TEST(NodeConfig, BoundsAreChecked) {
    const rmem_node_config good = rig::small_config();
    EXPECT_EQ(rmem_node_config_error(&good), nullptr);
    auto bad = [&](auto change) {
        rmem_node_config config = good;
        change(config);
        return rmem_node_config_error(&config) != nullptr;
    };
    EXPECT_TRUE(bad([](auto& c) { c.boot = 0; }));
    EXPECT_TRUE(bad([](auto& c) { c.pages = 0; }));
    EXPECT_TRUE(bad([](auto& c) { c.pages = uint64_t(RMEM_NODE_PAGES_MAX) + 1; }));
    EXPECT_TRUE(bad([](auto& c) { c.page_shift = 15; }));
    EXPECT_TRUE(bad([](auto& c) { c.page_shift = 23; }));
    EXPECT_TRUE(bad([](auto& c) { c.pool_pages = 1; }));
    EXPECT_TRUE(bad([](auto& c) { c.pool_pages = 12; }));
    EXPECT_TRUE(bad([](auto& c) { c.piece_bytes = RMEM_PIECE_BYTES_MIN - 1; }));
    EXPECT_TRUE(bad([](auto& c) { c.piece_bytes = RMEM_PIECE_BYTES_MAX + 1; }));
    EXPECT_TRUE(bad([](auto& c) { c.spaces_max = 0; }));
    EXPECT_TRUE(bad([](auto& c) { c.spaces_max = RMEM_SPACES_MAX + 1; }));
    EXPECT_TRUE(bad([](auto& c) { c.sessions_max = 0; }));
    EXPECT_TRUE(bad([](auto& c) { c.sessions_max = RMEM_SESSIONS_MAX + 1; }));
    EXPECT_TRUE(bad([](auto& c) { c.regions_max = 0; }));
    EXPECT_TRUE(bad([](auto& c) { c.regions_max = RMEM_REGIONS_MAX + 1; }));
    EXPECT_TRUE(bad([](auto& c) { c.window_ids = 3; }));
    EXPECT_TRUE(bad([](auto& c) { c.window_ids = 2 * RMEM_WINDOW; }));
    EXPECT_FALSE(bad([](auto& c) { c.window_ids = 4; }));
}

// ---- all of it against a reference ------------------------------------------------------------

// Regions, and the first bytes of each page, as they should be.
struct Reference {
    struct Page {
        uint8_t value = 0;
    };
    std::map<uint64_t, std::vector<Page>> regions; // by address
};

TEST(NodeProperty, AgreesWithReference) {
    for (uint32_t seed = 1; seed <= 4; seed++) {
        rmem_node_config config = rig::small_config();
        config.window_ids = seed % 2 ? 0 : 64;
        rig::Node node(config);
        std::mt19937 random(seed);
        std::vector<Client> clients;
        Reference reference[3];
        for (uint32_t n = 0; n < 3; n++) {
            ASSERT_TRUE(node.add_space(n + 1));
            clients.emplace_back(n + 1, n + 1);
            node.open(clients[n], 1);
        }
        for (int step = 0; step < 4000; step++) {
            uint32_t who = random() % 3;
            Client& client = clients[who];
            auto& regions = reference[who].regions;
            client.floor = client.next_id;
            node.refill();
            if (random() % 16 == 0) {
                uint64_t pages = 1 + random() % 12;
                // Of 16 regions, the last 4 are kept for spaces that have none.
                bool fits = node.usage().pages_promised + pages <= 64 &&
                            node.usage().regions < (regions.empty() ? 16 : 12);
                uint64_t addr = node.alloc(client, pages * page);
                ASSERT_EQ(addr != 0, fits);
                if (addr)
                    regions[addr].resize(pages);
                continue;
            }
            if (regions.empty())
                continue;
            auto region = std::next(regions.begin(), random() % regions.size());
            uint64_t n = random() % region->second.size();
            uint64_t addr = region->first + n * page;
            uint8_t value = 1 + who + 3 * (random() % 80);
            switch (random() % 16) {
            case 0:
                ASSERT_EQ(node.free(client, region->first, region->second.size() * page).reason,
                          RMEM_NODE_OK);
                regions.erase(region);
                break;
            case 1:
            case 2:
                node.request(client,
                             client.head(random() % 2 ? RMEM_ZERO : RMEM_DISCARD, addr, page));
                region->second[n].value = 0;
                break;
            default:
                if (random() % 2) {
                    ASSERT_EQ(node.write(client, addr, filled(1024, value)).reason, RMEM_NODE_OK);
                    region->second[n].value = value;
                }
                ASSERT_EQ(node.read(client, addr, 1024), filled(1024, region->second[n].value));
                ASSERT_EQ(node.read(client, addr + 1024, 512), filled(512, 0));
            }
        }
    }
}

} // namespace
