// SPDX-License-Identifier: GPL-2.0
// Packets that can't arrive are given up, and hold up nothing.
#include "rig.hpp"

#include <algorithm>
#include <numeric>
#include <set>

using namespace eqds;

namespace {

// Keeps the sender's queue full for so long. Returns the packets delivered.
size_t carry(Rig& rig, uint64_t time_ns) {
    const uint64_t until = rig.now + time_ns;
    const size_t before = rig[0].delivered.size();
    while (rig.now < until) {
        if (rig[0].sender.queue.count < 50)
            rig.offer(rig[0], 50, 1500);
        rig.run(std::min(until, rig.now + 100'000));
    }
    return rig[0].delivered.size() - before;
}

Options gigabit() {
    Options o;
    o.link_bits_per_sec = 1'000'000'000;
    o.delay_ns = 25'000;
    o.window_packets = 512;
    return o;
}

// Loses each transmission of the packets whose id says so.
struct Undeliverable {
    explicit Undeliverable(Rig& rig, const std::function<bool(uint32_t)>& bad, bool cut = false) {
        auto is_bad = [&rig, bad](const eqds_head& head) {
            if (head.control || head.flags & EQDS_EMPTY)
                return false;
            const eqds_packet* packet = rig[0].sender.slot[head.seq % rig.config.window_packets];
            return packet && bad(reinterpret_cast<const Packet*>(packet)->id);
        };
        (cut ? rig.trim : rig.lose_data) = is_bad;
    }
};

TEST(EqdsLost, OnePacketThatCannotArriveCostsTheOthersLittle) {
    for (bool trimming : {false, true}) {
        Options o = gigabit();
        o.trimming = trimming;
        Rig good(o), bad(o);
        Undeliverable undeliverable(bad, [](uint32_t id) { return id == 1000; });
        const size_t without = carry(good, 300'000'000);
        const size_t with = carry(bad, 300'000'000);
        EXPECT_GT(with, without * 9 / 10) << "trimming " << trimming;
        EXPECT_EQ(bad[0].lost, std::vector<uint32_t>{1000});
        EXPECT_EQ(bad[0].verdicts[EQDS_RESTARTED], 0u);
    }
}

TEST(EqdsLost, OthersAreDeliveredOnceAndInOrder) {
    Rig rig(gigabit());
    Undeliverable undeliverable(rig, [](uint32_t id) { return id % 500 == 499; });
    rig.offer(rig[0], 3000, 1500);
    EXPECT_TRUE(rig.run(2'000'000'000, [&] { return rig[0].sender.resting; }));
    std::vector<uint32_t> expected;
    for (uint32_t id = 0; id < 3000; id++)
        if (id % 500 != 499)
            expected.push_back(id);
    EXPECT_EQ(rig[0].delivered, expected);
    EXPECT_EQ(rig[0].lost.size(), 6u);
    EXPECT_EQ(rig[0].freed, 2994u);
}

// Nothing follows it that would tell the receiver of the hole.
TEST(EqdsLost, ReceiverIsToldOfTheHoleThoughNothingFollows) {
    Rig rig(gigabit());
    Undeliverable undeliverable(rig, [](uint32_t id) { return id == 3; });
    uint32_t asked = 0;
    auto lose = rig.lose_data;
    // The first ones that tell it are lost, too.
    rig.lose_data = [&](const eqds_head& head) {
        return lose(head) || (head.flags & EQDS_EMPTY && rig[0].lost.size() && asked++ < 3);
    };
    rig.offer(rig[0], 10, 1500);
    EXPECT_TRUE(rig.run(2'000'000'000, [&] { return rig[0].sender.resting; }));
    EXPECT_EQ(rig[0].delivered, (std::vector<uint32_t>{0, 1, 2, 4, 5, 6, 7, 8, 9}));
    EXPECT_EQ(rig[0].lost, std::vector<uint32_t>{3});
    EXPECT_GE(asked, 4u);
}

TEST(EqdsLost, LonePacketThatCannotArriveIsGivenUp) {
    for (const eqds_profile* profile : {&eqds_profile_extended, &eqds_profile_paper}) {
        Options o = gigabit();
        o.profile = profile;
        Rig rig(o);
        Undeliverable undeliverable(rig, [](uint32_t) { return true; });
        rig.offer(rig[0], 1, 1500);
        EXPECT_TRUE(rig.run(1'000'000'000, [&] { return rig[0].lost.size() == 1; }));
        rig.lose_data = [](auto&) { return false; };
        rig.offer(rig[0], 1, 1500);
        EXPECT_TRUE(rig.run(2'000'000'000, [&] { return rig[0].sender.resting; }));
        EXPECT_EQ(rig[0].delivered, std::vector<uint32_t>{1});
    }
}

TEST(EqdsLost, PacketThatIsAlwaysTrimmedIsGivenUp) {
    Options o = gigabit();
    o.trimming = true;
    Rig rig(o);
    Undeliverable undeliverable(
        rig, [](uint32_t id) { return id == 20; }, true);
    rig.offer(rig[0], 2000, 1500);
    EXPECT_TRUE(rig.run(1'000'000'000, [&] { return rig[0].sender.resting; }));
    EXPECT_EQ(rig[0].lost, std::vector<uint32_t>{20});
    EXPECT_EQ(rig[0].delivered.size(), 1999u);
}

// A packet is given up because others get through, not because the path is dead for a while.
TEST(EqdsLost, OutageLosesNothing) {
    for (bool trimming : {false, true}) {
        Options o = gigabit();
        o.trimming = trimming;
        Rig rig(o);
        rig.offer(rig[0], 500, 1500);
        rig.run(rig.now + 1'000'000);
        rig.lose_data = rig.lose_control = [](auto&) { return true; };
        rig.run(rig.now + 3'000'000'000);
        rig.lose_data = rig.lose_control = [](auto&) { return false; };
        EXPECT_TRUE(rig.run(rig.now + 5'000'000'000, [&] { return rig.all_freed(); }));
        EXPECT_TRUE(rig[0].lost.empty());
    }
}

TEST(EqdsLost, PathThatLosesEveryThirdPacketLosesNothing) {
    Rig rig(gigabit());
    uint32_t n = 0;
    rig.lose_data = [&](const eqds_head&) { return n++ * 2654435761u % 3 == 0; };
    rig.offer(rig[0], 2000, 1500);
    EXPECT_TRUE(rig.run(5'000'000'000, [&] { return rig.all_freed(); }));
    EXPECT_TRUE(rig[0].lost.empty());
}

// Its header does not tell the receiver which numbers not to wait for. The end of the tunnel does,
// or a later epoch, where packets wait to be sent.
TEST(EqdsLost, PaperProfileEndsTheEpoch) {
    for (uint32_t count : {100, 3000}) {
        Options o = gigabit();
        o.profile = &eqds_profile_paper;
        Rig rig(o);
        rig.lose_data = [&](const eqds_head& head) {
            return !(head.flags & EQDS_EMPTY) && head.seq % 1024 == 7 && rig[0].lost.empty();
        };
        rig.offer(rig[0], count, 1500);
        EXPECT_TRUE(rig.run(2'000'000'000, [&] { return rig[0].delivered.size() >= count - 1; }));
        EXPECT_EQ(rig[0].lost, std::vector<uint32_t>{7});
        std::set<uint32_t> once(rig[0].delivered.begin(), rig[0].delivered.end());
        EXPECT_EQ(once.size(), count - 1);
    }
}

// As a receiver that doesn't know EQDS_MARK_NO_ROOM refuses packets.
TEST(EqdsLost, PacketsThatTheReceiverDoesNotExpectYetAreNotGivenUpForTrims) {
    Options o = gigabit();
    o.trimming = true;
    o.strikes_max = 4;
    Rig rig(o);
    rig.trim = [&](const eqds_head& head) {
        return rig[0].has_receiver && head.seq != rig[0].receiver.expected;
    };
    rig.offer(rig[0], 300, 1500);
    EXPECT_TRUE(rig.run(5'000'000'000, [&] { return rig[0].sender.resting; }));
    EXPECT_EQ(rig[0].lost.size(), 0u);
    EXPECT_EQ(rig[0].delivered.size(), 300u);
}

// The oldest one, too, though for long the receiver has memory for none.
TEST(EqdsLost, PacketsThatAReceiverHasNoRoomForAreNotGivenUp) {
    for (bool trimming : {false, true}) {
        Options o = gigabit();
        o.trimming = trimming;
        o.strikes_max = 4;
        Rig rig(o);
        uint32_t refused = 0;
        rig.refuse = [&](const eqds_head& head) { return head.seq >= 20 && refused++ < 1000; };
        rig.offer(rig[0], 100, 1500);
        EXPECT_TRUE(rig.run(20'000'000'000, [&] { return rig[0].sender.resting; }));
        EXPECT_GE(refused, 1000u);
        EXPECT_TRUE(rig[0].lost.empty()) << "trimming " << trimming;
        EXPECT_EQ(rig[0].delivered.size(), 100u);
        EXPECT_EQ(rig[0].verdicts[EQDS_RESTARTED], 0u);
    }
}

// The transmission behind its last strike arrives, and is refused.
TEST(EqdsLost, RefusalForLackOfMemoryGivesNoPacketUpWhateverItsStrikes) {
    Rig rig(gigabit());
    uint32_t lost = 0, refused = 0;
    const auto is_bad = [&rig](const eqds_head& head) {
        const eqds_packet* packet = rig[0].sender.slot[head.seq % rig.config.window_packets];
        return packet && reinterpret_cast<const Packet*>(packet)->id == 30;
    };
    rig.lose_data = [&](const eqds_head& head) {
        return !head.control && !(head.flags & EQDS_EMPTY) && is_bad(head) &&
               lost < EQDS_STRIKES_MAX / EQDS_STRIKES_LOSS && ++lost;
    };
    rig.refuse = [&](const eqds_head& head) { return is_bad(head) && !refused++; };
    rig.offer(rig[0], 100, 1500);
    EXPECT_TRUE(rig.run(20'000'000'000, [&] { return rig[0].sender.resting; }));
    EXPECT_EQ(lost, EQDS_STRIKES_MAX / EQDS_STRIKES_LOSS);
    EXPECT_GE(refused, 1u);
    EXPECT_TRUE(rig[0].lost.empty());
    EXPECT_EQ(rig[0].delivered.size(), 100u);
}

// No path is to blame for it.
TEST(EqdsLost, RefusalForLackOfMemoryLeavesThePathAlone) {
    Options o = gigabit();
    o.trimming = true;
    Rig rig(o);
    uint32_t refused = 0;
    rig.refuse = [&](const eqds_head&) { return refused++ < 10; };
    rig.offer(rig[0], 20, 1500);
    EXPECT_TRUE(rig.run(2'000'000'000, [&] { return rig[0].sender.resting; }));
    uint64_t trims = 0;
    for (const eqds_path& path : rig[0].path)
        trims += path.trimmed;
    EXPECT_EQ(trims, 0u);
}

TEST(EqdsLost, ManyStrikesDoNotWrap) {
    Options o = gigabit();
    o.strikes_max = 255;
    Rig rig(o);
    Undeliverable undeliverable(rig, [](uint32_t id) { return id == 3; });
    rig.offer(rig[0], 10, 1500);
    EXPECT_TRUE(rig.run(5'000'000'000, [&] { return rig[0].sender.resting; }));
    EXPECT_EQ(rig[0].lost, std::vector<uint32_t>{3});
}

} // namespace
