// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "node_rig.hpp"

namespace {

constexpr uint32_t spaces = 8;

// The allocator with the parts it works on; the pages themselves don't matter here.
struct Alloc {
    explicit Alloc(uint64_t pages, uint32_t regions_max = 65536, uint64_t seed = 1) {
        config = rig::small_config();
        config.pages = pages;
        config.regions_max = regions_max;
        config.spaces_max = spaces;
        config.seed[0] = seed;
        config.seed[1] = base_mix64(seed);
        memory = std::aligned_alloc(64, rmem_node_state_bytes(&config));
        rmem_node_init(&node, &config, memory);
        for (uint32_t n = 0; n < spaces; n++)
            rmem_node_space_add(&node, n + 1, rig::key_bytes, 0);
    }
    ~Alloc() { std::free(memory); }
    rmem_region* get(uint32_t space, uint64_t pages, uint64_t vpn = 0) {
        rmem_alloc_request request{pages, vpn, RMEM_PTE_READ | RMEM_PTE_WRITE, 1, ++ids};
        rmem_alloc_work work{};
        if (rmem_alloc_make(&node.alloc, &node.spaces, space, &request, &work))
            finish(work);
        return work.region;
    }
    void put(rmem_region* region) {
        rmem_alloc_work work;
        rmem_alloc_release(region, &work);
        finish(work);
    }
    bool step(rmem_alloc_work& work, uint64_t pages_max) {
        return rmem_alloc_step(&node.alloc, &node.table, &node.spaces, &node.pool, &work,
                               pages_max);
    }
    void finish(rmem_alloc_work& work) {
        while (step(work, 1 + random() % 64)) {
        }
    }
    rmem_node_config config;
    rmem_node node;
    void* memory;
    uint64_t ids = 0;
    std::mt19937 random{1}; // pages a step
};

TEST(Alloc, OneSpaceLeavesTheOthersTheirRegions) {
    constexpr uint32_t regions = 256, kept = regions / 4;
    Alloc a(4096, regions);
    auto get_all = [&](uint32_t space) {
        uint32_t got = 0;
        while (a.get(space, 1))
            got++;
        return got;
    };
    EXPECT_EQ(get_all(0), regions - kept);
    for (uint32_t space = 1; space < spaces; space++)
        EXPECT_EQ(get_all(space), kept / spaces);
    EXPECT_EQ(get_all(0), 0u);
}

TEST(Alloc, AddressesGrowAndHaveGuards) {
    Alloc a(64);
    rmem_region* first = a.get(0, 4);
    rmem_region* second = a.get(0, 4);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->vpn, 1u);
    EXPECT_EQ(second->vpn, 6u);
    rmem_entry entry;
    EXPECT_EQ(rmem_table_find(&a.node.table, 0, 5, &entry), 0u);
    uint64_t vpn = second->vpn;
    a.put(second);
    EXPECT_GT(a.get(0, 4)->vpn, vpn); // never given out twice
}

TEST(Alloc, FindsItsRegions) {
    Alloc a(64, 8);
    rmem_region* region = a.get(2, 3);
    EXPECT_EQ(rmem_alloc_find(&a.node.alloc, 2, region->vpn), region);
    EXPECT_EQ(rmem_alloc_find(&a.node.alloc, 1, region->vpn), nullptr);
    EXPECT_EQ(rmem_alloc_find(&a.node.alloc, 2, region->vpn + 1), nullptr);
    EXPECT_EQ(rmem_alloc_at(&a.node.alloc, 0), region);
    EXPECT_EQ(rmem_alloc_at(&a.node.alloc, 1), nullptr);
    EXPECT_EQ(region->session, 1u);
    EXPECT_EQ(region->id, a.ids);
}

TEST(Alloc, NoOvercommit) {
    Alloc a(64);
    rmem_region* most = a.get(0, 60);
    ASSERT_TRUE(most);
    EXPECT_FALSE(a.get(1, 5));
    EXPECT_TRUE(a.get(1, 4));
    EXPECT_FALSE(a.get(2, 1));
    a.put(most);
    EXPECT_TRUE(a.get(2, 60));
}

