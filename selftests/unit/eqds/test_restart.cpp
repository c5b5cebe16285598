// SPDX-License-Identifier: GPL-2.0
// Either end forgets everything, and copies of messages from before are still under way.
#include <random>

#include "lone_receiver.hpp"
#include "rig.hpp"

using namespace eqds;

namespace {

const eqds_profile three_bits = {.seq_bits = 3, .pull_bits = 3, .epoch_bits = 3, .start_bits = 0};

struct EqdsRestart : testing::TestWithParam<bool> {
    Options options() {
        Options o;
        o.trimming = GetParam();
        return o;
    }
};

// Runs a life of the sender in epoch, and returns copies of its first messages with SYN.
std::vector<Message> live(Rig& rig, uint32_t epoch, uint32_t packets) {
    std::vector<Message> syns;
    auto lose = rig.lose_data;
    rig.forget_sender(rig[0], epoch);
    rig.lose_data = [&](const eqds_head& head) {
        if (head.flags & EQDS_SYN && syns.size() < 30) {
            syns.push_back(rig.encode(head));
            syns.back().bytes = head.bytes;
        }
        return false;
    };
    rig.offer(rig[0], packets, 1500);
    EXPECT_TRUE(rig.run(rig.now + 1'000'000'000, [&] { return rig.all_freed(); }));
    rig.lose_data = lose;
    EXPECT_FALSE(syns.empty());
    return syns;
}

Message control(Rig& rig, uint8_t flags, uint32_t epoch, uint32_t ack, uint32_t pull) {
    eqds_head head{};
    head.control = true;
    head.flags = flags;
    head.has_epoch = true;
    head.epoch = epoch;
    head.ack = ack;
    head.pull = pull;
    return rig.encode(head);
}

INSTANTIATE_TEST_SUITE_P(Network, EqdsRestart, testing::Bool());

// The receiver forgets epoch 1000, and a copy of an older life's SYN takes it to epoch 1001.
TEST_P(EqdsRestart, RstTellsTheEpochThatTheSenderHasToPass) {
    Rig rig(options());
    std::vector<Message> old = live(rig, 1001, 100);
    rig.forget_receiver(rig[0]);
    rig.forget_sender(rig[0], 1000);
    rig.offer(rig[0], 200, 1500);
    ASSERT_FALSE(rig.run(rig.now + 60'000, [&] { return rig.all_freed(); }));
    ASSERT_EQ(rig[0].sender.state, EQDS_SENDER_ESTABLISHED);
    rig.forget_receiver(rig[0]);
    for (const Message& m : old)
        rig.to_receiver(rig[0], m);
    ASSERT_EQ(rig[0].receiver.epoch, 1001u);
    EXPECT_TRUE(rig.run(rig.now + 1'000'000'000, [&] { return rig.all_freed(); }));
    EXPECT_EQ(rig[0].sender.epoch, 1002u);
    EXPECT_GE(rig[0].delivered.size(), 300u);
}

// Only the sender forgets. The SYN of epoch 1000 opens a receiver that then gets a copy of a SYN
// of epoch 1001, which an earlier life of the sender had sent.
TEST_P(EqdsRestart, PullsStayWithinTheTargetWhenTheSenderForgets) {
    Rig rig(options());
    std::vector<Message> old = live(rig, 1001, 100);
    rig.forget_receiver(rig[0]);
    rig.forget_sender(rig[0], 1000);
    rig.offer(rig[0], 40, 1500);
    ASSERT_TRUE(rig.run(rig.now + 1'000'000'000, [&] { return rig.all_freed(); }));
    ASSERT_EQ(rig[0].receiver.epoch, 1000u);
    for (const Message& m : old) // of a receiver that is established
        rig.to_receiver(rig[0], m);
    ASSERT_EQ(rig[0].receiver.epoch, 1001u);
    rig.run(rig.now + 100'000); // all that they ask for is pulled
    rig.offer(rig[0], 3, 1500);
    EXPECT_TRUE(rig.run(rig.now + 1'000'000'000, [&] { return rig.all_freed(); }));
    EXPECT_EQ(rig[0].sender.epoch, 1002u);
    EXPECT_EQ(rig[0].verdicts[EQDS_BAD_PULL], 0u);
}

// One of 2^32 restarts, or of 64 in the paper profile, draws the epoch that the receiver is in.
TEST_P(EqdsRestart, SenderThatDrawsTheReceiversEpochGetsOn) {
    for (uint32_t before : {1u, 5u, 50u, 1000u})
        for (uint32_t after : {1u, 10u, 100u, 2000u})
            for (bool paper : {false, true}) {
                Options o = options();
                if (paper)
                    o.profile = &eqds_profile_paper;
                Rig rig(o);
                rig.epochs_collide = true;
                live(rig, 17, before);
                ASSERT_EQ(rig[0].receiver.epoch, 17u);
                rig.forget_sender(rig[0], 17);
                rig.offer(rig[0], after, 1500);
                EXPECT_TRUE(rig.run(rig.now + 1'000'000'000, [&] { return rig.all_freed(); }))
                    << before << " packets before, " << after << " after, paper " << paper;
            }
}

// At every offset of the two ends' pull numbers, those half the space apart among them.
TEST_P(EqdsRestart, NumbersAnywhereInTheirSpaceDoNotStopASenderThatDrawsTheReceiversEpoch) {
    for (uint32_t pull = 0; pull < 8; pull++)
        for (uint32_t asked = 0; asked <= 2; asked++)
            for (uint32_t expected = 0; expected < 8; expected++) {
                Options o = options();
                o.profile = &three_bits;
                o.window_mtus = 2;
                o.window_packets = 4;
                Rig rig(o);
                rig.epochs_collide = true;
                rig.init_sender(rig[0], 3);
                live(rig, 3, 1);
                ASSERT_EQ(rig[0].receiver.expected, 1u);
                eqds_receiver& r = rig[0].receiver;
                eqds_asl_leave(&r.share);
                r.expected = r.end = expected;
                eqds_asl_renumber(&r.share, pull);
                eqds_asl_update(&r.share, (pull + asked) & 7, 0);
                rig.forget_sender(rig[0], 3);
                rig.offer(rig[0], 20, 1500);
                EXPECT_TRUE(rig.run(rig.now + 1'000'000'000, [&] { return rig.all_freed(); }))
                    << "pull " << pull << ", asked " << asked << ", expected " << expected;
            }
}

TEST(EqdsRst, SenderOpensBehindTheLaterOfTheTwoEpochs) {
    struct {
        uint32_t told, opened;
    } const cases[] = {{1000, 1001}, {1001, 1002}, {5000, 5001}, {900, 1001}};
    for (auto c : cases) {
        Rig rig(Options{});
        rig.init_sender(rig[0], 1000);
        rig.offer(rig[0], 100, 1500);
        ASSERT_FALSE(rig.run(rig.now + 60'000, [&] { return rig.all_freed(); }));
        ASSERT_EQ(rig[0].sender.state, EQDS_SENDER_ESTABLISHED);
        rig.to_sender(rig[0], control(rig, EQDS_RST, 1000, c.told, 0));
        EXPECT_EQ(rig[0].sender.epoch, c.opened);
        EXPECT_EQ(rig[0].sender.state, EQDS_SENDER_SYN_SENT);
    }
}

TEST(EqdsRst, WithoutStateTellsTheEpochOfThePacket) {
    eqds_head data{};
    eqds_out out;
    data.has_epoch = true;
    data.epoch = 77;
    EXPECT_FALSE(eqds_receiver_admit(&data, 1, &out));
    ASSERT_TRUE(out.send);
    EXPECT_EQ(out.head.flags, EQDS_RST);
    EXPECT_EQ(out.head.epoch, 77u);
    EXPECT_EQ(out.head.ack, 77u);
}

// An earlier life's numbers may happen to fit; the receiver then answers, and gives nothing.
// However the network loses and reorders, no packet is lost or comes twice where one epoch ends and
// the next begins.
TEST(EqdsEpoch, FullOneIsFollowedByTheNextAndNoNumberComesAgain) {
    for (bool trimming : {false, true}) {
        Options o;
        o.trimming = trimming;
        o.epoch_packets = 100;
        Rig rig(o);
        uint32_t n = 0;
        std::map<uint32_t, uint32_t> numbers; // by epoch, its highest
        rig.lose_data = [&](const eqds_head& head) {
            if (!(head.flags & EQDS_EMPTY))
                numbers[head.epoch] = std::max(numbers[head.epoch], head.seq);
            return ++n % 11 == 0;
        };
        rig.lose_control = [&](const eqds_head&) { return ++n % 7 == 0; };
        rig.extra_delay = [&](const eqds_head& head) { return head.seq % 3 * 2000; };
        rig.offer(rig[0], 1000, 1500);
        ASSERT_TRUE(rig.run(10'000'000'000, [&] { return rig.all_freed(); }));
        EXPECT_EQ(numbers.size(), 10u);
        for (auto [epoch, highest] : numbers)
            EXPECT_EQ(highest, 99u) << epoch;
        ASSERT_EQ(rig[0].delivered.size(), 1000u);
        for (uint32_t i = 0; i < 1000; i++)
            EXPECT_EQ(rig[0].delivered[i], i);
        // A tunnel that rested in a full epoch goes on in the next one.
        rig.offer(rig[0], 1, 1500);
        ASSERT_TRUE(rig.run(rig.now + 10'000'000'000, [&] { return rig.all_freed(); }));
        EXPECT_EQ(numbers.size(), 11u);
    }
}

TEST(EqdsImpossible, AnswersWithoutProgressEndTheEpochAfterTheIdleTime) {
    Rig rig(Options{});
    rig.config.idle_ns = 50'000'000;
    rig.init_sender(rig[0], 1000);
    rig.lose_data = [](auto&) { return true; };
    rig.offer(rig[0], 1, 1500);
    const eqds_sender& s = rig[0].sender;
    const uint64_t began = rig.now;
    while (s.epoch == 1000) {
        rig.to_sender(rig[0], control(rig, EQDS_ACK, 1000, s.una, s.pull));
        ASSERT_EQ(s.timeouts, 0);
        ASSERT_LT(rig.now, began + 10 * rig.config.idle_ns);
        rig.run(eqds_sender_deadline_ns(&s));
    }
    EXPECT_GE(rig.now, began + rig.config.idle_ns);
    EXPECT_LE(rig.now, began + rig.config.idle_ns + rig.config.rto_max_ns);
    EXPECT_EQ(s.epoch, 1001u);
}

// The SYN both releases the old epoch's packets and skips numbers of the new one.
TEST(EqdsSyn, NewEpochThatBeginsBehindAHoleDeliversThePacketsHeld) {
    eqds::LoneReceiver lone(0);
    auto& [config, slots, asl, r] = lone;
    eqds_packet held{}, later{};
    eqds_head head{};
    head.flags = EQDS_SYN;
    head.has_epoch = true;
    head.seq = head.unacked = 1; // number 0 is missing
    head.bytes = 100;
    eqds_out out;
    eqds_receiver_receive(&r, 0, &head, 140, &held, &out);
    ASSERT_EQ(out.deliver, nullptr);
    head.epoch++;
    head.seq = 10;
    head.unacked = 0;
    eqds_receiver_receive(&r, 0, &head, 140, &later, &out);
    EXPECT_EQ(out.verdict, EQDS_RESTARTED);
    ASSERT_EQ(out.deliver, &held);
    EXPECT_EQ(held.next, &later);
    EXPECT_EQ(later.next, nullptr);
    EXPECT_EQ(eqds_receiver_check(&r), nullptr);
}

TEST(EqdsRst, OfAnotherEpochIsIgnored) {
    Rig rig(Options{});
    rig.init_sender(rig[0], 1000);
    rig.offer(rig[0], 100, 1500);
    ASSERT_FALSE(rig.run(rig.now + 60'000, [&] { return rig.all_freed(); }));
    rig.to_sender(rig[0], control(rig, EQDS_RST, 999, 2000, 0));
    EXPECT_EQ(rig[0].sender.epoch, 1000u);
    EXPECT_EQ(rig[0].sender.state, EQDS_SENDER_ESTABLISHED);
}

TEST(EqdsImpossible, AckOrPullOfItsEpochMakesTheSenderOpenALaterOne) {
    for (bool pull : {false, true}) {
        Rig rig(Options{});
        rig.init_sender(rig[0], 1000);
        rig.offer(rig[0], 100, 1500);
        ASSERT_FALSE(rig.run(rig.now + 60'000, [&] { return rig.all_freed(); }));
        const eqds_sender& s = rig[0].sender;
        ASSERT_EQ(s.state, EQDS_SENDER_ESTABLISHED);
        rig.epochs_collide = true;
        rig.to_sender(rig[0], control(rig, EQDS_ACK, 1000, s.next, s.target));
        EXPECT_EQ(s.epoch, 1000u);
        rig.to_sender(rig[0], control(rig, EQDS_ACK, 1000, s.next + !pull, s.target + pull));
        EXPECT_EQ(s.epoch, 1001u);
        EXPECT_EQ(s.state, EQDS_SENDER_SYN_SENT);
        EXPECT_EQ(s.credit_bytes, 0); // by RTS: a peer that lies gets no bursts
        EXPECT_TRUE(rig.run(rig.now + 1'000'000'000, [&] { return rig.all_freed(); }));
    }
}

// Both ends forget at random, and the network loses, delays and copies what it likes. Once that
// ends, everything that is queued is sent and acknowledged.
TEST_P(EqdsRestart, EverythingIsSentOnceTheEndsStopForgetting) {
    for (uint32_t seed = 1; seed <= 150; seed++) {
        std::mt19937 random(seed);
        Options o = options();
        o.overdraw = seed & 1;
        o.cookie = seed & 2 ? 0x1234 : 0;
        bool tiny = seed & 4;
        if (tiny) {
            o.profile = &three_bits;
            o.window_mtus = 2;
            o.window_packets = 4;
        }
        Rig rig(o);
        rig.epochs_collide = true;
        bool faults = true;
        rig.lose_data = [&](auto&) { return faults && random() % 10 == 0; };
        rig.lose_control = rig.lose_data;
        rig.trim = [&](auto&) { return faults && o.trimming && random() % 10 == 0; };
        rig.extra_delay = [&](auto&) { return faults ? random() % 30'000 : 0; };
        rig.copy_delay = [&](auto&) {
            return faults && random() % 4 == 0 ? 1 + random() % 300'000 : 0;
        };
        rig.init_sender(rig[0], 3);
        for (uint32_t round = 0; round < 30; round++) {
            rig.offer(rig[0], 1 + random() % 30, 1500);
            rig.run(rig.now + random() % 200'000);
            if (random() % 3 == 0 && rig[0].has_receiver)
                rig.forget_receiver(rig[0]);
            if (random() % 3 == 0)
                rig.forget_sender(rig[0], random() % 6);
        }
        faults = false;
        rig.offer(rig[0], 20, 1500);
        ASSERT_TRUE(rig.run(rig.now + 3'000'000'000, [&] { return rig[0].sender.resting; }))
            << "seed " << seed;
        if (HasFatalFailure())
            return;
    }
}

// Anybody can send a control packet. One that does not know the epoch says nothing of the peer.
TEST(EqdsSilence, ControlPacketsOfNoEpochDoNotMakeADeadPeerHeard) {
    Options o;
    o.strikes_max = EQDS_STRIKES_MAX;
    Rig rig(o);
    rig.lose_data = [](auto&) { return true; };
    rig.offer(rig[0], 1, 1500);
    const uint64_t began = rig[0].sender.heard_ns;
    for (int i = 0; i < 3000; i++) {
        rig.run(rig.now + 5'000'000);
        eqds_head forged{};
        forged.control = true;
        forged.flags = i % 3 == 0 ? EQDS_ACK : i % 3 == 1 ? EQDS_ACK | EQDS_SYN : EQDS_RST;
        forged.epoch = rig[0].sender.epoch + 1000 + i % 2 * 0x80000000u;
        forged.ack = forged.epoch;
        rig.to_sender(rig[0], rig.encode(forged));
        EXPECT_EQ(rig[0].sender.heard_ns, began);
    }
    EXPECT_LT(rig[0].rts, 150u);
    EXPECT_GT(rig[0].sender.silent_ns, 10'000'000'000u);
}

} // namespace
