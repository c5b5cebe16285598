// SPDX-License-Identifier: GPL-2.0
// Grants to a peer: handles, revocation while copies are under way, and a hostile peer's words.
#include <array>
#include <deque>
#include <functional>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

extern "C" {
#include "core/base/bytes.h"
#include "core/marlin/grants.h"
}

namespace remora::test {

namespace {

// An owner's table in its peer's memory, and the copy words of the peer.
struct Owner {
    Owner() {
        grants_init(&grants, table.data(), copies.data(), &bus, this, 1000);
        grants_begin(&grants, epoch);
    }
    Owner(const Owner&) = delete;
    static std::uint64_t load(void* context, const void* at, std::uint32_t bytes) {
        auto* owner = static_cast<Owner*>(context);
        owner->loads++;
        if (owner->pushed)
            owner->pushed();
        return base_word_load(at, bytes);
    }
    static void store(void* context, void* at, std::uint64_t value, std::uint32_t bytes) {
        auto* owner = static_cast<Owner*>(context);
        if (owner->stores++ != owner->lost_store)
            base_word_store(at, value, bytes);
    }
    static std::uint32_t epoch_now(void* context) { return static_cast<Owner*>(context)->epoch; }
    std::uint32_t add(std::uint64_t bytes = 4096,
                      std::uint32_t rights = MARLIN_GRANT_READ | MARLIN_GRANT_WRITE) {
        grants_range range{};
        range.directory = 0x5000;
        range.bytes = bytes;
        range.rights = rights;
        range.key[0] = ++keys;
        range.key[1] = ~keys;
        int index = grants_add(&grants, &range);
        EXPECT_GE(index, 0);
        return static_cast<std::uint32_t>(index);
    }
    marlin_handle handle(std::uint32_t index) {
        marlin_handle out{};
        out.epoch = grants.slots[index].epoch;
        out.key[0] = table[index].key[0];
        out.key[1] = table[index].key[1];
        return out;
    }
    grants_verdict check(std::uint32_t index, const marlin_handle& handle,
                         std::uint32_t rights = MARLIN_GRANT_READ) {
        return grants_check(&table[index], &handle, rights);
    }
    void revoke_and_end(std::uint32_t index) {
        grants_revoke(&grants, index);
        EXPECT_TRUE(grants_is_quiet(&grants, index));
        grants_end(&grants, index);
    }
    std::array<marlin_grant, MARLIN_GRANTS> table{};
    std::array<std::uint64_t, MARLIN_COPIES> copies{};
    struct grants grants {};
    std::uint64_t keys = 0;
    std::uint32_t epoch = 5; // of the link
    int loads = 0, stores = 0, lost_store = -1;
    std::function<void()> pushed; // by a load: stores of the peer that were on their way
    static constexpr claim_bus bus = {load, store, epoch_now};
};

TEST(Grants, HandleOfALiveGrantIsAccepted) {
    Owner owner;
    std::uint32_t index = owner.add();
    EXPECT_EQ(owner.check(index, owner.handle(index)), GRANTS_OK);
}

TEST(Grants, EachWrongBitOfTheKeyIsRefused) {
    Owner owner;
    std::uint32_t index = owner.add();
    for (int bit = 0; bit < 128; bit++) {
        marlin_handle handle = owner.handle(index);
        handle.key[bit / 64] ^= 1ULL << bit % 64;
        EXPECT_EQ(owner.check(index, handle), GRANTS_FORGED) << bit;
    }
}

TEST(Grants, RightThatWasNotGrantedIsRefused) {
    Owner owner;
    std::uint32_t index = owner.add(4096, MARLIN_GRANT_READ);
    EXPECT_EQ(owner.check(index, owner.handle(index), MARLIN_GRANT_READ), GRANTS_OK);
    EXPECT_EQ(owner.check(index, owner.handle(index), MARLIN_GRANT_WRITE), GRANTS_RIGHTS);
}

TEST(Grants, DoorbellHasNoPagesAndNoOtherRight) {
    Owner owner;
    std::uint32_t bell = owner.add(0, MARLIN_GRANT_BELL), pages = owner.add();
    EXPECT_EQ(owner.check(bell, owner.handle(bell), MARLIN_GRANT_BELL), GRANTS_OK);
    EXPECT_EQ(owner.check(bell, owner.handle(bell), MARLIN_GRANT_READ), GRANTS_RIGHTS);
    EXPECT_EQ(owner.check(bell, owner.handle(bell), MARLIN_GRANT_WRITE), GRANTS_RIGHTS);
    EXPECT_EQ(owner.check(pages, owner.handle(pages), MARLIN_GRANT_BELL), GRANTS_RIGHTS);
    marlin_handle handle = owner.handle(bell);
    owner.revoke_and_end(bell);
    EXPECT_EQ(owner.check(bell, handle, MARLIN_GRANT_BELL), GRANTS_REVOKED);
}

TEST(Grants, RevokedHandleIsToldSoUntilItsPlaceIsUsedAgain) {
    Owner owner;
    std::uint32_t index = owner.add();
    marlin_handle handle = owner.handle(index);
    owner.revoke_and_end(index);
    EXPECT_EQ(owner.check(index, handle), GRANTS_REVOKED);
    for (std::uint32_t n = 1; n < MARLIN_GRANTS; n++)
        EXPECT_NE(owner.add(), index) << "the place is used again before all others";
    EXPECT_EQ(owner.check(index, handle), GRANTS_REVOKED);
    EXPECT_EQ(owner.add(), index);
    EXPECT_EQ(owner.check(index, handle), GRANTS_STALE);
}

TEST(Grants, FullTableRefusesMore) {
    Owner owner;
    for (std::uint32_t n = 0; n < MARLIN_GRANTS; n++)
        owner.add();
    grants_range range{};
    EXPECT_EQ(grants_add(&owner.grants, &range), -1);
    owner.revoke_and_end(7);
    EXPECT_EQ(grants_add(&owner.grants, &range), 7);
}

TEST(Grants, EntriesThatMakeNoSenseAreRefused) {
    Owner owner;
    std::uint32_t index = owner.add();
    marlin_handle handle = owner.handle(index);
    for (std::uint64_t bytes : {0ULL, 1ULL << 31, ~0ULL}) {
        owner.table[index].bytes = bytes;
        EXPECT_EQ(owner.check(index, handle), GRANTS_BROKEN) << bytes;
    }
    owner.table[index].bytes = 1ULL << 30;
    EXPECT_EQ(owner.check(index, handle), GRANTS_OK);
    for (std::uint32_t offset : {1U, 4096U, ~0U}) {
        owner.table[index].offset = offset;
        EXPECT_EQ(owner.check(index, handle), GRANTS_BROKEN) << offset;
    }
}

TEST(Grants, HandleOfAnEarlierSessionIsToldSo) {
    Owner owner;
    std::uint32_t index = owner.add();
    marlin_handle handle = owner.handle(index);
    owner.table.fill({});
    EXPECT_EQ(owner.check(index, handle), GRANTS_REVOKED);
}

TEST(Grants, RevocationTakesOneLoadAndWaitsForTheCopyThatItPushes) {
    Owner owner;
    std::uint32_t index = owner.add();
    EXPECT_EQ(owner.loads, 0);
    owner.pushed = [&] {
        EXPECT_EQ(owner.table[index].word & MARLIN_GRANT_STATE_MASK, MARLIN_GRANT_REVOKED);
        owner.copies[0] = grants_copy_word(1, index);
    };
    grants_revoke(&owner.grants, index);
    EXPECT_FALSE(grants_is_quiet(&owner.grants, index));
    owner.copies[0] = 0;
    EXPECT_TRUE(grants_is_quiet(&owner.grants, index));
    EXPECT_EQ(owner.loads, 1);
}

TEST(Grants, RevocationAfterAnOutageWaitsForTheEndOfTheSession) {
    Owner owner;
    std::uint32_t index = owner.add();
    owner.epoch++;
    grants_revoke(&owner.grants, index);
    EXPECT_FALSE(grants_is_quiet(&owner.grants, index));
    grants_ended(&owner.grants);
    EXPECT_TRUE(grants_is_quiet(&owner.grants, index));
}

// The link's epoch is as it was, for the driver's event comes later.
TEST(Grants, LostWithdrawalIsNoticedWithoutAnEvent) {
    Owner owner;
    std::uint32_t index = owner.add(), other = owner.add();
    owner.lost_store = owner.stores;
    grants_revoke(&owner.grants, index);
    EXPECT_FALSE(grants_is_quiet(&owner.grants, index));
    // Nor are words of other copies certain any more, and no further load is made.
    grants_revoke(&owner.grants, other);
    EXPECT_FALSE(grants_is_quiet(&owner.grants, other));
    EXPECT_EQ(owner.loads, 1);
    grants_ended(&owner.grants);
    EXPECT_TRUE(grants_is_quiet(&owner.grants, index));
    EXPECT_TRUE(grants_is_quiet(&owner.grants, other));
    grants_begin(&owner.grants, owner.epoch);
    owner.revoke_and_end(owner.add());
}

TEST(Grants, EntryOfWhichAnyStoreWasLostHasNotArrived) {
    grants_range range{0x5000, 4096, 8, MARLIN_GRANT_READ, {1, 2}};
    for (int lost = -1; lost < 7; lost++) {
        Owner owner;
        owner.lost_store = lost;
        int index = grants_add(&owner.grants, &range);
        ASSERT_EQ(index, 0);
        EXPECT_EQ(owner.stores, 7);
        EXPECT_EQ(grants_has_arrived(&owner.grants, 0, &range), lost < 0) << lost;
        grants_revoke(&owner.grants, 0);
        EXPECT_EQ(grants_is_quiet(&owner.grants, 0), lost < 0) << lost;
    }
}

TEST(Grants, LinkThatGoesLaterChangesNoRevocation) {
    Owner owner;
    std::uint32_t index = owner.add();
    owner.copies[3] = grants_copy_word(1, index);
    grants_revoke(&owner.grants, index);
    owner.epoch++;
    EXPECT_FALSE(grants_is_quiet(&owner.grants, index));
    owner.copies[3] = 0;
    EXPECT_TRUE(grants_is_quiet(&owner.grants, index));
}

TEST(Grants, NextSessionWaitsForNoCopyOfTheLast) {
    Owner owner;
    std::uint32_t index = owner.add();
    owner.copies[3] = grants_copy_word(1, index);
    owner.epoch++;
    grants_revoke(&owner.grants, index);
    EXPECT_FALSE(grants_is_quiet(&owner.grants, index));
    owner.copies.fill(0);
    EXPECT_FALSE(grants_is_quiet(&owner.grants, index));
    grants_ended(&owner.grants);
    grants_begin(&owner.grants, owner.epoch);
    EXPECT_TRUE(grants_is_quiet(&owner.grants, index));
}

TEST(Grants, RevocationWaitsForEachCopyThatWasUnderWay) {
    Owner owner;
    std::uint32_t index = owner.add(), other = owner.add();
    owner.copies[0] = grants_copy_word(1, index);
    owner.copies[1] = grants_copy_word(2, other);
    owner.copies[MARLIN_COPIES - 1] = grants_copy_word(3, index);
    grants_revoke(&owner.grants, index);
    EXPECT_FALSE(grants_is_quiet(&owner.grants, index));
    owner.copies[0] = 0;
    EXPECT_FALSE(grants_is_quiet(&owner.grants, index));
    owner.copies[MARLIN_COPIES - 1] = 0;
    EXPECT_TRUE(grants_is_quiet(&owner.grants, index));
}

TEST(Grants, LaterCopiesDoNotProlongTheWait) {
    Owner owner;
    std::uint32_t index = owner.add();
    owner.copies[4] = grants_copy_word(1, index);
    grants_revoke(&owner.grants, index);
    EXPECT_FALSE(grants_is_quiet(&owner.grants, index));
    // One that will find the grant revoked, in the same word and in another.
    owner.copies[4] = grants_copy_word(2, index);
    owner.copies[5] = grants_copy_word(3, index);
    EXPECT_TRUE(grants_is_quiet(&owner.grants, index));
}

TEST(Grants, AnyWordsOfAPeerAreHarmless) {
    std::mt19937_64 random(1);
    Owner owner;
    std::deque<std::uint32_t> live;
    for (int round = 0; round < 20000; round++) {
        owner.copies[random() % MARLIN_COPIES] = random() % 3 ? random() : random() % 600;
        if (live.size() < 100) {
            live.push_back(owner.add());
            continue;
        }
        std::uint32_t index = live.front();
        live.pop_front();
        grants_revoke(&owner.grants, index);
        grants_is_quiet(&owner.grants, index);
        // The link has ended: the copies have, too.
        owner.copies.fill(0);
        ASSERT_TRUE(grants_is_quiet(&owner.grants, index));
        grants_end(&owner.grants, index);
        ASSERT_EQ(owner.grants.free_count + live.size(), MARLIN_GRANTS);
    }
}

TEST(Grants, NoEpochIsUsedTwice) {
    Owner owner;
    std::set<std::uint64_t> seen;
    for (int n = 0; n < 5000; n++) {
        std::uint32_t index = owner.add();
        EXPECT_TRUE(seen.insert(owner.grants.slots[index].epoch).second);
        owner.revoke_and_end(index);
    }
}

TEST(Grants, RangesDoNotOverflow) {
    EXPECT_TRUE(grants_contain(10, 0, 10));
    EXPECT_TRUE(grants_contain(10, 10, 0));
    EXPECT_FALSE(grants_contain(10, 0, 11));
    EXPECT_FALSE(grants_contain(10, 11, 0));
    EXPECT_FALSE(grants_contain(10, ~0ULL, 2));
    EXPECT_FALSE(grants_contain(10, 2, ~0ULL));
    EXPECT_EQ(grants_pages(0, 4096), 1U);
    EXPECT_EQ(grants_pages(4095, 1), 1U);
    EXPECT_EQ(grants_pages(4095, 2), 2U);
}

} // namespace

} // namespace remora::test