TEST(Alloc, RegionsAndQuotaAreBounded) {
    Alloc a(64, 3);
    a.node.spaces.slot[0].quota_pages = 10;
    EXPECT_FALSE(a.get(0, 11));
    rmem_region* ten = a.get(0, 10);
    ASSERT_TRUE(ten);
    EXPECT_FALSE(a.get(0, 1));
    a.put(ten);
    EXPECT_TRUE(a.get(0, 9));
    EXPECT_TRUE(a.get(1, 1));
    EXPECT_TRUE(a.get(1, 1));
    EXPECT_FALSE(a.get(1, 1));
    EXPECT_EQ(a.node.alloc.in_use, 3u);
}

TEST(Alloc, WantedAddress) {
    Alloc a(64);
    EXPECT_EQ(a.get(0, 4, 1000)->vpn, 1000u);
    EXPECT_EQ(a.get(0, 4)->vpn, 1u);
    EXPECT_EQ(a.get(0, 4, 1002)->vpn, 6u);    // was used
    EXPECT_EQ(a.get(1, 4, 1000)->vpn, 1000u); // another space
}

TEST(Alloc, WantedAddressesMayDescend) {
    Alloc a(64);
    for (uint64_t vpn = 1000; vpn > 500; vpn -= 11) {
        rmem_region* region = a.get(0, 4, vpn);
        EXPECT_EQ(region->vpn, vpn);
        a.put(region);
    }
    for (uint64_t vpn = 500; vpn > 100; vpn -= 5) { // guard to guard
        rmem_region* region = a.get(0, 4, vpn);
        EXPECT_EQ(region->vpn, vpn);
        a.put(region);
    }
    EXPECT_EQ(a.get(0, 4)->vpn, 1u);
}

TEST(Alloc, WantedRangeTouchesNothingOfBefore) {
    Alloc a(64);
    a.put(a.get(0, 4, 100)); // and 104
    uint64_t moved_to = 1;
    for (uint64_t vpn : {96, 97, 100, 103, 104}) { // the first by its guard, the last at one
        EXPECT_EQ(a.get(0, 4, vpn)->vpn, moved_to) << vpn;
        moved_to += 5;
    }
    EXPECT_EQ(a.get(0, 4, 95)->vpn, 95u);
    EXPECT_EQ(a.get(0, 4, 105)->vpn, 105u);
    EXPECT_EQ(a.get(0, 10, 85)->vpn, moved_to) << "its guard would be in use";
}

TEST(Alloc, WithoutAWantedAddressTheFirstHoleThatIsLongEnough) {
    Alloc a(64);
    EXPECT_EQ(a.get(0, 4, 10)->vpn, 10u); // before it there are 9 pages
    EXPECT_EQ(a.get(0, 4, 20)->vpn, 20u); // and 5
    EXPECT_EQ(a.get(0, 9)->vpn, 25u);
    EXPECT_EQ(a.get(0, 5)->vpn, 1u);
    EXPECT_EQ(a.get(0, 4)->vpn, 15u); // with its guard all of them
    EXPECT_EQ(a.get(0, 2)->vpn, 7u);
    EXPECT_EQ(a.get(0, 1)->vpn, 35u);
    EXPECT_EQ(a.node.spaces.slot[0].spans.count, 1u);
    EXPECT_EQ(a.node.alloc.retries, 0u);
}

TEST(Alloc, EndOfTheAddresses) {
    Alloc a(64);
    const uint64_t end = a.node.alloc.vpn_max;
    EXPECT_EQ(a.get(0, 4, end - 4)->vpn, 1u); // no room for the guard
    EXPECT_EQ(a.get(0, 4, end)->vpn, 6u);
    EXPECT_EQ(a.get(0, 4, end - 5)->vpn, end - 5);
    EXPECT_EQ(a.get(0, 4, end - 5)->vpn, 11u);
    for (uint64_t n = 0; n < 1000; n++) {
        rmem_region* region = a.get(0, 4);
        ASSERT_TRUE(region);
        EXPECT_EQ(region->vpn, 16 + 5 * n);
        a.put(region);
    }
}

