// SPDX-License-Identifier: GPL-2.0
// READV and WRITEV at the node: many ranges, all of them or none.
#include <cstring>

#include "node_test.hpp"

namespace {

using namespace rig;

using wire::Range;
using Ranges = std::vector<Range>;

Bytes payload(const Ranges& ranges, const Bytes& data = {}) {
    return wire::followed_by(wire::ranges_of(ranges), data);
}

uint32_t sum(const Ranges& ranges) {
    uint64_t bytes = 0;
    for (const Range& range : ranges)
        bytes += range.bytes;
    return static_cast<uint32_t>(bytes);
}

struct Vectors : NodeTest {
    rmem_head head(uint8_t type, const Ranges& ranges) {
        rmem_head h = client.head(type, 0, sum(ranges));
        h.op = static_cast<uint8_t>(ranges.size());
        return h;
    }
    rmem_answer writev(const Ranges& ranges, const Bytes& data) {
        return again(head(RMEM_WRITEV, ranges), ranges, data);
    }
    rmem_answer again(const rmem_head& h, const Ranges& ranges, const Bytes& data) {
        Bytes all = payload(ranges, data);
        return node.request(client, h, &all);
    }
    Bytes readv(const Ranges& ranges) {
        rmem_head h = head(RMEM_READV, ranges);
        Bytes all = payload(ranges);
        rmem_answer answer = node.request(client, h, &all);
        EXPECT_EQ(answer.reason, RMEM_NODE_OK);
        EXPECT_EQ(answer.reply.status, RMEM_OK);
        EXPECT_EQ(answer.reply.op, h.op);
        EXPECT_EQ(rmem_wire_payload_bytes(&answer.reply), h.len);
        EXPECT_EQ(all.size(), h.len);
        return all;
    }
    // Either way, and nothing has changed. A range that is good is before, behind, or is not.
    void cant_be(const Ranges& bad, rmem_node_reason reason, uint8_t status) {
        const Range good = {addr, 8};
        for (int around = 0; around < 4; around++) {
            Ranges ranges = bad;
            if (around & 1)
                ranges.insert(ranges.begin(), good);
            if (around & 2)
                ranges.push_back(good);
            for (uint8_t type : {RMEM_READV, RMEM_WRITEV})
                cant_be_so(type, ranges, reason, status);
        }
    }
    void cant_be_so(uint8_t type, const Ranges& ranges, rmem_node_reason reason, uint8_t status) {
        Bytes data = type == RMEM_WRITEV ? filled(sum(ranges) % 10000, 0xee) : Bytes();
        refused_with(client, head(type, ranges), reason, status, payload(ranges, data));
    }
};

TEST_F(Vectors, ReadAndWriteManyRanges) {
    Ranges ranges;
    for (uint64_t i = 0; i < RMEM_RANGES_MAX; i++)
        ranges.push_back({addr + i % 8 * page + i * 100, 1 + i % 23});
    Bytes data = counted(sum(ranges));
    EXPECT_EQ(readv(ranges), filled(data.size(), 0)) << "never written";
    EXPECT_EQ(node.usage().pages_backed, 0u) << "what is read gets no page";
    rmem_answer answer = writev(ranges, data);
    EXPECT_EQ(answer.reason, RMEM_NODE_OK);
    EXPECT_EQ(answer.reply.status, RMEM_OK);
    EXPECT_EQ(rmem_wire_payload_bytes(&answer.reply), 0u);
    EXPECT_EQ(readv(ranges), data);
    size_t at = 0;
    for (const Range& range : ranges) {
        Bytes expected(data.begin() + at, data.begin() + at + range.bytes);
        EXPECT_EQ(node.read(client, range.addr, range.bytes), expected);
        at += range.bytes;
    }
    EXPECT_EQ(node.usage().pages_backed, 8u);
}

TEST_F(Vectors, RangesMayCrossPages) {
    Ranges ranges = {{addr + page - 3, 8}, {addr + 3 * page - 1, 2}, {addr + 5 * page, 1}};
    Bytes data = counted(11);
    EXPECT_EQ(writev(ranges, data).reason, RMEM_NODE_OK);
    EXPECT_EQ(readv(ranges), data);
    EXPECT_EQ(node.read(client, addr + page - 4, 10), (Bytes{0, 1, 2, 3, 4, 5, 6, 7, 8, 0}));
    EXPECT_EQ(readv({{addr + 5 * page - 1, 2}}), (Bytes{0, 11})) << "half of it never written";
}

TEST_F(Vectors, AreWrittenInTheirOrder) {
    EXPECT_EQ(writev({{addr, 4}, {addr + 2, 4}, {addr + 3, 1}}, counted(9)).reason, RMEM_NODE_OK);
    EXPECT_EQ(node.read(client, addr, 7), (Bytes{1, 2, 5, 9, 7, 8, 0}));
    EXPECT_EQ(readv({{addr + 2, 2}, {addr, 3}, {addr + 2, 1}}), (Bytes{5, 9, 1, 2, 5, 5}));
}

TEST_F(Vectors, TakeAsManyBytesAsAPacket) {
    uint32_t piece = node.core.config.piece_bytes;
    Ranges most = {{addr + 100, 1000}, {addr + page, piece - 2 * sizeof(rmem_range) - 1000}};
    Bytes data = counted(sum(most));
    EXPECT_EQ(writev(most, data).reason, RMEM_NODE_OK);
    EXPECT_EQ(readv(most), data);
    EXPECT_EQ(readv({{addr + 100, 1000}, {addr, piece - 1000}}).size(), piece);
    most[1].bytes++;
    cant_be_so(RMEM_WRITEV, most, RMEM_NODE_LENGTH, RMEM_INVALID);
    cant_be_so(RMEM_READV, {{addr, piece}, {addr, 1}}, RMEM_NODE_LENGTH, RMEM_INVALID);
    cant_be_so(RMEM_READV, {{addr, piece + 1}}, RMEM_NODE_LENGTH, RMEM_INVALID);
}

TEST_F(Vectors, RefuseAllWhereOneIsWrong) {
    uint64_t fixed = node.alloc(client, page, 0, RMEM_PERM_READ);
    node.read(client, addr, 1);
    const Range none = {addr, 0}, round = {~0ull - 3, 5}, huge = {addr, 1ull << 32 | 1};
    for (const Range& wrong : {none, round, huge})
        cant_be({wrong}, RMEM_NODE_LENGTH, RMEM_INVALID);
    for (uint64_t nowhere : {uint64_t{0}, addr - 1, addr + 8 * page - 1, fixed + page})
        cant_be({{nowhere, 2}}, RMEM_NODE_FAULT, RMEM_FAULT);
    cant_be({{0, 1}, none}, RMEM_NODE_LENGTH, RMEM_INVALID);
    cant_be_so(RMEM_WRITEV, {{addr, 8}, {fixed, 8}}, RMEM_NODE_PERM, RMEM_PERM);
    cant_be_so(RMEM_WRITEV, {{fixed, 8}, {addr, 8}}, RMEM_NODE_PERM, RMEM_PERM);
    EXPECT_EQ(readv({{addr, 8}, {fixed, 8}}), filled(16, 0));
    EXPECT_EQ(node.usage().pages_backed, 0u) << "not even a page was taken";
}

TEST_F(Vectors, LengthsHaveToAddUp) {
    const Ranges ranges = {{addr, 8}, {addr + 64, 8}};
    for (uint8_t type : {RMEM_READV, RMEM_WRITEV}) {
        for (uint32_t len : {0u, 8u, 15u, 17u, 4096u, ~0u}) {
            rmem_head h = head(type, ranges);
            h.len = len;
            refused_with(client, h, RMEM_NODE_LENGTH, RMEM_INVALID,
                         payload(ranges, filled(len % 5000, 1)));
        }
        rmem_head h = head(type, ranges);
        h.addr = addr;
        refused_with(client, h, RMEM_NODE_LENGTH, RMEM_INVALID, payload(ranges, filled(16, 1)));
    }
}

TEST_F(Vectors, ACopyOfAWriteChangesNothing) {
    const Ranges ranges = {{addr, 1}, {addr + page, 1}};
    rmem_head first = head(RMEM_WRITEV, ranges);
    EXPECT_EQ(again(first, ranges, {1, 2}).reason, RMEM_NODE_OK);
    node.write(client, addr, {7});
    rmem_answer copy = again(first, ranges, {1, 2});
    EXPECT_EQ(copy.reason, RMEM_NODE_REPEATED);
    EXPECT_EQ(copy.action, RMEM_ACT_REPLY);
    EXPECT_EQ(copy.reply.status, RMEM_OK);
    EXPECT_EQ(readv(ranges), (Bytes{7, 2}));
    client.floor = client.next_id;
    node.write(client, addr + 8, {1});
    refused_with(client, first, RMEM_NODE_STALE, RMEM_STALE, payload(ranges, {1, 2}));
}

// A READV changes nothing, so it needs no place in the window.
TEST_F(Vectors, ACopyOfAReadIsReadAgain) {
    const Ranges ranges = {{addr, 1}, {addr + 1, 1}};
    rmem_head h = head(RMEM_READV, ranges);
    h.id += 3 * RMEM_WINDOW;
    for (uint8_t value : {1, 2}) {
        node.write(client, addr, {value});
        Bytes all = payload(ranges);
        EXPECT_EQ(node.request(client, h, &all).reason, RMEM_NODE_OK);
        EXPECT_EQ(all, (Bytes{value, 0}));
    }
}

TEST_F(Vectors, OfARegionThatCameLaterStayRefused) {
    uint64_t place = node.core.spaces.slot[0].spans.at[0].end * page;
    const Ranges ranges = {{addr, 1}, {place, 1}};
    rmem_head late = head(RMEM_WRITEV, ranges);
    EXPECT_EQ(again(late, ranges, {1, 2}).reply.status, RMEM_FAULT);
    ASSERT_EQ(node.alloc(client, page), place);
    EXPECT_EQ(again(late, ranges, {1, 2}).reply.status, RMEM_FAULT);
    EXPECT_EQ(readv(ranges), filled(2, 0));
}

using VectorsFromASmallPool = SmallPool;

// Until all pages are there nothing is written; those that are stay, or it would never get them.
TEST_F(VectorsFromASmallPool, GetAllTheirPages) {
    Ranges ranges;
    for (uint64_t i = 0; i < 8; i++)
        ranges.push_back({addr + i * page, 1});
    rmem_head h = client.head(RMEM_WRITEV, 0, 8);
    h.op = 8;
    Bytes all = payload(ranges, counted(8));
    int busy = 0;
    while (node.request(client, h, &all).reply.status == RMEM_BUSY) {
        ASSERT_LT(++busy, 9);
        EXPECT_EQ(node.read(client, addr, 1), Bytes{0});
        node.refill();
    }
    EXPECT_GE(busy, 4);
    for (uint64_t i = 0; i < 8; i++)
        EXPECT_EQ(node.read(client, addr + i * page, 1), Bytes{static_cast<uint8_t>(1 + i)});
    EXPECT_EQ(node.usage().pages_backed, 8u);
}

// Between the check and the copying somebody else may give the page back, or the region.
TEST_F(Vectors, RangeFreedMeanwhileHasNoPage) {
    const Ranges ranges = {{addr, 4}};
    ASSERT_EQ(writev(ranges, counted(4)).reason, RMEM_NODE_OK);
    for (uint8_t type : {RMEM_READV, RMEM_WRITEV}) {
        rmem_head h = head(type, ranges);
        Bytes all = payload(ranges, counted(type == RMEM_WRITEV ? 4 : 0));
        rmem_answer answer{};
        rmem_node_request(&node.core, 1, &h, all.data(), &client.peer, &answer);
        EXPECT_EQ(answer.action, type == RMEM_READV ? RMEM_ACT_GATHER : RMEM_ACT_SCATTER);
        EXPECT_EQ(node.request(client, client.head(RMEM_DISCARD, addr, page)).reason, RMEM_NODE_OK);
        EXPECT_TRUE(rmem_node_range(&node.core, all.data(), 0, &answer));
        ASSERT_EQ(answer.extents, 1u);
        EXPECT_EQ(answer.extent[0].page, RMEM_PAGE_NONE);
        EXPECT_EQ(answer.extent[0].bytes, 4u);
        if (type == RMEM_READV)
            continue;
        node.free(client, addr, 8 * page);
        EXPECT_FALSE(rmem_node_range(&node.core, all.data(), 0, &answer));
        ASSERT_EQ(answer.extents, 1u);
        EXPECT_EQ(answer.extent[0].page, RMEM_PAGE_NONE);
    }
}

} // namespace
