// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "wire_rig.hpp"

namespace {

using namespace wire;

struct Opened : testing::Test {
    base_siphash_key key = test_key();
    Message read = message(RMEM_READ, RMEM_DIGEST, key, 4096);
    Message zero = message(RMEM_ZERO, RMEM_DIGEST, key, 4096);

    Message write(uint32_t bytes) { return message(RMEM_WRITE, RMEM_DIGEST, key, bytes); }

    Bytes datagram(const std::vector<Message>& messages) {
        Datagram all;
        for (const Message& m : messages)
            all.add(m.head, key, m.payload);
        return all.take();
    }

    static rmem_wire_verdict open(const Bytes& bytes, bool response = false) {
        rmem_datagram in;
        rmem_wire_verdict verdict = rmem_datagram_open(&in, bytes.data(), bytes.size(), response);
        EXPECT_EQ(verdict == RMEM_WIRE_GOOD, in.messages > 0);
        if (verdict != RMEM_WIRE_GOOD) {
            EXPECT_FALSE(rmem_datagram_step(&in, bytes.data()));
        }
        return verdict;
    }

    // The heads with fields of the n-th message changed; nothing is sealed anew.
    static Bytes changed(Bytes bytes, uint32_t n, const std::function<void(rmem_msg&)>& change) {
        rmem_msg msg;
        std::memcpy(&msg, bytes.data() + RMEM_HEADS_BYTES(n), sizeof(msg));
        change(msg);
        std::memcpy(bytes.data() + RMEM_HEADS_BYTES(n), &msg, sizeof(msg));
        return bytes;
    }
};

TEST_F(Opened, OneMessage) {
    for (uint8_t type : requests)
        EXPECT_EQ(open(datagram({message(type, RMEM_FULL, key)})), RMEM_WIRE_GOOD) << int(type);
    for (uint32_t bytes : {1u, 71u, 72u, 1400u, RMEM_PIECE_BYTES_MAX}) {
        Bytes whole = datagram({write(bytes)});
        EXPECT_EQ(open(whole), RMEM_WIRE_GOOD);
        for (uint32_t left : {0u, bytes / 2, bytes - 1})
            EXPECT_EQ(open(Bytes(whole.begin(), whole.begin() + RMEM_HEADS_BYTES(1) + left)),
                      RMEM_WIRE_MALFORMED);
        for (uint32_t junk : {1u, 31u, 32u, 48u, 5000u}) {
            Bytes more = whole;
            more.resize(whole.size() + junk);
            EXPECT_EQ(open(more), RMEM_WIRE_MALFORMED) << "junk behind it";
        }
    }
}

TEST_F(Opened, SixteenAndNotOneMore) {
    for (const Message& m : {read, write(50)}) {
        for (uint32_t n = 1; n <= RMEM_BUNDLE_MAX + 2; n++)
            EXPECT_EQ(open(datagram(std::vector<Message>(n, m))),
                      n <= RMEM_BUNDLE_MAX ? RMEM_WIRE_GOOD : RMEM_WIRE_MALFORMED)
                << n;
    }
    Bytes bytes = datagram(std::vector<Message>(3, read));
    for (uint32_t told = 0; told < 256; told++) {
        bytes[offsetof(rmem_hdr, messages)] = static_cast<uint8_t>(told);
        EXPECT_EQ(rmem_datagram_heads_bytes(bytes.data()),
                  RMEM_HEADS_BYTES(std::min(told, RMEM_BUNDLE_MAX)));
        EXPECT_EQ(open(bytes) == RMEM_WIRE_GOOD, told == 3) << told;
    }
}

TEST_F(Opened, HeadsCut) {
    Bytes whole = datagram({read, zero, read});
    for (size_t bytes = 0; bytes < whole.size(); bytes++)
        EXPECT_EQ(open(Bytes(whole.begin(), whole.begin() + bytes)), RMEM_WIRE_SHORT) << bytes;
}

TEST_F(Opened, AnUnsoundMessageAmongOthers) {
    const Bytes bytes = datagram({read, write(10), read});
    const std::vector<std::pair<std::function<void(rmem_msg&)>, rmem_wire_verdict>> changes = {
        {[](auto& m) { m.type |= RMEM_RESPONSE; }, RMEM_WIRE_TYPE},
        {[](auto& m) { m.type = 0; }, RMEM_WIRE_TYPE},
        {[](auto& m) { m.id = 0; }, RMEM_WIRE_MALFORMED},
        {[](auto& m) { m.id = 1; }, RMEM_WIRE_MALFORMED}, // below the floor
        {[](auto& m) { m.status = 1; }, RMEM_WIRE_MALFORMED}};
    for (const auto& [change, verdict] : changes) {
        for (uint32_t n = 0; n < 3; n++)
            EXPECT_EQ(open(changed(bytes, n, change)), verdict) << n;
    }
}

TEST_F(Opened, TypesThatTravelAlone) {
    for (uint8_t type :
         {RMEM_CLOSE, RMEM_ALLOC, RMEM_FREE, RMEM_FENCE, RMEM_PUBLISH, RMEM_LOOKUP}) {
        Message alone = message(type, RMEM_DIGEST, key);
        EXPECT_EQ(open(datagram({alone})), RMEM_WIRE_GOOD);
        for (const std::vector<Message>& messages : std::vector<std::vector<Message>>{
                 {alone, read}, {alone, alone}, {read, alone}, {read, read, alone, read}})
            EXPECT_EQ(open(datagram(messages)), RMEM_WIRE_MALFORMED) << int(type);
    }
}

// A length that doesn't verify yet may be anything: the sum must not come round to be right.
TEST_F(Opened, HugeLengths) {
    for (uint32_t len : {RMEM_PIECE_BYTES_MAX + 1, 1u << 28, 0u - 100, 0u - 32, 0u - 1}) {
        auto huge = [&](auto& m) { m.len = len; };
        EXPECT_EQ(open(changed(datagram({write(100)}), 0, huge)), RMEM_WIRE_MALFORMED);
        EXPECT_EQ(open(changed(datagram({read, write(100), read}), 1, huge)), RMEM_WIRE_MALFORMED);
    }
    Bytes round = datagram({write(100), write(0), write(0)});
    for (uint32_t n : {1u, 2u})
        round = changed(round, n, [](auto& m) { m.len = 1u << 31; });
    EXPECT_EQ(open(round), RMEM_WIRE_MALFORMED) << "round the end";
    EXPECT_EQ(open(datagram({write(RMEM_PIECE_BYTES_MAX - 1), write(1)})), RMEM_WIRE_GOOD);
    EXPECT_EQ(open(datagram({write(RMEM_PIECE_BYTES_MAX), write(1)})), RMEM_WIRE_MALFORMED);
    Message far = message(RMEM_READ, RMEM_DIGEST, key, ~0u); // asked for, not carried
    EXPECT_EQ(open(datagram({far})), RMEM_WIRE_GOOD) << "the node refuses it";
    EXPECT_EQ(open(datagram({far, far})), RMEM_WIRE_MALFORMED);
}

TEST_F(Opened, MoreWorkThanADatagramMayMake) {
    const uint32_t share = RMEM_READ_BYTES_MAX / RMEM_BUNDLE_MAX;
    const uint32_t many = RMEM_ZERO_BYTES_MAX / RMEM_BUNDLE_MAX;
    for (auto [type, len] : {std::pair<uint8_t, uint32_t>{RMEM_READ, share},
                             {RMEM_DISCARD, many},
                             {RMEM_ZERO, many}}) {
        std::vector<Message> all(RMEM_BUNDLE_MAX, message(type, RMEM_DIGEST, key, len));
        EXPECT_EQ(open(datagram(all)), RMEM_WIRE_GOOD) << "just so much";
        all.front() = message(type, RMEM_DIGEST, key, len + 256);
        EXPECT_EQ(open(datagram(all)), RMEM_WIRE_MALFORMED) << "more";
    }
}

TEST_F(Opened, Responses) {
    auto answer = [&](uint8_t type, uint32_t bytes, uint8_t status = RMEM_OK) {
        Message m = message(type | RMEM_RESPONSE, RMEM_DIGEST, key, bytes);
        m.head.status = status;
        m.payload.resize(rmem_wire_payload_bytes(&m.head));
        return m;
    };
    Bytes bytes = datagram({answer(RMEM_READ, 600), answer(RMEM_WRITE, 4096),
                            answer(RMEM_READ, 4096, RMEM_BUSY), answer(RMEM_READ, 1)});
    EXPECT_EQ(bytes.size(), RMEM_HEADS_BYTES(4) + 601u);
    EXPECT_EQ(open(bytes, true), RMEM_WIRE_GOOD);
    EXPECT_EQ(open(bytes, false), RMEM_WIRE_TYPE);
    EXPECT_EQ(open(datagram({answer(RMEM_OPEN, 24), answer(RMEM_READ, 1)}), true),
              RMEM_WIRE_MALFORMED);
}

// ---- one by one ----

TEST_F(Opened, EachWithItsHeadAndPayload) {
    std::vector<Message> messages = {read, write(100), zero, write(1), read, write(4000)};
    for (size_t n = 0; n < messages.size(); n++) {
        messages[n].head.id += n;
        std::fill(messages[n].payload.begin(), messages[n].payload.end(), n + 1);
    }
    Bytes bytes = datagram(messages);
    rmem_datagram in;
    ASSERT_EQ(rmem_datagram_open(&in, bytes.data(), bytes.size(), false), RMEM_WIRE_GOOD);
    EXPECT_EQ(in.head.id, messages[0].head.id) << "before the first step";
    EXPECT_TRUE(rmem_datagram_verifies(&in, &key, bytes.data()));
    for (const Message& m : messages) {
        ASSERT_TRUE(rmem_datagram_step(&in, bytes.data()));
        EXPECT_EQ(in.head.id, m.head.id);
        EXPECT_EQ(in.head.type, m.head.type);
        EXPECT_EQ(in.head.session, m.head.session);
        EXPECT_EQ(in.head.floor, m.head.floor);
        auto at = bytes.begin() + in.payload_offset;
        EXPECT_EQ(Bytes(at, at + in.payload_bytes), m.payload);
        EXPECT_FALSE(rmem_datagram_is_damaged(&in, bytes.data()));
    }
    EXPECT_EQ(in.steps, messages.size());
    EXPECT_FALSE(rmem_datagram_step(&in, bytes.data()));
    EXPECT_FALSE(rmem_datagram_step(&in, bytes.data())) << "and stays so";
}

std::vector<rmem_wire_verdict> verdicts(const Bytes& bytes, const base_siphash_key& key) {
    std::vector<rmem_wire_verdict> all;
    for (const Received& each : received(bytes, false, [&](uint32_t) { return &key; }))
        all.push_back(each.verdict);
    return all;
}

using Verdicts = std::vector<rmem_wire_verdict>;

TEST_F(Opened, DamagedPayloadIsItsMessagesAlone) {
    Bytes bytes = datagram({write(50), read, write(60)});
    bytes[RMEM_HEADS_BYTES(3) + 20] ^= 1;
    EXPECT_EQ(verdicts(bytes, key), (Verdicts{RMEM_WIRE_DAMAGED, RMEM_WIRE_GOOD, RMEM_WIRE_GOOD}));
}

TEST_F(Opened, EveryBitOfAllHeadsIsCovered) {
    const Bytes bytes = datagram({write(50), read, write(60)});
    for (size_t bit = 0; bit < 8 * RMEM_HEADS_BYTES(3); bit++) {
        Bytes hit = bytes;
        hit[bit / 8] ^= 1 << bit % 8;
        for (rmem_wire_verdict verdict : verdicts(hit, key))
            EXPECT_EQ(verdict, RMEM_WIRE_TAG) << bit;
    }
}

// The tag covers a PUT's payload and a WRITEV's ranges wherever they lie.
TEST_F(Opened, TaggedPayloadsAmongOthers) {
    Message put = message(RMEM_PUT, RMEM_DIGEST, key, 30);
    Message vector = message(RMEM_WRITEV, RMEM_DIGEST, key, 48);
    const Bytes bytes = datagram({write(50), put, vector, write(60)});
    const size_t data = RMEM_HEADS_BYTES(4) + 50 + put.payload.size() + 3 * sizeof(rmem_range);
    for (size_t at = RMEM_HEADS_BYTES(4); at < bytes.size(); at++) {
        Bytes hit = bytes;
        hit[at] ^= 1;
        bool tagged = at >= RMEM_HEADS_BYTES(4) + 50 && at < data;
        Verdicts all = verdicts(hit, key);
        ASSERT_EQ(all.size(), 4u);
        EXPECT_EQ(all[0] == RMEM_WIRE_TAG, tagged) << at;
        EXPECT_EQ(std::count(all.begin(), all.end(), RMEM_WIRE_DAMAGED), tagged ? 0 : 1) << at;
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
    for (uint32_t limit : {0u, 1u, RMEM_HEADS_BYTES(1) + 9u, RMEM_HEADS_BYTES(2) + 19u}) {
        rmem_bundle b{};
        EXPECT_TRUE(joins(b, limit, write_of(10)));
        EXPECT_FALSE(joins(b, limit, write_of(10))) << limit;
        EXPECT_EQ(b.messages, 1u) << "refused, but counted";
        EXPECT_EQ(b.payload_bytes, 10u);
    }
    rmem_bundle b{};
    const uint32_t limit = RMEM_HEADS_BYTES(3) + 30;
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
    for (uint32_t n = 0; n < RMEM_READ_BYTES_MAX / RMEM_COPY_BYTES_MAX; n++)
        EXPECT_TRUE(joins(b, ~0u, of(RMEM_COPY, RMEM_COPY_BYTES_MAX)));
    EXPECT_FALSE(joins(b, ~0u, of(RMEM_COPY, 1)));
    b = {};
    for (uint32_t n = 0; n < RMEM_BUNDLE_MAX; n++)
        EXPECT_TRUE(joins(b, ~0u, of(RMEM_READ | RMEM_RESPONSE, 256))) << "an answer asks nothing";
}

} // namespace
