// SPDX-License-Identifier: GPL-2.0
// PUT at the node: data, and then the integer, both or neither.
#include <cstring>

#include "node_test.hpp"

namespace {

using namespace rig;

struct Puts : NodeTest {
    static Bytes payload(uint64_t integer, uint64_t value, const Bytes& data, uint32_t bytes = 8,
                         uint32_t reserved = 0) {
        rmem_put put = wire::put_of(integer, value, bytes);
        base_store_le32(&put.reserved, reserved);
        return wire::followed_by(wire::bytes_of(put), data);
    }
    // The data to at, value added to the integer of 8 bytes.
    rmem_answer put(const rmem_head& head, uint64_t integer, uint64_t value, const Bytes& data) {
        Bytes all = payload(integer, value, data);
        return node.request(client, head, &all);
    }
    rmem_head head(uint64_t at, size_t bytes) {
        return client.head(RMEM_PUT, at, static_cast<uint32_t>(bytes));
    }
    static uint64_t found(const rmem_answer& answer) {
        return base_load_le64(&answer.found.value[0]);
    }
    uint64_t value(uint64_t integer) {
        return base_load_le64(node.read(client, integer, 8).data());
    }
    void cant_be(const rmem_head& h, rmem_node_reason reason, uint8_t status, const Bytes& all) {
        refused_with(client, h, reason, status, all);
    }
};

TEST_F(Puts, WritesAndThenChanges) {
    uint64_t integer = addr + page + 8;
    rmem_answer answer = put(head(addr + 3, 100), integer, 5, filled(100, 7));
    EXPECT_EQ(answer.reason, RMEM_NODE_OK);
    EXPECT_EQ(answer.reply.status, RMEM_OK);
    EXPECT_EQ(rmem_wire_payload_bytes(&answer.reply), sizeof(rmem_found));
    EXPECT_EQ(found(answer), 0u) << "first touch";
    EXPECT_EQ(node.read(client, addr + 3, 100), filled(100, 7));
    EXPECT_EQ(value(integer), 5u);
    EXPECT_EQ(found(put(head(addr + 50, 1), integer, 2, {9})), 5u);
    EXPECT_EQ(node.read(client, addr + 50, 2), (Bytes{9, 7}));
    EXPECT_EQ(value(integer), 7u);
}

TEST_F(Puts, AllThatCanBeDoneToAnInteger) {
    node.write(client, addr, filled(16, 0));
    for (uint32_t bytes : {4u, 8u}) {
        for (uint8_t op = 1; op < RMEM_ATOMIC_OP_END; op++) {
            if (op == RMEM_CAS)
                continue;
            alignas(8) uint8_t expected[8] = {6, 0, 0, 0, 0x55, 0x55, 0x55, 0x55};
            node.write(client, addr + 8, Bytes(expected, expected + 8));
            rmem_operands operands{};
            rmem_found before;
            base_store_le64(&operands.value[0], ~1ull);
            rmem_atomic_apply(expected, op, bytes, &operands, &before);
            rmem_head h = head(addr + page, 1);
            h.op = op;
            Bytes all = payload(addr + 8, ~1ull, {1}, bytes);
            EXPECT_EQ(found(node.request(client, h, &all)), base_load_le64(&before.value[0]));
            EXPECT_EQ(node.read(client, addr + 8, 8), Bytes(expected, expected + 8))
                << int(op) << " of " << bytes;
        }
    }
}

// A client has read it since, and written something else.
TEST_F(Puts, ACopyIsAnsweredAsTheFirstWasAndWritesNothing) {
    uint64_t integer = addr + 8;
    node.write(client, integer, filled(8, 1));
    rmem_head first = head(addr + page, 100);
    uint64_t was = found(put(first, integer, 5, filled(100, 7)));
    EXPECT_EQ(was, 0x0101010101010101u);
    node.write(client, addr + page, filled(100, 0xff));
    node.write(client, integer, filled(8, 0xee));
    for (int copies = 0; copies < 3; copies++) {
        rmem_answer answer = put(first, integer, 5, filled(100, 7));
        EXPECT_EQ(answer.action, RMEM_ACT_REPLY);
        EXPECT_EQ(answer.reason, RMEM_NODE_REPEATED);
        EXPECT_EQ(answer.reply.status, RMEM_OK);
        EXPECT_EQ(found(answer), was);
    }
    EXPECT_EQ(node.read(client, addr + page, 100), filled(100, 0xff));
    EXPECT_EQ(node.read(client, integer, 8), filled(8, 0xee));
    client.floor = client.next_id;
    node.write(client, addr, {1});
    cant_be(first, RMEM_NODE_STALE, RMEM_STALE, payload(integer, 5, filled(100, 7)));
}

TEST_F(Puts, DataIsFirstWhereTheyOverlap) {
    Bytes data = filled(24, 0);
    data[8] = 100;
    EXPECT_EQ(found(put(head(addr, 24), addr + 8, 5, data)), 100u);
    data[8] = 105;
    EXPECT_EQ(node.read(client, addr, 24), data);
    // The integer's end only.
    EXPECT_EQ(found(put(head(addr + 15, 1), addr + 8, 1, {1})), 105u + (1ull << 56));
    EXPECT_EQ(value(addr + 8), 106u + (1ull << 56));
}

TEST_F(Puts, MalformedOnesAreRefused) {
    node.read(client, addr, 1);
    Bytes data = filled(100, 1);
    auto length = [&](const rmem_head& h, const Bytes& all) {
        cant_be(h, RMEM_NODE_LENGTH, RMEM_INVALID, all);
    };
    for (uint32_t bytes : {0u, 1u, 2u, 3u, 5u, 12u, 16u, ~0u})
        length(head(addr, 100), payload(addr + page, 1, data, bytes));
    for (uint64_t off : {1, 2, 4, 7})
        length(head(addr, 100), payload(addr + page + off, 1, data));
    length(head(addr, 100), payload(addr + page, 1, data, 8, 1));
    for (uint8_t op : {uint8_t{RMEM_CAS}, uint8_t{RMEM_ATOMIC_OP_END}, uint8_t{255}}) {
        rmem_head h = head(addr, 100);
        h.op = op;
        length(h, payload(addr + page, 1, data));
    }
    uint32_t most = node.core.config.piece_bytes - sizeof(rmem_put);
    length(head(addr, 0), payload(addr + page, 1, {}));
    length(head(addr, most + 1), payload(addr + page, 1, filled(most + 1, 1)));
    length(head(~0ull - 10, 100), payload(addr + page, 1, data));
    EXPECT_EQ(put(head(addr, most), addr + page, 1, filled(most, 1)).reason, RMEM_NODE_OK);
}

// One of the two is good.
TEST_F(Puts, RefusesBothWhereOneIsNotPermitted) {
    uint64_t fixed = node.alloc(client, page, 0, RMEM_PERM_READ);
    node.read(client, addr, 1);
    Bytes data = filled(100, 1);
    auto refuse = [&](uint64_t at, uint64_t integer, rmem_node_reason reason, uint8_t status) {
        cant_be(head(at, 100), reason, status, payload(integer, 1, data));
    };
    refuse(addr, fixed, RMEM_NODE_PERM, RMEM_PERM);
    refuse(fixed, addr, RMEM_NODE_PERM, RMEM_PERM);
    for (uint64_t nowhere : {uint64_t{0}, fixed + page, ~uint64_t{7}})
        refuse(addr, nowhere, RMEM_NODE_FAULT, RMEM_FAULT);
    for (uint64_t nowhere : {uint64_t{0}, fixed + page})
        refuse(nowhere, addr, RMEM_NODE_FAULT, RMEM_FAULT);
    refuse(addr - 50, addr, RMEM_NODE_FAULT, RMEM_FAULT);
    EXPECT_EQ(node.usage().pages_backed, 0u) << "not even a page was taken";
}

TEST_F(Puts, WithoutAPlaceForTheResultItIsBusy) {
    rmem_head oldest = head(addr, 1);
    client.next_id = oldest.id + RMEM_REPLAY;
    rmem_head beyond = head(addr, 1);
    cant_be(beyond, RMEM_NODE_BUSY, RMEM_BUSY, payload(addr + 8, 1, {2}));
    EXPECT_EQ(put(oldest, addr + 8, 1, {1}).reason, RMEM_NODE_OK);
    beyond.floor = oldest.id + 1;
    EXPECT_EQ(found(put(beyond, addr + 8, 1, {2})), 1u);
    EXPECT_EQ(node.read(client, addr, 1), Bytes{2});
}

TEST_F(Puts, OfARegionThatCameLaterStayRefused) {
    uint64_t place = node.core.spaces.slot[0].spans.at[0].end * page;
    rmem_head late = head(addr, 1);
    EXPECT_EQ(put(late, place, 1, {1}).reply.status, RMEM_FAULT);
    ASSERT_EQ(node.alloc(client, page), place);
    EXPECT_EQ(put(late, place, 1, {1}).reply.status, RMEM_FAULT);
    EXPECT_EQ(node.read(client, addr, 1), Bytes{0});
}

using PutsFromASmallPool = SmallPool;

// Three pages, from a pool that never has more than two; until all are there nothing has changed.
TEST_F(PutsFromASmallPool, GetAllTheirPages) {
    rmem_head h = client.head(RMEM_PUT, addr + page - 50, 100);
    Bytes all = Puts::payload(addr + 5 * page, 1, filled(100, 3));
    EXPECT_EQ(node.request(client, h, &all).reply.status, RMEM_BUSY) << "no page is ready yet";
    for (int tries = 0;; tries++) {
        ASSERT_LT(tries, 3);
        node.refill();
        rmem_answer answer = node.request(client, h, &all);
        if (answer.reply.status == RMEM_OK)
            break;
        EXPECT_EQ(answer.reply.status, RMEM_BUSY);
        EXPECT_EQ(node.read(client, addr + page - 50, 100), filled(100, 0));
        EXPECT_EQ(node.read(client, addr + 5 * page, 8), filled(8, 0));
    }
    EXPECT_EQ(node.read(client, addr + page - 50, 100), filled(100, 3));
    EXPECT_EQ(node.read(client, addr + 5 * page, 1), Bytes{1});
    EXPECT_EQ(node.usage().pages_backed, 3u);
}

// Data and integer in the last page there is: it is taken once.
TEST(PutsFromASmallNode, TakeAPageForBothOnce) {
    rmem_node_config config = small_config();
    config.pages = 2;
    config.pool_pages = 2;
    Node node(config);
    Client client;
    ASSERT_TRUE(node.add_space(1));
    ASSERT_EQ(node.open(client, 100).reply.status, RMEM_OK);
    uint64_t addr = node.alloc(client, 2 * page);
    node.refill();
    ASSERT_EQ(node.write(client, addr, {1}).reply.status, RMEM_OK);
    rmem_head h = client.head(RMEM_PUT, addr + page - 1, 2);
    Bytes all = Puts::payload(addr + page + 8, 1, {2, 3});
    EXPECT_EQ(node.request(client, h, &all).reply.status, RMEM_OK);
    EXPECT_EQ(node.read(client, addr + page - 1, 2), (Bytes{2, 3}));
    EXPECT_EQ(node.usage().pages_backed, 2u);
}

} // namespace
