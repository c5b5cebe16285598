// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "wire_rig.hpp"

namespace {

using namespace wire;

Bytes datagram(const std::vector<Message>& messages) {
    Datagram all;
    for (const Message& m : messages)
        all.add_built(followed_by(Bytes(m.hdr, m.hdr + sizeof(m.hdr)), m.payload));
    return all.take();
}

// A datagram with its headers counted.
struct Counted : rmem_datagram {
    explicit Counted(const Bytes& bytes, bool response = false) {
        uint32_t at = 0;
        for (bool more = rmem_datagram_begin(this, bytes.size(), response); more;) {
            EXPECT_LE(at + RMEM_HDR_BYTES, bytes.size()) << "a header outside is asked for";
            more = rmem_datagram_count(this, bytes.data() + at);
            at += RMEM_HDR_BYTES;
            EXPECT_TRUE(!more || messages * RMEM_HDR_BYTES == at);
        }
    }
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
    EXPECT_EQ(Counted(datagram({changed(read, [](auto& h) { h.type = RMEM_TYPE_END; })})).verdict,
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
    EXPECT_EQ(c.sum_bytes, 4101u);
    EXPECT_EQ(c.head.type, RMEM_READ);
    Counted d(datagram({write(7), message(RMEM_DISCARD, RMEM_DIGEST, key)}));
    EXPECT_EQ(d.head.type, RMEM_WRITE);
    EXPECT_EQ(d.head.len, 7u);
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
    EXPECT_EQ(c.sum_bytes, RMEM_BUNDLE_MAX * RMEM_PIECE_BYTES_MAX);
    Message far = changed(read, [](auto& h) { h.len = ~0u; }); // asked for, not carried
    expect_count(datagram({far}), 1, true, "READ");
    expect_count(datagram(std::vector<Message>(RMEM_BUNDLE_MAX, far)), 2, false, "READs");
}

TEST_F(Count, MoreWorkThanADatagramMayMake) {
    const uint32_t share = RMEM_READ_BYTES_MAX / RMEM_BUNDLE_MAX;
    const uint32_t many = RMEM_ZERO_BYTES_MAX / RMEM_BUNDLE_MAX;
    for (auto [type, len] : {std::pair<uint8_t, uint32_t>{RMEM_READ, share},
                             {RMEM_DISCARD, many},
                             {RMEM_ZERO, many}}) {
        std::vector<Message> all(RMEM_BUNDLE_MAX, message(type, RMEM_DIGEST, key, len));
        expect_count(datagram(all), RMEM_BUNDLE_MAX, true, "just so much");
        all.front() = message(type, RMEM_DIGEST, key, len + 256);
        expect_count(datagram(all), RMEM_BUNDLE_MAX, false, "more");
    }
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
    EXPECT_EQ(c.sum_bytes, 601u);
    EXPECT_TRUE(c.even);
    EXPECT_EQ(Counted(datagram({read}), true).verdict, RMEM_WIRE_TYPE);
    Counted mixed(datagram({answer(RMEM_WRITE, 1), read}), true);
    EXPECT_EQ(mixed.messages, 1u);
    EXPECT_FALSE(mixed.even);
    Counted opened(datagram({answer(RMEM_OPEN, 24), answer(RMEM_READ, 1)}), true);
    EXPECT_EQ(opened.messages, 1u);
    EXPECT_FALSE(opened.even);
}

// ---- one by one ----

struct Step : Count {
    Bytes bytes;
    rmem_datagram in;