TEST(Alloc, WithoutAddressesThereIsNothing) {
    Alloc a(64);
    a.node.alloc.vpn_max = 30;
    EXPECT_EQ(a.get(0, 4, 10)->vpn, 10u);
    EXPECT_FALSE(a.get(0, 15));
    EXPECT_EQ(a.get(0, 14)->vpn, 15u);
    EXPECT_FALSE(a.get(0, 9));
    EXPECT_EQ(a.get(0, 8)->vpn, 1u);
    EXPECT_FALSE(a.get(0, 1));
    EXPECT_TRUE(a.get(1, 1));
}

TEST(Alloc, WantedAddressesInTooManyPlacesAreMoved) {
    Alloc a(64);
    const rmem_spans& spans = a.node.spaces.slot[0].spans;
    uint64_t vpn = 1000;
    for (; spans.count < RMEM_SPANS_MAX; vpn += 100) {
        rmem_region* region = a.get(0, 4, vpn);
        ASSERT_EQ(region->vpn, vpn);
        a.put(region);
    }
    EXPECT_EQ(a.get(0, 4, vpn)->vpn, 1u);
    EXPECT_EQ(a.get(0, 4, 1005)->vpn, 1005u) << "beside another";
    EXPECT_EQ(a.get(0, 4)->vpn, 6u);
}

// Every page of a few addresses that was given out, with the guards.
struct Given {
    explicit Given(uint64_t pages) : page(pages) {}
    bool has(uint64_t vpn, uint64_t pages) const {
        for (uint64_t n = 0; n < pages; n++)
            if (vpn + n >= page.size() || page[vpn + n])
                return true;
        return false;
    }
    void add(uint64_t vpn, uint64_t pages) {
        ASSERT_FALSE(has(vpn, pages)) << vpn << " " << pages;
        for (uint64_t n = 0; n < pages; n++)
            page[vpn + n] = true;
        count += pages;
    }
    std::vector<bool> page;
    uint64_t count = 0;
};

bool is_grantable(const rmem_spans& spans, uint64_t addresses, uint64_t vpn, uint64_t pages) {
    return vpn + pages <= addresses && rmem_spans_next(&spans, vpn, pages) == vpn &&
           rmem_spans_may_add(&spans, vpn, vpn + pages);
}

uint64_t pages_of(const rmem_spans& spans) {
    uint64_t pages = 0;
    for (uint32_t n = 0; n < spans.count; n++)
        pages += spans.at[n].end - spans.at[n].begin;
    return pages;
}

// Until there are no more addresses; with that many of eight buckets full.
void give_out(uint64_t seed, uint64_t addresses, uint64_t full) {
    Alloc a(1024, 65536, seed);
    a.node.alloc.vpn_max = addresses;
    for (uint64_t n = 0; n <= a.node.table.mask; n++)
        if (n % 8 < full)
            a.node.table.load[n] = RMEM_BUCKET_ENTRIES;
    const rmem_spans& spans = a.node.spaces.slot[0].spans;
    std::mt19937_64 random(seed);
    std::vector<rmem_region*> regions;
    Given given(addresses);
    given.add(0, 1);
    for (uint64_t failed = 0; failed < 100;) {
        while (a.node.alloc.pages_promised > 200 || (!regions.empty() && random() % 3 == 0)) {
            std::swap(regions[random() % regions.size()], regions.back());
            a.put(regions.back());
            regions.pop_back();
        }
        const uint64_t count = 1 + random() % (full || random() % 4 ? 4 : 40);
        const uint64_t wanted = random() % 2 ? random() % addresses : 0;
        const rmem_spans before = spans;
        rmem_region* region = a.get(0, count, wanted);
        failed += !region;
        if (!full && wanted) {
            bool granted = region && region->vpn == wanted;
            ASSERT_EQ(granted, is_grantable(before, addresses, wanted, count + 1));
            ASSERT_TRUE(granted || given.has(wanted, count + 1) || before.count == RMEM_SPANS_MAX);
        }
        if (!region)
            continue;
        regions.push_back(region);
        ASSERT_NO_FATAL_FAILURE(given.add(region->vpn, count + 1));
        if (!full) { // nothing is passed over
            ASSERT_EQ(a.node.alloc.retries, 0u);
            ASSERT_EQ(pages_of(spans), given.count);
        }
    }
    if (full) {
        EXPECT_GT(a.node.alloc.retries, 0u);
    } else {
        EXPECT_GE(given.count + spans.count * 41, addresses);
    }
}

