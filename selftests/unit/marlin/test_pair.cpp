// SPDX-License-Identifier: GPL-2.0
// Pair words: two machines start together, whatever the order, and clean no memory in use.
#include <array>
#include <random>

#include <gtest/gtest.h>

extern "C" {
#include "core/marlin/pair.h"
}

namespace remora::test {

namespace {

constexpr std::uint32_t ring_log = 21;

// Two machines with a link. A machine may look only now and then; it sees the other's last word.
struct Two {
    Two() {
        for (std::uint32_t n : {0U, 1U})
            pair_init(&end[n], 4094 + n, ring_log); // the numbers wrap soon
    }
    void act(int who, std::uint32_t actions) {
        if (actions & PAIR_STOP)
            writes[who] = false;
        if (actions & PAIR_CLEAN) {
            EXPECT_FALSE(writes[1 - who]) << "cleaned while the peer writes there";
            clean[who] = true;
        }
        if (actions & PAIR_PUBLISH)
            word[who] = pair_word(&end[who]);
        if (actions & PAIR_START) {
            EXPECT_TRUE(clean[1 - who]) << "writes where nothing was cleaned";
            EXPECT_EQ(pair_word_ring_bytes(word[1 - who]), 1U << ring_log);
            writes[who] = true;
        }
        // A session's frames make it dirty.
        if (writes[who])
            clean[1 - who] = false;
    }
    bool look(int who) {
        std::uint32_t actions = pair_look(&end[who], wanted[who], word[1 - who]);
        act(who, actions);
        return actions;
    }
    void settle() {
        for (int idle = 0, rounds = 0; idle < 2; rounds++) {
            ASSERT_LT(rounds, 100) << "it never settles";
            idle = look(rounds % 2) ? 0 : idle + 1;
        }
    }
    void restart(int who) { act(who, pair_restart(&end[who])); }
    // Its power is cut, which clears its words and memory, and it comes back.
    void reboot(int who, std::uint32_t session) {
        writes[who] = clean[who] = false;
        pair_init(&end[who], session, ring_log);
        word[who] = 0;
    }

    std::array<pair, 2> end;
    std::array<std::uint32_t, 2> word{};
    std::array<bool, 2> wanted{true, true}, writes{}, clean{};
};

TEST(Pair, BothWantedBecomeLive) {
    Two two;
    two.settle();
    EXPECT_TRUE(two.end[0].live && two.end[1].live);
}

TEST(Pair, OneAloneNeverBecomesLive) {
    Two two;
    two.wanted[1] = false;
    two.settle();
    EXPECT_FALSE(two.end[0].live || two.end[1].live);
    EXPECT_EQ(two.word[1], 0U);
}

TEST(Pair, FaultOfOneEndRestartsBoth) {
    Two two;
    two.settle();
    std::uint32_t before = two.end[0].session;
    two.restart(0);
    EXPECT_NE(two.end[0].session, before);
    EXPECT_FALSE(two.end[0].live);
    two.settle();
    EXPECT_TRUE(two.end[0].live && two.end[1].live);
}

TEST(Pair, RandomEventsInAnyOrderEndLive) {
    std::mt19937 chance(7);
    for (int run = 0; run < 3000; run++) {
        Two two;
        for (int step = 0; step < 60; step++) {
            int who = chance() % 2;
            switch (chance() % 12) {
            case 0:
                two.wanted[who] = !two.wanted[who];
                break;
            case 1:
                two.restart(who);
                break;
            case 2:
                two.reboot(who, chance());
                break;
            default:
                two.look(who);
            }
        }
        two.wanted = {true, true};
        two.settle();
        ASSERT_TRUE(two.end[0].live && two.end[1].live) << run;
        ASSERT_TRUE(two.writes[0] && two.writes[1]) << run;
    }
}

TEST(Pair, AnyWordOfAHostilePeerIsBorne) {
    std::mt19937 chance(8);
    pair one;
    pair_init(&one, 1, ring_log);
    for (int step = 0; step < 100'000; step++) {
        std::uint32_t word = chance();
        if (chance() % 2)
            word = (word & ~(0xfffU << 12)) | one.session << 12;
        std::uint32_t actions = pair_look(&one, true, word);
        ASSERT_TRUE(one.stage == MARLIN_STAGE_HELLO || one.stage == MARLIN_STAGE_READY);
        ASSERT_NE(one.session, 0U);
        ASSERT_TRUE(!one.live || one.stage == MARLIN_STAGE_READY);
        ASSERT_TRUE(!(actions & PAIR_START) || one.live);
    }
}

} // namespace

} // namespace remora::test
