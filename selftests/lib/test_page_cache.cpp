// SPDX-License-Identifier: GPL-2.0
// Which pages are here, which go, and how far is read ahead.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "src/mmap/page_cache.hpp"
#include "src/mmap/read_ahead.hpp"

namespace remora::test {

namespace {

using lib::PageCache;
using lib::ReadAhead;
using State = PageCache::State;

constexpr std::uint32_t block = 16;

void bring(PageCache& cache, std::uint64_t page) {
    cache.begin_read(page);
    cache.end_read(page);
}

// ---- the cache ----

// Runs against a look at each page.
class RandomCache : public testing::TestWithParam<unsigned> {
protected:
    static constexpr std::uint64_t pages = 100;
    static constexpr std::uint32_t capacity = 40;

    std::mt19937 random{GetParam()};
    std::uint32_t phase = GetParam() % block;
    PageCache cache{pages, capacity, block, phase};
    std::map<std::uint64_t, PageCache::Page> here;
    std::set<std::uint64_t> failed;

    State state(std::uint64_t page) const {
        if (failed.count(page))
            return State::failed;
        auto found = here.find(page);
        return found == here.end() ? State::absent : found->second.state;
    }
    bool same_block(std::uint64_t a, std::uint64_t b) const {
        return (a + phase) / block == (b + phase) / block;
    }
    template <typename Is>
    std::uint32_t length(std::uint64_t from, std::uint64_t most, Is is) const {
        std::uint32_t count = 0;
        while (count < most && from + count < pages && same_block(from, from + count) &&
               is(from + count))
            count++;
        return count;
    }
    bool is_unsaved(std::uint64_t page) const {
        return state(page) == State::present && here.at(page).dirty && !here.at(page).writing;
    }
    bool is_idle(std::uint64_t page) const {
        return state(page) == State::present && !here.at(page).dirty && !here.at(page).writing &&
               !here.at(page).used;
    }