TEST(Alloc, NoAddressTwice) {
    for (uint64_t seed = 1; seed <= 10; seed++) {
        for (uint64_t addresses : {100, 3000, 10000}) {
            for (uint64_t full : {0, 3})
                ASSERT_NO_FATAL_FAILURE(give_out(seed, addresses, full));
        }
    }
}

TEST(Alloc, WantedRangeThatOverflowsGoesElsewhere) {
    Alloc a(16);
    ASSERT_EQ(a.node.table.mask, 1u); // two buckets; fill the one that page 100 goes to
    ASSERT_EQ(rmem_table_reserve(&a.node.table, 0, 100, 1), 1u);
    for (uint64_t n = 0; n < 2; n++)
        a.node.table.load[n] *= RMEM_BUCKET_ENTRIES;
    rmem_region* region = a.get(0, 1, 100);
    ASSERT_TRUE(region);
    EXPECT_LT(region->vpn, 100u);
    EXPECT_GE(a.node.alloc.retries, 1u);
    EXPECT_EQ(a.get(0, 1, 101)->vpn, 101u); // goes to the other
}

TEST(Alloc, GivesUpWhenNothingFits) {
    Alloc a(16);
    a.node.table.load[0] = a.node.table.load[1] = RMEM_BUCKET_ENTRIES;
    EXPECT_FALSE(a.get(0, 1));
    EXPECT_EQ(a.node.alloc.retries_worst, RMEM_ALLOC_RETRIES_MAX + 1u);
    EXPECT_EQ(a.node.alloc.pages_promised, 0u);
    EXPECT_EQ(a.node.spaces.slot[0].spans.at[0].end, 1u);
}

TEST(Alloc, RetreatGivesReservedEntriesBack) {
    Alloc a(64); // 8 buckets; a range of 20 pages meets each twice or more
    for (uint64_t n = 0; n <= a.node.table.mask; n++)
        a.node.table.load[n] = RMEM_BUCKET_ENTRIES - 2;
    EXPECT_FALSE(a.get(0, 20));
    for (uint64_t n = 0; n <= a.node.table.mask; n++)
        EXPECT_EQ(a.node.table.load[n], RMEM_BUCKET_ENTRIES - 2);
    EXPECT_TRUE(a.get(0, 16));
}

TEST(Alloc, StepsAreBounded) {
    Alloc a(4096);
    rmem_alloc_request request{1000, 0, RMEM_PTE_READ, 1, 1};
    rmem_alloc_work work;
    ASSERT_TRUE(rmem_alloc_make(&a.node.alloc, &a.node.spaces, 0, &request, &work));
    EXPECT_EQ(a.node.alloc.in_use, 0u);
    uint32_t steps = 1;
    for (; a.step(work, 10); steps++)
        ASSERT_LE(work.done, 10u * (steps % 100 + 1));
    EXPECT_EQ(steps, 200u); // 1000 reserved, 1000 entered
    ASSERT_TRUE(work.region);
    EXPECT_EQ(a.node.alloc.in_use, 1u);
    rmem_alloc_release(work.region, &work);
    for (steps = 1; a.step(work, 10); steps++) {
        rmem_entry entry;
        EXPECT_EQ(rmem_table_find(&a.node.table, 0, 10 * steps, &entry), 0u);
        EXPECT_NE(rmem_table_find(&a.node.table, 0, 10 * steps + 1, &entry), 0u);
        EXPECT_EQ(a.node.alloc.pages_promised, 1000u); // until all of it is gone
    }
    EXPECT_EQ(steps, 100u);
    EXPECT_EQ(a.node.alloc.pages_promised, 0u);
}

