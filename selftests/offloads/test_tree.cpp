// SPDX-License-Identifier: GPL-2.0
// tools/offloads/tree: searches of trees that tools/apps/tree builds, and of damaged ones.
#include <map>
#include <random>

#include <gtest/gtest.h>

#define OFFLOAD offload_tree
#define OFFLOAD_TEST_MEMORY
#include "memory.hpp"

#include "apps/tree/tree.hpp"

namespace {

using namespace offload_test;
using remora::tree::Found;
using remora::tree::Item;
using remora::tree::Plan;

constexpr uint64_t mib = 1 << 20;
constexpr unsigned looks_max = 17;

std::vector<uint8_t> args_of(uint64_t root, uint64_t key) {
    const tree_args args{root, key};
    std::vector<uint8_t> bytes(sizeof(args));
    std::memcpy(bytes.data(), &args, sizeof(args));
    return bytes;
}

struct Answer {
    int error;
    tree_found found;
};

struct Forest {
    explicit Forest(uint64_t bytes) : memory(bytes) {}

    uint64_t build(const std::map<uint64_t, uint64_t>& pairs, uint64_t at = base) {
        std::vector<Item> items;
        for (const auto& [key, value] : pairs)
            items.push_back({key, value});
        Plan plan(items);
        require(memory.has(at, plan.bytes()));
        bytes = plan.bytes();
        return plan.build(at, [&](uint64_t addr, const void* data, size_t size) {
            std::memcpy(memory.at(addr), data, size);
        });
    }
    Answer find(uint64_t root, uint64_t key) {
        const uint64_t slices = memory.slices;
        Call call(memory, TREE_FIND, args_of(root, key));
        Answer answer{call.run(looks_max + 1), {}};
        require(memory.slices - slices <= looks_max);
        require(call.steps() <= looks_max + 1);
        if (!answer.error) {
            require(call.result().size() == sizeof(answer.found));
            std::memcpy(&answer.found, call.result().data(), sizeof(answer.found));
        }
        return answer;
    }
    Found by_reads(uint64_t root, uint64_t key) {
        return remora::tree::find(root, key, [&](uint64_t addr, void* to, size_t size) {
            std::memcpy(to, memory.at(addr), size);
        });
    }
    // The query's answer is the one by reads, and this.
    void expect(uint64_t root, uint64_t key, std::optional<uint64_t> value) {
        const Answer answer = find(root, key);
        ASSERT_EQ(answer.error, 0);
        EXPECT_EQ(answer.found.addr != 0, value.has_value()) << key;
        EXPECT_EQ(answer.found.value, value.value_or(0)) << key;
        const Found read = by_reads(root, key);
        EXPECT_EQ(read.address, answer.found.addr);
        EXPECT_EQ(read.value, answer.found.value);
        EXPECT_EQ(read.levels, answer.found.levels);
        if (value) {
            uint64_t leaf[2];
            std::memcpy(leaf, memory.at(answer.found.addr), sizeof(leaf));
            EXPECT_EQ(leaf[0], key);
            EXPECT_EQ(leaf[1], *value);
        }
    }

