// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "../../core.hpp"

namespace {

struct Window {
    explicit Window(uint32_t ids) : bits(rmem_session_window_bytes(ids) / 8, ~0ull) {
        rmem_session_init(&session, bits.data(), ids);
    }
    rmem_session_verdict check(uint64_t id, uint64_t floor) {
        return rmem_session_check(&session, id, floor);
    }
    std::vector<uint64_t> bits;
    rmem_session session;
};

TEST(Session, ExecutedOnce) {
    Window w(4);
    EXPECT_EQ(w.check(1, 1), RMEM_SESSION_FRESH);
    EXPECT_EQ(w.check(1, 1), RMEM_SESSION_FRESH); // refused in between, say
    rmem_session_done(&w.session, 1);
    EXPECT_EQ(w.check(1, 1), RMEM_SESSION_REPEATED);
    EXPECT_EQ(w.check(2, 1), RMEM_SESSION_FRESH);
    EXPECT_EQ(w.check(4, 1), RMEM_SESSION_FRESH);
    EXPECT_EQ(w.check(5, 1), RMEM_SESSION_BEYOND);
}

TEST(Session, FloorMakesStaleAndNeverFalls) {
    Window w(4);
    rmem_session_done(&w.session, 1);
    EXPECT_EQ(w.check(5, 3), RMEM_SESSION_FRESH);
    EXPECT_EQ(w.check(1, 1), RMEM_SESSION_STALE);
    EXPECT_EQ(w.check(2, 1), RMEM_SESSION_STALE); // never executed, and never will be
    EXPECT_EQ(w.session.floor, 3u);
}

TEST(Session, BitsServeTheNextIds) {
    Window w(4);
    for (uint64_t id = 1; id <= 4; id++)
        rmem_session_done(&w.session, id);
    EXPECT_EQ(w.check(5, 2), RMEM_SESSION_FRESH); // takes the place of 1
    EXPECT_EQ(w.check(2, 2), RMEM_SESSION_REPEATED);
    EXPECT_EQ(w.check(100, 100), RMEM_SESSION_FRESH);
    EXPECT_EQ(w.check(103, 100), RMEM_SESSION_FRESH);
}

TEST(Session, RefusedStaysRefusedUntilTheFloorPasses) {
    Window w(4);
    rmem_session_refuse(&w.session, 2);
    rmem_session_done(&w.session, 3);
    EXPECT_EQ(w.check(2, 1), RMEM_SESSION_REFUSED);
    EXPECT_EQ(w.check(2, 2), RMEM_SESSION_REFUSED);
    EXPECT_EQ(w.check(3, 2), RMEM_SESSION_REPEATED);
    EXPECT_EQ(w.check(2, 3), RMEM_SESSION_STALE);
    EXPECT_EQ(w.check(6, 3), RMEM_SESSION_FRESH); // takes its place
    rmem_session_done(&w.session, 6);
    EXPECT_EQ(w.check(6, 3), RMEM_SESSION_REPEATED);
    rmem_session_refuse(&w.session, 7); // beyond: not remembered
    EXPECT_EQ(w.check(7, 4), RMEM_SESSION_FRESH);
}

TEST(Session, DoneOutsideTheWindowMarksNoOtherId) {
    Window w(4);
    w.check(10, 10);
    rmem_session_done(&w.session, 9);
    rmem_session_done(&w.session, 14);
    for (uint64_t id = 10; id < 14; id++)
        EXPECT_EQ(w.check(id, 10), RMEM_SESSION_FRESH);
}

TEST(Session, LastIds) {
    const uint64_t last = ~0ull;
    Window w(64);
    EXPECT_EQ(w.check(last, last - 1), RMEM_SESSION_FRESH);
    rmem_session_done(&w.session, last);
    EXPECT_EQ(w.check(last, last), RMEM_SESSION_REPEATED);
    EXPECT_EQ(w.check(1, 1), RMEM_SESSION_STALE);
}

// Against the rule itself, in sets that forget nothing.
TEST(Session, AgreesWithReference) {
    for (uint32_t ids : {2u, 4u, 64u, 256u, 4096u}) {
        std::mt19937_64 random(ids);
        Window w(ids);
        std::set<uint64_t> done, refused;
        uint64_t floor = 1;
        for (int step = 0; step < 50000; step++) {
            uint64_t told = floor + (random() % 8 ? 0 : random() % (random() % 64 ? 4 : 2 * ids));
            uint64_t id = told + random() % (ids + ids / 4 + 1);
            told -= random() % 3 ? 0 : random() % told; // an old request
            id -= random() % 16 ? 0 : random() % (id - told + 1);
            floor = std::max(floor, told);
            rmem_session_verdict expect = id < floor          ? RMEM_SESSION_STALE
                                          : id >= floor + ids ? RMEM_SESSION_BEYOND
                                          : done.count(id)    ? RMEM_SESSION_REPEATED
                                          : refused.count(id) ? RMEM_SESSION_REFUSED
                                                              : RMEM_SESSION_FRESH;
            ASSERT_EQ(w.check(id, told), expect) << "ids " << ids << " step " << step;
            ASSERT_EQ(w.session.floor, floor);
            if (expect != RMEM_SESSION_FRESH || random() % 4 == 0)
                continue;
            if (step % 8192 < 4096 && random() % 4 == 0) { // and long times without any
                rmem_session_refuse(&w.session, id);
                refused.insert(id);
            } else {
                rmem_session_done(&w.session, id);
                done.insert(id);
            }
        }
    }
}

rmem_found found_of(uint64_t value) {
    rmem_found found{};
    base_store_le64(&found.value[0], value);
    return found;
}

TEST(Session, ResultsAreKeptUntilTheFloorPasses) {
    Window w(1024);
    for (uint64_t id = 1; id <= RMEM_REPLAY; id++) {
        ASSERT_EQ(w.check(id, 1), RMEM_SESSION_FRESH);
        ASSERT_TRUE(rmem_session_has_place(&w.session, id));
        rmem_found found = found_of(id * 3);
        rmem_session_keep(&w.session, id, &found);
    }
    EXPECT_FALSE(rmem_session_has_place(&w.session, RMEM_REPLAY + 1));
    for (uint64_t id = RMEM_REPLAY; id; id--) {
        EXPECT_EQ(w.check(id, 1), RMEM_SESSION_REPEATED);
        rmem_found found;
        rmem_session_replay(&w.session, id, &found);
        EXPECT_EQ(base_load_le64(&found.value[0]), id * 3);
    }
    EXPECT_EQ(w.check(RMEM_REPLAY + 1, 2), RMEM_SESSION_FRESH);
    EXPECT_TRUE(rmem_session_has_place(&w.session, RMEM_REPLAY + 1));
    EXPECT_FALSE(rmem_session_has_place(&w.session, RMEM_REPLAY + 2));
}

// However the others went, the oldest that is outstanding can be executed: else nothing would end.
TEST(Session, TheOldestHasItsPlace) {
    Window w(1024);
    for (uint64_t id = 2; id <= RMEM_REPLAY; id++) {
        rmem_found found = found_of(id);
        ASSERT_EQ(w.check(id, 1), RMEM_SESSION_FRESH);
        rmem_session_keep(&w.session, id, &found);
    }
    EXPECT_TRUE(rmem_session_has_place(&w.session, 1));
    rmem_found found = found_of(1000);
    rmem_session_keep(&w.session, 1, &found);
    rmem_session_replay(&w.session, 2, &found);
    EXPECT_EQ(base_load_le64(&found.value[0]), 2u);
}

TEST(Session, OwesUntilTheFloorHasPassed) {
    Window w(4);
    EXPECT_FALSE(rmem_session_owes(&w.session));
    w.check(3, 1);
    rmem_session_made(&w.session, 3);
    rmem_session_made(&w.session, 2); // an older one, that came later
    EXPECT_TRUE(rmem_session_owes(&w.session));
    w.check(4, 3);
    EXPECT_TRUE(rmem_session_owes(&w.session));
    w.check(4, 4);
    EXPECT_FALSE(rmem_session_owes(&w.session));
}

const base_siphash_key secret{{0x0706050403020100, 0x0f0e0d0c0b0a0908}};

struct Table {
    explicit Table(uint32_t slots) : memory(rmem_sessions_bytes(slots, 64) / 8 + 1, ~0ull) {
        rmem_sessions_init(&sessions, memory.data(), slots, 64, 12345, &secret);
    }
    static rmem_attempt attempt(uint8_t client, uint64_t nonce, uint32_t space = 1) {
        rmem_attempt a{};
        a.place = {space, 0, 1};
        a.nonce = nonce;
        std::memset(a.client, client, sizeof(a.client));
        return a;
    }
    uint64_t open(const rmem_attempt& a, uint64_t now_ns, uint32_t spaces = 1) {
        rmem_peer peer{};
        int slot = rmem_sessions_choose(&sessions, &a, spaces, now_ns, 100);
        if (slot < 0 || !rmem_sessions_may_open(&sessions, slot, now_ns, 100))
            return 0;
        rmem_sessions_open(&sessions, slot, now_ns, &a, &peer);
        return sessions.slot[slot].name;
    }
    std::vector<uint64_t> memory;
    rmem_sessions sessions;
};

// A client can't guess the next name; each is given once, and leads to its slot.
TEST(Sessions, NamesCantBeForeseen) {
    Table t(4);
    std::set<uint64_t> names;
    uint64_t last = 0, near = 0;
    for (uint64_t n = 1; n <= 20'000; n++) {
        uint64_t name = t.open(Table::attempt(1, n), n * 100);
        ASSERT_NE(name, uint64_t{RMEM_SESSION_NONE});
        ASSERT_TRUE(names.insert(name >> RMEM_SESSION_SLOT_BITS).second);
        ASSERT_NE(rmem_sessions_find(&t.sessions, name), nullptr);
        uint64_t step = (name >> RMEM_SESSION_SLOT_BITS) - last;
        near += step + (1 << 20) < 2 << 20;
        last = name >> RMEM_SESSION_SLOT_BITS;
    }
    EXPECT_LT(near, 10u) << "of 48 bits, one in 134 million is so near";
}

TEST(Sessions, NamesNeverRepeat) {
    Table t(3);
    std::set<uint64_t> names;
    for (uint64_t n = 0; n < 1000; n++) {
        uint64_t name = t.open(Table::attempt(n, n), n * 200);
        ASSERT_NE(name, 0u);
        ASSERT_TRUE(names.insert(name).second);
        EXPECT_EQ(rmem_sessions_find(&t.sessions, name)->name, name);
    }
    EXPECT_EQ(t.sessions.in_use, 3u);
    EXPECT_EQ(rmem_sessions_find(&t.sessions, *names.begin()), nullptr);
    EXPECT_EQ(rmem_sessions_find(&t.sessions, RMEM_SESSION_NONE), nullptr);
    EXPECT_LT(rmem_sessions_slot_of(&t.sessions, ~0ull), 3u);
}

// One space opens all it can; each of three has its part nevertheless.
TEST(Sessions, OneSpaceLeavesTheOthersTheirPart) {
    constexpr uint32_t slots = 64, spaces = 3, kept = slots / 4;
    Table t(slots);
    uint8_t client = 0;
    auto open_all = [&](uint32_t space) {
        uint32_t opened = 0;
        while (t.open(Table::attempt(++client, 1, space), 1000, spaces))
            opened++;
        return opened;
    };
    EXPECT_EQ(open_all(1), slots - kept);
    EXPECT_EQ(open_all(2), kept / spaces);
    EXPECT_EQ(open_all(3), kept / spaces);
    EXPECT_EQ(open_all(1), 0u);
    EXPECT_NE(t.open(Table::attempt(++client, 1, 1), 2000, spaces), 0u) << "all are idle by now";
}

TEST(Sessions, LongestIdleIsEvicted) {
    Table t(2);
    uint64_t first = t.open(Table::attempt(1, 1), 1000);
    uint64_t second = t.open(Table::attempt(2, 1), 1010);
    rmem_session_touch(rmem_sessions_find(&t.sessions, first), 1, 1050);
    EXPECT_EQ(t.open(Table::attempt(3, 1), 1109), 0u); // no session idle for 100
    EXPECT_NE(t.open(Table::attempt(3, 1), 1200), 0u);
    EXPECT_NE(rmem_sessions_find(&t.sessions, first), nullptr);
    EXPECT_EQ(rmem_sessions_find(&t.sessions, second), nullptr);
}

TEST(Sessions, ClockOfAnotherCpuAhead) {
    Table t(1);
    t.open(Table::attempt(1, 1), 1000);
    EXPECT_EQ(t.open(Table::attempt(2, 1), 900), 0u);
}

TEST(Sessions, ClosedSlotServesAgain) {
    Table t(1);
    uint64_t first = t.open(Table::attempt(1, 1), 0);
    rmem_session_done(&t.sessions.slot[0], 1);
    rmem_session_made(&t.sessions.slot[0], 1);
    rmem_sessions_close(&t.sessions, 0);
    rmem_sessions_close(&t.sessions, 0);
    EXPECT_EQ(t.sessions.in_use, 0u);
    uint64_t second = t.open(Table::attempt(2, 1), 0);
    EXPECT_NE(second, 0u);
    EXPECT_NE(second, first);
    EXPECT_EQ(rmem_session_check(&t.sessions.slot[0], 1, 1), RMEM_SESSION_FRESH);
    EXPECT_FALSE(rmem_session_owes(&t.sessions.slot[0]));
}

// A slot that served another tenant tells nothing of it.
TEST(Sessions, ResultsGoWithTheirSession) {
    Table t(1);
    rmem_session* session = &t.sessions.slot[0];
    t.open(Table::attempt(1, 1), 0);
    rmem_found found = found_of(77);
    rmem_session_keep(session, 5, &found);
    rmem_sessions_close(&t.sessions, 0);
    t.open(Table::attempt(2, 1), 0);
    rmem_session_replay(session, 5, &found);
    EXPECT_EQ(base_load_le64(&found.value[0]), 0u);
}

TEST(Sessions, SupersededAreOlderOnesOfTheSameClientAndPlace) {
    Table t(8);
    rmem_attempt a = Table::attempt(1, 1);
    t.open(a, 0);
    EXPECT_EQ(rmem_sessions_superseded(&t.sessions, &a), -1);
    rmem_attempt other_client = Table::attempt(2, 2);
    EXPECT_EQ(rmem_sessions_superseded(&t.sessions, &other_client), -1);
    rmem_attempt other_space = Table::attempt(1, 2);
    other_space.place.space = 2;
    EXPECT_EQ(rmem_sessions_superseded(&t.sessions, &other_space), -1);
    rmem_attempt added_again = Table::attempt(1, 2);
    added_again.place.incarnation = 2;
    EXPECT_EQ(rmem_sessions_superseded(&t.sessions, &added_again), -1);
    rmem_attempt again = Table::attempt(1, 2);
    EXPECT_EQ(rmem_sessions_superseded(&t.sessions, &again), 0);
}

TEST(Sessions, RenewedIsAnotherNameAndNothingElse) {
    Table t(8);
    t.open(Table::attempt(1, 1), 0);
    rmem_session* session = &t.sessions.slot[0];
    uint64_t name = session->name;
    rmem_found found = {{7, 8}};
    rmem_session_check(session, 5, 4);
    rmem_session_done(session, 6);
    rmem_session_refuse(session, 7);
    rmem_session_keep(session, 5, &found);
    rmem_session_made(session, 6);
    rmem_session_touch(session, 7, 9);
    rmem_attempt again = Table::attempt(1, 2);
    again.renews = name;
    const rmem_peer peer{{}, 7};
    ASSERT_TRUE(rmem_session_may_renew(session, &again));
    rmem_sessions_renew(&t.sessions, 0, 10, &again, &peer);
    EXPECT_EQ(session->peer.port, 7);
    EXPECT_NE(session->name, name);
    EXPECT_EQ(session->origin, name);
    EXPECT_EQ(rmem_sessions_find(&t.sessions, name), nullptr);
    EXPECT_EQ(rmem_sessions_find(&t.sessions, session->name), session);
    EXPECT_TRUE(rmem_session_is_renewed(session));
    EXPECT_FALSE(session->used);
    EXPECT_TRUE(rmem_session_is_attempt(session, &again));
    EXPECT_TRUE(rmem_session_may_renew(session, &again)) << "its answer may be lost";
    EXPECT_TRUE(rmem_session_owes(session));
    EXPECT_EQ(rmem_session_check(session, 3, 3), RMEM_SESSION_STALE);
    EXPECT_EQ(rmem_session_check(session, 4, 4), RMEM_SESSION_FRESH);
    EXPECT_EQ(rmem_session_check(session, 5, 4), RMEM_SESSION_REPEATED);
    EXPECT_EQ(rmem_session_check(session, 6, 4), RMEM_SESSION_REPEATED);
    EXPECT_EQ(rmem_session_check(session, 7, 4), RMEM_SESSION_REFUSED);
    rmem_found kept{};
    rmem_session_replay(session, 5, &kept);
    EXPECT_EQ(base_load_le64(&kept.value[0]), 7u);
    EXPECT_EQ(t.sessions.in_use, 1u);
    // A new one in its place isn't.
    rmem_sessions_close(&t.sessions, 0);
    t.open(Table::attempt(1, 3), 0);
    EXPECT_FALSE(rmem_session_is_renewed(session));
    EXPECT_EQ(rmem_session_check(session, 5, 4), RMEM_SESSION_FRESH);
}

} // namespace
