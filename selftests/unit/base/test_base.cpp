// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <initializer_list>

#include "../core.hpp"

namespace {

TEST(Bits, PowersOfTwo) {
    EXPECT_FALSE(base_is_pow2(0));
    for (unsigned n = 0; n < 64; n++) {
        uint64_t power = 1ull << n;
        EXPECT_TRUE(base_is_pow2(power));
        EXPECT_EQ(base_pow2_log(power), n);
        EXPECT_EQ(base_pow2_ceil(power), power);
        if (n > 1) {
            EXPECT_FALSE(base_is_pow2(power - 1));
            EXPECT_FALSE(base_is_pow2(power + 1));
            EXPECT_EQ(base_pow2_ceil(power - 1), power);
        }
        if (n && n < 63) {
            EXPECT_EQ(base_pow2_ceil(power + 1), 2 * power);
        }
    }
}

TEST(Bits, RoundsUp) {
    for (uint64_t unit : {1ull, 2ull, 64ull, 1ull << 32}) {
        EXPECT_EQ(base_round_up(0, unit), 0u);
        EXPECT_EQ(base_round_up(1, unit), unit);
        EXPECT_EQ(base_round_up(unit, unit), unit);
        EXPECT_EQ(base_round_up(3 * unit - (unit > 1), unit), 3 * unit);
    }
}

// Half of the result's bits change with any bit of the input, give or take.
TEST(Bits, Mixes) {
    for (uint64_t x : {0ull, 1ull, 0x123456789abcdefull, ~0ull}) {
        for (unsigned bit = 0; bit < 64; bit++) {
            int changed = std::popcount(base_mix64(x) ^ base_mix64(x ^ 1ull << bit));
            EXPECT_GE(changed, 12) << x << " " << bit;
            EXPECT_LE(changed, 52) << x << " " << bit;
        }
    }
}

TEST(Bytes, LittleEndianAtAnyAlignment) {
    uint8_t memory[16];
    for (unsigned at = 0; at < 8; at++) {
        base_store_le64(memory + at, 0x0807060504030201);
        for (unsigned n = 0; n < 8; n++)
            EXPECT_EQ(memory[at + n], n + 1);
        EXPECT_EQ(base_load_le64(memory + at), 0x0807060504030201u);
        EXPECT_EQ(base_load_le32(memory + at), 0x04030201u);
        EXPECT_EQ(base_load_le16(memory + at), 0x0201u);
        base_store_le32(memory + at, 0xa4a3a2a1);
        base_store_le16(memory + at + 4, 0xb2b1);
        EXPECT_EQ(base_load_le64(memory + at), 0x0807b2b1a4a3a2a1u);
    }
}

} // namespace
