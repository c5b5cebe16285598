// SPDX-License-Identifier: GPL-2.0
// EDM datagrams: bytes against the specification, ranges, tags.
#include <cstring>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "core.hpp"

namespace edm {

namespace {

using Bytes = std::vector<uint8_t>;

edm_message demand_of(uint16_t count) {
    edm_message m{};
    m.kind = EDM_DEMAND;
    m.follows = true;
    m.port = 0x0102;
    m.port = 0x0102 % EDM_PORTS_MAX;
    m.epoch = 0x11121314;
    m.life = 0x21222324;
    m.seq = 0x31323334;
    m.seen = 0x41424344;
    m.count = count;
    return m;
}

edm_message welcome() {
    edm_message m{};
    m.kind = EDM_WELCOME;
    m.port = 3;
    m.epoch = 5;
    m.life = 7;
    m.cookie = 0x1122334455667788;
    m.chunk_bytes = 16384;
    m.lease_us = 10'000;
    m.slots = 64;
    m.active_max = 3;
    return m;
}

edm_message request(uint8_t kind) {
    edm_message m{};
    m.kind = kind;
    m.port = 3;
    m.epoch = 5;
    m.life = 7;
    m.seq = 9;
    m.item = {.id = 17, .size = 4096, .granted = 0, .peer = 4, .type = EDM_READ};
    if (kind == EDM_FORWARD) {
        m.item.type = EDM_ANSWER;
        m.peer_epoch = 6;
    }
    return m;
}

Bytes bytes_of(const edm_message& m, const edm_item* items = nullptr, size_t payload = 0) {
    Bytes bytes(edm_wire_header_bytes(&m) + payload, 0xee);
    edm_wire_encode(&m, items, bytes.data());
    return bytes;
}

edm_wire_verdict parse(const Bytes& bytes, edm_message* out = nullptr) {
    edm_message m;
    return edm_wire_parse(out ? out : &m, bytes.data(), bytes.size());
}

TEST(EdmWire, DemandHasTheBytesOfTheSpecification) {
    const edm_item item = {.id = 0x51525354,
                           .size = 0x61626364,
                           .granted = 0x01020304,
                           .peer = 0x0171,
                           .type = EDM_WRITE};
    const Bytes bytes = bytes_of(demand_of(1), &item);
    const Bytes wanted = {
        0x14, 0x01, 0x02, 0x01, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, // kind .. life
        0x34, 0x33, 0x32, 0x31, 0,    0,    0,    0,    0,    0,    0,    0,    // seq, tag
        0x44, 0x43, 0x42, 0x41, 1,    0,    0,    0,                            // seen, count
        0x54, 0x53, 0x52, 0x51, 0x64, 0x63, 0x62, 0x61, 0x04, 0x03, 0x02, 0x01, // entry
        0x71, 0x01, 1,    0};
    EXPECT_EQ(bytes, wanted);
    edm_message m;
    ASSERT_EQ(parse(bytes, &m), EDM_WIRE_GOOD);
    EXPECT_TRUE(m.follows);
    EXPECT_EQ(m.seen, 0x41424344u);
    edm_item again;
    edm_wire_item(bytes.data(), 0, &again);
    EXPECT_EQ(again.id, item.id);
    EXPECT_EQ(again.granted, item.granted);
    EXPECT_EQ(again.peer, item.peer);
}

TEST(EdmWire, EveryKindParsesAsItWasEncoded) {
    edm_message join{};
    join.kind = EDM_JOIN;
    join.epoch = 1;
    join.rate_mbps = 100;
    edm_message challenge{};
    challenge.kind = EDM_CHALLENGE;
    challenge.epoch = challenge.life = challenge.cookie = 1;
    edm_message data{};
    data.kind = EDM_DATA;
    data.type = EDM_ANSWER;
    data.port = 2;
    data.epoch = 1;
    data.id = 77;
    data.offset = 1400;
    EXPECT_EQ(parse(bytes_of(join)), EDM_WIRE_GOOD);
    EXPECT_EQ(parse(bytes_of(challenge)), EDM_WIRE_GOOD);
    EXPECT_EQ(parse(bytes_of(welcome())), EDM_WIRE_GOOD);
    EXPECT_EQ(parse(bytes_of(request(EDM_REQUEST), nullptr, 1)), EDM_WIRE_GOOD);
    EXPECT_EQ(parse(bytes_of(request(EDM_FORWARD), nullptr, EDM_OPAQUE_BYTES_MAX)), EDM_WIRE_GOOD);
    edm_message m;
    EXPECT_EQ(parse(bytes_of(data, nullptr, 100), &m), EDM_WIRE_GOOD);
    EXPECT_EQ(m.payload_bytes, 100u);
    EXPECT_EQ(m.offset, 1400u);
}

TEST(EdmWire, AnswersToJoinAreNoLongerThanIt) {
    edm_message join{};
    join.kind = EDM_JOIN;
    EXPECT_LE(edm_wire_header_bytes(&join), 48u);
    const edm_message answer = welcome();
    EXPECT_LE(edm_wire_header_bytes(&answer), edm_wire_header_bytes(&join));
}

TEST(EdmWire, TruncatedOrPaddedDatagramIsRefused) {
    std::vector<edm_item> items(3, {.id = 1, .size = 9, .peer = 4, .type = EDM_WRITE});
    for (const Bytes& whole : {bytes_of(demand_of(3), items.data()), bytes_of(welcome())}) {
        ASSERT_EQ(parse(whole), EDM_WIRE_GOOD);
        for (size_t n = 0; n < whole.size(); n++)
            EXPECT_NE(parse(Bytes(whole.begin(), whole.begin() + n)), EDM_WIRE_GOOD) << n;
        Bytes longer = whole;
        longer.push_back(0);
        EXPECT_EQ(parse(longer), EDM_WIRE_SHORT);
    }
    EXPECT_EQ(parse(bytes_of(request(EDM_REQUEST))), EDM_WIRE_SHORT);
    EXPECT_EQ(parse(bytes_of(request(EDM_REQUEST), nullptr, EDM_OPAQUE_BYTES_MAX + 1)),
              EDM_WIRE_SHORT);
}

TEST(EdmWire, AnotherVersionOrAnUnknownKindIsRefused) {
    Bytes bytes = bytes_of(welcome());
    bytes[0] = 0x23;
    EXPECT_EQ(parse(bytes), EDM_WIRE_VERSION);
    bytes[0] = 0x10;
    EXPECT_EQ(parse(bytes), EDM_WIRE_VERSION);
    bytes[0] = 0x19;
    EXPECT_EQ(parse(bytes), EDM_WIRE_VERSION);
}

TEST(EdmWire, FieldOutOfItsRangeIsRefused) {
    const std::function<void(edm_message&)> heads[] = {
        [](edm_message& m) { m.port = EDM_PORTS_MAX; },
        [](edm_message& m) { m.epoch = 0; },
        [](edm_message& m) { m.life = 0; },
        [](edm_message& m) { m.seq = 1; },
        [](edm_message& m) { m.follows = true; },
        [](edm_message& m) { m.cookie = 0; },
        [](edm_message& m) { m.rate_mbps = 1; },
        [](edm_message& m) { m.chunk_bytes = 0; },
        [](edm_message& m) { m.chunk_bytes = EDM_CHUNK_BYTES_MAX + 1; },
        [](edm_message& m) { m.lease_us = EDM_LEASE_US_MIN - 1; },
        [](edm_message& m) { m.lease_us = EDM_LEASE_US_MAX + 1; },
        [](edm_message& m) { m.slots = 0; },
        [](edm_message& m) { m.slots = 48; },
        [](edm_message& m) { m.slots = 2 * EDM_SLOTS_MAX; },
        [](edm_message& m) { m.active_max = 0; },
        [](edm_message& m) { m.active_max = EDM_ACTIVE_MAX + 1; },
    };
    for (size_t n = 0; n < std::size(heads); n++) {
        edm_message m = welcome();
        heads[n](m);
        EXPECT_EQ(parse(bytes_of(m)), EDM_WIRE_RANGE) << n;
    }
}

TEST(EdmWire, EntryOutOfItsRangeIsRefused) {
    const edm_item good = {.id = 1, .size = 9, .granted = 9, .peer = 4, .type = EDM_WRITE};
    ASSERT_EQ(parse(bytes_of(demand_of(1), &good)), EDM_WIRE_GOOD);
    const std::function<void(edm_item&)> faults[] = {
        [](edm_item& i) { i.granted = 10; },
        [](edm_item& i) { i.peer = EDM_PORTS_MAX; },
        [](edm_item& i) { i.peer = 0x0102; }, // itself
        [](edm_item& i) { i.type = 0; },
        [](edm_item& i) { i.type = EDM_ANSWER + 1; },
        [](edm_item& i) { i.status = EDM_REFUSED_FULL; },
    };
    for (size_t n = 0; n < std::size(faults); n++) {
        edm_item item = good;
        faults[n](item);
        EXPECT_EQ(parse(bytes_of(demand_of(1), &item)), EDM_WIRE_RANGE) << n;
    }
}

TEST(EdmWire, GrantNeedsBytesAndRefusalHasNone) {
    edm_message m = demand_of(1);
    m.kind = EDM_GRANT;
    m.follows = false;
    edm_item item = {.id = 1, .size = 4, .granted = 8, .peer = 4, .type = EDM_WRITE};
    EXPECT_EQ(parse(bytes_of(m, &item)), EDM_WIRE_GOOD);
    item.granted = 3;
    EXPECT_EQ(parse(bytes_of(m, &item)), EDM_WIRE_RANGE) << "it begins before the message";
    item.granted = item.size = 0;
    EXPECT_EQ(parse(bytes_of(m, &item)), EDM_WIRE_RANGE);
    item.status = EDM_REFUSED_ABSENT;
    EXPECT_EQ(parse(bytes_of(m, &item)), EDM_WIRE_GOOD);
    item.status = EDM_REFUSED_STALE + 1;
    EXPECT_EQ(parse(bytes_of(m, &item)), EDM_WIRE_RANGE);
}

TEST(EdmWire, TagFailsAfterAnyFlippedBit) {
    const base_siphash_key key = {{1, 2}};
    const edm_item item = {.id = 1, .size = 9, .peer = 4, .type = EDM_WRITE};
    Bytes bytes = bytes_of(demand_of(1), &item);
    edm_wire_seal(bytes.data(), bytes.size(), &key);
    EXPECT_TRUE(edm_wire_verifies(bytes.data(), bytes.size(), &key));
    for (size_t bit = 0; bit < 8 * bytes.size(); bit++) {
        bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        EXPECT_FALSE(edm_wire_verifies(bytes.data(), bytes.size(), &key)) << bit;
        bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    }
    EXPECT_FALSE(edm_wire_verifies(bytes.data(), EDM_HEAD_BYTES - 1, &key));
}

TEST(EdmWire, TagIsSipHashOfTheDatagramWithTagZero) {
    const base_siphash_key key = {{3, 4}};
    Bytes bytes = bytes_of(welcome());
    const uint64_t wanted = base_siphash(&key, bytes.data(), bytes.size());
    edm_wire_seal(bytes.data(), bytes.size(), &key);
    uint64_t tag = 0;
    for (int n = 7; n >= 0; n--)
        tag = tag << 8 | bytes[16 + n];
    EXPECT_EQ(tag, wanted);
}

TEST(EdmWire, DerivedKeyChangesWithEachOfItsInputs) {
    const base_siphash_key operator_key = {{5, 6}};
    std::vector<std::pair<uint64_t, uint64_t>> keys;
    auto add = [&](const std::function<void(edm_message&)>& change) {
        edm_message m = welcome();
        base_siphash_key key;
        change(m);
        edm_wire_derive(&key, &operator_key, &m);
        for (const auto& other : keys)
            EXPECT_NE(other, std::make_pair(key.k[0], key.k[1]));
        EXPECT_NE(key.k[0], key.k[1]);
        keys.emplace_back(key.k[0], key.k[1]);
    };
    add([](edm_message&) {});
    add([](edm_message& m) { m.cookie++; });
    add([](edm_message& m) { m.epoch++; });
    add([](edm_message& m) { m.life++; });
    add([](edm_message& m) { m.port++; });
}

} // namespace

} // namespace edm
