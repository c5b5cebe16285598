// SPDX-License-Identifier: GPL-2.0
// A copy's claim over a link that goes down and up at each of its steps.
#include <cstring>
#include <functional>

#include <gtest/gtest.h>

extern "C" {
#include "core/base/bytes.h"
#include "core/marlin/claim.h"
}

namespace remora::test {

namespace {

// An owner's words, and the link to them. `before` runs before each load and store, with its
// number.
struct Link {
    std::uint64_t word = 0, permit = 7;
    bool up = true;
    std::uint32_t epoch = 100;
    int steps = 0, loads = 0;
    std::function<void(int)> before = [](int) {};

    void down() {
        up = false;
        epoch++;
    }
    void flap() {
        down();
        up = true;
    }
    static std::uint64_t load(void* context, const void* at, std::uint32_t bytes) {
        auto* link = static_cast<Link*>(context);
        std::uint64_t value = 0;
        link->before(link->steps++);
        link->loads++;
        if (!link->up)
            return ~0ULL >> (64 - 8 * bytes);
        std::memcpy(&value, at, bytes);
        return base_swap_le64(value);
    }
    static void store(void* context, void* at, std::uint64_t value, std::uint32_t bytes) {
        auto* link = static_cast<Link*>(context);
        link->before(link->steps++);
        value = base_swap_le64(value);
        if (link->up)
            std::memcpy(at, &value, bytes);
    }
    static std::uint32_t epoch_now(void* context) { return static_cast<Link*>(context)->epoch; }
};

const claim_bus bus = {Link::load, Link::store, Link::epoch_now};

class Claims : public testing::TestWithParam<std::uint32_t> {
protected:
    Claims() {
        claim.word = &link.word;
        claim.permit = &link.permit;
        claim.value = 5;
        claim.permitted = 7;
        claim.bytes = GetParam();
        claim.epoch = link.epoch;
    }
    claim_verdict begin() { return claim_begin(&claim, &bus, &link); }
    bool whole() { return claim_is_whole(&claim, &bus, &link); }
    bool sent() { return claim_is_sent(&claim, &bus, &link); }
    void end() { claim_end(&claim, &bus, &link); }
    Link link;
    struct claim claim {};
};

TEST_P(Claims, OwnerSeesTheClaimForAsLongAsItLasts) {
    EXPECT_EQ(begin(), CLAIM_OK);
    EXPECT_EQ(base_word_load(&link.word, claim.bytes), claim.value);
    EXPECT_FALSE(claim_is_quiet(&link.word, claim.value, ~0ULL, claim.bytes));
    EXPECT_TRUE(whole());
    end();
    EXPECT_TRUE(claim_is_quiet(&link.word, claim.value, ~0ULL, claim.bytes));
}

TEST_P(Claims, WholeCopyTakesTwoLoads) {
    begin();
    whole();
    end();
    EXPECT_EQ(link.loads, 2);
}

TEST_P(Claims, SentCopyByAMirroredPermitTakesNone) {
    claim.mirrored = true;
    EXPECT_EQ(begin(), CLAIM_OK);
    EXPECT_TRUE(sent());
    end();
    EXPECT_FALSE(claim_is_awaited(&claim));
    EXPECT_EQ(link.loads, 0);
    EXPECT_EQ(link.word, 0U);
}

TEST_P(Claims, WithdrawnPermitRefusesAndLeavesNoClaim) {
    claim_withdraw(&link.permit, 6, claim.bytes);
    EXPECT_EQ(begin(), CLAIM_REFUSED);
    EXPECT_EQ(link.word, 0U);
}

TEST_P(Claims, WithdrawnMirroredPermitRefusesAndLeavesNoClaim) {
    claim.mirrored = true;
    base_word_store(&link.permit, 6, claim.bytes);
    EXPECT_EQ(begin(), CLAIM_REFUSED);
    EXPECT_EQ(link.word, 0U);
    EXPECT_EQ(link.loads, 0);
}

TEST_P(Claims, EndTellsThatTheOwnerMightWait) {
    claim.mirrored = true;
    EXPECT_EQ(begin(), CLAIM_OK);
    base_word_store(&link.permit, 6, claim.bytes);
    EXPECT_TRUE(whole());
    end();
    EXPECT_TRUE(claim_is_awaited(&claim));
}

TEST_P(Claims, MirroredPermitOfAnEarlierEpochOfTheLinkIsLost) {
    claim.mirrored = true;
    link.flap();
    EXPECT_EQ(begin(), CLAIM_LOST);
    EXPECT_EQ(link.loads, 0);
}

TEST_P(Claims, LinkThatIsDownInTheCopyLeavesNoSentCopy) {
    claim.mirrored = true;
    EXPECT_EQ(begin(), CLAIM_OK);
    link.flap();
    EXPECT_FALSE(sent());
}

// The driver's event comes later, so the epoch is as it was.
TEST_P(Claims, CopyWithoutItsWordIsRefusedWhereTheEpochIsLate) {
    for (bool mirrored : {false, true}) {
        link = Link();
        claim.mirrored = mirrored;
        claim.late = true;
        link.before = [&](int step) { link.up = step != 0; };
        EXPECT_EQ(begin(), CLAIM_LOST);
        link = Link();
        EXPECT_EQ(begin(), CLAIM_OK);
        EXPECT_EQ(link.loads, mirrored ? 1 : 2);
    }
}

TEST_P(Claims, DeadLinkIsToldFromAWithdrawnPermit) {
    link.down();
    EXPECT_EQ(begin(), CLAIM_LOST);
}

// A hostile owner can write the value that a dead link gives.
TEST_P(Claims, PermitOfAllOnesIsNone) {
    link.permit = ~0ULL;
    EXPECT_EQ(begin(), CLAIM_LOST);
}

TEST_P(Claims, LinkThatIsDownForAnInstantAtAnyStepLeavesNoWholeCopy) {
    for (int when = 0; when < 3; when++) {
        SCOPED_TRACE(when);
        link = Link();
        claim.epoch = link.epoch;
        // 0: before the claim word; 1: before the permit's load; 2: in the copy
        link.before = [&](int step) {
            if (step == when)
                link.flap();
        };
        claim_verdict verdict = begin();
        EXPECT_EQ(verdict == CLAIM_OK, when == 2);
        EXPECT_FALSE(verdict == CLAIM_OK && whole());
    }
}

TEST_P(Claims, LinkThatIsDownAtTheEndLeavesNoWholeCopy) {
    EXPECT_EQ(begin(), CLAIM_OK);
    link.down();
    EXPECT_FALSE(whole());
    EXPECT_FALSE(sent());
}

// A session that begins after the outage has the new epoch.
TEST_P(Claims, NextSessionsClaimsAreWhole) {
    link.flap();
    EXPECT_EQ(begin(), CLAIM_LOST);
    claim.epoch = link.epoch;
    EXPECT_EQ(begin(), CLAIM_OK);
    EXPECT_TRUE(whole());
}

TEST_P(Claims, MaskTellsCopiesApart) {
    link.word = 0x30005;
    EXPECT_TRUE(claim_is_quiet(&link.word, 0x20005, 0xffffffff, claim.bytes));
    EXPECT_FALSE(claim_is_quiet(&link.word, 0x20005, 0xffff, claim.bytes));
}

INSTANTIATE_TEST_SUITE_P(Words, Claims, testing::Values(4U, 8U));

} // namespace

} // namespace remora::test
