// SPDX-License-Identifier: GPL-2.0
// Gather, scatter and strides.
#include <cerrno>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "backend.hpp"

namespace remora::test {

namespace {

constexpr std::uint64_t forever = std::numeric_limits<std::uint64_t>::max();

class Pieces : public Backends {};

INSTANTIATE_TEST_SUITE_P(Lib, Pieces, testing::ValuesIn(kinds()), kind_name);

std::vector<std::uint8_t> noise(std::size_t bytes) {
    std::mt19937 random(static_cast<unsigned>(bytes));
    std::vector<std::uint8_t> data(bytes);
    for (auto& byte : data)
        byte = static_cast<std::uint8_t>(random());
    return data;
}

// Of all sizes, far from each other, synchronous and not.
TEST_P(Pieces, GoWhereTheyBelong) {
    raddr_t a = alloc(4 << 20);
    for (bool async : {false, true}) {
        std::vector<std::vector<std::uint8_t>> out, in;
        std::vector<rvec> writes, reads;
        raddr_t at = a;
        for (std::size_t bytes : {1, 7, 4096, 300'000, 16, 65'536, 3, 1 << 20}) {
            out.push_back(noise(bytes + async));
            in.emplace_back(bytes + async);
            writes.push_back({at, out.back().data(), out.back().size()});
            reads.push_back({at, in.back().data(), in.back().size()});
            at += bytes + 1000;
        }
        rop_t op;
        if (async) {
            ASSERT_EQ(rwritev_async(r, writes.data(), writes.size(), &op), 0);
            ASSERT_EQ(rpoll(r, &op, 1, forever), 0);
            ASSERT_EQ(rreadv_async(r, reads.data(), reads.size(), &op), 0);
            ASSERT_EQ(rpoll(r, &op, 1, forever), 0);
        } else {
            ASSERT_EQ(rwritev(r, writes.data(), writes.size()), 0);
            ASSERT_EQ(rreadv(r, reads.data(), reads.size()), 0);
        }
        EXPECT_EQ(in, out);
    }
}

TEST_P(Pieces, ThatOverlapAreDoneInTheirOrder) {
    raddr_t a = alloc(100);
    std::vector<std::uint8_t> first(50, 1), second(50, 2), back(75);
    rvec pieces[] = {{a, first.data(), 50}, {a + 25, second.data(), 50}};
    ASSERT_EQ(rwritev(r, pieces, 2), 0);
    ASSERT_EQ(rread(r, a, back.data(), back.size()), 0);
    std::vector<std::uint8_t> expected(75, 2);
    std::fill_n(expected.begin(), 25, std::uint8_t{1});
    EXPECT_EQ(back, expected);
}

TEST_P(Pieces, Strided) {
    raddr_t a = alloc(1 << 20);
    std::vector<std::uint8_t> column = noise(16 * 1000), back(column.size()), all(1000 * 100);
    ASSERT_EQ(rwrite_strided(r, a + 5, 100, column.data(), 16, 1000), 0);
    ASSERT_EQ(rread_strided(r, a + 5, 100, back.data(), 16, 1000), 0);
    EXPECT_EQ(back, column);
    ASSERT_EQ(rread(r, a, all.data(), all.size()), 0);
    for (std::size_t i = 0; i < all.size(); i++) {
        std::size_t in_row = i % 100 - 5;
        std::uint8_t expected = in_row < 16 ? column[i / 100 * 16 + in_row] : 0;
        ASSERT_EQ(all[i], expected) << i;
    }
}

TEST_P(Pieces, OneThatCantBeSpoilsNoOther) {
    raddr_t a = alloc(100);
    std::uint8_t bytes[2] = {1, 2}, back = 0;
    rvec pieces[] = {{raddr_t{1} << 50, &bytes[0], 1}, {a, &bytes[1], 1}};
    EXPECT_EQ(rwritev(r, pieces, 2), -EFAULT);
    ASSERT_EQ(rread(r, a, &back, 1), 0);
    EXPECT_EQ(back, 2);
}

TEST_P(Pieces, WhatCantBe) {
    raddr_t a = alloc(100);
    std::uint8_t byte = 0;
    rop_t op;
    rvec good{a, &byte, 1};
    EXPECT_EQ(rreadv(r, &good, 0), -EINVAL);
    EXPECT_EQ(rreadv(r, nullptr, 1), -EINVAL);
    EXPECT_EQ(rreadv(nullptr, &good, 1), -EINVAL);
    EXPECT_EQ(rreadv_async(r, &good, 1, nullptr), -EINVAL);
    EXPECT_EQ(rreadv(r, &good, REMOTE_PIECES_MAX + 1), -EINVAL);
    for (rvec bad : {rvec{a, nullptr, 1}, rvec{a, &byte, 0}, rvec{~raddr_t{0}, &byte, 2},
                     rvec{a, &byte, std::size_t{2} << 30}}) {
        rvec pieces[] = {good, bad};
        EXPECT_EQ(rwritev(r, pieces, 2), -EINVAL);
        EXPECT_EQ(rwritev_async(r, pieces, 2, &op), -EINVAL);
    }
    EXPECT_EQ(rread_strided(r, a, std::numeric_limits<std::size_t>::max(), &byte, 1, 3), -EINVAL);
    EXPECT_EQ(rread_strided(r, a, 1, &byte, 1, 0), -EINVAL);
    EXPECT_EQ(rread_strided(r, a, 1, nullptr, 1, 1), -EINVAL);
}

// Sixteen to a packet, and so are their answers.
TEST(PiecesNetwork, SmallOnesShareDatagrams) {
    TestNode node;
    Relay relay(node.port(), 0);
    remote_t* r = nullptr;
    ASSERT_EQ(remote_open(&r, udp_target(relay.port()).c_str(), nullptr), 0);
    raddr_t a = 0;
    ASSERT_EQ(ralloc(r, 4096, REMOTE_RW, &a), 0);
    std::vector<std::uint8_t> bytes(16 * 16);
    ASSERT_EQ(rwrite_strided(r, a, 64, bytes.data(), 16, 16), 0);
    relay.count_from_now();
    ASSERT_EQ(rread_strided(r, a, 64, bytes.data(), 16, 16), 0);
    EXPECT_EQ(relay.datagrams(), 2U);
    relay.count_from_now();
    ASSERT_EQ(rwrite_strided(r, a, 64, bytes.data(), 16, 16), 0);
    EXPECT_EQ(relay.datagrams(), 2U);
    remote_close(r);
}

} // namespace

} // namespace remora::test
