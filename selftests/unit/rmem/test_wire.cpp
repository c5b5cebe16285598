// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstring>

#include "wire_rig.hpp"

namespace {

using namespace wire;

TEST(Wire, LayoutIsTheHeadersOne) {
    base_siphash_key key = test_key();
    Message m = message(RMEM_READ, RMEM_LINK, key, 0x61626364);
    const uint8_t expect[] = {
        1,    0,    1,    0,                            // version flags messages reserved
        0x04, 0x03, 0x02, 0x01,                         // space
        0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, // session
        0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // boot
        0x00, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, // floor
        0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41, // number
    };
    const uint8_t expect_msg[] = {
        5,    0,    200,  0,    0x64, 0x63, 0x62, 0x61, // type status attempt op len
        0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, // id
        0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51, // addr
        0x00, 0x10, 0,    0,    0,    0,    0,    0,    // part digest
    };
    static_assert(sizeof(expect) == RMEM_TAGGED_BYTES && sizeof(expect_msg) == RMEM_MSG_BYTES);
    EXPECT_EQ(std::memcmp(&m.heads.hdr, expect, sizeof(expect)), 0);
    EXPECT_EQ(std::memcmp(&m.heads.msg, expect_msg, sizeof(expect_msg)), 0);
    Bytes tagged =
        followed_by(Bytes(expect_msg, std::end(expect_msg)), Bytes(expect, std::end(expect)));
    EXPECT_EQ(base_load_le64(m.heads.hdr.tag), base_siphash(&key, tagged.data(), tagged.size()));
}

// Payload, then heads, then header.
TEST(Wire, TagIsOverThePayloadFirst) {
    base_siphash_key key = test_key();
    Message m = message(RMEM_WRITE, RMEM_FULL, key, 50);
    Bytes tagged =
        followed_by(followed_by(m.payload, bytes_of(m.heads.msg)), bytes_of(m.heads.hdr));
    tagged.resize(tagged.size() - sizeof(m.heads.hdr.tag));
    EXPECT_EQ(base_load_le64(m.heads.hdr.tag), base_siphash(&key, tagged.data(), tagged.size()));
}

TEST(Wire, EveryBuiltMessageVerifiesAndDecodes) {
    base_siphash_key key = test_key();
    for (uint8_t request : requests) {
        for (uint8_t direction : {0, RMEM_RESPONSE}) {
            for (uint8_t level : {RMEM_LINK, RMEM_DIGEST, RMEM_FULL}) {
                Message m = message(request | direction, level, key);
                rmem_datagram in;
                ASSERT_EQ(
                    rmem_datagram_open(&in, m.bytes().data(), m.bytes().size(), direction != 0),
                    RMEM_WIRE_GOOD);
                const rmem_head& parsed = in.head;
                EXPECT_EQ(m.verify(key), RMEM_WIRE_GOOD) << int(request) << " " << int(level);
                EXPECT_EQ(parsed.type, m.head.type);
                EXPECT_EQ(parsed.integrity, level);
                EXPECT_EQ(parsed.space, m.head.space);
                EXPECT_EQ(parsed.session, m.head.session);
                EXPECT_EQ(parsed.boot, m.head.boot);
                EXPECT_EQ(parsed.id, m.head.id);
                EXPECT_EQ(parsed.floor, m.head.floor);
                EXPECT_EQ(parsed.number, m.head.number);
                EXPECT_EQ(parsed.addr, m.head.addr);
                EXPECT_EQ(parsed.len, m.head.len);
                EXPECT_EQ(parsed.offset, m.head.offset);
                EXPECT_EQ(parsed.piece, m.head.piece);
                EXPECT_EQ(parsed.attempt, m.head.attempt);
                EXPECT_EQ(parsed.digest, m.head.digest);
            }
        }
    }
}

TEST(Wire, EveryBitOfTheHeadsIsCovered) {
    base_siphash_key key = test_key();
    for (uint8_t level : {RMEM_LINK, RMEM_DIGEST, RMEM_FULL}) {
        for (size_t bit = 0; bit < 8 * sizeof(Heads); bit++) {
            Message m = message(RMEM_WRITE, level, key);
            reinterpret_cast<uint8_t*>(&m.heads)[bit / 8] ^= 1 << (bit % 8);
            rmem_wire_verdict verdict = m.verify(key);
            EXPECT_NE(verdict, RMEM_WIRE_GOOD) << "bit " << bit;
            EXPECT_NE(verdict, RMEM_WIRE_DAMAGED) << "bit " << bit;
        }
    }
    base_siphash_key other = test_key(9);
    EXPECT_EQ(message(RMEM_WRITE, RMEM_FULL, key).verify(other), RMEM_WIRE_TAG);
}

TEST(Wire, DamagedPayloadByLevel) {
    base_siphash_key key = test_key();
    auto damaged = [&](uint8_t type, uint8_t level) {
        Message m = message(type, level, key);
        m.payload[m.payload.size() / 2] ^= 4;
        return m.verify(key);
    };
    // Of a WRITEV the half is behind the ranges.
    for (uint8_t type :
         {RMEM_WRITE + 0, RMEM_READ | RMEM_RESPONSE, RMEM_READV | RMEM_RESPONSE, RMEM_WRITEV + 0}) {
        EXPECT_EQ(damaged(type, RMEM_LINK), RMEM_WIRE_GOOD); // the UDP checksum's business
        EXPECT_EQ(damaged(type, RMEM_DIGEST), RMEM_WIRE_DAMAGED);
        EXPECT_EQ(damaged(type, RMEM_FULL), RMEM_WIRE_TAG);
    }
    for (uint8_t type : {RMEM_OPEN + 0, RMEM_ALLOC + 0, RMEM_FREE + 0, RMEM_ALLOC | RMEM_RESPONSE,
                         RMEM_PUT + 0, RMEM_PUT | RMEM_RESPONSE, RMEM_READV + 0, RMEM_COPY + 0})
        for (uint8_t level : {RMEM_LINK, RMEM_DIGEST, RMEM_FULL})
            EXPECT_EQ(damaged(type, level), RMEM_WIRE_TAG);
}

TEST(Wire, PayloadOfAnotherLength) {
    base_siphash_key key = test_key();
    for (uint8_t level : {RMEM_LINK, RMEM_DIGEST, RMEM_FULL}) {
        Message m = message(RMEM_WRITE, level, key);
        m.payload.pop_back();
        EXPECT_EQ(m.verify(key), RMEM_WIRE_MALFORMED);
        m = message(RMEM_READ, level, key);
        m.payload.push_back(1);
        EXPECT_EQ(m.verify(key), RMEM_WIRE_MALFORMED);
    }
}

// Its length of the data is no length that could be added up to a small one.
TEST(Wire, PutOfAnyLength) {
    base_siphash_key key = test_key();
    rmem_head head{};
    head.type = RMEM_PUT;
    for (uint32_t bytes : {0u, 1u, 1400u, RMEM_PIECE_BYTES_MAX}) {
        head.len = bytes;
        EXPECT_EQ(rmem_wire_payload_bytes(&head), sizeof(rmem_put) + bytes);
    }
    for (uint32_t bytes : {RMEM_PIECE_BYTES_MAX + 1, ~0u - 23, ~0u - 22, ~0u}) {
        head.len = bytes;
        EXPECT_GT(rmem_wire_payload_bytes(&head), RMEM_PIECE_BYTES_MAX);
    }
    Message m = message(RMEM_PUT, RMEM_DIGEST, key, 10);
    EXPECT_EQ(m.head.digest, 0u);
    m.payload.back() ^= 1;
    EXPECT_EQ(m.verify(key), RMEM_WIRE_TAG);
}

// Their heads say of both, ranges and data, how many there are.
TEST(Wire, VectorsOfAnyLength) {
    rmem_head head{};
    for (uint8_t ranges : {uint8_t{1}, uint8_t{RMEM_RANGES_MAX}}) {
        head.op = ranges;
        for (uint32_t bytes : {1u, 1400u, RMEM_PIECE_BYTES_MAX, ~0u}) {
            head.len = bytes;
            head.type = RMEM_READV;
            EXPECT_EQ(rmem_wire_payload_bytes(&head), ranges * sizeof(rmem_range));
            EXPECT_EQ(rmem_wire_work_bytes(&head), bytes);
            head.type = RMEM_WRITEV;
            if (bytes <= RMEM_PIECE_BYTES_MAX)
                EXPECT_EQ(rmem_wire_payload_bytes(&head), ranges * sizeof(rmem_range) + bytes);
            else
                EXPECT_GT(rmem_wire_payload_bytes(&head), RMEM_PIECE_BYTES_MAX);
            EXPECT_EQ(rmem_wire_work_bytes(&head), 0u);
            head.type = RMEM_READV | RMEM_RESPONSE;
            EXPECT_EQ(rmem_wire_payload_bytes(&head), bytes);
            head.type = RMEM_WRITEV | RMEM_RESPONSE;
            EXPECT_EQ(rmem_wire_payload_bytes(&head), 0u);
        }
    }
}

// Ranges are addresses, so at every level the tag covers them as the header is.
TEST(Wire, RangesAreTagged) {
    base_siphash_key key = test_key();
    for (uint8_t type : {RMEM_READV, RMEM_WRITEV}) {
        for (uint8_t level : {RMEM_LINK, RMEM_DIGEST, RMEM_FULL}) {
            for (size_t at = 0; at < 3 * sizeof(rmem_range); at++) {
                Message m = message(type, level, key, 48);
                m.payload[at] ^= 0x10;
                EXPECT_EQ(m.verify(key), RMEM_WIRE_TAG) << at;
            }
            // A range less, and its bytes as data.
            Message m = message(type, level, key, 48);
            m.heads.msg.op = 2;
            m.heads.msg.len = type == RMEM_WRITEV ? 48 + sizeof(rmem_range) : 48;
            m.payload.resize(type == RMEM_WRITEV ? m.payload.size() : 2 * sizeof(rmem_range));
            EXPECT_EQ(m.verify(key), RMEM_WIRE_TAG);
        }
    }
}

TEST(Wire, Form) {
    base_siphash_key key = test_key();
    Message m = message(RMEM_WRITE, RMEM_LINK, key);
    rmem_datagram in;
    for (uint32_t bytes :
         {0u, 1u, RMEM_HDR_BYTES - 1u, RMEM_HDR_BYTES + 0u, RMEM_HEADS_BYTES(1) - 1u})
        EXPECT_EQ(rmem_datagram_open(&in, &m.heads, bytes, false), RMEM_WIRE_SHORT);
    EXPECT_EQ(m.parse(true), RMEM_WIRE_TYPE);
    auto changed = [&](uint8_t type, auto change, bool response = false) {
        Message c = message(type, RMEM_LINK, key);
        change(c.heads.hdr, c.heads.msg);
        return c.parse(response);
    };
    auto write = [&](auto change) { return changed(RMEM_WRITE, change); };
    EXPECT_EQ(write([](auto& h, auto&) { h.version = 2; }), RMEM_WIRE_VERSION);
    EXPECT_EQ(write([](auto&, auto& g) { g.type = 0; }), RMEM_WIRE_TYPE);
    EXPECT_EQ(write([](auto&, auto& g) { g.type = RMEM_TYPE_END; }), RMEM_WIRE_TYPE);
    EXPECT_EQ(write([](auto& h, auto&) { h.flags = 4; }), RMEM_WIRE_GOOD);
    EXPECT_EQ(write([](auto& h, auto&) { h.flags = 8; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h, auto&) { h.flags = 3; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h, auto&) { h.messages = 0; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h, auto&) { h.reserved = 1; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto&, auto& g) { g.op = 1; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(changed(RMEM_ATOMIC, [](auto&, auto& g) { g.op = 0; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(changed(RMEM_PUT, [](auto&, auto& g) { g.op = 0; }), RMEM_WIRE_MALFORMED);
    for (uint8_t type : {RMEM_READV, RMEM_WRITEV}) {
        EXPECT_EQ(changed(type, [](auto&, auto& g) { g.op = 0; }), RMEM_WIRE_MALFORMED);
        EXPECT_EQ(changed(type, [](auto&, auto& g) { g.op = RMEM_RANGES_MAX + 1; }),
                  RMEM_WIRE_MALFORMED);
        EXPECT_EQ(changed(type, [](auto&, auto& g) { g.part = 1024; }), RMEM_WIRE_MALFORMED);
    }
    EXPECT_EQ(changed(RMEM_READ, [](auto&, auto& g) { g.part = 0xffff; }), RMEM_WIRE_GOOD);
    EXPECT_EQ(changed(RMEM_READ, [](auto&, auto& g) { g.part = 0x10000; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto&, auto& g) { g.status = 1; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto&, auto& g) { g.part = 1; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h, auto&) { h.space = 0; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h, auto&) { h.session = 0; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h, auto&) { h.boot = 0; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h, auto& g) { g.id = h.floor = 0; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h, auto&) { h.floor = ~0ull; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(changed(RMEM_OPEN, [](auto& h, auto&) { h.session = 1; }), RMEM_WIRE_GOOD);
    EXPECT_EQ(changed(RMEM_OPEN, [](auto& h, auto&) { h.boot = 1; }), RMEM_WIRE_MALFORMED);
    auto answer = [&](auto change) { return changed(RMEM_WRITE | RMEM_RESPONSE, change, true); };
    EXPECT_EQ(answer([](auto&, auto& g) { g.status = RMEM_STATUS_COUNT; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(answer([](auto& h, auto&) { h.boot = 0; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(answer([](auto& h, auto&) { h.floor = 1; }), RMEM_WIRE_MALFORMED);
}

TEST(Wire, OnlyGoodResponsesCarryPayload) {
    rmem_head head{};
    for (uint8_t request : requests) {
        head.type = request | RMEM_RESPONSE;
        head.len = 100;
        for (uint8_t status = RMEM_OK + 1; status < RMEM_STATUS_COUNT; status++) {
            head.status = status;
            EXPECT_EQ(rmem_wire_payload_bytes(&head), 0u);
        }
    }
}

} // namespace
