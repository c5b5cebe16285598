// SPDX-License-Identifier: GPL-2.0
// Two ends of a tunnel with a network between that does nothing wrong.
#include "rig.hpp"

using namespace eqds;

namespace {

std::vector<uint32_t> first(uint32_t count) {
    std::vector<uint32_t> ids(count);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = i;
    return ids;
}

// 15 s of RTS every 20 ms would be 750.
TEST(EqdsStart, SilentPeerIsAskedAfterAnEighthOfItsSilence) {
    Rig rig(Options{});
    std::vector<uint64_t> asked;
    rig.lose_data = [&](const eqds_head&) {
        asked.push_back(rig.now);
        return true;
    };
    rig.offer(rig[0], 1, 1500);
    rig.run(15'000'000'000);
    ASSERT_GT(asked.size(), 20u);
    EXPECT_LT(asked.size(), 100u);
    for (size_t i = 1; i < asked.size(); i++)
        EXPECT_LE(asked[i] - asked[i - 1], std::max<uint64_t>(asked[i] / 8, 20'000'000)) << i;
    // An answer ends the waiting.
    rig.lose_data = [](auto&) { return false; };
    EXPECT_TRUE(rig.run(20'000'000'000, [&] { return rig.all_freed(); }));
    EXPECT_EQ(rig[0].sender.silent_ns, 0u);
}

struct EqdsFlow : testing::TestWithParam<std::tuple<bool, bool, bool>> {
    Options options() {
        Options o;
        o.trimming = std::get<0>(GetParam());
        o.overdraw = std::get<1>(GetParam());
        if (std::get<2>(GetParam()))
            o.profile = &eqds_profile_paper;
        return o;
    }
};

TEST_P(EqdsFlow, DeliversEverythingInOrderAndFreesIt) {
    Rig rig(options());
    rig.offer(rig[0], 3000, 1500);
    EXPECT_TRUE(rig.run(1'000'000'000, [&] { return rig.all_delivered() && rig.all_freed(); }));
    EXPECT_EQ(rig[0].delivered, first(3000));
    EXPECT_EQ(rig[0].data, 3000u);
    EXPECT_EQ(rig[0].sender.credit_bytes, 0);
    EXPECT_TRUE(rig[0].sender.resting);
    EXPECT_EQ(rig.asl.owed_mtus, 0u);
}

TEST_P(EqdsFlow, FillsTheLink) {
    Rig rig(options());
    const uint32_t count = 2000;
    rig.offer(rig[0], count, 1500);
    ASSERT_TRUE(rig.run(1'000'000'000, [&] { return rig.all_delivered(); }));
    uint64_t ideal_ns = count * 1200; // 1500 bytes at 10 Gbit/s
    EXPECT_LT(rig[0].last_delivered_ns, ideal_ns * 105 / 100);
    EXPECT_LE(rig.queued_max, 20u);
}

TEST_P(EqdsFlow, CarriesPacketsOfAllSizes) {
    Rig rig(options());
    for (uint32_t i = 0; i < 800; i++)
        rig.offer(rig[0], 1, 1 + i * 7919 % 1500);
    EXPECT_TRUE(rig.run(1'000'000'000, [&] { return rig.all_delivered() && rig.all_freed(); }));
    EXPECT_EQ(rig[0].delivered, first(800));
}

INSTANTIATE_TEST_SUITE_P(Modes, EqdsFlow,
                         testing::Combine(testing::Bool(), testing::Bool(), testing::Bool()));

TEST(EqdsStart, TrimmingNetworkGetsOneBdpAtOnce) {
    Options o;
    o.trimming = true;
    Rig rig(o);
    rig.offer(rig[0], 100, 1500);
    EXPECT_EQ(rig[0].data, 20u);
    EXPECT_EQ(rig[0].rts, 1u);            // tells what came when the credit had gone
    EXPECT_EQ(rig[0].sender.target, 20u); // a BDP is asked for, since a BDP was sent
}

TEST(EqdsStart, OtherNetworkGetsOneRts) {
    Rig rig(Options{});
    rig.offer(rig[0], 100, 1500);
    EXPECT_EQ(rig[0].data, 0u);
    EXPECT_EQ(rig[0].rts, 1u);
    EXPECT_TRUE(rig.run(1'000'000'000, [&] { return rig.all_freed(); }));
    EXPECT_LE(rig[0].rts, 3u);
}

TEST(EqdsStart, BurstAfterRestOnlyWhenTheReceiverIsNotBusy) {
    Options o;
    o.trimming = true;
    o.window_mtus = 10;
    Rig rig(o);
    rig.offer(rig[0], 5, 1500);
    ASSERT_TRUE(rig.run(1'000'000'000, [&] { return rig.all_freed(); }));
    rig[0].sender.busy_until_ns = rig.now + 50'000;
    rig.offer(rig[0], 1, 1500);
    EXPECT_EQ(rig[0].data, 5u);
    EXPECT_EQ(rig[0].rts, 1u);
    ASSERT_TRUE(rig.run(1'000'000'000, [&] { return rig.all_freed(); }));
    rig.run(rig.now + 100'000);
    rig.offer(rig[0], 20, 1500);
    EXPECT_EQ(rig[0].data, 16u);
}

// A pull brings an MTU: of 15 packets of a tenth of that, at most every tenth has to ask.
TEST(EqdsStart, CreditLeftOverByAPullServesSmallPacketsAfterRest) {
    Rig rig(Options{});
    for (uint32_t i = 0; i < 15; i++) {
        rig.offer(rig[0], 1, 150);
        EXPECT_EQ(rig[0].rts, 1 + i / 10) << i;
        ASSERT_TRUE(rig.run(rig.now + 1'000'000'000, [&] { return rig.all_freed(); }));
        EXPECT_LT(rig[0].sender.credit_bytes, 1500);
    }
    EXPECT_EQ(rig[0].pulls, 2u);
}

TEST(EqdsStart, SynOnEveryPacketUntilTheSynAck) {
    Options o;
    o.trimming = true;
    Rig rig(o);
    uint32_t syn = 0, plain = 0;
    rig.lose_data = [&](const eqds_head& head) {
        if (!(head.flags & EQDS_EMPTY))
            ++(head.flags & EQDS_SYN ? syn : plain);
        return false;
    };
    rig.offer(rig[0], 100, 1500);
    EXPECT_TRUE(rig.run(1'000'000'000, [&] { return rig.all_freed(); }));
    EXPECT_EQ(syn, 20u);
    EXPECT_EQ(plain, 80u);
}

TEST(EqdsRtt, ConstantDelayIsMeasuredAsItIs) {
    Rig rig(Options{});
    // One at a time: 4 x 5 us, and 1.2 us on the link.
    for (int i = 0; i < 100; i++) {
        rig.offer(rig[0], 1, 1500);
        ASSERT_TRUE(rig.run(rig.now + 1'000'000'000, [&] { return rig.all_freed(); }));
    }
    EXPECT_NEAR(double(rig[0].sender.rtt_ns), 21'200, 50);
    EXPECT_LT(rig[0].sender.rtt_var_ns, 50u);
}

// A packet takes longer than the first timeout, and the last one of a few longer than what was
// measured of lone ones.
TEST(EqdsRtt, TimeoutsThatWereTooShortGrowUntilNothingIsSentTwice) {
    Options o;
    o.link_bits_per_sec = 10'000'000;
    o.trimming = true;
    Rig rig(o);
    auto carry = [&](int answers, uint32_t packets) {
        for (int i = 0; i < answers; i++) {
            rig.offer(rig[0], packets, 1500);
            ASSERT_TRUE(rig.run(rig.now + 1'000'000'000, [&] { return rig.all_freed(); }));
            rig.run(rig.now + 1'000'000);
        }
    };
    carry(50, 1);
    EXPECT_LT(rig[0].resent, 5u);
    carry(50, 4);
    const uint32_t learned = rig[0].resent;
    EXPECT_LT(learned, 50u);
    carry(50, 4);
    EXPECT_LT(rig[0].resent - learned, 5u);
}

// Packets that left one after another are lost; the tunnel opens again as late as after one.
TEST(EqdsRtt, PacketsLostInARowAreOneTimeout) {
    auto opens_again_after = [](bool trimming, int packets) {
        Options o;
        o.trimming = trimming;
        Rig rig(o);
        rig.offer(rig[0], 1, 1500);
        EXPECT_TRUE(rig.run(1'000'000'000, [&] { return rig.all_freed(); }));
        rig.lose_data = [](auto&) { return true; };
        const uint32_t epoch = rig[0].sender.epoch;
        const uint64_t began = rig.now;
        for (int i = 0; i < packets; i++) {
            rig.offer(rig[0], 1, 100);
            rig.run(rig.now + 3'000);
        }
        EXPECT_TRUE(rig.run(began + 10'000'000'000, [&] { return rig[0].sender.epoch != epoch; }));
        return rig.now - began;
    };
    for (bool trimming : {false, true}) {
        const uint64_t alone = opens_again_after(trimming, 1);
        for (int packets : {2, 8, 30}) {
            const uint64_t row = opens_again_after(trimming, packets);
            EXPECT_GT(row, alone / 10 * 9) << packets << " packets, trimming " << trimming;
            EXPECT_LT(row, alone / 10 * 12) << packets << " packets, trimming " << trimming;
        }
    }
}

// b bytes of credit for b bytes, or any credit above 0 and a debt.
TEST(EqdsCredit, PaperWaitsForAllOfAPacketsBytesAndOverdrawForAny) {
    for (bool overdraw : {false, true}) {
        Options o;
        o.trimming = true;
        o.overdraw = overdraw;
        o.window_mtus = 2; // 3000 bytes
        Rig rig(o);
        rig.offer(rig[0], 3, 1400); // 200 bytes of credit are left after two
        EXPECT_EQ(rig[0].data, overdraw ? 3u : 2u);
        EXPECT_EQ(rig[0].sender.credit_bytes, overdraw ? -1200 : 200);
        EXPECT_TRUE(rig.run(1'000'000'000, [&] { return rig.all_freed(); }));
    }
}

// Its receiver gives it the window that it knows, in its turn.
TEST(EqdsCredit, SenderWithALargerWindowGetsAnEqualShare) {
    for (bool trimming : {false, true}) {
        Options o;
        o.tunnels = 2;
        o.trimming = trimming;
        eqds_config wide;
        Rig rig(o);
        wide = rig.config;
        wide.window_bytes *= 3;
        rig[1].sender.config = &wide;
        for (uint32_t i : {0, 1})
            rig.offer(rig[i], 5000, 1500);
        rig.run(rig.now + 5'000'000);
        const double first = double(rig[0].delivered.size());
        const double second = double(rig[1].delivered.size());
        EXPECT_GT(first, 1500) << "trimming " << trimming;
        EXPECT_NEAR(second / first, 1, 0.05) << first << ", trimming " << trimming;
    }
}

TEST(EqdsCredit, UnorderedDeliversAsItArrivesAndOnce) {
    Options o;
    o.ordered = false;
    Rig rig(o);
    rig.extra_delay = [](const eqds_head& head) { return head.control ? 0 : head.seq % 5 * 4000; };
    rig.offer(rig[0], 300, 1500);
    EXPECT_TRUE(rig.run(1'000'000'000, [&] { return rig.all_freed(); }));
    EXPECT_NE(rig[0].delivered, first(300));
    std::sort(rig[0].delivered.begin(), rig[0].delivered.end());
    EXPECT_EQ(rig[0].delivered, first(300));
}

// A receiver of the paper's profile has no place to say so.
TEST(EqdsStart, ReceiverSaysThatItHeedsMarksOnAnyPacket) {
    for (const eqds_profile* profile : {&eqds_profile_extended, &eqds_profile_paper}) {
        Options o;
        o.profile = profile;
        Rig rig(o);
        rig.offer(rig[0], 1, 1500);
        EXPECT_FALSE(rig[0].sender.ecn);
        EXPECT_TRUE(rig.run(1'000'000'000, [&] { return rig.all_freed(); }));
        EXPECT_EQ(rig[0].sender.ecn, profile == &eqds_profile_extended);
    }
}

} // namespace
