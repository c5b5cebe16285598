// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <random>

#include "../../core.hpp"

namespace {

const uint64_t seed[2] = {0x0123456789abcdef, 0xfedcba9876543210};
const uint32_t read_write = RMEM_PTE_READ | RMEM_PTE_WRITE;

struct Table {
    explicit Table(uint64_t pages)
        : memory(std::aligned_alloc(64, base_round_up(rmem_table_bytes(pages), 64)), std::free) {
        rmem_table_init(&table, memory.get(), pages, seed);
    }
    uint32_t find(uint32_t space, uint64_t vpn) {
        return rmem_table_find(&table, space, vpn, &entry);
    }
    bool enter(uint32_t space, uint64_t vpn, uint64_t pages, uint32_t perm = read_write) {
        if (rmem_table_reserve(&table, space, vpn, pages) != pages)
            return false;
        for (uint64_t n = 0; n < pages; n++)
            rmem_table_insert(&table, space, vpn + n, perm);
        return true;
    }
    std::unique_ptr<void, void (*)(void*)> memory;
    rmem_table table;
    rmem_entry entry{};
};

TEST(Table, TwiceAsManyEntriesAsPagesAtLeast) {
    for (uint64_t pages : {1ull, 7ull, 8ull, 9ull, 64ull, 100ull, 4096ull, 5000ull}) {
        Table t(pages);
        uint64_t entries = (t.table.mask + 1) * RMEM_BUCKET_ENTRIES;
        EXPECT_GE(entries, 2 * pages);
        EXPECT_LT(entries, 4 * pages + 2 * RMEM_BUCKET_ENTRIES);
    }
}

// Clio (section 4.2): 0.4 % of the memory at pages of 4 MiB.
TEST(Table, TakesASmallShareOfTheMemory) {
    for (uint64_t pages = 64; pages <= 1 << 22; pages *= 2) {
        EXPECT_LE(rmem_table_bytes(pages), (pages << RMEM_PAGE_SHIFT_MAX) / 250) << pages;
        EXPECT_LE(rmem_table_bytes(pages), (pages << RMEM_PAGE_SHIFT_MIN) / 250) << pages;
    }
}

TEST(Table, LifeOfAPage) {
    Table t(64);
    bool placed;
    EXPECT_EQ(t.find(0, 5), 0u);
    ASSERT_TRUE(t.enter(0, 5, 1));
    EXPECT_EQ(t.find(1, 5), 0u);
    EXPECT_EQ(t.find(0, 6), 0u);
    uint32_t pte = t.find(0, 5);
    EXPECT_EQ(pte, RMEM_PTE_ALLOCATED | read_write);
    EXPECT_EQ(rmem_table_back(&t.entry, pte, 42, &placed), pte | RMEM_PTE_BACKED | 42);
    EXPECT_TRUE(placed);
    EXPECT_EQ(t.find(0, 5), pte | RMEM_PTE_BACKED | 42);
    EXPECT_TRUE(rmem_table_unback(&t.entry, pte | RMEM_PTE_BACKED | 42));
    EXPECT_FALSE(rmem_table_unback(&t.entry, pte | RMEM_PTE_BACKED | 42));
    EXPECT_EQ(t.find(0, 5), pte);
    EXPECT_EQ(rmem_table_remove(&t.table, 0, 5), pte);
    EXPECT_EQ(t.find(0, 5), 0u);
}

// Page 0 of the first space has the key of free entries. One of them is being filled in: its pte is
// there already, its key not yet.
TEST(Table, PageZeroIsNeverMapped) {
    Table t(1);
    for (uint32_t& pte : t.table.bucket[0].pte)
        pte = RMEM_PTE_ALLOCATED | read_write;
    EXPECT_EQ(t.find(0, 0), 0u);
}

TEST(Table, SecondFirstTouchLoses) {
    Table t(64);
    bool placed;
    t.enter(0, 5, 1);
    uint32_t pte = t.find(0, 5);
    rmem_table_back(&t.entry, pte, 1, &placed);
    EXPECT_EQ(rmem_table_back(&t.entry, pte, 2, &placed), pte | RMEM_PTE_BACKED | 1);
    EXPECT_FALSE(placed);
}

// One bucket: what is entered next takes the place of what was removed.
TEST(Table, FirstTouchOfAFreedAddress) {
    Table t(1);
    bool placed;
    t.enter(0, 5, 1);
    uint32_t pte = t.find(0, 5);
    rmem_table_remove(&t.table, 0, 5);
    EXPECT_EQ(rmem_table_back(&t.entry, pte, 1, &placed), 0u);
    EXPECT_FALSE(placed);
    t.enter(0, 9, 1);
    EXPECT_EQ(rmem_table_back(&t.entry, pte, 1, &placed), 0u);
    EXPECT_TRUE(placed); // the other address has the zeroed page now
    EXPECT_EQ(t.find(0, 9), pte | RMEM_PTE_BACKED | 1);
}

TEST(Table, RefusesTheSeventeenth) {
    Table t(1);
    ASSERT_TRUE(t.enter(0, 1, 16));
    EXPECT_EQ(rmem_table_reserve(&t.table, 0, 100, 1), 0u);
    rmem_table_remove(&t.table, 0, 3);
    EXPECT_EQ(rmem_table_reserve(&t.table, 0, 100, 2), 1u);
    EXPECT_EQ(t.table.load[0], 15); // a part that didn't fit leaves nothing reserved
    EXPECT_TRUE(t.enter(0, 100, 1));
}

TEST(Table, RangeLoadsBucketsAlike) {
    Table t(4096);
    const uint64_t buckets = t.table.mask + 1;
    ASSERT_TRUE(t.enter(3, 777, 3 * buckets));
    for (uint64_t n = 0; n < buckets; n++) {
        EXPECT_GE(t.table.load[n], 2);
        EXPECT_LE(t.table.load[n], 4);
    }
}

TEST(Table, HighestAddresses) {
    Table t(64);
    const uint64_t last = (1ull << 48) - 1;
    ASSERT_TRUE(t.enter(RMEM_TABLE_SPACES_MAX - 1, last, 1));
    EXPECT_NE(t.find(RMEM_TABLE_SPACES_MAX - 1, last), 0u);
    EXPECT_EQ(t.find(0, last), 0u);
}

// Random ranges of several spaces come and go: never an overflow, never a wrong answer.
TEST(Table, AgreesWithReference) {
    Table t(512);
    struct Range {
        uint32_t space;
        uint64_t vpn, pages;
    };
    std::vector<Range> ranges;
    std::map<std::pair<uint32_t, uint64_t>, uint32_t> reference;
    std::mt19937 random(1);
    uint64_t cursor = 1, used = 0;
    for (int step = 0; step < 20000; step++) {
        if (random() % 2) {
            Range r{uint32_t(random() % 5), cursor, 1 + random() % 80};
            uint32_t perm = random() % 2 ? read_write : RMEM_PTE_READ;
            if (used + r.pages > 512)
                continue;
            cursor += r.pages + random() % 3;
            if (!t.enter(r.space, r.vpn, r.pages, perm))
                continue;
            used += r.pages;
            ranges.push_back(r);
            for (uint64_t n = 0; n < r.pages; n++)
                reference[{r.space, r.vpn + n}] = RMEM_PTE_ALLOCATED | perm;
        } else if (!ranges.empty()) {
            std::swap(ranges[random() % ranges.size()], ranges.back());
            Range r = ranges.back();
            ranges.pop_back();
            used -= r.pages;
            for (uint64_t n = 0; n < r.pages; n++) {
                ASSERT_EQ(rmem_table_remove(&t.table, r.space, r.vpn + n),
                          (reference[{r.space, r.vpn + n}]));
                reference.erase({r.space, r.vpn + n});
            }
        }
        for (int look = 0; look < 20; look++) {
            uint32_t space = random() % 5;
            uint64_t vpn = cursor > 400 ? cursor - random() % 400 : 1 + random() % cursor;
            auto found = reference.find({space, vpn});
            ASSERT_EQ(t.find(space, vpn), found == reference.end() ? 0 : found->second);
        }
    }
    for (auto& [at, pte] : reference)
        ASSERT_EQ(t.find(at.first, at.second), pte);
}

} // namespace
