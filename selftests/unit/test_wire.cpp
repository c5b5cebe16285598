// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "node_rig.hpp"

namespace {

using Bytes = std::vector<uint8_t>;

struct Message {
    rmem_head head{};
    uint8_t hdr[RMEM_HDR_BYTES];
    Bytes payload;

    rmem_wire_verdict parse(bool response = false) {
        rmem_head parsed;
        return rmem_wire_parse(hdr, sizeof(hdr), response, &parsed);
    }
    rmem_wire_verdict verify(const base_siphash_key& key) {
        rmem_head parsed;
        bool response = hdr[1] & RMEM_RESPONSE;
        rmem_wire_verdict verdict = rmem_wire_parse(hdr, sizeof(hdr), response, &parsed);
        if (verdict != RMEM_WIRE_GOOD)
            return verdict;
        return rmem_wire_verify(hdr, &parsed, &key, payload.data(), payload.size());
    }
};

base_siphash_key test_key(uint8_t first = 1) {
    uint8_t bytes[BASE_SIPHASH_KEY_BYTES] = {first, 2, 3};
    base_siphash_key key;
    base_crc32c_setup();
    base_siphash_key_load(&key, bytes);
    return key;
}

Message message(uint8_t type, uint8_t integrity, const base_siphash_key& key, size_t bytes = 64) {
    Message m;
    m.head.type = type;
    m.head.integrity = integrity;
    m.head.attempt = 200;
    m.head.space = 0x01020304;
    m.head.session = 0x1112131415161718;
    m.head.boot = 0x2122232425262728;
    m.head.id = 0x3132333435363738;
    m.head.addr = 0x5152535455565758;
    m.head.len = bytes;
    if (type == RMEM_OPEN)
        m.head.session = m.head.boot = 0;
    if (!(type & RMEM_RESPONSE))
        m.head.floor = 0x3132333435363700;
    if (type == RMEM_READ)
        m.head.piece = 4096;
    if (type == (RMEM_READ | RMEM_RESPONSE))
        m.head.offset = 4096;
    m.payload.resize(rmem_wire_payload_bytes(&m.head));
    std::iota(m.payload.begin(), m.payload.end(), 1);
    rmem_wire_build(m.hdr, &m.head, &key, m.payload.data(), m.payload.size());
    return m;
}

const uint8_t requests[] = {RMEM_OPEN, RMEM_CLOSE, RMEM_ALLOC,   RMEM_FREE,
                            RMEM_READ, RMEM_WRITE, RMEM_DISCARD, RMEM_ZERO};

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
        0x00, 0x10, 200,  0,    0,    0,    0,    0,    // piece attempt reserved digest
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
    for (uint8_t type : {RMEM_WRITE + 0, RMEM_READ | RMEM_RESPONSE}) {
        EXPECT_EQ(damaged(type, RMEM_LINK), RMEM_WIRE_GOOD); // the UDP checksum's business
        EXPECT_EQ(damaged(type, RMEM_DIGEST), RMEM_WIRE_DAMAGED);
        EXPECT_EQ(damaged(type, RMEM_FULL), RMEM_WIRE_TAG);
    }
    for (uint8_t type : {RMEM_OPEN + 0, RMEM_ALLOC + 0, RMEM_FREE + 0, RMEM_ALLOC | RMEM_RESPONSE})
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
    EXPECT_EQ(write([](auto& h) { h.type = 9; }), RMEM_WIRE_TYPE);
    EXPECT_EQ(write([](auto& h) { h.flags = 4; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.flags = 3; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.reserved = 1; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.status = 1; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.offset = 1; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.piece = 1; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.space = 0; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.session = 0; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.boot = 0; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.id = h.floor = 0; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(write([](auto& h) { h.floor = ~0ull; }), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(changed(RMEM_OPEN, [](auto& h) { h.session = 1; }), RMEM_WIRE_MALFORMED);
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

// ---- several in a datagram ----

Bytes datagram(const std::vector<Message>& messages) {
    Bytes bytes;
    for (const Message& m : messages)
        bytes.insert(bytes.end(), m.hdr, m.hdr + sizeof(m.hdr));
    for (const Message& m : messages)
        bytes.insert(bytes.end(), m.payload.begin(), m.payload.end());
    return bytes;
}

struct Counted : rmem_bundle {
    explicit Counted(const Bytes& bytes, bool response = false) : rmem_bundle() {
        uint32_t at = 0;
        bool more;
        do {
            EXPECT_LE(at + RMEM_HDR_BYTES, bytes.size()) << "a header outside is asked for";
            more =
                rmem_wire_count(this, bytes.data() + at, bytes.size(), response, &first, &verdict);
            at += RMEM_HDR_BYTES;
            EXPECT_EQ(messages * RMEM_HDR_BYTES, more ? at : messages * RMEM_HDR_BYTES);
        } while (more);
    }
    rmem_head first{};
    rmem_wire_verdict verdict = RMEM_WIRE_SHORT;
};

void expect_count(const Bytes& bytes, uint32_t messages, bool even, const std::string& what) {
    Counted c(bytes);
    EXPECT_EQ(c.verdict, RMEM_WIRE_GOOD) << what;
    EXPECT_EQ(c.messages, messages) << what;
    EXPECT_EQ(c.even, even) << what;
}

struct Count : testing::Test {
    base_siphash_key key = test_key();
    Message read = message(RMEM_READ, RMEM_DIGEST, key, 4096);
    Message zero = message(RMEM_ZERO, RMEM_DIGEST, key, 4096);

    Message write(uint32_t bytes) { return message(RMEM_WRITE, RMEM_DIGEST, key, bytes); }

    // The header with fields changed; the payload stays.
    Message changed(Message m, const std::function<void(rmem_hdr&)>& change) {
        change(*reinterpret_cast<rmem_hdr*>(m.hdr));
        return m;
    }
};

TEST_F(Count, OneMessage) {
    for (uint8_t type : requests)
        expect_count(datagram({message(type, RMEM_FULL, key)}), 1, true, std::to_string(type));
    for (uint32_t bytes : {1u, 71u, 72u, 1400u, RMEM_PIECE_BYTES_MAX}) {
        Bytes whole = datagram({write(bytes)});
        expect_count(whole, 1, true, "whole");
        for (uint32_t left : {0u, bytes / 2, bytes - 1})
            expect_count(Bytes(whole.begin(), whole.begin() + RMEM_HDR_BYTES + left), 1, false,
                         "short");
        for (uint32_t junk : {1u, 71u, 72u, 144u, 5000u}) {
            Bytes more = whole;
            more.resize(whole.size() + junk);
            expect_count(more, 1, false, "junk behind it");
        }
    }
}

TEST_F(Count, FirstHeaderIsTheVerdict) {
    EXPECT_EQ(Counted(datagram({changed(read, [](auto& h) { h.version = 2; }), read})).verdict,
              RMEM_WIRE_VERSION);
    EXPECT_EQ(Counted(datagram({changed(read, [](auto& h) { h.type = 9; })})).verdict,
              RMEM_WIRE_TYPE);
    Counted c(datagram({changed(read, [](auto& h) { h.id = 0; }), read}));
    EXPECT_EQ(c.verdict, RMEM_WIRE_MALFORMED);
    EXPECT_EQ(c.messages, 0u);
    EXPECT_FALSE(c.even);
}

TEST_F(Count, PayloadsAddUp) {
    Counted c(datagram({read, write(100), zero, write(1), read, write(4000)}));
    EXPECT_EQ(c.messages, 6u);
    EXPECT_TRUE(c.even);
    EXPECT_EQ(c.payload_bytes, 4101u);
    EXPECT_EQ(c.first.type, RMEM_READ);
    Counted d(datagram({write(7), message(RMEM_DISCARD, RMEM_DIGEST, key)}));
    EXPECT_EQ(d.first.type, RMEM_WRITE);
    EXPECT_EQ(d.first.len, 7u);
    EXPECT_EQ(d.messages, 2u);
    EXPECT_TRUE(d.even);
}

TEST_F(Count, SixteenAndNotOneMore) {
    for (const Message& m : {read, write(50)}) {
        for (uint32_t n = 1; n <= RMEM_BUNDLE_MAX + 2; n++)
            expect_count(datagram(std::vector<Message>(n, m)), std::min(n, RMEM_BUNDLE_MAX),
                         n <= RMEM_BUNDLE_MAX, std::to_string(n));
    }
}

TEST_F(Count, HeaderCut) {
    Bytes whole = datagram({read, zero, read});
    for (size_t cut = 1; cut <= RMEM_HDR_BYTES; cut++)
        expect_count(Bytes(whole.begin(), whole.end() - cut), 2, cut == RMEM_HDR_BYTES,
                     std::to_string(cut));
    // Of a WRITE before it, the payload is then looked for where the rest of the header is.
    whole = datagram({write(20), read});
    whole.resize(2 * RMEM_HDR_BYTES - 1);
    expect_count(whole, 1, false, "behind a WRITE");
}

TEST_F(Count, StrangerBehindIt) {
    const std::vector<std::function<void(rmem_hdr&)>> changes = {
        [](auto& h) { h.session++; },
        [](auto& h) { h.space++; },
        [](auto& h) { h.boot++; },
        [](auto& h) { h.flags = RMEM_FULL; },
        [](auto& h) { h.flags = RMEM_LINK; },
        [](auto& h) { h.version++; },
        [](auto& h) { h.type |= RMEM_RESPONSE; },
        [](auto& h) { h.type = 0; },
        [](auto& h) { h.id = 0; },
        [](auto& h) { h.status = 1; }};
    for (size_t n = 0; n < changes.size(); n++) {
        Message strange = changed(zero, changes[n]);
        expect_count(datagram({read, strange}), 1, false, std::to_string(n));
        expect_count(datagram({read, write(10), strange, read}), 2, false, std::to_string(n));
    }
}

TEST_F(Count, TypesThatTravelAlone) {
    for (uint8_t type : {RMEM_OPEN, RMEM_CLOSE, RMEM_ALLOC, RMEM_FREE}) {
        Message alone = message(type, RMEM_DIGEST, key);
        expect_count(datagram({alone, read}), 1, false, "before a READ");
        expect_count(datagram({alone, alone}), 1, false, "twice");
        expect_count(datagram({read, alone}), 1, false, "behind a READ");
        expect_count(datagram({read, read, alone, read}), 2, false, "in the middle");
    }
}

// A length that doesn't verify yet may be anything: the sum must not come round to be right.
TEST_F(Count, HugeLengths) {
    for (uint32_t len : {RMEM_PIECE_BYTES_MAX + 1, 1u << 28, 0u - 100, 0u - 72, 0u - 1}) {
        Message huge = changed(write(100), [=](auto& h) { h.len = len; });
        expect_count(datagram({huge}), 1, false, std::to_string(len));
        expect_count(datagram({read, huge, read}), 2, false, std::to_string(len));
        expect_count(datagram(std::vector<Message>(RMEM_BUNDLE_MAX, huge)), 1, false,
                     std::to_string(len));
    }
    Message half = changed(write(0), [](auto& h) { h.len = 1u << 31; });
    expect_count(datagram({write(100), half, half}), 2, false, "round the end");
    std::vector<Message> most(RMEM_BUNDLE_MAX, write(RMEM_PIECE_BYTES_MAX));
    Counted c(datagram(most));
    EXPECT_TRUE(c.even);
    EXPECT_EQ(c.payload_bytes, RMEM_BUNDLE_MAX * RMEM_PIECE_BYTES_MAX);
    Message far = changed(read, [](auto& h) { h.len = ~0u; }); // asked for, not carried
    expect_count(datagram({far, far}), 2, true, "READ");
}

// What a WRITE carries may be anything as well: it's a header only where one is due.
TEST_F(Count, PayloadThatLooksLikeAHeader) {
    Message inner = write(RMEM_HDR_BYTES);
    Message outer = write(RMEM_HDR_BYTES);
    std::memcpy(outer.payload.data(), inner.hdr, RMEM_HDR_BYTES);
    expect_count(datagram({outer}), 1, true, "alone");
    expect_count(datagram({outer, outer}), 2, true, "twice");
    expect_count(datagram({outer, read, outer}), 3, true, "around a READ");
    // With something behind it it is taken for one; but never is the datagram even then.
    Bytes more = datagram({outer});
    more.push_back(0);
    expect_count(more, 2, false, "junk behind it");
}

TEST_F(Count, Responses) {
    auto answer = [&](uint8_t type, uint32_t bytes, uint8_t status = RMEM_OK) {
        Message m = message(type | RMEM_RESPONSE, RMEM_DIGEST, key, bytes);
        m.head.status = status;
        m.payload.resize(rmem_wire_payload_bytes(&m.head));
        rmem_wire_build(m.hdr, &m.head, &key, m.payload.data(), m.payload.size());
        return m;
    };
    Counted c(datagram({answer(RMEM_READ, 600), answer(RMEM_WRITE, 4096),
                        answer(RMEM_READ, 4096, RMEM_BUSY), answer(RMEM_READ, 1)}),
              true);
    EXPECT_EQ(c.messages, 4u);
    EXPECT_EQ(c.payload_bytes, 601u);
    EXPECT_TRUE(c.even);
    EXPECT_EQ(Counted(datagram({read}), true).verdict, RMEM_WIRE_TYPE);
    Counted mixed(datagram({answer(RMEM_WRITE, 1), read}), true);
    EXPECT_EQ(mixed.messages, 1u);
    EXPECT_FALSE(mixed.even);
    Counted opened(datagram({answer(RMEM_OPEN, 24), answer(RMEM_READ, 1)}), true);
    EXPECT_EQ(opened.messages, 1u);
    EXPECT_FALSE(opened.even);
}

TEST(Joins, FirstAlwaysMayOthersAsFarAsTheLimit) {
    for (uint32_t limit : {0u, 1u, RMEM_HDR_BYTES + 9u, 2u * RMEM_HDR_BYTES + 19}) {
        rmem_bundle b{};
        EXPECT_TRUE(rmem_wire_joins(&b, limit, 10));
        EXPECT_FALSE(rmem_wire_joins(&b, limit, 10)) << limit;
        EXPECT_EQ(b.messages, 1u) << "refused, but counted";
        EXPECT_EQ(b.payload_bytes, 10u);
    }
    rmem_bundle b{};
    const uint32_t limit = 3 * RMEM_HDR_BYTES + 30;
    EXPECT_TRUE(rmem_wire_joins(&b, limit, 10));
    EXPECT_TRUE(rmem_wire_joins(&b, limit, 10));
    EXPECT_FALSE(rmem_wire_joins(&b, limit, 11));
    EXPECT_TRUE(rmem_wire_joins(&b, limit, 10));
    EXPECT_FALSE(rmem_wire_joins(&b, limit, 0));
    EXPECT_EQ(b.messages, 3u);
    EXPECT_EQ(b.payload_bytes, 30u);
}

TEST(Joins, SixteenAtMost) {
    rmem_bundle b{};
    for (uint32_t n = 0; n < RMEM_BUNDLE_MAX; n++)
        EXPECT_TRUE(rmem_wire_joins(&b, ~0u, 0));
    EXPECT_FALSE(rmem_wire_joins(&b, ~0u, 0));
    EXPECT_EQ(b.messages, RMEM_BUNDLE_MAX);
}

} // namespace