    void open(Bytes datagram, bool response = false) {
        bytes = std::move(datagram);
        ASSERT_EQ(rmem_datagram_open(&in, bytes.data(), bytes.size(), response), RMEM_WIRE_GOOD);
    }
    bool step() { return rmem_datagram_step(&in, bytes.data()); }
    rmem_wire_verdict verify() { return rmem_datagram_verify(&in, &key, bytes.data()); }
    Bytes payload() const {
        auto at = bytes.begin() + in.payload_offset;
        return Bytes(at, at + in.payload_bytes);
    }
};

TEST_F(Step, EachWithItsHeadAndPayload) {
    std::vector<Message> messages = {read, write(100), zero, write(1), read, write(4000)};
    for (size_t n = 0; n < messages.size(); n++) {
        Message& m = messages[n];
        m.head.id += n;
        std::fill(m.payload.begin(), m.payload.end(), n + 1);
        rmem_wire_build(m.hdr, &m.head, &key, m.payload.data(), m.payload.size());
    }
    open(datagram(messages));
    EXPECT_EQ(in.head.id, messages[0].head.id) << "before the first step";
    for (const Message& m : messages) {
        ASSERT_TRUE(step());
        EXPECT_EQ(in.head.id, m.head.id);
        EXPECT_EQ(in.head.type, m.head.type);
        EXPECT_EQ(payload(), m.payload);
        EXPECT_EQ(verify(), RMEM_WIRE_GOOD);
        EXPECT_EQ(std::memcmp(rmem_datagram_hdr(&in, bytes.data()), m.hdr, RMEM_HDR_BYTES), 0);
    }
    EXPECT_EQ(in.steps, messages.size());
    EXPECT_FALSE(step());
    EXPECT_FALSE(step()) << "and stays so";
}

TEST_F(Step, ABadOneSpoilsNoOther) {
    Bytes whole = datagram({write(50), read, write(60)});
    for (uint32_t bad = 0; bad < 3; bad++) {
        Bytes hit = whole;
        hit[bad * RMEM_HDR_BYTES + offsetof(rmem_hdr, addr)] ^= 1;
        open(hit);
        for (uint32_t n = 0; n < 3; n++) {
            ASSERT_TRUE(step());
            EXPECT_EQ(verify(), n == bad ? RMEM_WIRE_TAG : RMEM_WIRE_GOOD) << bad << " " << n;
        }
    }
    whole[3 * RMEM_HDR_BYTES + 20] ^= 1; // in the first payload
    open(whole);
    for (rmem_wire_verdict expect : {RMEM_WIRE_DAMAGED, RMEM_WIRE_GOOD, RMEM_WIRE_GOOD}) {
        ASSERT_TRUE(step());
        EXPECT_EQ(verify(), expect);
    }
}

TEST_F(Step, NotEvenDamagesThatWhichVerifies) {
    Bytes whole = datagram({write(50), read, write(60)});
    Bytes longer = whole;
    longer.push_back(0);
    Bytes shorter(whole.begin(),
                  whole.end() - 61); // nothing of the third's, not all of the first's
    for (const Bytes& each : {longer, shorter}) {
        open(each);
        EXPECT_FALSE(in.even);
        for (uint32_t n = 0; n < 3; n++) {
            ASSERT_TRUE(step());
            EXPECT_EQ(verify(), RMEM_WIRE_DAMAGED) << n;
            EXPECT_LE(in.payload_offset + in.payload_bytes, bytes.size());
        }
        EXPECT_FALSE(step());
    }
    EXPECT_EQ(in.payload_bytes, 0u);
    // Where the tag is over the payload, it can't verify without all of it.
    Bytes full = datagram({message(RMEM_WRITE, RMEM_FULL, key, 50)});
    full.pop_back();
    open(full);
    ASSERT_TRUE(step());
    EXPECT_EQ(in.payload_bytes, 49u);
    EXPECT_EQ(verify(), RMEM_WIRE_TAG);
}

TEST_F(Step, NoneInABadDatagram) {
    rmem_datagram d;
    Bytes bad = datagram({changed(read, [](auto& h) { h.version = 2; }), read});
    EXPECT_EQ(rmem_datagram_open(&d, bad.data(), bad.size(), false), RMEM_WIRE_VERSION);
    EXPECT_FALSE(rmem_datagram_step(&d, bad.data()));
    for (uint32_t size = 0; size < RMEM_HDR_BYTES; size++) {
        Bytes few(size, 1);
        EXPECT_EQ(rmem_datagram_open(&d, few.data(), size, false), RMEM_WIRE_SHORT);
        EXPECT_FALSE(rmem_datagram_step(&d, few.data()));
    }
}

// ---- on the way out ----

rmem_head write_of(uint32_t bytes) {
    rmem_head head{};
    head.type = RMEM_WRITE;
    head.len = bytes;
    return head;
}

bool joins(rmem_bundle& b, uint32_t limit, const rmem_head& head) {
    return rmem_bundle_joins(&b, limit, &head);
}

TEST(Joins, FirstAlwaysMayOthersAsFarAsTheLimit) {
    for (uint32_t limit : {0u, 1u, RMEM_HDR_BYTES + 9u, 2u * RMEM_HDR_BYTES + 19}) {
        rmem_bundle b{};
        EXPECT_TRUE(joins(b, limit, write_of(10)));
        EXPECT_FALSE(joins(b, limit, write_of(10))) << limit;
        EXPECT_EQ(b.messages, 1u) << "refused, but counted";
        EXPECT_EQ(b.payload_bytes, 10u);
    }
    rmem_bundle b{};
    const uint32_t limit = 3 * RMEM_HDR_BYTES + 30;
    EXPECT_TRUE(joins(b, limit, write_of(10)));
    EXPECT_TRUE(joins(b, limit, write_of(10)));
    EXPECT_FALSE(joins(b, limit, write_of(11)));
    EXPECT_TRUE(joins(b, limit, write_of(10)));
    EXPECT_FALSE(joins(b, limit, write_of(0)));
    EXPECT_EQ(b.messages, 3u);
    EXPECT_EQ(b.payload_bytes, 30u);
}

TEST(Joins, SixteenAtMost) {
    rmem_bundle b{};
    for (uint32_t n = 0; n < RMEM_BUNDLE_MAX; n++)
        EXPECT_TRUE(joins(b, ~0u, write_of(0)));
    EXPECT_FALSE(joins(b, ~0u, write_of(0)));
    EXPECT_EQ(b.messages, RMEM_BUNDLE_MAX);
}

TEST(Joins, SoMuchWorkAndNotMore) {
    auto of = [](uint8_t type, uint32_t len) {
        rmem_head head = write_of(len);
        head.type = type;
        return head;
    };
    rmem_bundle b{};
    EXPECT_TRUE(joins(b, ~0u, of(RMEM_READ, RMEM_READ_BYTES_MAX)));
    EXPECT_FALSE(joins(b, ~0u, of(RMEM_READ, 1)));
    EXPECT_TRUE(joins(b, ~0u, write_of(100))) << "which is bounded by itself";
    b = {};
    EXPECT_TRUE(joins(b, ~0u, of(RMEM_READ, RMEM_READ_BYTES_MAX / 2)));
    EXPECT_TRUE(joins(b, ~0u, of(RMEM_ZERO, RMEM_ZERO_BYTES_MAX / 4)));
    EXPECT_TRUE(joins(b, ~0u, of(RMEM_DISCARD, RMEM_ZERO_BYTES_MAX / 4)));
    EXPECT_FALSE(joins(b, ~0u, of(RMEM_DISCARD, 256)));
    b = {};
    for (uint32_t n = 0; n < RMEM_BUNDLE_MAX; n++)
        EXPECT_TRUE(joins(b, ~0u, of(RMEM_READ | RMEM_RESPONSE, 256))) << "an answer asks nothing";
}

} // namespace
