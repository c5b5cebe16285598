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
        1,    5,    0,    0,                            // version type flags status
        0x04, 0x03, 0x02, 0x01,                         // space
        0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, // session
        0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // boot
        0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, // id
        0x00, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, // floor
        0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51, // addr
        0x64, 0x63, 0x62, 0x61, 0,    0,    0,    0,    // len offset
        0x00, 0x10, 200,  0,    0,    0,    0,    0,    // piece attempt op digest
    };
    static_assert(sizeof(expect) == RMEM_TAGGED_BYTES);
    EXPECT_EQ(std::memcmp(m.hdr, expect, sizeof(expect)), 0);
    EXPECT_EQ(base_load_le64(m.hdr + RMEM_TAGGED_BYTES),
              base_siphash(&key, m.hdr, RMEM_TAGGED_BYTES));
}

TEST(Wire, WhatIsBuiltVerifiesAndDecodes) {
    base_siphash_key key = test_key();
    for (uint8_t request : requests) {
        for (uint8_t direction : {0, RMEM_RESPONSE}) {
            for (uint8_t level : {RMEM_LINK, RMEM_DIGEST, RMEM_FULL}) {
                Message m = message(request | direction, level, key);
                rmem_head parsed{};
                ASSERT_EQ(rmem_wire_parse(m.hdr, sizeof(m.hdr), direction, &parsed),
                          RMEM_WIRE_GOOD);
                EXPECT_EQ(m.verify(key), RMEM_WIRE_GOOD) << int(request) << " " << int(level);
                EXPECT_EQ(parsed.type, m.head.type);
                EXPECT_EQ(parsed.integrity, level);
                EXPECT_EQ(parsed.space, m.head.space);
                EXPECT_EQ(parsed.session, m.head.session);
                EXPECT_EQ(parsed.boot, m.head.boot);
                EXPECT_EQ(parsed.id, m.head.id);
                EXPECT_EQ(parsed.floor, m.head.floor);
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

TEST(Wire, EveryHeaderBitIsCovered) {
    base_siphash_key key = test_key();
    for (uint8_t level : {RMEM_LINK, RMEM_DIGEST, RMEM_FULL}) {
        for (size_t bit = 0; bit < 8 * RMEM_HDR_BYTES; bit++) {
            Message m = message(RMEM_WRITE, level, key);
            m.hdr[bit / 8] ^= 1 << (bit % 8);
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
                         RMEM_PUT + 0, RMEM_PUT | RMEM_RESPONSE, RMEM_READV + 0})
        for (uint8_t level : {RMEM_LINK, RMEM_DIGEST, RMEM_FULL})
            EXPECT_EQ(damaged(type, level), RMEM_WIRE_TAG);
}

TEST(Wire, PayloadOfAnotherLength) {
    base_siphash_key key = test_key();
    Message m = message(RMEM_WRITE, RMEM_LINK, key);
    m.payload.pop_back();
    EXPECT_EQ(m.verify(key), RMEM_WIRE_DAMAGED);
    m = message(RMEM_READ, RMEM_LINK, key);
    m.payload.push_back(1);
    EXPECT_EQ(m.verify(key), RMEM_WIRE_DAMAGED);
    m = message(RMEM_WRITE, RMEM_FULL, key);
    m.payload.push_back(1);
    EXPECT_EQ(m.verify(key), RMEM_WIRE_TAG);
}

// What it says of its data is no length that could be added up to a small one.
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
    m.payload.pop_back();
    EXPECT_EQ(m.verify(key), RMEM_WIRE_TAG);
}

// Their headers say of both, ranges and data, how many there are.
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

// They are addresses, so whatever the level, they are covered as the header is.
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
            m.hdr[offsetof(rmem_hdr, op)] = 2;
            EXPECT_EQ(m.verify(key), RMEM_WIRE_TAG);
            m = message(type, level, key, 48);
            m.payload.resize(20);
            EXPECT_EQ(m.verify(key), RMEM_WIRE_TAG) << "not even the ranges are there";
        }
    }
}

TEST(Wire, Form) {
    base_siphash_key key = test_key();
    rmem_head parsed;
    Message m = message(RMEM_WRITE, RMEM_LINK, key);
    EXPECT_EQ(rmem_wire_parse(m.hdr, RMEM_HDR_BYTES - 1, false, &parsed), RMEM_WIRE_SHORT);
    EXPECT_EQ(rmem_wire_parse(m.hdr, 0, false, &parsed), RMEM_WIRE_SHORT);
    EXPECT_EQ(m.parse(true), RMEM_WIRE_TYPE);
    auto changed = [&](uint8_t type, auto change, bool response = false) {
        Message c = message(type, RMEM_LINK, key);
        change(*reinterpret_cast<rmem_hdr*>(c.hdr));
        return c.parse(response);
    };
    auto write = [&](auto change) { return changed(RMEM_WRITE, change); };
    EXPECT_EQ(write([](auto& h) { h.version = 2; }), RMEM_WIRE_VERSION);
    EXPECT_EQ(write([](auto& h) { h.type = 0; }), RMEM_WIRE_TYPE);
    EXPECT_EQ(write([](auto& h) { h.type = RMEM_TYPE_END; }), RMEM_WIRE_TYPE);
    EXPECT_EQ(write([](auto& h) { h.flags = 4; }), RMEM_WIRE_GOOD);
    EXPECT_EQ(write([](auto& h) { h.flags = 8; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.flags = 3; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.op = 1; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(changed(RMEM_ATOMIC, [](auto& h) { h.op = 0; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(changed(RMEM_PUT, [](auto& h) { h.op = 0; }), RMEM_WIRE_MALFORMED);
    for (uint8_t type : {RMEM_READV, RMEM_WRITEV}) {
        EXPECT_EQ(changed(type, [](auto& h) { h.op = 0; }), RMEM_WIRE_MALFORMED);
        EXPECT_EQ(changed(type, [](auto& h) { h.op = RMEM_RANGES_MAX; }), RMEM_WIRE_GOOD);
        EXPECT_EQ(changed(type, [](auto& h) { h.op = RMEM_RANGES_MAX + 1; }), RMEM_WIRE_MALFORMED);
        EXPECT_EQ(changed(type, [](auto& h) { h.piece = 1024; }), RMEM_WIRE_MALFORMED);
    }
    EXPECT_EQ(write([](auto& h) { h.status = 1; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.offset = 1; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.piece = 1; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.space = 0; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.session = 0; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.boot = 0; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.id = h.floor = 0; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.floor = ~0ull; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(changed(RMEM_OPEN, [](auto& h) { h.session = 1; }), RMEM_WIRE_GOOD);
    EXPECT_EQ(changed(RMEM_OPEN, [](auto& h) { h.boot = 1; }), RMEM_WIRE_MALFORMED);
    const uint8_t response = RMEM_WRITE | RMEM_RESPONSE;
    EXPECT_EQ(changed(
                  response, [](auto& h) { h.status = RMEM_STATUS_COUNT; }, true),
              RMEM_WIRE_MALFORMED);
    EXPECT_EQ(changed(
                  response, [](auto& h) { h.boot = 0; }, true),
              RMEM_WIRE_MALFORMED);
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
