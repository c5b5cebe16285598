// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "rig.hpp"

namespace {

const base_siphash_key key = {{1, 2}}, other_key = {{1, 3}};

TEST(EqdsCookie, SameAddressAndKeyGiveTheSameCookie) {
    const uint8_t address[6] = {10, 0, 0, 1, 0x1d, 0xf7};
    uint8_t copy[6];
    std::memcpy(copy, address, 6);
    EXPECT_EQ(eqds_cookie(&key, address, 6, 0, 0), eqds_cookie(&key, copy, 6, 0, 0));
}

TEST(EqdsCookie, EveryBitOfAddressAndKeyChangesTheCookie) {
    uint8_t address[16] = {};
    std::set<uint64_t> cookies = {eqds_cookie(&key, address, 16, 0, 0),
                                  eqds_cookie(&other_key, address, 16, 0, 0),
                                  eqds_cookie(&key, address, 4, 0, 0)};
    for (int bit = 0; bit < 128; bit++) {
        address[bit / 8] ^= 1 << bit % 8;
        cookies.insert(eqds_cookie(&key, address, 16, 0, 0));
        address[bit / 8] ^= 1 << bit % 8;
    }
    EXPECT_EQ(cookies.size(), 131u);
    EXPECT_EQ(cookies.count(0), 0u);
}

TEST(EqdsCookie, CookieOfAPeriodIsTakenInTheNextOneAndNoLonger) {
    const uint8_t address[4] = {10, 0, 0, 1}, other[4] = {10, 0, 0, 2};
    auto told = [&](const uint8_t* at, uint64_t periods, uint64_t offered) {
        return eqds_cookie(&key, at, 4, periods * EQDS_COOKIE_PERIOD_NS + 5, offered);
    };
    const uint64_t first = told(address, 7, 0), second = told(address, 8, 0);
    EXPECT_NE(first, second);
    EXPECT_NE(first, told(other, 7, 0));
    EXPECT_EQ(told(address, 7, first), first);
    EXPECT_EQ(told(address, 8, first), first);
    EXPECT_EQ(told(address, 9, first), told(address, 9, 0));
    EXPECT_NE(told(address, 9, first), first);
    EXPECT_EQ(told(address, 7, second), first) << "a cookie of the time to come";
    EXPECT_EQ(told(other, 8, first), told(other, 8, 0));
}

TEST(EqdsCookie, SynWithoutTheCookieIsToldItAndOpensNothing) {
    eqds_head syn{};
    syn.flags = EQDS_SYN;
    syn.has_epoch = true;
    syn.epoch = 9;
    eqds_out out;
    for (uint64_t cookie : {0x0ull, 0x76ull, ~0ull}) {
        syn.cookie = cookie;
        EXPECT_FALSE(eqds_receiver_admit(&syn, 0x77, &out));
        ASSERT_TRUE(out.send);
        EXPECT_EQ(out.head.flags, EQDS_PAUSE | EQDS_SYN | EQDS_NACK);
        EXPECT_EQ(out.head.cookie, 0x77u);
        EXPECT_EQ(out.head.epoch, 9u);
        EXPECT_LE(eqds_wire_bytes(&eqds_profile_extended, &out.head),
                  eqds_wire_bytes(&eqds_profile_extended, &syn));
    }
    syn.cookie = 0x77;
    EXPECT_TRUE(eqds_receiver_admit(&syn, 0x77, &out));
    EXPECT_FALSE(out.send);
    syn.cookie = 0;
    EXPECT_TRUE(eqds_receiver_admit(&syn, 0, &out)); // addresses need no proof
}

// A burst of packets without a cookie would be dropped.
TEST(EqdsCookie, SenderWithoutACookieOpensByAnRtsAndThenSendsItsBurst) {
    eqds::Options o;
    o.trimming = true;
    o.cookie = 0x1234;
    eqds::Rig rig(o);
    rig.offer(rig[0], 100, 1500);
    EXPECT_EQ(rig[0].data, 0u);
    EXPECT_EQ(rig[0].rts, 1u);
    rig.run(rig.now + 4 * o.delay_ns);
    EXPECT_EQ(rig[0].data, 20u);
    EXPECT_FALSE(rig[0].has_receiver);
    EXPECT_TRUE(rig.run(1'000'000'000, [&] { return rig.all_freed(); }));
    EXPECT_EQ(rig[0].data, 100u);
    EXPECT_EQ(rig[0].receiver.cookie, o.cookie);
}

TEST(EqdsCookie, SenderWithAnOldCookieLearnsTheNewOne) {
    eqds::Options o;
    o.trimming = true;
    o.cookie = 0x1234;
    eqds::Rig rig(o);
    rig.init_sender(rig[0], 5, 0x1111);
    rig.offer(rig[0], 100, 1500);
    EXPECT_EQ(rig[0].data, 20u);
    EXPECT_TRUE(rig.run(1'000'000'000, [&] { return rig.all_freed(); }));
    EXPECT_EQ(rig[0].delivered.size(), 100u);
    EXPECT_EQ(rig[0].sender.cookie, o.cookie);
}

TEST(EqdsCookie, ClaimIsNoCookie) {
    eqds_head syn{}, read;
    syn.flags = EQDS_SYN | EQDS_EMPTY;
    syn.has_epoch = syn.claims = true;
    syn.cookie = 0x77;
    uint8_t bytes[EQDS_DATA_BYTES];
    eqds_wire_encode(&eqds_profile_extended, &syn, bytes);
    ASSERT_EQ(eqds_wire_parse(&eqds_profile_extended, bytes, sizeof(bytes), &read), EQDS_WIRE_GOOD);
    EXPECT_TRUE(read.claims);
    EXPECT_EQ(read.cookie, 0x77u);
    eqds_out out;
    EXPECT_FALSE(eqds_receiver_admit(&read, 0x77, &out));
    EXPECT_EQ(out.head.cookie, 0x77u);
    syn.claims = false;
    eqds_wire_encode(&eqds_profile_extended, &syn, bytes);
    ASSERT_EQ(eqds_wire_parse(&eqds_profile_extended, bytes, sizeof(bytes), &read), EQDS_WIRE_GOOD);
    EXPECT_FALSE(read.claims);
    EXPECT_TRUE(eqds_receiver_admit(&read, 0x77, &out));
}

TEST(EqdsCookie, ClaimsOfAddressesDiffer) {
    const uint8_t address[16] = {1}, other[16] = {2};
    EXPECT_NE(eqds_cookie_claim(address, 16), eqds_cookie_claim(other, 16));
}

// The mark alone ends nothing: where the translator keeps ports, the cookie comes as well.
TEST(EqdsCookie, SenderIsToldOfATranslator) {
    eqds::Rig rig(eqds::Options{});
    rig.config.cookies = true;
    rig.offer(rig[0], 1, 1500);
    eqds_head pause{};
    pause.control = pause.has_epoch = true;
    pause.flags = EQDS_PAUSE | EQDS_SYN | EQDS_NACK;
    pause.marks = EQDS_MARK_TRANSLATED;
    pause.epoch = rig[0].sender.epoch + 1;
    rig.to_sender(rig[0], rig.encode(pause));
    EXPECT_FALSE(rig[0].sender.translated) << "of another epoch";
    pause.epoch = rig[0].sender.epoch;
    rig.to_sender(rig[0], rig.encode(pause));
    EXPECT_TRUE(rig[0].sender.translated);
    EXPECT_EQ(rig[0].sender.state, EQDS_SENDER_SYN_SENT);
    pause.marks = 0;
    pause.cookie = 0x1234;
    rig.to_sender(rig[0], rig.encode(pause));
    EXPECT_FALSE(rig[0].sender.translated) << "it was answered";
    EXPECT_EQ(rig[0].sender.cookie, 0x1234u);
}

TEST(EqdsCookie, ControlPacketsAndFinsOfUnknownTunnelsAreNotAnswered) {
    eqds_head head{};
    eqds_out out;
    head.control = true;
    EXPECT_FALSE(eqds_receiver_admit(&head, 1, &out));
    EXPECT_FALSE(out.send);
    head = {};
    head.flags = EQDS_FIN | EQDS_EMPTY;
    EXPECT_FALSE(eqds_receiver_admit(&head, 1, &out));
    EXPECT_FALSE(out.send);
}

} // namespace
