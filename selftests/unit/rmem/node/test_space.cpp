// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "../../core.hpp"

namespace {

struct Spaces {
    explicit Spaces(uint32_t slots) : memory(rmem_spaces_bytes(slots) / 8 + 1, ~0ull) {
        rmem_spaces_init(&spaces, memory.data(), slots);
    }
    rmem_space_error add(uint32_t id, uint8_t key = 0) {
        uint8_t bytes[BASE_SIPHASH_KEY_BYTES] = {key};
        return rmem_spaces_add(&spaces, id, bytes, 0);
    }
    rmem_space_error view(uint32_t id, uint32_t base, uint8_t key = 99) {
        uint8_t bytes[BASE_SIPHASH_KEY_BYTES] = {key};
        return rmem_spaces_add_view(&spaces, id, bytes, base, false);
    }
    rmem_place place(uint32_t id) {
        rmem_place found;
        rmem_spaces_place(&spaces, rmem_spaces_find(&spaces, id), &found);
        return found;
    }
    std::vector<uint64_t> memory;
    rmem_spaces spaces;
};

TEST(Space, AddFindDelete) {
    Spaces s(2);
    EXPECT_EQ(s.add(7, 1), RMEM_SPACE_OK);
    EXPECT_EQ(s.add(7, 2), RMEM_SPACE_EXISTS);
    EXPECT_EQ(s.add(0), RMEM_SPACE_INVALID);
    EXPECT_EQ(s.add(8, 3), RMEM_SPACE_OK);
    EXPECT_EQ(s.add(9), RMEM_SPACE_FULL);
    EXPECT_EQ(rmem_spaces_find(&s.spaces, 7)->key.k[0], 1u);
    EXPECT_EQ(rmem_spaces_find(&s.spaces, 9), nullptr);
    EXPECT_EQ(rmem_spaces_del(&s.spaces, 9), RMEM_SPACE_UNKNOWN);
    EXPECT_EQ(rmem_spaces_del(&s.spaces, 0), RMEM_SPACE_UNKNOWN);
    rmem_spaces_find(&s.spaces, 7)->regions = 1;
    EXPECT_EQ(rmem_spaces_del(&s.spaces, 7), RMEM_SPACE_BUSY);
    rmem_spaces_find(&s.spaces, 7)->regions = 0;
    EXPECT_EQ(rmem_spaces_del(&s.spaces, 7), RMEM_SPACE_OK);
    EXPECT_EQ(rmem_spaces_find(&s.spaces, 7), nullptr);
    EXPECT_EQ(s.spaces.in_use, 1u);
    EXPECT_EQ(s.add(9), RMEM_SPACE_OK);
}

TEST(Space, AddedAgainIsAnotherPlace) {
    Spaces s(1);
    rmem_place before, after;
    ASSERT_EQ(s.add(7), RMEM_SPACE_OK);
    rmem_spaces_place(&s.spaces, rmem_spaces_find(&s.spaces, 7), &before);
    EXPECT_TRUE(rmem_spaces_has(&s.spaces, &before));
    rmem_spaces_del(&s.spaces, 7);
    EXPECT_FALSE(rmem_spaces_has(&s.spaces, &before));
    ASSERT_EQ(s.add(7), RMEM_SPACE_OK);
    rmem_spaces_place(&s.spaces, rmem_spaces_find(&s.spaces, 7), &after);
    EXPECT_FALSE(rmem_spaces_has(&s.spaces, &before));
    EXPECT_TRUE(rmem_spaces_has(&s.spaces, &after));
}

TEST(Space, WipesTheKeysOfTheDeleted) {
    Spaces s(3);
    for (uint32_t id : {7, 8, 9})
        ASSERT_EQ(s.add(id, id), RMEM_SPACE_OK);
    rmem_space* gone = rmem_spaces_find(&s.spaces, 8);
    rmem_spaces_del(&s.spaces, 8);
    EXPECT_NE(gone->key.k[0], 0u) << "who found it may still read it";
    rmem_spaces_wipe(&s.spaces);
    EXPECT_EQ(gone->key.k[0] | gone->key.k[1], 0u);
    for (uint32_t id : {7, 9})
        EXPECT_EQ(rmem_spaces_find(&s.spaces, id)->key.k[0], id);
}

TEST(Space, ViewIsOfItsBase) {
    Spaces s(3);
    ASSERT_EQ(s.add(7), RMEM_SPACE_OK);
    ASSERT_EQ(s.view(8, 7), RMEM_SPACE_OK);
    rmem_place base = s.place(7), view = s.place(8);
    EXPECT_EQ(base.memory, base.index);
    EXPECT_FALSE(base.read_only);
    EXPECT_EQ(view.memory, base.index);
    EXPECT_NE(view.index, base.index);
    EXPECT_TRUE(view.read_only);
    EXPECT_EQ(rmem_spaces_base(&s.spaces, rmem_spaces_find(&s.spaces, 7)), 0u);
    EXPECT_EQ(rmem_spaces_base(&s.spaces, rmem_spaces_find(&s.spaces, 8)), 7u);
    EXPECT_EQ(rmem_spaces_find(&s.spaces, 8)->key.k[0], 99u);
    EXPECT_EQ(s.spaces.in_use, 2u);
}

TEST(Space, ViewsThatCantBe) {
    Spaces s(3);
    ASSERT_EQ(s.add(7, 1), RMEM_SPACE_OK);
    ASSERT_EQ(s.view(8, 7), RMEM_SPACE_OK);
    EXPECT_EQ(s.view(9, 0), RMEM_SPACE_NO_BASE);
    EXPECT_EQ(s.view(9, 9), RMEM_SPACE_NO_BASE);
    EXPECT_EQ(s.view(9, 8), RMEM_SPACE_IS_VIEW);
    EXPECT_EQ(s.view(9, 7, 1), RMEM_SPACE_SAME_KEY);
    EXPECT_EQ(s.view(0, 7), RMEM_SPACE_INVALID);
    EXPECT_EQ(s.view(7, 7), RMEM_SPACE_EXISTS);
    EXPECT_EQ(s.view(8, 7), RMEM_SPACE_EXISTS);
    EXPECT_EQ(s.spaces.in_use, 2u);
    EXPECT_EQ(s.view(9, 7), RMEM_SPACE_OK) << "views of one base may have one key";
    EXPECT_EQ(s.view(10, 7), RMEM_SPACE_FULL);
    EXPECT_EQ(rmem_spaces_find(&s.spaces, 7)->views, 2u) << "what failed counts";
}

TEST(Space, BaseStaysAsLongAsItsViews) {
    Spaces s(3);
    ASSERT_EQ(s.add(7), RMEM_SPACE_OK);
    ASSERT_EQ(s.view(8, 7), RMEM_SPACE_OK);
    ASSERT_EQ(s.view(9, 7), RMEM_SPACE_OK);
    rmem_spaces_find(&s.spaces, 7)->regions = 1;
    EXPECT_EQ(rmem_spaces_del(&s.spaces, 7), RMEM_SPACE_VIEWED);
    EXPECT_EQ(rmem_spaces_del(&s.spaces, 8), RMEM_SPACE_OK) << "the regions aren't its own";
    EXPECT_EQ(rmem_spaces_del(&s.spaces, 7), RMEM_SPACE_VIEWED);
    EXPECT_EQ(rmem_spaces_del(&s.spaces, 9), RMEM_SPACE_OK);
    EXPECT_EQ(rmem_spaces_del(&s.spaces, 7), RMEM_SPACE_BUSY);
    rmem_spaces_find(&s.spaces, 7)->regions = 0;
    EXPECT_EQ(rmem_spaces_del(&s.spaces, 7), RMEM_SPACE_OK);
    // Of those that take their slots none is a view, nor has one.
    for (uint32_t id : {1, 2, 3}) {
        ASSERT_EQ(s.add(id), RMEM_SPACE_OK);
        EXPECT_EQ(s.place(id).memory, s.place(id).index);
        EXPECT_FALSE(s.place(id).read_only);
    }
    for (uint32_t id : {1, 2, 3})
        EXPECT_EQ(rmem_spaces_del(&s.spaces, id), RMEM_SPACE_OK);
}

TEST(Space, ViewAddedAgainIsAnotherPlace) {
    Spaces s(3);
    ASSERT_EQ(s.add(7), RMEM_SPACE_OK);
    ASSERT_EQ(s.add(6), RMEM_SPACE_OK);
    ASSERT_EQ(s.view(8, 7), RMEM_SPACE_OK);
    rmem_place before = s.place(8);
    ASSERT_EQ(rmem_spaces_del(&s.spaces, 8), RMEM_SPACE_OK);
    EXPECT_FALSE(rmem_spaces_has(&s.spaces, &before));
    ASSERT_EQ(s.view(8, 6), RMEM_SPACE_OK);
    rmem_place after = s.place(8);
    EXPECT_FALSE(rmem_spaces_has(&s.spaces, &before));
    EXPECT_TRUE(rmem_spaces_has(&s.spaces, &after));
    EXPECT_EQ(after.memory, s.place(6).index);
    EXPECT_EQ(rmem_spaces_del(&s.spaces, 7), RMEM_SPACE_OK);
}

TEST(Space, AgreesWithReference) {
    Spaces s(37);
    std::map<uint32_t, uint8_t> reference;
    std::mt19937 random(1);
    for (int step = 0; step < 20000; step++) {
        uint32_t id = 1 + random() % 60;
        uint8_t key = random();
        if (random() % 2) {
            rmem_space_error expect = reference.count(id)      ? RMEM_SPACE_EXISTS
                                      : reference.size() == 37 ? RMEM_SPACE_FULL
                                                               : RMEM_SPACE_OK;
            ASSERT_EQ(s.add(id, key), expect);
            if (expect == RMEM_SPACE_OK)
                reference[id] = key;
        } else {
            ASSERT_EQ(rmem_spaces_del(&s.spaces, id),
                      reference.erase(id) ? RMEM_SPACE_OK : RMEM_SPACE_UNKNOWN);
        }
        for (uint32_t each = 1; each <= 60; each++) {
            const rmem_space* found = rmem_spaces_find(&s.spaces, each);
            ASSERT_EQ(found != nullptr, reference.count(each) == 1);
            if (found) {
                ASSERT_EQ(found->key.k[0] & 0xff, reference[each]);
            }
        }
    }
}

} // namespace