TEST(Alloc, OneRegionTakesNearlyAll) {
    for (uint64_t pages : {64ull, 1000ull, 4096ull, 6000ull, 65536ull, 100000ull}) {
        for (uint64_t seed = 1; seed <= 20; seed++) {
            Alloc a(pages, 64, seed);
            EXPECT_TRUE(a.get(0, pages * 95 / 100)) << pages;
            EXPECT_EQ(a.node.alloc.retries, 0u);
        }
    }
}

// The paper's figure 13: no retries while memory is less than half full, few near full.
TEST(Alloc, RetriesByFillLevel) {
    uint64_t worst = 0;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        const uint64_t pages = 8192;
        Alloc a(pages, 65536, seed);
        std::mt19937_64 random(seed);
        std::vector<rmem_region*> regions;
        auto fill_to = [&](uint64_t target) {
            while (a.node.alloc.pages_promised < target) {
                uint64_t room = target - a.node.alloc.pages_promised;
                uint64_t wanted = 1 + random() % (random() % 8 ? 16 : 512);
                rmem_region* region = a.get(random() % spaces, std::min(wanted, room));
                ASSERT_TRUE(region);
                regions.push_back(region);
            }
        };
        fill_to(pages / 2);
        EXPECT_EQ(a.node.alloc.retries, 0u);
        fill_to(pages);
        for (int churn = 0; churn < 200; churn++) {
            for (int n = 0; n < 20 && !regions.empty(); n++) {
                std::swap(regions[random() % regions.size()], regions.back());
                a.put(regions.back());
                regions.pop_back();
            }
            fill_to(pages);
        }
        worst = std::max<uint64_t>(worst, a.node.alloc.retries_worst);
    }
    EXPECT_LE(worst, 60u);
    RecordProperty("worst_retries", int(worst));
}

// Random allocations and frees: what the table holds is what the regions say, no more.
TEST(Alloc, AgreesWithReference) {
    Alloc a(1000, 200);
    std::map<std::pair<uint32_t, uint64_t>, rmem_region*> reference;
    std::mt19937_64 random(5);
    for (int step = 0; step < 5000; step++) {
        if (random() % 2) {
            uint32_t space = random() % spaces;
            uint64_t hole = a.node.spaces.slot[space].spans.at[0].end;
            uint64_t pages = 1 + random() % 50;
            bool fits = a.node.alloc.pages_promised + pages <= 1000 && a.node.alloc.in_use < 200;
            rmem_region* region = a.get(space, pages, random() % 4 ? 0 : hole + random() % 10);
            ASSERT_EQ(region != nullptr, fits);
            if (!region)
                continue;
            ASSERT_GE(region->vpn, hole);
            reference[{space, region->vpn}] = region;
        } else if (!reference.empty()) {
            auto victim = std::next(reference.begin(), random() % reference.size());
            ASSERT_EQ(rmem_alloc_find(&a.node.alloc, victim->first.first, victim->first.second),
                      victim->second);
            a.put(victim->second);
            reference.erase(victim);
        }
    }
    uint64_t pages = 0, entries = 0, load = 0;
    for (auto& [at, region] : reference) {
        for (uint64_t n = 0; n < region->pages; n++) {
            rmem_entry entry;
            ASSERT_TRUE(rmem_table_find(&a.node.table, at.first, at.second + n, &entry));
        }
        pages += region->pages;
    }
    for (uint64_t n = 0; n <= a.node.table.mask; n++) {
        load += a.node.table.load[n];
        for (uint64_t key : a.node.table.bucket[n].key)
            entries += key != 0;
    }
    EXPECT_EQ(pages, a.node.alloc.pages_promised);
    EXPECT_EQ(pages, entries);
    EXPECT_EQ(pages, load);
}

} // namespace
