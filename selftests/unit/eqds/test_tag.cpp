// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "lone_receiver.hpp"

namespace {

using Bytes = std::vector<uint8_t>;

const base_siphash_key key = {{1, 2}}, other_key = {{1, 3}};
const eqds_tag_ends ends = {{1, 2, 3}, {4, 5, 6}};
constexpr size_t head_bytes = EQDS_DATA_BYTES + EQDS_TAG_BYTES;

Bytes sealed(bool control, const Bytes& payload) {
    eqds_head head{};
    head.tagged = true;
    head.control = control;
    head.flags = control ? EQDS_ACK : EQDS_SYN;
    head.epoch = 0x01020304;
    head.cookie = 77;
    Bytes bytes(eqds_wire_bytes(&eqds_profile_extended, &head));
    eqds_wire_encode(&eqds_profile_extended, &head, bytes.data());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    struct base_siphash payload_hash;
    eqds_tag_payload_begin(&payload_hash, &key);
    base_siphash_update(&payload_hash, payload.data(), payload.size());
    eqds_tag_seal(bytes.data(), &ends, &key, &payload_hash);
    return bytes;
}

bool payload_verifies(const Bytes& packet) {
    struct base_siphash payload_hash;
    eqds_tag_payload_begin(&payload_hash, &key);
    base_siphash_update(&payload_hash, packet.data() + head_bytes, packet.size() - head_bytes);
    return eqds_tag_payload_verifies(packet.data(), &payload_hash);
}

eqds_tag_verdict check(const Bytes& packet, const eqds_tag_ends& at = ends,
                       const base_siphash_key* with = &key) {
    Bytes exact(packet);
    exact.shrink_to_fit(); // so that a read beyond the end is found
    return eqds_tag_check(exact.data(), exact.size(), &at, with);
}

TEST(EqdsTag, SealedPacketVerifiesAndParses) {
    for (bool control : {false, true}) {
        Bytes packet = sealed(control, Bytes(100, 0xaa));
        EXPECT_EQ(check(packet), EQDS_TAG_GOOD);
        EXPECT_TRUE(payload_verifies(packet));
        eqds_head head;
        ASSERT_EQ(eqds_wire_parse(&eqds_profile_extended, packet.data(), packet.size(), &head),
                  EQDS_WIRE_GOOD);
        EXPECT_TRUE(head.tagged);
        EXPECT_EQ(head.control, control);
        EXPECT_EQ(head.cookie, 77u);
    }
}

TEST(EqdsTag, AnyChangedBitIsFoundButTheOneOfTrim) {
    const Bytes good = sealed(false, Bytes(24, 0xaa));
    for (size_t bit = 0; bit < good.size() * 8; bit++) {
        Bytes packet = good;
        packet[bit / 8] ^= 1 << bit % 8;
        bool holds = check(packet) == EQDS_TAG_GOOD &&
                     (!eqds_tag_covers_payload(packet.data()) || payload_verifies(packet));
        bool trim = bit == offsetof(eqds_data, flags) * 8 + 7;
        EXPECT_EQ(holds, trim) << "bit " << bit;
    }
}

TEST(EqdsTag, TrimmedPacketVerifiesWithoutItsPayload) {
    Bytes packet = sealed(false, Bytes(1000, 0xaa));
    packet.resize(head_bytes);
    EXPECT_TRUE(eqds_tag_covers_payload(packet.data()));
    EXPECT_FALSE(payload_verifies(packet));
    packet[1] |= EQDS_TRIM;
    EXPECT_EQ(check(packet), EQDS_TAG_GOOD);
    EXPECT_FALSE(eqds_tag_covers_payload(packet.data()));
}

TEST(EqdsTag, PacketOfOtherAddressesOrKeyIsRefused) {
    const Bytes packet = sealed(false, Bytes(24, 0xaa));
    eqds_tag_ends turned;
    std::memcpy(turned.from, ends.to, sizeof(ends.to));
    std::memcpy(turned.to, ends.from, sizeof(ends.from));
    EXPECT_EQ(check(packet, turned), EQDS_TAG_WRONG);
    EXPECT_EQ(check(packet, ends, &other_key), EQDS_TAG_WRONG);
}

TEST(EqdsTag, TagAndKeyGoTogether) {
    Bytes packet = sealed(false, {});
    EXPECT_EQ(check(packet, ends, nullptr), EQDS_TAG_UNEXPECTED);
    for (size_t size = 0; size < head_bytes; size++)
        EXPECT_EQ(check(Bytes(packet.begin(), packet.begin() + size)), EQDS_TAG_MISSING) << size;
    packet[0] &= ~EQDS_KIND_TAGGED;
    EXPECT_EQ(check(packet), EQDS_TAG_MISSING);
    EXPECT_EQ(check(packet, ends, nullptr), EQDS_TAG_GOOD);
}

TEST(EqdsTag, TaggedHeaderCutShortIsRefused) {
    const Bytes packet = sealed(true, {});
    eqds_head head;
    for (size_t size = 0; size < head_bytes; size++) {
        Bytes cut(packet.begin(), packet.begin() + size);
        cut.shrink_to_fit();
        EXPECT_EQ(eqds_wire_parse(&eqds_profile_extended, cut.data(), size, &head),
                  EQDS_WIRE_SHORT);
    }
}

// A payload may be what its sender likes. Its tag is visible, and must not pass for a header's.
TEST(EqdsTag, PayloadThatLooksLikeAHeaderHasAnotherTag) {
    const Bytes packet = sealed(false, Bytes(24, 0xaa));
    Bytes like(reinterpret_cast<const uint8_t*>(&ends),
               reinterpret_cast<const uint8_t*>(&ends) + sizeof(ends));
    like.insert(like.end(), packet.begin(), packet.begin() + EQDS_DATA_BYTES + 8);
    const Bytes carrier = sealed(false, like);
    EXPECT_NE(Bytes(carrier.begin() + EQDS_DATA_BYTES, carrier.begin() + EQDS_DATA_BYTES + 8),
              Bytes(packet.begin() + EQDS_DATA_BYTES + 8, packet.begin() + head_bytes));
}

TEST(EqdsTag, OnlyASynOfALaterEpochRestartsATunnel) {
    eqds::LoneReceiver lone(0);
    auto& [config, slots, asl, r] = lone;
    eqds_head head{};
    head.flags = EQDS_SYN;
    head.has_epoch = true;
    head.epoch = 5;
    EXPECT_FALSE(eqds_receiver_restarts(&r, &head)); // there is no tunnel yet
    eqds_out out;
    head.flags |= EQDS_EMPTY;
    eqds_receiver_receive(&r, 0, &head, EQDS_DATA_BYTES, nullptr, &out);
    for (uint32_t epoch : {4u, 5u, 6u}) {
        head.epoch = epoch;
        head.flags = EQDS_SYN;
        EXPECT_EQ(eqds_receiver_restarts(&r, &head), epoch == 6);
        head.flags = 0;
        EXPECT_FALSE(eqds_receiver_restarts(&r, &head));
        head.flags = EQDS_SYN | EQDS_FIN | EQDS_EMPTY;
        EXPECT_FALSE(eqds_receiver_restarts(&r, &head));
    }
}

} // namespace
