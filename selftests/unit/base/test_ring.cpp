// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <random>
#include <vector>

#include "../core.hpp"

namespace {

struct Ring {
    explicit Ring(uint32_t cells) : memory(cells) { base_ring_init(&ring, memory.data(), cells); }
    std::vector<base_ring_cell> memory;
    base_ring ring;
};

TEST(Ring, FirstInFirstOutAndBounded) {
    Ring r(4);
    uint32_t value = 99;
    EXPECT_FALSE(base_ring_pop(&r.ring, &value));
    for (uint32_t n = 0; n < 4; n++)
        EXPECT_TRUE(base_ring_push(&r.ring, n));
    EXPECT_FALSE(base_ring_push(&r.ring, 4));
    EXPECT_EQ(base_ring_count(&r.ring), 4u);
    for (uint32_t n = 0; n < 4; n++) {
        EXPECT_TRUE(base_ring_pop(&r.ring, &value));
        EXPECT_EQ(value, n);
    }
    EXPECT_FALSE(base_ring_pop(&r.ring, &value));
    EXPECT_EQ(base_ring_count(&r.ring), 0u);
}

// Positions are 32 bits wide and go round: nothing may happen there.
TEST(Ring, PositionsGoRound) {
    Ring r(8);
    r.ring.head = r.ring.tail = 0u - 3;
    for (uint32_t n = 0; n < 8; n++) {
        uint32_t position = 0u - 3 + n;
        r.ring.cell[position & 7].turn = position;
    }
    std::deque<uint32_t> reference;
    std::mt19937 random(1);
    for (uint32_t n = 0; n < 1000; n++) {
        if (random() % 2) {
            ASSERT_EQ(base_ring_push(&r.ring, n), reference.size() < 8);
            if (reference.size() < 8)
                reference.push_back(n);
        } else {
            uint32_t value;
            ASSERT_EQ(base_ring_pop(&r.ring, &value), !reference.empty());
            if (!reference.empty()) {
                ASSERT_EQ(value, reference.front());
                reference.pop_front();
            }
        }
        ASSERT_EQ(base_ring_count(&r.ring), reference.size());
    }
}

} // namespace
