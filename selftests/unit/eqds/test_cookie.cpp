// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "lone_receiver.hpp"

namespace {

const base_siphash_key key = {{1, 2}}, other_key = {{1, 3}};

TEST(EqdsCookie, SameAddressAndKeyGiveTheSameCookie) {
    const uint8_t address[6] = {10, 0, 0, 1, 0x1d, 0xf7};
    uint8_t copy[6];
    std::memcpy(copy, address, 6);
    EXPECT_EQ(eqds_cookie(&key, address, 6), eqds_cookie(&key, copy, 6));
}

TEST(EqdsCookie, EveryBitOfAddressAndKeyChangesTheCookie) {
    uint8_t address[16] = {};
    std::set<uint64_t> cookies = {eqds_cookie(&key, address, 16),
                                  eqds_cookie(&other_key, address, 16),
                                  eqds_cookie(&key, address, 4)};
    for (int bit = 0; bit < 128; bit++) {
        address[bit / 8] ^= 1 << bit % 8;
        cookies.insert(eqds_cookie(&key, address, 16));
        address[bit / 8] ^= 1 << bit % 8;
    }
    EXPECT_EQ(cookies.size(), 131u);
    EXPECT_EQ(cookies.count(0), 0u);
}

TEST(EqdsCookie, ReceiverSendsNoMoreThanItGotUntilTheCookieComesBack) {
    eqds::LoneReceiver lone(0x77);
    auto& [config, slots, asl, r] = lone;
    eqds_head head{};
    head.flags = EQDS_SYN | EQDS_EMPTY;
    head.has_epoch = true;
    head.epoch = 5;
    head.pull = 10;
    eqds_out out;
    eqds_receiver_receive(&r, 0, &head, EQDS_RTS_SYN_BYTES, nullptr, &out);
    ASSERT_TRUE(out.send);
    EXPECT_EQ(out.head.cookie, 0x77u);
    uint32_t pulls = 0;
    for (uint64_t now = 0; now < 100'000; now += 1200)
        pulls += eqds_asl_next(&asl, now, &head) != nullptr;
    EXPECT_EQ(pulls, (EQDS_RTS_SYN_BYTES - EQDS_CONTROL_BYTES) / EQDS_CONTROL_BYTES);
    EXPECT_FALSE(r.active);

    // Bytes of another epoch are bytes, too: the tunnel is listed again.
    head = {};
    head.has_epoch = true;
    head.epoch = 4;
    eqds_receiver_receive(&r, 200'000, &head, 2 * EQDS_CONTROL_BYTES, nullptr, &out);
    EXPECT_EQ(out.verdict, EQDS_WRONG_EPOCH);
    EXPECT_EQ(out.head.ack, 5u);
    EXPECT_TRUE(r.active);
    EXPECT_EQ(eqds_receiver_check(&r), nullptr);
    EXPECT_NE(eqds_asl_next(&asl, 300'000, &head), nullptr);
    EXPECT_EQ(eqds_asl_next(&asl, 400'000, &head), nullptr);

    head = {};
    head.flags = EQDS_EMPTY;
    head.has_epoch = true;
    head.epoch = 5;
    head.pull = 10;
    head.cookie = 0x77;
    eqds_receiver_receive(&r, 500'000, &head, EQDS_DATA_BYTES, nullptr, &out);
    EXPECT_TRUE(r.proven);
    pulls = 0;
    for (uint64_t now = 500'000; now < 600'000; now += 1200)
        pulls += eqds_asl_next(&asl, now, &head) != nullptr;
    EXPECT_EQ(pulls, 10u - 3u);
}

TEST(EqdsCookie, HeadersAroundATunnelsCountInBothDirections) {
    eqds::LoneReceiver lone(0x77);
    lone.config.outer_bytes = 48;
    eqds_head head{};
    head.flags = EQDS_SYN | EQDS_EMPTY;
    head.has_epoch = true;
    head.pull = 10;
    eqds_out out;
    eqds_receiver_receive(&lone.r, 0, &head, EQDS_RTS_SYN_BYTES, nullptr, &out);
    uint32_t replies = out.send;
    for (uint64_t now = 0; now < 100'000; now += 1200)
        replies += eqds_asl_next(&lone.asl, now, &head) != nullptr;
    EXPECT_EQ(replies, 2u);
    EXPECT_LE(replies * (EQDS_CONTROL_BYTES + 48), EQDS_RTS_SYN_BYTES + 48);
}

TEST(EqdsCookie, BacklogOfAnUnprovenPeerDoesNotMakeTheLinkBusy) {
    eqds::LoneReceiver lone(0x77);
    eqds_head head{};
    head.flags = EQDS_SYN | EQDS_EMPTY;
    head.has_epoch = true;
    head.pull = 1;
    head.backlog_bytes = ~0u;
    eqds_out out;
    eqds_receiver_receive(&lone.r, 0, &head, EQDS_RTS_SYN_BYTES, nullptr, &out);
    EXPECT_LT(eqds_asl_busy_us(&lone.asl), 100u);
    head.cookie = 0x77;
    eqds_receiver_receive(&lone.r, 0, &head, EQDS_RTS_SYN_BYTES, nullptr, &out);
    EXPECT_EQ(eqds_asl_busy_us(&lone.asl), 65535u);
}

TEST(EqdsCookie, WrongCookieProvesNothing) {
    eqds::LoneReceiver lone(0x77);
    auto& [config, slots, asl, r] = lone;
    eqds_head head{};
    head.flags = EQDS_SYN | EQDS_EMPTY;
    head.has_epoch = true;
    eqds_out out;
    for (uint64_t cookie : {0x76ull, 0ull, ~0ull}) {
        head.cookie = cookie;
        eqds_receiver_receive(&r, 0, &head, 40, nullptr, &out);
        EXPECT_FALSE(r.proven);
    }
}

TEST(EqdsCookie, ReceiverWithoutRoomKeepsStateOnlyForAValidCookie) {
    eqds_head syn{};
    syn.flags = EQDS_SYN;
    syn.has_epoch = true;
    syn.epoch = 9;
    eqds_out out;
    EXPECT_TRUE(eqds_receiver_admit(&syn, 0x77, false, &out));
    EXPECT_FALSE(eqds_receiver_admit(&syn, 0x77, true, &out));
    ASSERT_TRUE(out.send);
    EXPECT_EQ(out.head.flags, EQDS_PAUSE | EQDS_SYN | EQDS_NACK);
    EXPECT_EQ(out.head.cookie, 0x77u);
    EXPECT_EQ(out.head.epoch, 9u);
    syn.cookie = 0x77;
    EXPECT_TRUE(eqds_receiver_admit(&syn, 0x77, true, &out));
    syn.cookie = 0;
    EXPECT_FALSE(eqds_receiver_admit(&syn, 0, true, &out));
    EXPECT_FALSE(out.send); // without cookies there is nothing to come again with
}

TEST(EqdsCookie, ControlPacketsAndFinsOfUnknownTunnelsAreNotAnswered) {
    eqds_head head{};
    eqds_out out;
    head.control = true;
    EXPECT_FALSE(eqds_receiver_admit(&head, 1, false, &out));
    EXPECT_FALSE(out.send);
    head = {};
    head.flags = EQDS_FIN | EQDS_EMPTY;
    EXPECT_FALSE(eqds_receiver_admit(&head, 1, false, &out));
    EXPECT_FALSE(out.send);
}

} // namespace
