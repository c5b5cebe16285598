// SPDX-License-Identifier: GPL-2.0
// COPY at the node: from one range to another, once, all of it or none.
#include "node_test.hpp"

namespace {

using namespace rig;

struct Copies : NodeTest {
    rmem_answer copy(uint64_t to, uint64_t from, uint32_t bytes) {
        return again(client.head(RMEM_COPY, to, bytes), from);
    }
    rmem_answer again(const rmem_head& head, uint64_t from) {
        Bytes payload = wire::bytes_of(wire::copy_of(from));
        return node.request(client, head, &payload);
    }
    void cant_be(uint64_t to, uint64_t from, uint32_t bytes, rmem_node_reason reason,
                 uint8_t status) {
        SCOPED_TRACE(testing::Message() << to << " from " << from << ", " << bytes);
        refused_with(client, client.head(RMEM_COPY, to, bytes), reason, status,
                     wire::bytes_of(wire::copy_of(from)));
    }
};

// Each range in one page or two, cut at other places than the other one.
TEST_F(Copies, CrossPages) {
    Bytes data = counted(3000);
    const struct {
        uint64_t to, from;
    } cases[] = {{4 * page, 10},
                 {4 * page + 5, page - 1000},
                 {5 * page - 1000, 20},
                 {5 * page - 1000, page - 2000},
                 {5 * page - 2000, page - 1000},
                 {5 * page - 1000, page - 1000}};
    for (auto [to, from] : cases) {
        node.write(client, addr + from, data);
        rmem_answer answer = copy(addr + to, addr + from, 3000);
        EXPECT_EQ(answer.reason, RMEM_NODE_OK);
        EXPECT_EQ(answer.reply.status, RMEM_OK);
        EXPECT_EQ(rmem_wire_payload_bytes(&answer.reply), 0u);
        Bytes expected = wire::followed_by(wire::followed_by({0}, data), {0});
        EXPECT_EQ(node.read(client, addr + to - 1, 3002), expected) << to << " from " << from;
        EXPECT_EQ(node.read(client, addr + from, 3000), data) << "the source stays";
        node.request(client, client.head(RMEM_DISCARD, addr, 8 * page));
        node.refill();
    }
}

TEST_F(Copies, TakeAsMuchAsTheSmallestPage) {
    Bytes data = counted(4096);
    for (uint64_t at = 0; at < RMEM_COPY_BYTES_MAX; at += data.size())
        node.write(client, addr + 100 + at, data);
    EXPECT_EQ(copy(addr + 3 * page + 7, addr + 100, RMEM_COPY_BYTES_MAX).reason, RMEM_NODE_OK);
    for (uint64_t at = 0; at < RMEM_COPY_BYTES_MAX; at += data.size())
        ASSERT_EQ(node.read(client, addr + 3 * page + 7 + at, 4096), data) << at;
    EXPECT_EQ(node.usage().pages_backed, 4u);
}

// The target is backed, as by a WRITE; the source isn't, as by a READ.
TEST_F(Copies, OfUnbackedPagesAreZeros) {
    node.write(client, addr + page, filled(200, 7));
    EXPECT_EQ(copy(addr + page + 50, addr + 2 * page, 100).reason, RMEM_NODE_OK);
    EXPECT_EQ(node.read(client, addr + page, 200),
              wire::followed_by(wire::followed_by(filled(50, 7), filled(100, 0)), filled(50, 7)));
    EXPECT_EQ(node.usage().pages_backed, 1u);
    EXPECT_EQ(copy(addr + 4 * page, addr + 5 * page, 100).reason, RMEM_NODE_OK);
    EXPECT_EQ(node.read(client, addr + 4 * page, 100), filled(100, 0));
    EXPECT_EQ(node.usage().pages_backed, 2u);
    EXPECT_EQ(copy(addr + 6 * page, addr + page - 100, 200).reason, RMEM_NODE_OK);
    EXPECT_EQ(node.read(client, addr + 6 * page, 200),
              wire::followed_by(filled(100, 0), wire::followed_by(filled(50, 7), filled(50, 0))))
        << "half of the source never written";
}

// Both in one page that nobody has written: it is backed once.
TEST_F(Copies, WithinAnUnbackedPageAreZeros) {
    EXPECT_EQ(copy(addr + 100, addr, 100).reason, RMEM_NODE_OK);
    EXPECT_EQ(node.read(client, addr, 300), filled(300, 0));
    EXPECT_EQ(node.usage().pages_backed, 1u);
}

TEST_F(Copies, OfNeighboursAreCopied) {
    Bytes data = counted(100);
    node.write(client, addr + 500, data);
    EXPECT_EQ(copy(addr + 600, addr + 500, 100).reason, RMEM_NODE_OK);
    EXPECT_EQ(copy(addr + 400, addr + 500, 100).reason, RMEM_NODE_OK);
    EXPECT_EQ(node.read(client, addr + 400, 300),
              wire::followed_by(data, wire::followed_by(data, data)));
}

TEST_F(Copies, MalformedOnesAreRefused) {
    node.write(client, addr, counted(100));
    auto length = [&](uint64_t to, uint64_t from, uint32_t bytes) {
        cant_be(to, from, bytes, RMEM_NODE_LENGTH, RMEM_INVALID);
    };
    length(addr, addr + page, 0);
    length(addr, addr + 2 * page, RMEM_COPY_BYTES_MAX + 1);
    length(addr, addr + 2 * page, ~0u);
    length(~0ull - 98, addr, 100);
    length(addr, ~0ull - 98, 100);
    for (uint64_t distance : {0, 1, 50, 99}) {
        length(addr + distance, addr, 100);
        length(addr, addr + distance, 100);
    }
    EXPECT_EQ(copy(addr, addr + 100, 100).reason, RMEM_NODE_OK);
}

TEST_F(Copies, WhereOneRangeIsNotPermittedChangeNothing) {
    uint64_t fixed = node.alloc(client, page, 0, RMEM_PERM_READ);
    node.read(client, addr, 1);
    cant_be(fixed, addr, 100, RMEM_NODE_PERM, RMEM_PERM);
    for (uint64_t nowhere : {uint64_t{0}, fixed + page, ~uint64_t{255}}) {
        cant_be(addr, nowhere, 100, RMEM_NODE_FAULT, RMEM_FAULT);
        cant_be(nowhere, addr, 100, RMEM_NODE_FAULT, RMEM_FAULT);
    }
    cant_be(addr - 50, addr + 100, 100, RMEM_NODE_FAULT, RMEM_FAULT);
    cant_be(addr + 100, addr - 50, 100, RMEM_NODE_FAULT, RMEM_FAULT);
    EXPECT_EQ(node.usage().pages_backed, 0u) << "not even a page was taken";
    EXPECT_EQ(copy(addr, fixed, 100).reason, RMEM_NODE_OK) << "a source may be read-only";
}

// A client has seen the copy since, and written something else, to both ranges.
TEST_F(Copies, ADuplicateIsAnsweredAndCopiesNothing) {
    node.write(client, addr, filled(100, 1));
    rmem_head first = client.head(RMEM_COPY, addr + page, 100);
    EXPECT_EQ(again(first, addr).reason, RMEM_NODE_OK);
    node.write(client, addr, filled(100, 2));
    node.write(client, addr + page, filled(50, 3));
    for (int duplicates = 0; duplicates < 3; duplicates++) {
        rmem_answer answer = again(first, addr);
        EXPECT_EQ(answer.action, RMEM_ACT_REPLY);
        EXPECT_EQ(answer.reason, RMEM_NODE_REPEATED);
        EXPECT_EQ(answer.reply.status, RMEM_OK);
    }
    EXPECT_EQ(node.read(client, addr + page, 100), wire::followed_by(filled(50, 3), filled(50, 1)));
    client.floor = client.next_id;
    node.write(client, addr, {1});
    EXPECT_EQ(again(first, addr).reply.status, RMEM_STALE);
}

// Refused once, its duplicates are refused, too, though the memory has come since.
TEST_F(Copies, OfARegionThatCameLaterStayRefused) {
    uint64_t place = node.core.spaces.slot[0].spans.at[0].end * page;
    rmem_head late = client.head(RMEM_COPY, addr, 8);
    EXPECT_EQ(again(late, place).reply.status, RMEM_FAULT);
    ASSERT_EQ(node.alloc(client, page), place);
    EXPECT_EQ(again(late, place).reply.status, RMEM_FAULT);
}

using CopiesFromASmallPool = SmallPool;

TEST_F(CopiesFromASmallPool, GetTheirPagesOrAreBusy) {
    node.refill();
    node.write(client, addr, filled(100, 3));
    rmem_head h = client.head(RMEM_COPY, addr + 3 * page - 50, 100);
    Bytes payload = wire::bytes_of(wire::copy_of(addr));
    EXPECT_EQ(node.request(client, h, &payload).reply.status, RMEM_BUSY) << "one page is ready";
    EXPECT_EQ(node.usage().pages_backed, 1u);
    node.refill();
    EXPECT_EQ(node.request(client, h, &payload).reply.status, RMEM_OK);
    EXPECT_EQ(node.read(client, addr + 3 * page - 50, 100), filled(100, 3));
}

// A caller in the node's own process has the same rules.
TEST_F(Copies, WithoutASessionHaveTheSameRules) {
    node.write(client, addr, counted(100));
    uint32_t space_index = 0;
    rmem_answer answer;
    auto access = [&](uint64_t to, uint64_t from, uint32_t bytes) {
        return rmem_node_access_copy(&node.core, space_index, to, from, bytes, &answer);
    };
    EXPECT_EQ(access(addr, addr + 10, 11), RMEM_NODE_LENGTH);
    EXPECT_EQ(access(addr, 0, 8), RMEM_NODE_FAULT);
    ASSERT_EQ(access(addr + page - 40, addr + 10, 80), RMEM_NODE_OK);
    rmem_extent to, from;
    ASSERT_TRUE(rmem_node_stretch(&answer, &to, &from));
    EXPECT_EQ(to.offset, page - 40);
    EXPECT_EQ(from.offset, 10u);
    EXPECT_EQ(to.bytes, 40u);
    EXPECT_EQ(from.bytes, 40u);
    ASSERT_TRUE(rmem_node_stretch(&answer, &to, &from));
    EXPECT_EQ(to.offset, 0u);
    EXPECT_EQ(from.offset, 50u);
    EXPECT_EQ(to.bytes, 40u);
    EXPECT_FALSE(rmem_node_stretch(&answer, &to, &from));
}

} // namespace
