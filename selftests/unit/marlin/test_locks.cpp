// SPDX-License-Identifier: GPL-2.0
// A lock at its home: order of service, sessions that end, and words that break the rules.
#include <random>
#include <vector>

#include <gtest/gtest.h>

extern "C" {
#include "core/marlin/locks.h"
}

namespace remora::test {

namespace {

// A home's lock, and the words that honest machines write.
struct Home {
    Home() { locks_init(&lock); }
    void ask(std::uint32_t machine) {
        words[machine] = locks_word_ask(words[machine]);
        locks_want(&lock, machine, words[machine]);
    }
    void leave(std::uint32_t machine, bool abandoned = false) {
        words[machine] = locks_word_leave(words[machine], abandoned);
        locks_want(&lock, machine, words[machine]);
    }
    int next() { return locks_next(&lock, &grant); }
    bool granted(std::uint32_t machine) const { return locks_is_granted(words[machine], grant); }
    bool broken() const { return grant & MARLIN_LOCK_BROKEN; }
    locks_lock lock;
    std::uint32_t words[LOCKS_MACHINES] = {};
    std::uint32_t grant = 0;
};

TEST(Locks, FreeLockIsGrantedToTheMachineThatAsks) {
    Home home;
    EXPECT_EQ(home.next(), -1);
    home.ask(7);
    EXPECT_EQ(home.next(), 7);
    EXPECT_TRUE(home.granted(7));
    EXPECT_FALSE(home.broken());
    EXPECT_EQ(home.next(), -1) << "it is held";
}

TEST(Locks, MachinesAreServedInTheOrderOfTheirRequests) {
    Home home;
    for (std::uint32_t machine : {5U, 0U, 63U, 2U})
        home.ask(machine);
    for (int machine : {5, 0, 63, 2}) {
        EXPECT_EQ(home.next(), machine);
        home.leave(static_cast<std::uint32_t>(machine));
    }
    EXPECT_EQ(home.next(), -1);
}

TEST(Locks, AskingHolderGoesBehindWaitingMachines) {
    Home home;
    home.ask(1);
    home.ask(2);
    EXPECT_EQ(home.next(), 1);
    home.words[1] = locks_word_ask(locks_word_leave(home.words[1], false));
    locks_want(&home.lock, 1, home.words[1]);
    EXPECT_EQ(home.next(), 2);
    home.leave(2);
    EXPECT_EQ(home.next(), 1);
    EXPECT_TRUE(home.granted(1));
}

TEST(Locks, GrantOfAnEarlierRequestIsNone) {
    Home home;
    home.ask(1);
    EXPECT_EQ(home.next(), 1);
    std::uint32_t old = home.grant;
    home.leave(1);
    EXPECT_FALSE(locks_is_granted(home.words[1], old));
    home.ask(1);
    EXPECT_FALSE(locks_is_granted(home.words[1], old));
    EXPECT_FALSE(locks_is_granted(home.words[1], home.words[1] & ~MARLIN_LOCK_GRANTED));
}

TEST(Locks, WordThatIsSeenAgainChangesNothing) {
    Home home;
    home.ask(1);
    home.ask(2);
    for (int i = 0; i < 3; i++) {
        locks_want(&home.lock, 1, home.words[1]);
        locks_want(&home.lock, 2, home.words[2]);
    }
    EXPECT_EQ(home.lock.count, 2);
    EXPECT_EQ(home.next(), 1);
    locks_want(&home.lock, 1, home.words[1]);
    EXPECT_EQ(home.next(), -1);
}

TEST(Locks, AbandonedLockIsBrokenForItsNextHolderOnly) {
    Home home;
    home.ask(1);
    EXPECT_EQ(home.next(), 1);
    home.ask(2);
    home.ask(3);
    home.leave(1, true);
    EXPECT_EQ(home.next(), 2);
    EXPECT_TRUE(home.broken());
    home.leave(2);
    EXPECT_EQ(home.next(), 3);
    EXPECT_FALSE(home.broken());
    home.leave(3, true);
    home.ask(1);
    EXPECT_EQ(home.next(), 1);
    EXPECT_TRUE(home.broken());
}

TEST(Locks, LostHoldersLockWaitsForTheEndOfItsSession) {
    Home home;
    home.ask(1);
    EXPECT_EQ(home.next(), 1);
    home.ask(2);
    locks_gone(&home.lock, 1);
    EXPECT_EQ(home.next(), -1);
    locks_ended(&home.lock, 1);
    EXPECT_EQ(home.next(), 2);
    EXPECT_TRUE(home.broken());
}

TEST(Locks, EndOfAnotherSessionFreesNoLock) {
    Home home;
    home.ask(1);
    EXPECT_EQ(home.next(), 1);
    home.ask(2);
    locks_ended(&home.lock, 1);
    EXPECT_EQ(home.next(), -1) << "its session has not ended";
    locks_gone(&home.lock, 2);
    locks_ended(&home.lock, 2);
    EXPECT_EQ(home.lock.holder, 1);
    EXPECT_EQ(home.lock.count, 0) << "a machine that has gone doesn't wait";
}

TEST(Locks, MachineThatHasGoneMayComeBackWithAFreshWord) {
    Home home;
    home.ask(1);
    EXPECT_EQ(home.next(), 1);
    locks_gone(&home.lock, 1);
    locks_ended(&home.lock, 1);
    home.words[1] = 0;
    home.ask(1);
    EXPECT_EQ(home.next(), 1);
    EXPECT_TRUE(home.granted(1));
}

TEST(Locks, WaiterThatChangesItsWordLosesItsPlace) {
    Home home;
    home.ask(3);
    EXPECT_EQ(home.next(), 3);
    home.ask(1);
    home.ask(2);
    home.ask(1);
    home.leave(3);
    EXPECT_EQ(home.next(), 2);
    home.leave(2);
    EXPECT_EQ(home.next(), 1);
    EXPECT_TRUE(home.granted(1));
}

TEST(Locks, SequenceNumberWrapsBelowTheBits) {
    std::uint32_t word = ~0U & ~(MARLIN_LOCK_WANTS | MARLIN_LOCK_ABANDONED);
    EXPECT_EQ(locks_word_ask(word), MARLIN_LOCK_WANTS);
    EXPECT_EQ(locks_word_ask(word | MARLIN_LOCK_ABANDONED),
              MARLIN_LOCK_WANTS | MARLIN_LOCK_ABANDONED);
}

// Whatever a hostile machine writes, the others are served in their order, each within its turn.
TEST(Locks, RandomWordsOfOneMachineCostTheOthersNoPlace) {
    std::mt19937 random(1);
    Home home;
    constexpr std::uint32_t hostile = 9;
    std::vector<int> order;
    for (int round = 0; round < 20000; round++) {
        auto machine = static_cast<std::uint32_t>(random() % 6);
        if (random() % 2) {
            locks_want(&home.lock, hostile, static_cast<std::uint32_t>(random()));
        } else if (home.lock.holder == machine) {
            home.leave(machine, random() % 2);
        } else if (!(home.words[machine] & MARLIN_LOCK_WANTS)) {
            home.ask(machine);
            order.push_back(static_cast<int>(machine));
        }
        int got = home.next();
        if (got >= 0 && got != hostile) {
            ASSERT_EQ(got, order.front());
            ASSERT_TRUE(home.granted(static_cast<std::uint32_t>(got)));
            order.erase(order.begin());
        }
        ASSERT_LE(home.lock.count, 7);
    }
}

} // namespace

} // namespace remora::test
