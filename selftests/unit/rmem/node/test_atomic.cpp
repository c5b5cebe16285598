// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "../../core.hpp"

namespace {

using Wide = unsigned __int128;

Wide mask_of(uint32_t bytes) {
    return bytes == 16 ? ~Wide(0) : (Wide(1) << bytes * 8) - 1;
}

void store(__le64 (&to)[2], Wide value) {
    base_store_le64(&to[0], static_cast<uint64_t>(value));
    base_store_le64(&to[1], static_cast<uint64_t>(value >> 64));
}

Wide load(const void* from, uint32_t bytes) {
    const auto* at = static_cast<const uint8_t*>(from);
    Wide value = 0;
    while (bytes--)
        value = value << 8 | at[bytes];
    return value;
}

// The operations of enum rmem_atomic_op, written in another way.
Wide expected(uint8_t op, uint32_t bytes, Wide was, Wide value, Wide compare) {
    Wide sign = Wide(1) << (bytes * 8 - 1);
    switch (op) {
    case RMEM_SWAP:
        return value;
    case RMEM_CAS:
        return was == compare ? value : was;
    case RMEM_ADD:
        return (was + value) & mask_of(bytes);
    case RMEM_AND:
        return was & value;
    case RMEM_OR:
        return was | value;
    case RMEM_XOR:
        return was ^ value;
    case RMEM_MIN:
        return std::min(was, value);
    case RMEM_MAX:
        return std::max(was, value);
    case RMEM_SMIN:
        return (was ^ sign) < (value ^ sign) ? was : value;
    default:
        return (was ^ sign) > (value ^ sign) ? was : value;
    }
}

struct Integers : testing::TestWithParam<uint32_t> {
    std::mt19937_64 random{GetParam()};

    // Often one that others have, or that has its sign set.
    Wide draw() {
        Wide few[] = {0, 1, ~Wide(0), Wide(1) << (GetParam() * 8 - 1), 42};
        Wide any = Wide(random()) << 64 | random();
        return (random() % 2 ? few[random() % 5] : any) & mask_of(GetParam());
    }
};

TEST_P(Integers, AreAsTheSpecificationSays) {
    uint32_t bytes = GetParam();
    if (bytes == 16 && !rmem_atomic_has_16())
        GTEST_SKIP() << "this processor has none of 16 bytes";
    alignas(16) uint8_t memory[48];
    for (int round = 0; round < 20'000; round++) {
        uint8_t op = 1 + random() % (RMEM_ATOMIC_OP_END - 1);
        if (!rmem_atomic_is_known(op, bytes)) {
            EXPECT_EQ(bytes, 16u);
            continue;
        }
        Wide was = draw(), value = draw(), compare = random() % 2 ? was : draw();
        std::memset(memory, 0x5a, sizeof(memory));
        for (uint32_t i = 0; i < bytes; i++)
            memory[16 + i] = static_cast<uint8_t>(was >> i * 8);
        rmem_operands operands{};
        store(operands.value, value);
        if (op == RMEM_CAS)
            store(operands.compare, compare);
        rmem_found found;
        std::memset(&found, 0xee, sizeof(found));
        rmem_atomic_apply(memory + 16, op, bytes, &operands, &found);
        EXPECT_TRUE(load(found.value, 16) == was) << int(op);
        EXPECT_TRUE(load(memory + 16, bytes) == expected(op, bytes, was, value, compare))
            << int(op);
        for (uint32_t i = 0; i < sizeof(memory); i++) {
            if (i < 16 || i >= 16 + bytes) {
                ASSERT_EQ(memory[i], 0x5a) << i;
            }
        }
    }
}

// Nothing is lost between threads that hold no lock.
TEST_P(Integers, AreOneStep) {
    uint32_t bytes = GetParam();
    if (bytes == 16 && !rmem_atomic_has_16())
        GTEST_SKIP() << "this processor has none of 16 bytes";
    alignas(16) uint64_t memory[2] = {};
    constexpr uint64_t rounds = 20'000, threads = 3;
    auto add_by_cas = [&] {
        Wide seen = 0;
        for (uint64_t done = 0; done < rounds;) {
            rmem_operands operands{};
            rmem_found found;
            store(operands.compare, seen);
            // Both halves, where there are two.
            Wide next = seen + 1 + (Wide(1) << 64);
            store(operands.value, next & mask_of(bytes));
            rmem_atomic_apply(memory, RMEM_CAS, bytes, &operands, &found);
            Wide was = load(found.value, 16);
            done += was == seen;
            seen = was == seen ? next & mask_of(bytes) : was;
        }
    };
    std::vector<std::thread> all;
    for (uint64_t t = 0; t < threads; t++)
        all.emplace_back(add_by_cas);
    for (std::thread& each : all)
        each.join();
    EXPECT_EQ(base_load_le64(&memory[0]), rounds * threads);
    EXPECT_EQ(base_load_le64(&memory[1]), bytes == 16 ? rounds * threads : 0);
}

INSTANTIATE_TEST_SUITE_P(Bytes, Integers, testing::Values(4, 8, 16));

// The upper half of an operand of 4 bytes is ignored.
TEST(Atomic, IgnoresTheUpperHalfOfAShortOperand) {
    for (uint8_t op = 1; op < RMEM_ATOMIC_OP_END; op++) {
        alignas(16) uint32_t memory[2] = {0, 0x5a5a5a5a};
        rmem_operands operands{};
        store(operands.value, 7 | ~mask_of(4));
        store(operands.compare, ~mask_of(4));
        rmem_found found;
        rmem_atomic_apply(memory, op, 4, &operands, &found);
        EXPECT_TRUE(load(memory, 4) == expected(op, 4, 0, 7, 0)) << int(op);
        EXPECT_EQ(memory[1], 0x5a5a5a5au);
        EXPECT_TRUE(load(found.value, 16) == 0);
    }
}

TEST(Atomic, UnknownOnes) {
    for (uint32_t bytes : {0u, 1u, 2u, 3u, 6u, 12u, 32u, ~0u})
        EXPECT_FALSE(rmem_atomic_is_known(RMEM_SWAP, bytes));
    for (uint32_t bytes : {4u, 8u, 16u}) {
        EXPECT_FALSE(rmem_atomic_is_known(0, bytes));
        EXPECT_FALSE(rmem_atomic_is_known(RMEM_ATOMIC_OP_END, bytes));
        EXPECT_TRUE(rmem_atomic_is_known(RMEM_CAS, bytes));
    }
    EXPECT_FALSE(rmem_atomic_is_known(RMEM_ADD, 16));
}

} // namespace