    Memory memory;
    uint64_t bytes = 0; // of the tree built last
};

TEST(Tree, EachKeyOfEachShapeIsFound) {
    std::mt19937_64 random(1);
    for (unsigned shape = 0; shape < 30; shape++) {
        Forest forest(2 * mib);
        std::map<uint64_t, uint64_t> pairs;
        // Dense, sparse, clustered in the high or low bits, and few.
        const uint64_t count = shape % 3 ? 1 + random() % 1500 : 1 + random() % 5;
        for (uint64_t n = 0; n < count; n++) {
            const uint64_t r = random();
            const uint64_t keys[] = {n,           r,         r & 0xff0f00000000000f,
                                     r << 60 | n, r & 0xfff, r | 0xffffffffffff0000};
            pairs[keys[shape % std::size(keys)]] = random();
        }
        // The tree lies across the pages' borders.
        const uint64_t root = forest.build(pairs, base + TREE_NODE_BYTES * (shape % 11));
        for (const auto& [key, value] : pairs)
            forest.expect(root, key, value);
        for (unsigned n = 0; n < 200; n++) {
            const uint64_t near = pairs.begin()->first ^ 1ull << random() % 64;
            for (uint64_t key : {random(), near, near + random() % 100, uint64_t{n}}) {
                auto at = pairs.find(key);
                forest.expect(root, key,
                              at == pairs.end() ? std::nullopt : std::optional(at->second));
            }
        }
    }
}

TEST(Tree, ExtremeKeysAreTold) {
    Forest forest(mib);
    const std::map<uint64_t, uint64_t> pairs{{0, 1},          {1, 2},  {~0ull, 3}, {~0ull - 1, 4},
                                             {1ull << 63, 5}, {15, 6}, {16, 7}};
    const uint64_t root = forest.build(pairs);
    for (const auto& [key, value] : pairs)
        forest.expect(root, key, value);
    forest.expect(root, 17, {});
    forest.expect(root, 1ull << 62, {});
}

// Keys that differ by their last bits alone, one more at each level: the deepest tree there is.
TEST(Tree, DeepestSearchHasSixteenWordsAndALeaf) {
    Forest forest(mib);
    std::map<uint64_t, uint64_t> pairs{{0, 0}};
    for (unsigned level = 0; level < 16; level++)
        pairs[1ull << 4 * level] = level;
    const uint64_t root = forest.build(pairs);
    EXPECT_EQ(forest.find(root, 0).found.levels, looks_max);
    EXPECT_EQ(forest.find(root, 1).found.levels, looks_max);
    EXPECT_EQ(forest.find(root, 1ull << 60).found.levels, 2u);
    EXPECT_EQ(forest.find(root, 2ull << 60).found.levels, 1u);
}

TEST(Tree, LevelsGrowWithTheLogarithmOfTheKeys) {
    std::mt19937_64 random(2);
    for (auto [count, most] : {std::pair{1000u, 5.0}, {16'000u, 6.0}}) {
        Forest forest(4 * mib);
        std::map<uint64_t, uint64_t> pairs;
        while (pairs.size() < count)
            pairs[random()] = 0;
        const uint64_t root = forest.build(pairs);
        double levels = 0;
        for (const auto& [key, value] : pairs)
            levels += forest.find(root, key).found.levels;
        EXPECT_LT(levels / count, most);
        EXPECT_LT(static_cast<double>(forest.bytes) / count, 66.0);
        std::printf("%u keys: %.2f levels, %.1f bytes a key\n", count, levels / count,
                    static_cast<double>(forest.bytes) / count);
    }
}

TEST(Tree, ArgumentsOfOtherLengthsAndPlacesAreRefused) {
    Forest forest(mib);
    const uint64_t root = forest.build({{1, 1}, {2, 2}});
    for (size_t bytes = 0; bytes < 200; bytes++) {
        auto args = args_of(root, 1);
        args.resize(bytes);
        Call call(forest.memory, TREE_FIND, args);
        EXPECT_EQ(call.run(), bytes == sizeof(tree_args) ? 0 : -EINVAL) << bytes;
    }
    for (uint32_t function : {1u, 2u, 31u}) {
        Call call(forest.memory, function, args_of(root, 1));
        EXPECT_EQ(call.run(), -ENOSYS);
    }
    for (uint64_t offset : {1, 8, 64, 127})
        EXPECT_EQ(forest.find(root + offset, 1).error, -EINVAL);
    for (uint64_t wrong : {uint64_t{0}, base - TREE_NODE_BYTES, base + mib, ~uint64_t{127}})
        EXPECT_EQ(forest.find(wrong, ~0ull).error, -EFAULT);
    Call small(forest.memory, TREE_FIND, args_of(root, 1), sizeof(tree_found) - 1);
    EXPECT_EQ(small.run(), -EMSGSIZE);
}

TEST(Tree, WordsThatAreNoChildrenEndTheSearch) {
    Forest forest(mib);
    const uint64_t root = base, other = base + TREE_NODE_BYTES;
    auto search = [&](uint64_t word, uint64_t next = 0) {
        std::memcpy(forest.memory.at(root), &word, sizeof(word));
        std::memcpy(forest.memory.at(other), &next, sizeof(next));
        return forest.find(root, 0).error;
    };
    EXPECT_EQ(search(other | 14 << 1), 0);
    EXPECT_EQ(search(other | 15 << 1), -EUCLEAN) << "its level isn't lower";
    EXPECT_EQ(search(root | 15 << 1), -EUCLEAN) << "a circle";
    EXPECT_EQ(search(other | 14 << 1, root | 14 << 1), -EUCLEAN) << "a circle of two";
    EXPECT_EQ(search(other | 14 << 1, other | 3 << 1), -EUCLEAN) << "a node below itself";
    EXPECT_EQ(search(other | 1 << 5), -EUCLEAN);
    EXPECT_EQ(search(other | 1 << 6), -EUCLEAN);
    for (uint64_t tag : {3, 5, 9, 15})
        EXPECT_EQ(search(other | tag), -EUCLEAN) << tag;
    EXPECT_EQ(search(TREE_LEAF), -EFAULT) << "a leaf at address 0";
    EXPECT_EQ(search(14 << 1), -EFAULT) << "a node at address 0";
    EXPECT_EQ(search((base + mib) | TREE_LEAF), -EFAULT);
    EXPECT_EQ(search((base + mib - 16) | TREE_LEAF), 0);
    EXPECT_EQ(search((~0ull << 7) | 14 << 1), -EFAULT);
}

// A client that can write to the tree can't have a search do anything but end: also while the
// search is under way. The memory is poisoned outside of each step's slice.
TEST(Tree, SearchesOfHostileMemoryEnd) {
    unsigned found = 0, damaged = 0;
    for (unsigned seed = 0; seed < 20'000; seed++) {
        std::mt19937_64 random(seed);
        static Forest forest(64 * 1024);
        auto word = [&]() -> uint64_t {
            const uint64_t at = base + random() % (forest.memory.bytes / 16) * 16;
            switch (random() % 8) {
            case 0:
                return random();
            case 1:
                return at | TREE_LEAF;
            case 2:
                return at | random() % 128;
            default:
                return (at & ~127ull) | (15 - random() % 16) << 1;
            }
        };
        auto scribble = [&](unsigned words) {
            for (unsigned n = 0; n < words; n++) {
                const uint64_t value = word();
                std::memcpy(forest.memory.at(base + random() % (forest.memory.bytes / 8) * 8),
                            &value, sizeof(value));
            }
        };
        scribble(seed ? 500 : 20'000);
        const uint64_t root = base + random() % (forest.memory.bytes / 128) * 128;
        Call call(forest.memory, TREE_FIND, args_of(root, random() >> random() % 64));
        while (call.step())
            scribble(50);
        ASSERT_LE(call.steps(), looks_max + 1);
        ASSERT_TRUE(call.outcome() == 0 || call.outcome() == -EUCLEAN || call.outcome() == -EFAULT)
            << "seed " << seed << ": " << call.outcome();
        (call.outcome() ? damaged : found)++;
    }
    EXPECT_GT(found, 100u);
    EXPECT_GT(damaged, 100u);
}

// While a writer adds keys word by word, a search finds the tree before or after each word.
TEST(Tree, SearchBesideAWriterFindsKeysThatAreThereAllTheTime) {
    std::mt19937_64 random(3);
    Forest forest(2 * mib);
    std::map<uint64_t, uint64_t> pairs;
    // Bits that are the same in all keys, so that nodes were left out between the others.
    auto chance = [&] { return random() & 0xf00f000f00f00f00; };
    while (pairs.size() < 1000)
        pairs[chance()] = random();
    const uint64_t root = forest.build(pairs);
    uint64_t room = base + (forest.bytes + 127) / 128 * 128;
    unsigned splits = 0;
    for (unsigned turn = 0; turn < 3000; turn++) {
        auto there = std::next(pairs.begin(), static_cast<ptrdiff_t>(random() % pairs.size()));
        Call call(forest.memory, TREE_FIND, args_of(root, there->first));
        // A node is put above one of the words on a random key's way, as a key's insertion does.
        const uint64_t key = chance();
        uint64_t at = root + 8 * (key >> 60);
        unsigned above = TREE_ROOT_LEVEL;
        while (call.step()) {
            uint64_t word;
            std::memcpy(&word, forest.memory.at(at), sizeof(word));
            const unsigned level = word & TREE_LEAF ? 0 : (word & 127) >> 1;
            if (!word || word & TREE_LEAF)
                continue;
            if (above - level > 1 && forest.memory.has(room, 128)) {
                // All keys below have the same bits at the level between.
                uint64_t leaf = word;
                while (!(leaf & TREE_LEAF))
                    for (unsigned n = 0; n < TREE_CHILDREN; n++) {
                        uint64_t child;
                        std::memcpy(&child, forest.memory.at((leaf & ~127ull) + 8 * n), 8);
                        if (child) {
                            leaf = child;
                            break;
                        }
                    }
                uint64_t below;
                std::memcpy(&below, forest.memory.at(leaf & ~15ull), 8);
                const unsigned between = above - 1;
                std::memset(forest.memory.at(room), 0, 128);
                std::memcpy(forest.memory.at(room + 8 * (below >> 4 * between & 15)), &word, 8);
                word = room | between << 1;
                std::memcpy(forest.memory.at(at), &word, 8);
                room += 128;
                splits++;
            }
            above = (word & 127) >> 1;
            at = (word & ~127ull) + 8 * (key >> 4 * above & 15);
        }
        ASSERT_EQ(call.outcome(), 0);
        tree_found found;
        std::memcpy(&found, call.result().data(), sizeof(found));
        ASSERT_NE(found.addr, 0u);
        ASSERT_EQ(found.value, there->second);
    }
    EXPECT_GT(splits, 200u);
}

} // namespace
