// SPDX-License-Identifier: GPL-2.0
// Turns of the active sender list: tunnels that let theirs pass, and tunnels that don't use them.
#include "rig.hpp"

#include <numeric>

using namespace eqds;

namespace {

// Receivers of one list whose senders are the test.
struct List {
    explicit List(uint32_t count, eqds_asl_policy policy = EQDS_ASL_FIFO) {
        eqds_config_init(&config, &eqds_profile_extended, 1500, 20 * 1500);
        eqds_asl_init(&asl, policy, 1500, 10'000'000'000, 1);
        for (uint32_t i = 0; i < count; i++) {
            slots.emplace_back(config.window_packets);
            eqds_receiver& r = *receivers.emplace_back(std::make_unique<eqds_receiver>());
            eqds_receiver_init(&r, &config, &asl, slots.back().data(), i, 0);
            ask(r, true);
        }
        pulls.resize(count);
        seq.resize(count);
    }
    ~List() {
        for (auto& r : receivers) {
            eqds_out out;
            eqds_receiver_close(r.get(), &out);
        }
        EXPECT_EQ(asl.owed_mtus, 0u);
    }

    void ask(eqds_receiver& r, bool syn = false) {
        eqds_head head{};
        head.flags = EQDS_EMPTY | (syn ? EQDS_SYN : 0);
        head.has_epoch = true;
        head.epoch = 1;
        head.seq = r.expected;
        head.pull = r.share.pull + 20;
        head.backlog_bytes = 1 << 20;
        eqds_out out;
        eqds_receiver_receive(&r, now, &head, EQDS_DATA_BYTES, nullptr, &out);
        ASSERT_EQ(eqds_receiver_check(&r), nullptr);
    }
    // A packet that uses up a pull, and asks for another.
    void send(eqds_receiver& r, uint32_t wire_bytes = 1500) {
        eqds_head head{};
        head.has_epoch = true;
        head.epoch = 1;
        head.seq = r.expected;
        head.pull = r.share.pull + 20;
        head.bytes = 1500;
        eqds_packet packet{};
        eqds_out out;
        eqds_receiver_receive(&r, now, &head, wire_bytes, &packet, &out);
        ASSERT_EQ(out.deliver, &packet);
    }
    // Slots of the link; after(r) is the sender's reaction to a pull.
    template <class After>
    void run(uint32_t count, After after) {
        for (uint32_t i = 0; i < count; i++) {
            now = std::max(now, eqds_asl_deadline_ns(&asl) == EQDS_NEVER
                                    ? now + 1200
                                    : eqds_asl_deadline_ns(&asl));
            eqds_head head;
            if (eqds_receiver* r = eqds_receiver_next(&asl, now, &head)) {
                pulls[r->id]++;
                after(*r);
                ASSERT_EQ(eqds_receiver_check(r), nullptr);
            }
        }
    }

    uint64_t now = 1'000'000'000;
    eqds_config config;
    eqds_asl asl;
    std::vector<std::vector<eqds_packet*>> slots;
    std::vector<std::unique_ptr<eqds_receiver>> receivers;
    std::vector<uint32_t> pulls, seq;
};

TEST(EqdsAsl, LoneTunnelTakesTheShareThatCongestionLeavesIt) {
    for (eqds_asl_policy policy : {EQDS_ASL_FIFO, EQDS_ASL_PIFO}) {
        for (uint32_t divisor : {2, 4, 16, 64}) {
            List list(1, policy);
            eqds_receiver& r = *list.receivers[0];
            r.share.rate.share = EQDS_RATE_ONE / divisor;
            list.run(6400, [&](eqds_receiver& one) {
                list.send(one);
                one.share.rate.share = EQDS_RATE_ONE / divisor; // the share would recover
            });
            EXPECT_NEAR(list.pulls[0], 6400 / divisor, 1) << policy;
        }
    }
}

TEST(EqdsAsl, TurnThatATunnelLetsPassIsAnothers) {
    for (eqds_asl_policy policy : {EQDS_ASL_FIFO, EQDS_ASL_PIFO}) {
        List list(2, policy);
        list.run(1000, [&](eqds_receiver& one) {
            list.send(one);
            list.receivers[0]->share.rate.share = EQDS_RATE_ONE / 4;
        });
        EXPECT_NEAR(list.pulls[0], 200, 30) << policy;
        EXPECT_EQ(list.pulls[0] + list.pulls[1], 1000u) << policy;
    }
}

// The round trip of tunnels that ask and send nothing: an answer to each pull asks again.
TEST(EqdsAsl, TunnelsThatDoNotUseTheirCreditLeaveItToAnHonestOne) {
    for (eqds_asl_policy policy : {EQDS_ASL_FIFO, EQDS_ASL_PIFO}) {
        List list(201, policy);
        auto serve = [&](eqds_receiver& one) {
            if (one.id)
                list.ask(one);
            else
                list.send(one);
        };
        list.run(200 * 2 * 20, serve); // two BDP each
        std::fill(list.pulls.begin(), list.pulls.end(), 0);
        list.run(200'000, serve);
        EXPECT_GT(list.pulls[0], 198'000u);
        EXPECT_LT(eqds_asl_busy_us(&list.asl), 1000u) << "the link is busy with nothing";
    }
}

// A header says that its packet cost an MTU, and the packet is short.
TEST(EqdsAsl, ShortPacketThatSaysItIsLongIsNoUseOfCredit) {
    List list(2);
    auto serve = [&](eqds_receiver& one) { list.send(one, one.id ? 60 : 1500); };
    list.run(5'000, serve);
    std::fill(list.pulls.begin(), list.pulls.end(), 0);
    list.run(10'000, serve);
    EXPECT_GT(list.pulls[0], 9'000u);
}

TEST(EqdsAsl, SenderOfAPathThatLosesHalfKeepsItsShare) {
    List list(2);
    uint32_t n = 0;
    list.run(20'000, [&](eqds_receiver& one) {
        if (one.id && n++ % 2)
            list.ask(one);
        else
            list.send(one);
    });
    EXPECT_NEAR(list.pulls[0], 10'000, 100);
}

TEST(EqdsAsl, SenderThatLostAllItsPacketsIsServedAgain) {
    List list(1);
    list.run(100, [&](eqds_receiver& one) { list.ask(one); });
    EXPECT_LE(list.pulls[0], 41u);          // two BDP, and one forgiven
    list.now += list.config.rto_max_ns * 8; // as receiver.h says
    list.ask(*list.receivers[0]);
    list.run(200, [&](eqds_receiver& one) { list.send(one); });
    EXPECT_GT(list.pulls[0], 200u);
}

TEST(EqdsAsl, NewEpochDoesNotForgetUnusedCredit) {
    List list(1);
    eqds_receiver& r = *list.receivers[0];
    for (uint32_t epoch = 2; epoch < 50; epoch++) {
        list.run(25, [](eqds_receiver&) {});
        eqds_head head{};
        head.flags = EQDS_EMPTY | EQDS_SYN;
        head.has_epoch = true;
        head.epoch = epoch;
        head.pull = 20;
        eqds_out out;
        eqds_receiver_receive(&r, list.now, &head, EQDS_DATA_BYTES, nullptr, &out);
    }
    EXPECT_LE(list.pulls[0], 45u);
}

} // namespace
