// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "core.hpp"

namespace {

using Packet = std::vector<uint8_t>;

constexpr uint8_t a = 1, b = 2;
constexpr uint8_t rc_send = 0x04, ud_send = 0x64;

void mapped(uint8_t* address, uint8_t host) {
    std::memset(address, 0, 16);
    address[10] = address[11] = 0xff;
    address[12] = 10;
    address[15] = host;
}

eqds_roce_ends ends(uint8_t from, uint8_t to) {
    eqds_roce_ends e{};
    mapped(e.from, from);
    mapped(e.to, to);
    return e;
}

void put(Packet& packet, size_t at, uint32_t value, int bytes) {
    while (bytes--)
        packet[at++] = static_cast<uint8_t>(value >> 8 * bytes);
}

Packet bth(uint8_t opcode, uint32_t qpn, size_t bytes = EQDS_ROCE_CM_BYTES) {
    Packet packet(bytes);
    packet[0] = opcode;
    put(packet, 5, qpn, 3);
    return packet;
}

Packet management(uint32_t attribute) {
    Packet packet = bth(ud_send, 1);
    packet[20] = 1;
    packet[21] = 7;
    put(packet, 36, attribute, 2);
    return packet;
}

Packet request(uint32_t id, uint32_t qpn) {
    Packet packet = management(0x10);
    put(packet, 44, id, 4);
    put(packet, 76, qpn, 3);
    return packet;
}

Packet reply(uint32_t request_id, uint32_t qpn) {
    Packet packet = management(0x13);
    put(packet, 48, request_id, 4);
    put(packet, 56, qpn, 3);
    return packet;
}

struct Roce : testing::Test {
    Roce() {
        const base_siphash_key key = {{3, 4}};
        eqds_roce_init(roce.get(), &key);
    }
    void track(uint8_t from, uint8_t to, const Packet& packet, bool outgoing) {
        auto e = ends(from, to);
        eqds_roce_track(roce.get(), &e, packet.data(), static_cast<u32>(packet.size()), outgoing);
    }
    // The QP at this end that a packet to a QP of host comes from; 0: unknown.
    uint32_t source(uint8_t host, uint32_t qpn, uint8_t opcode = rc_send) {
        auto e = ends(a, host);
        Packet packet = bth(opcode, qpn, EQDS_ROCE_BTH_BYTES);
        u32 told = 0;
        return eqds_roce_source(roce.get(), &e, packet.data(), EQDS_ROCE_BTH_BYTES, &told) ? told
                                                                                           : 0;
    }
    std::unique_ptr<eqds_roce> roce = std::make_unique<eqds_roce>();
};

TEST_F(Roce, RequesterLearnsItsQpFromItsOwnRequest) {
    track(a, b, request(77, 0x111), true);
    EXPECT_EQ(source(b, 0x222), 0u);
    track(b, a, reply(77, 0x222), false);
    EXPECT_EQ(source(b, 0x222), 0x111u);
    EXPECT_EQ(source(b, 0x223), 0u);
    EXPECT_EQ(source(3, 0x222), 0u);
}

TEST_F(Roce, ResponderLearnsItsQpFromItsOwnReply) {
    track(b, a, request(77, 0x222), false);
    track(a, b, reply(77, 0x111), true);
    EXPECT_EQ(source(b, 0x222), 0x111u);
}

TEST_F(Roce, LaterConnectionOfAQpReplacesTheEarlier) {
    track(a, b, request(77, 0x111), true);
    track(b, a, reply(77, 0x222), false);
    track(a, b, request(78, 0x112), true);
    track(b, a, reply(78, 0x222), false);
    EXPECT_EQ(source(b, 0x222), 0x112u);
}

TEST_F(Roce, ReplyWithoutARequestOfThisEndIsIgnored) {
    track(b, a, reply(77, 0x222), false);
    EXPECT_EQ(source(b, 0x222), 0u);
    // Both from the peer: it answers itself.
    track(b, a, request(77, 0x333), false);
    track(a, b, reply(77, 0x222), false);
    EXPECT_EQ(source(b, 0x333), 0u);
}

TEST_F(Roce, ShortPacketsAndOtherOpcodesAreIgnored) {
    for (size_t bytes = 0; bytes < EQDS_ROCE_CM_BYTES; bytes++) {
        Packet packet = request(77, 0x111);
        packet.resize(bytes);
        track(a, b, packet, true);
    }
    track(b, a, reply(77, 0x222), false);
    EXPECT_EQ(source(b, 0x222), 0u);
    track(a, b, request(77, 0x111), true);
    track(b, a, reply(77, 0x222), false);
    EXPECT_EQ(source(b, 0x222, ud_send), 0u);
    EXPECT_EQ(source(b, 0x222), 0x111u);
}

TEST_F(Roce, FloodOfRequestsLeavesConnectionsAlone) {
    track(a, b, request(77, 0x111), true);
    track(b, a, reply(77, 0x222), false);
    for (uint32_t i = 0; i < 100'000; i++)
        track(3, a, request(i, i), false);
    EXPECT_EQ(source(b, 0x222), 0x111u);
}

TEST_F(Roce, ConnectionUsedLongestAgoMakesRoom) {
    for (uint32_t i = 1; i <= 4 * EQDS_ROCE_CONNECTIONS; i++) {
        track(a, b, request(i, i), true);
        track(b, a, reply(i, 0x1000 + i), false);
        // One in use stays, whatever comes.
        ASSERT_EQ(source(b, 0x1001), 1u) << i;
        ASSERT_EQ(source(b, 0x1000 + i), i);
    }
}

TEST(RoceCnp, NamesTheQpAndHasTheInvariantChecksum) {
    std::array<uint8_t, EQDS_ROCE_CNP_MAX> packet{};
    auto e = ends(b, a);
    ASSERT_EQ(eqds_roce_cnp(packet.data(), &e, 0x123456), 60u);
    const uint8_t* bth = packet.data() + 28;
    EXPECT_EQ(packet[0], 0x45);
    EXPECT_EQ(packet[15], b);
    EXPECT_EQ(packet[19], a);
    EXPECT_EQ(bth[0], EQDS_ROCE_CNP);
    EXPECT_EQ(bth[4], 0x40);
    EXPECT_EQ(bth[5] << 16 | bth[6] << 8 | bth[7], 0x123456);
    // The checksum covers the queue pair.
    std::array<uint8_t, EQDS_ROCE_CNP_MAX> again = packet;
    eqds_roce_cnp(again.data(), &e, 0x123456);
    EXPECT_EQ(again, packet);
    eqds_roce_cnp(again.data(), &e, 0x123457);
    EXPECT_NE(std::memcmp(again.data() + 56, packet.data() + 56, 4), 0);
}

TEST(RoceCnp, OverIPv6HasAChecksumThatVerifies) {
    std::array<uint8_t, EQDS_ROCE_CNP_MAX> packet{};
    eqds_roce_ends e{};
    e.from[0] = e.to[0] = 0xfd;
    e.to[15] = 9;
    ASSERT_EQ(eqds_roce_cnp(packet.data(), &e, 5), EQDS_ROCE_CNP_MAX);
    uint32_t sum = 17 + 40;
    for (size_t i = 8; i < packet.size(); i += 2)
        sum += packet[i] << 8 | packet[i + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    EXPECT_EQ(sum, 0xffffu);
}

} // namespace