    void step(std::uint64_t page);
    void compare(std::uint64_t page);
};

void RandomCache::step(std::uint64_t page) {
    switch (state(page)) {
    case State::absent:
        if (cache.room()) {
            cache.begin_read(page);
            here[page].state = State::reading;
        }
        return;
    case State::reading:
        if (random() % 500) {
            cache.end_read(page);
            here[page].state = State::present;
        } else {
            cache.fail(page);
            here.erase(page);
            failed.insert(page);
        }
        return;
    case State::present:
        if (random() % 4 == 0) {
            cache.forget(page);
            here.erase(page);
            return;
        }
        cache.at(page).dirty = here[page].dirty = random() % 2;
        cache.at(page).writing = here[page].writing = random() % 4 == 0;
        cache.at(page).used = here[page].used = random() % 2;
        return;
    case State::failed:
        return;
    }
}

void RandomCache::compare(std::uint64_t page) {
    std::uint64_t most = random() % 30;
    ASSERT_EQ(cache.state(page), state(page));
    ASSERT_EQ(cache.absent_run(page, most).pages,
              length(page, most, [&](auto each) { return state(each) == State::absent; }));
    ASSERT_EQ(cache.idle_run(page, most).pages,
              length(page, most, [&](auto each) { return is_idle(each); }));
    if (!is_unsaved(page))
        return;
    lib::Run run = cache.dirty_run(page);
    ASSERT_TRUE(run.page <= page && page < run.end());
    ASSERT_EQ(run.pages, length(run.page, pages, [&](auto each) { return is_unsaved(each); }));
    ASSERT_FALSE(run.page && same_block(run.page - 1, run.page) && is_unsaved(run.page - 1));
}

TEST_P(RandomCache, IsThatOfALookAtEachPage) {
    for (int i = 0; i < 5000; i++) {
        step(random() % pages);
        compare(random() % pages);
        ASSERT_EQ(cache.room(), capacity - here.size());
    }
    auto may_go = [](const auto& each) {
        return each.second.state == State::present && !each.second.writing;
    };
    const PageCache::Page* victim = cache.victim();
    if (std::any_of(here.begin(), here.end(), may_go)) {
        ASSERT_NE(victim, nullptr);
        EXPECT_TRUE(victim->state == State::present && !victim->writing);
    } else {
        EXPECT_EQ(victim, nullptr);
    }
}

INSTANTIATE_TEST_SUITE_P(Lib, RandomCache, testing::Range(1U, 21U));

TEST(PageCache, EvictsInOrderOfArrival) {
    PageCache cache(100, 10, block, 0);
    for (std::uint64_t page = 50; page < 60; page++)
        bring(cache, page);
    for (std::uint64_t page = 50; page < 60; page++) {
        EXPECT_EQ(cache.victim()->number, page);
        cache.forget(page);
        bring(cache, page + 20);
    }
    EXPECT_EQ(cache.victim()->number, 70U);
}

TEST(PageCache, UsedPagesSurviveARound) {
    PageCache cache(100, 4, block, 0);
    for (std::uint64_t page = 0; page < 4; page++)
        bring(cache, page);
    cache.at(0).used = cache.at(2).used = true;
    EXPECT_EQ(cache.victim()->number, 1U);
    EXPECT_EQ(cache.victim()->number, 3U);
    EXPECT_EQ(cache.victim()->number, 0U);
    EXPECT_EQ(cache.victim()->number, 1U);
    EXPECT_EQ(cache.victim()->number, 2U);
}

TEST(PageCache, NoVictimWhileAllPagesAreBusy) {
    PageCache cache(100, 2, block, 0);
    EXPECT_EQ(cache.victim(), nullptr);
    cache.begin_read(1);
    bring(cache, 2);
    cache.at(2).writing = true;
    EXPECT_EQ(cache.victim(), nullptr);
    cache.at(2).writing = false;
    EXPECT_EQ(cache.victim()->number, 2U);
}

TEST(PageCache, ARunStaysInItsBlock) {
    PageCache cache(100, 50, block, 5); // blocks end before 11, 27, 43 ...
    EXPECT_EQ(cache.absent_run(0, 100).pages, 11U);
    EXPECT_EQ(cache.absent_run(11, 100).pages, block);
    EXPECT_EQ(cache.absent_run(26, 100).pages, 1U);
    EXPECT_EQ(cache.absent_run(95, 100).pages, 5U) << "the mapping ends there";
    for (std::uint64_t page = 20; page < 35; page++) {
        bring(cache, page);
        cache.at(page).dirty = true;
    }
    EXPECT_EQ(cache.dirty_run(25).page, 20U);
    EXPECT_EQ(cache.dirty_run(25).pages, 7U);
    EXPECT_EQ(cache.dirty_run(34).page, 27U);
    EXPECT_EQ(cache.dirty_run(34).pages, 8U);
}

// ---- reading ahead ----

TEST(ReadAhead, GrowsWithARun) {
    ReadAhead ahead(64);
    EXPECT_EQ(ahead.touch(10), 1U);
    EXPECT_EQ(ahead.touch(11), 4U);
    EXPECT_EQ(ahead.touch(15), 8U);
    EXPECT_EQ(ahead.touch(23), 16U);
    EXPECT_EQ(ahead.touch(30), 32U) << "what is on its way is part of the run";
    EXPECT_EQ(ahead.touch(62), 64U);
    EXPECT_EQ(ahead.touch(126), 64U);
}

TEST(ReadAhead, AJumpIsNoRun) {
    ReadAhead ahead(64);
    ahead.touch(10);
    ahead.touch(11);
    EXPECT_EQ(ahead.touch(17), 1U) << "15 was next";
    EXPECT_EQ(ahead.touch(9), 1U) << "backwards";
    EXPECT_EQ(ahead.touch(11), 1U) << "the same again";
    EXPECT_EQ(ahead.touch(15), 8U) << "the first run goes on";
}

TEST(ReadAhead, SeveralRunsAtOnce) {
    ReadAhead ahead(64);
    for (std::uint64_t run = 0; run < 8; run++)
        EXPECT_EQ(ahead.touch(1000 * run), 1U);
    for (std::uint64_t run = 0; run < 8; run++)
        EXPECT_EQ(ahead.touch(1000 * run + 1), 4U);
    EXPECT_EQ(ahead.touch(9000), 1U) << "the run that rested longest is given up";
    EXPECT_EQ(ahead.touch(5), 1U);
    EXPECT_EQ(ahead.touch(7005), 8U);
}

TEST(ReadAhead, MayBeOff) {
    ReadAhead ahead(1);
    for (std::uint64_t page = 0; page < 10; page++)
        EXPECT_EQ(ahead.touch(page), 1U);
}

} // namespace

} // namespace remora::test
