// SPDX-License-Identifier: GPL-2.0
// The groups that remora-dlrm finds in queries of the past, and queries that it rewrites by them.
#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "apps/dlrm/memo.hpp"
#include "offloads/dlrm/dlrm.h"

namespace remora::dlrm {
namespace {

using Ids = std::vector<std::uint32_t>;

constexpr std::uint32_t items = 5000;

std::vector<Ids> entries_of(const Memo& memo) {
    std::vector<Ids> all;
    memo.each([&](std::span<const std::uint32_t> entry) {
        all.emplace_back(entry.begin(), entry.end());
    });
    return all;
}

// The ids that words stand for, ascending.
Ids meaning(const Ids& words, const std::vector<Ids>& entries) {
    Ids all;
    for (std::uint32_t word : words) {
        if (word & DLRM_MEMO)
            all.insert(all.end(), entries.at(word & ~DLRM_MEMO).begin(),
                       entries.at(word & ~DLRM_MEMO).end());
        else
            all.push_back(word);
    }
    std::ranges::sort(all);
    return all;
}

Ids sorted(std::span<const std::uint32_t> ids) {
    Ids all(ids.begin(), ids.end());
    std::ranges::sort(all);
    return all;
}

TEST(DlrmMemo, RewrittenQueriesNameTheSameIds) {
    Data data(items, 1);
    const Queries past = data.queries(2000);
    Memo memo(items, past, items / 4);
    const std::vector<Ids> entries = entries_of(memo);
    ASSERT_EQ(entries.size(), memo.entries());
    std::size_t before = 0, after = 0;
    const Queries queries = data.queries(1000);
    for (std::size_t n = 0; n < queries.size(); n++) {
        Ids words{7}; // is appended to
        memo.rewrite(queries[n], words);
        ASSERT_EQ(words[0], 7u);
        words.erase(words.begin());
        EXPECT_EQ(meaning(words, entries), sorted(queries[n]));
        before += queries[n].size();
        after += words.size();
    }
    EXPECT_LE(after, before * 3 / 4) << "a quarter of the accesses is saved";
}

TEST(DlrmMemo, IdsThatAreThereTwiceCountTwice) {
    Data data(items, 2);
    const Queries past = data.queries(2000);
    Memo memo(items, past, items / 4);
    const std::vector<Ids> entries = entries_of(memo);
    for (std::size_t n = 0; n < 100; n++) {
        Ids twice(past[n].begin(), past[n].end());
        twice.insert(twice.end(), past[n].begin(), past[n].end());
        twice.push_back(twice[0]);
        Ids words;
        memo.rewrite(twice, words);
        EXPECT_EQ(meaning(words, entries), sorted(twice));
    }
}

TEST(DlrmMemo, EntriesAreSubsetsOfDisjointGroups) {
    Data data(items, 3);
    const Memo memo(items, data.queries(2000), items / 4);
    EXPECT_GT(memo.entries(), items / 5) << "the room is used";
    std::map<std::uint32_t, Ids> companions; // of an item: all of its group
    std::set<Ids> seen;
    for (const Ids& entry : entries_of(memo)) {
        EXPECT_GE(entry.size(), 2u);
        EXPECT_LE(entry.size(), group_items_max);
        EXPECT_TRUE(seen.insert(sorted(entry)).second) << "no sum is there twice";
        for (std::uint32_t item : entry) {
            Ids& all = companions[item];
            all.insert(all.end(), entry.begin(), entry.end());
            std::ranges::sort(all);
            all.erase(std::ranges::unique(all).begin(), all.end());
        }
    }
    for (const auto& [item, all] : companions)
        for (std::uint32_t other : all)
            EXPECT_EQ(companions[other], all);
}

TEST(DlrmMemo, HasNoMoreEntriesThanRoom) {
    Data data(items, 4);
    const Queries past = data.queries(2000);
    for (std::uint32_t room : {0U, 1U, 10U, 300U}) {
        Memo memo(items, past, room);
        EXPECT_LE(memo.entries(), room);
        EXPECT_EQ(entries_of(memo).size(), memo.entries());
    }
}

// Five items, always together, among others of chance: the memo has their sum.
TEST(DlrmMemo, ItemsThatAreAlwaysTogetherNeedOneAccess) {
    std::mt19937_64 random(5);
    Queries past;
    for (unsigned n = 0; n < 200; n++) {
        Ids query{11, 22, 33, 44, 55};
        for (unsigned other = 0; other < 20; other++)
            query.push_back(100 + static_cast<std::uint32_t>(random() % (items - 100)));
        past.add(query);
    }
    Memo memo(items, past, 26);
    EXPECT_EQ(memo.entries(), 26u);
    Ids words;
    memo.rewrite(Ids{55, 11, 33, 22, 44}, words);
    EXPECT_EQ(words.size(), 1u);
    words.clear();
    memo.rewrite(Ids{33}, words);
    EXPECT_EQ(words, Ids{33}) << "a row alone is no entry";
}

TEST(DlrmMemo, WithoutEntriesNothingIsRewritten) {
    Memo memo(items);
    Ids words;
    memo.rewrite(Ids{5, 3, 5}, words);
    EXPECT_EQ(words, (Ids{5, 3, 5}));
}

TEST(DlrmData, QueriesHaveTheLengthsThatTheHeaderTells) {
    Data data(100'000, 6);
    const Queries queries = data.queries(5000);
    std::size_t sum = 0;
    for (std::size_t n = 0; n < queries.size(); n++) {
        const Ids ids = sorted(queries[n]);
        EXPECT_TRUE(!ids.empty() && ids.size() <= Data::length_max && ids.back() < 100'000);
        EXPECT_EQ(std::ranges::adjacent_find(ids), ids.end());
        sum += ids.size();
    }
    EXPECT_NEAR(static_cast<double>(sum) / 5000, 40, 2);
}

} // namespace
} // namespace remora::dlrm
