// SPDX-License-Identifier: GPL-2.0
// Sub-transfers between two machines' pages: each byte once, pages combined, bounded.
#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

extern "C" {
#include "core/marlin/scatter.h"
}

namespace remora::test {

namespace {

using Pages = std::vector<std::uint64_t>;
constexpr std::uint64_t page = MARLIN_PAGE_BYTES;

Pages contiguous(std::uint64_t first, std::size_t count) {
    Pages out;
    for (std::size_t n = 0; n < count; n++)
        out.push_back(first + n * page);
    return out;
}

struct Cut {
    std::vector<scatter_part> parts;
    std::uint64_t bytes;
};

Cut cut(scatter_pages& local, scatter_pages& remote, std::uint64_t bytes,
        std::uint32_t parts_max = SCATTER_PARTS) {
    Cut out{std::vector<scatter_part>(parts_max), 0};
    out.parts.resize(scatter_cut(out.parts.data(), parts_max, &local, &remote, bytes, &out.bytes));
    return out;
}

TEST(Scatter, ContiguousPagesAreOneTransfer) {
    Pages local = contiguous(0x100000, 64), remote = contiguous(0x900000, 64);
    scatter_pages from{local.data(), 0}, to{remote.data(), 0};
    Cut got = cut(from, to, 64 * page);
    ASSERT_EQ(got.parts.size(), 1U);
    EXPECT_EQ(got.parts[0].bytes, 64 * page);
    EXPECT_EQ(got.bytes, 64 * page);
}

TEST(Scatter, PagesContiguousOnOneSideOnlyAreNotCombined) {
    Pages local = contiguous(0x100000, 4), remote = contiguous(0x900000, 4);
    std::reverse(remote.begin(), remote.end());
    scatter_pages from{local.data(), 0}, to{remote.data(), 0};
    EXPECT_EQ(cut(from, to, 4 * page).parts.size(), 4U);
}

TEST(Scatter, DifferentOffsetsCutAtBothSidesPages) {
    Pages local = contiguous(0x100000, 3), remote{0x900000, 0x700000, 0x500000};
    scatter_pages from{local.data(), 100}, to{remote.data(), 4000};
    Cut got = cut(from, to, 2 * page);
    ASSERT_EQ(got.bytes, 2 * page);
    EXPECT_EQ(got.parts[0].bytes, 96U);
    EXPECT_EQ(got.parts[0].local, 0x100064U);
    EXPECT_EQ(got.parts[0].remote, 0x900fa0U);
}

TEST(Scatter, NothingIsNoParts) {
    scatter_pages from{}, to{};
    Cut got = cut(from, to, 0);
    EXPECT_TRUE(got.parts.empty());
}

TEST(Scatter, HeadEndsAtTheFirstPlaceWhereBothSidesAreAligned) {
    for (std::uint64_t skew = 0; skew < SCATTER_ALIGN; skew++) {
        scatter_part part{0x100000 + skew, 0x900040 + skew, 1000};
        std::uint32_t head = scatter_head(&part);
        EXPECT_EQ(head, skew ? SCATTER_ALIGN - skew : 0);
        EXPECT_EQ(scatter_is_aligned(&part), skew == 0);
        part.local += head;
        part.remote += head;
        EXPECT_TRUE(scatter_is_aligned(&part));
    }
}

TEST(Scatter, SidesThatAreSkewedDifferentlyHaveNoHeadAndAreNotWidened) {
    for (std::uint64_t skew = 1; skew < SCATTER_ALIGN; skew++) {
        scatter_part part{0x100000 + skew, 0x900000 + 2 * skew, 1000};
        EXPECT_EQ(scatter_head(&part), 0U);
        EXPECT_FALSE(scatter_is_aligned(&part));
        EXPECT_EQ(scatter_widen(&part), 0U);
        EXPECT_EQ(part.local, 0x100000 + skew);
        EXPECT_EQ(part.bytes, 1000U);
    }
}

TEST(Scatter, PartThatEndsBeforeAnAlignedPlaceHasNoHead) {
    scatter_part part{0x100001, 0x900001, SCATTER_ALIGN - 1};
    EXPECT_EQ(scatter_head(&part), 0U);
    part.bytes++;
    EXPECT_EQ(scatter_head(&part), SCATTER_ALIGN - 1U);
}

TEST(Scatter, WidenedPartBeginsAlignedAndEndsWhereItDid) {
    for (std::uint64_t skew = 0; skew < SCATTER_ALIGN; skew++) {
        scatter_part part{0x100000 + skew, 0x900000 + skew, 10};
        EXPECT_EQ(scatter_widen(&part), skew);
        EXPECT_TRUE(scatter_is_aligned(&part));
        EXPECT_EQ(part.local + part.bytes, 0x10000a + skew);
        EXPECT_EQ(part.remote + part.bytes, 0x90000a + skew);
    }
}

TEST(Scatter, EachByteIsMovedOnceWhateverTheListsAre) {
    std::mt19937 random(2);
    for (int round = 0; round < 500; round++) {
        std::size_t count = 2 + random() % 40;
        Pages local = contiguous(0x100000, count), remote = contiguous(0x900000, count);
        if (random() % 2)
            std::shuffle(local.begin(), local.end(), random);
        if (random() % 2)
            std::shuffle(remote.begin(), remote.end(), random);
        std::uint64_t local_at = random() % page, remote_at = random() % page;
        std::uint64_t bytes = random() % ((count - 1) * page);
        scatter_pages from{local.data(), local_at}, to{remote.data(), remote_at};
        std::uint64_t done = 0;
        while (done < bytes) {
            Cut got = cut(from, to, bytes - done, 1 + random() % 16);
            ASSERT_GT(got.bytes, 0U);
            for (const scatter_part& part : got.parts) {
                // Every byte of the part is where the lists say.
                for (std::uint64_t n = 0; n < part.bytes; n += 1 + random() % 64) {
                    std::uint64_t a = local_at + done + n, b = remote_at + done + n;
                    ASSERT_EQ(part.local + n, local[a / page] + a % page);
                    ASSERT_EQ(part.remote + n, remote[b / page] + b % page);
                }
                done += part.bytes;
            }
        }
        ASSERT_EQ(done, bytes);
    }
}

using Pieces = std::vector<marlin_loan_piece>;

scatter_pieces list_of(const Pieces& pieces) {
    return {pieces.data(), static_cast<std::uint32_t>(pieces.size()), 0, 0};
}

TEST(Scatter, PiecesOfALoanAreFilledInTheirOrder) {
    Pieces pieces{{0x10000, 100, 0}, {0x20000, 5000, 0}, {0x21388, 50, 0}};
    scatter_pieces to = list_of(pieces);
    std::vector<scatter_part> parts(8);
    std::uint32_t count = 0;
    ASSERT_TRUE(scatter_holds(&to, 0x30000, 5150));
    ASSERT_TRUE(scatter_add(parts.data(), &count, 8, &to, 0x900000, 60));
    ASSERT_TRUE(scatter_add(parts.data(), &count, 8, &to, 0x90003c, 5000));
    ASSERT_TRUE(scatter_add(parts.data(), &count, 8, &to, 0x800000, 90));
    // Bytes that are neighbours on both sides are one part, across calls and pieces.
    ASSERT_EQ(count, 3U);
    const std::uint64_t expect[3][3] = {
        {0x900000, 0x10000, 100}, {0x900064, 0x20000, 4960}, {0x800000, 0x21360, 90}};
    for (std::uint32_t n = 0; n < count; n++) {
        EXPECT_EQ(parts[n].local, expect[n][0]) << n;
        EXPECT_EQ(parts[n].remote, expect[n][1]) << n;
        EXPECT_EQ(parts[n].bytes, expect[n][2]) << n;
    }
}

TEST(Scatter, PiecesThatBreakARuleHoldNothing) {
    const Pieces good{{0x1000, 4096, 0}, {0x3000, 4096, 0}};
    auto holds = [](const Pieces& pieces, std::uint64_t ram, std::uint64_t bytes) {
        scatter_pieces list = list_of(pieces);
        return scatter_holds(&list, ram, bytes);
    };
    EXPECT_TRUE(holds(good, 0x4000, 8192));
    EXPECT_FALSE(holds(good, 0x3fff, 8192));
    EXPECT_FALSE(holds(good, 0x4000, 8193));
    EXPECT_FALSE(holds({}, 0x4000, 1));
    for (const marlin_loan_piece& bad :
         {marlin_loan_piece{0x1000, 0, 0}, marlin_loan_piece{0x1000, 1, 1},
          marlin_loan_piece{~0ULL, 2, 0}, marlin_loan_piece{~0ULL - 4096, 4096, 0},
          marlin_loan_piece{0, ~0U, 0}, marlin_loan_piece{0x4000, 1, 0}})
        EXPECT_FALSE(holds({good[0], good[1], bad}, 0x4000, 1)) << bad.address;
}

TEST(Scatter, PiecesBeyondTheMostPartsAreRefused) {
    Pieces pieces;
    for (std::uint64_t n = 0; n < 4; n++)
        pieces.push_back({n * 0x2000, 16, 0});
    scatter_pieces to = list_of(pieces);
    std::vector<scatter_part> parts(3);
    std::uint32_t count = 0;
    EXPECT_FALSE(scatter_add(parts.data(), &count, 3, &to, 0x900000, 64));
    EXPECT_EQ(count, 3U);
}

} // namespace

} // namespace remora::test
