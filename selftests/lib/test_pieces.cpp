// SPDX-License-Identifier: GPL-2.0
// Gather, scatter and strides.
#include <cerrno>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "async.hpp"
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
        std::vector<remote_vec> writes, reads;
        raddr_t at = a;
        for (std::size_t bytes : {1, 7, 4096, 300'000, 16, 65'536, 3, 1 << 20}) {
            out.push_back(noise(bytes + async));
            in.emplace_back(bytes + async);
            writes.push_back({at, out.back().data(), out.back().size()});
            reads.push_back({at, in.back().data(), in.back().size()});
            at += bytes + 1000;
        }
        AsyncOp op;
        if (async) {
            ASSERT_EQ(writev_async(r, writes.data(), writes.size(), &op), 0);
            ASSERT_EQ(poll_all(r, &op, 1, forever), 0);
            ASSERT_EQ(readv_async(r, reads.data(), reads.size(), &op), 0);
            ASSERT_EQ(poll_all(r, &op, 1, forever), 0);
        } else {
            ASSERT_EQ(remote_writev(r, writes.data(), writes.size()), 0);
            ASSERT_EQ(remote_readv(r, reads.data(), reads.size()), 0);
        }
        EXPECT_EQ(in, out);
    }
}

TEST_P(Pieces, ThatOverlapAreDoneInTheirOrder) {
    raddr_t a = alloc(100);
    std::vector<std::uint8_t> first(50, 1), second(50, 2), back(75);
    remote_vec pieces[] = {{a, first.data(), 50}, {a + 25, second.data(), 50}};
    ASSERT_EQ(remote_writev(r, pieces, 2), 0);
    ASSERT_EQ(rread(r, a, back.data(), back.size()), 0);
    std::vector<std::uint8_t> expected(75, 2);
    std::fill_n(expected.begin(), 25, std::uint8_t{1});
    EXPECT_EQ(back, expected);
}

TEST_P(Pieces, Strided) {
    raddr_t a = alloc(1 << 20);
    std::vector<std::uint8_t> column = noise(16 * 1000), back(column.size()), all(1000 * 100);
    ASSERT_EQ(write_rows(r, rows(a + 5, 100, column.data(), 16, 1000)), 0);
    ASSERT_EQ(read_rows(r, rows(a + 5, 100, back.data(), 16, 1000)), 0);
    EXPECT_EQ(back, column);
    ASSERT_EQ(rread(r, a, all.data(), all.size()), 0);
    for (std::size_t i = 0; i < all.size(); i++) {
        std::size_t in_row = i % 100 - 5;
        std::uint8_t expected = in_row < 16 ? column[i / 100 * 16 + in_row] : 0;
        ASSERT_EQ(all[i], expected) << i;
    }
}

// Small ones, large ones, and all that were done one after the other; calls that are under way at
// once, too.
TEST_P(Pieces, ThatOverlapAreDoneInTheirOrderHoweverTheyTravel) {
    constexpr std::size_t bytes = 8192, calls = 50;
    raddr_t a = alloc(bytes);
    std::mt19937 random(7);
    std::vector<std::uint8_t> expected(bytes), back(bytes);
    for (int round = 0; round < 20; round++) {
        std::vector<std::vector<std::uint8_t>> data;
        std::vector<std::vector<remote_vec>> pieces(calls);
        std::vector<AsyncOp> ops(calls);
        for (std::vector<remote_vec>& call : pieces) {
            for (std::size_t i = 1 + random() % 40; i--;) {
                std::size_t size = 1 + random() % (random() % 10 ? 100 : 2000);
                std::size_t at = random() % (bytes - size);
                auto value = static_cast<std::uint8_t>(random());
                data.emplace_back(size, value);
                call.push_back({a + at, data.back().data(), size});
                std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(at), size, value);
            }
        }
        for (std::size_t i = 0; i < calls; i++)
            ASSERT_EQ(writev_async(r, pieces[i].data(), pieces[i].size(), &ops[i]), 0);
        std::vector<remote_vec> reads;
        for (std::size_t at = 0; at < bytes; at += 64)
            reads.push_back({a + at, &back[at], 64});
        ASSERT_EQ(remote_readv(r, reads.data(), reads.size()), 0);
        ASSERT_EQ(back, expected);
        ASSERT_EQ(poll_all(r, ops.data(), ops.size(), forever), 0);
    }
}

// RAW, WAR and WAW with operations of one range.
TEST_P(Pieces, KeepTheirOrderWithOtherOperations) {
    raddr_t a = alloc(4096);
    for (std::uint8_t round = 1; round < 100; round++) {
        std::uint8_t one[16], two[16], found[3][2] = {};
        std::fill_n(one, 16, round);
        std::fill_n(two, 16, static_cast<std::uint8_t>(round + 1));
        remote_vec reads[3][2], writes[2] = {{a + 100, &two[0], 1}, {a + 3000, &two[1], 1}};
        for (std::size_t i = 0; i < 3; i++) {
            reads[i][0] = {a + 100, &found[i][0], 1};
            reads[i][1] = {a + 3000, &found[i][1], 1};
        }
        AsyncOp ops[6];
        ASSERT_EQ(write_async(r, a + 96, one, 16, &ops[0]), 0);
        ASSERT_EQ(write_async(r, a + 2990, one, 16, &ops[1]), 0);
        ASSERT_EQ(readv_async(r, reads[0], 2, &ops[2]), 0);
        ASSERT_EQ(writev_async(r, writes, 2, &ops[3]), 0);
        ASSERT_EQ(readv_async(r, reads[1], 2, &ops[4]), 0);
        ASSERT_EQ(write_async(r, a + 90, one, 16, &ops[5]), 0);
        ASSERT_EQ(remote_readv(r, reads[2], 2), 0);
        ASSERT_EQ(poll_all(r, ops, 6, forever), 0);
        for (std::size_t i = 0; i < 2; i++) {
            EXPECT_EQ(found[0][i], round);
            EXPECT_EQ(found[1][i], round + 1);
            EXPECT_EQ(found[2][i], round + i);
        }
    }
}

TEST_P(Pieces, OneThatCantBeSpoilsNoOther) {
    constexpr std::size_t count = 5;
    raddr_t a = alloc(2048);
    const raddr_t nowhere = raddr_t{1} << 50;
    for (std::size_t wrong = 0; wrong < count; wrong++) {
        for (bool async : {false, true}) {
            std::uint8_t out[count], in[count] = {}, all[count];
            remote_vec writes[count], reads[count];
            for (std::size_t i = 0; i < count; i++) {
                out[i] = static_cast<std::uint8_t>(10 * (wrong + 1) + 100 * async + i);
                writes[i] = {i == wrong ? nowhere : a + i, &out[i], 1};
                reads[i] = {writes[i].address, &in[i], 1};
            }
            if (async) {
                AsyncOp op;
                ASSERT_EQ(writev_async(r, writes, count, &op), 0);
                EXPECT_EQ(poll_all(r, &op, 1, forever), -EFAULT);
                ASSERT_EQ(readv_async(r, reads, count, &op), 0);
                EXPECT_EQ(poll_all(r, &op, 1, forever), -EFAULT);
            } else {
                EXPECT_EQ(remote_writev(r, writes, count), -EFAULT);
                EXPECT_EQ(remote_readv(r, reads, count), -EFAULT);
            }
            ASSERT_EQ(rread(r, a, all, count), 0);
            for (std::size_t i = 0; i < count; i++) {
                EXPECT_EQ(all[i] == out[i], i != wrong) << wrong;
                EXPECT_EQ(in[i], i == wrong ? 0 : out[i]) << wrong;
            }
        }
    }
}

// One of the errors is told, and those that overlap keep their order.
TEST_P(Pieces, SeveralThatCantBe) {
    raddr_t a = alloc(4096), fixed = 0;
    ASSERT_EQ(ralloc(r, 4096, REMOTE_READ, &fixed), 0);
    std::uint8_t one[8], two[8], back[16];
    std::fill_n(one, 8, 1);
    std::fill_n(two, 8, 2);
    remote_vec pieces[] = {
        {a, one, 8}, {fixed, one, 8}, {a + 4, two, 8}, {raddr_t{1} << 50, one, 8}, {a + 8, one, 8}};
    int error = remote_writev(r, pieces, 5);
    EXPECT_TRUE(error == -EACCES || error == -EFAULT) << error;
    ASSERT_EQ(rread(r, a, back, 16), 0);
    for (std::size_t i = 0; i < 16; i++)
        EXPECT_EQ(back[i], i >= 4 && i < 8 ? 2 : 1) << i;
}

TEST_P(Pieces, ThatMayOnlyBeRead) {
    raddr_t a = alloc(4096), fixed = 0;
    ASSERT_EQ(ralloc(r, 4096, REMOTE_READ, &fixed), 0);
    std::uint8_t bytes[2] = {1, 2};
    remote_vec pieces[] = {{a, &bytes[0], 1}, {fixed, &bytes[1], 1}};
    EXPECT_EQ(remote_writev(r, pieces, 2), -EACCES);
    EXPECT_EQ(remote_readv(r, pieces, 2), 0);
    EXPECT_EQ(bytes[1], 0);
}

TEST_P(Pieces, RejectsInvalidArguments) {
    raddr_t a = alloc(100);
    std::uint8_t byte = 0;
    AsyncOp op;
    remote_vec good{a, &byte, 1};
    EXPECT_EQ(remote_readv(r, &good, 0), -EINVAL);
    EXPECT_EQ(remote_readv(r, nullptr, 1), -EINVAL);
    EXPECT_EQ(remote_readv(nullptr, &good, 1), -EINVAL);
    EXPECT_EQ(readv_async(r, &good, 1, nullptr), -EINVAL);
    EXPECT_EQ(remote_readv(r, &good, REMOTE_PIECES_MAX + 1), -EINVAL);
    for (remote_vec bad :
         {remote_vec{a, nullptr, 1}, remote_vec{a, &byte, 0}, remote_vec{~raddr_t{0}, &byte, 2},
          remote_vec{a, &byte, std::size_t{2} << 30}}) {
        remote_vec pieces[] = {good, bad};
        EXPECT_EQ(remote_writev(r, pieces, 2), -EINVAL);
        EXPECT_EQ(writev_async(r, pieces, 2, &op), -EINVAL);
    }
}

// Many to a message, and their data is, too: of 4096, as many messages as it takes.
TEST(PiecesNetwork, SmallOnesShareMessages) {
    TestNode node;
    Relay relay(node.port(), 0);
    remote_t* r = nullptr;
    ASSERT_EQ(remote_open(&r, udp_target(relay.port()).c_str(), nullptr), 0);
    raddr_t a = 0;
    ASSERT_EQ(ralloc(r, 4096, REMOTE_RW, &a), 0);
    std::vector<std::uint8_t> bytes(16 * 16);
    ASSERT_EQ(write_rows(r, rows(a, 64, bytes.data(), 16, 16)), 0);
    relay.count_from_now();
    ASSERT_EQ(read_rows(r, rows(a, 64, bytes.data(), 16, 16)), 0);
    EXPECT_EQ(relay.datagrams(), 2U);
    relay.count_from_now();
    ASSERT_EQ(write_rows(r, rows(a, 64, bytes.data(), 16, 16)), 0);
    EXPECT_EQ(relay.datagrams(), 2U);
    const remote_counters before = counters_of(r);
    ASSERT_EQ(read_rows(r, rows(a, 1, bytes.data(), 1, 256)), 0);
    ASSERT_EQ(write_rows(r, rows(a, 1, bytes.data(), 1, 129)), 0);
    const remote_counters after = counters_of(r);
    auto more = [&](remote_kind kind) { return after.kind[kind].done - before.kind[kind].done; };
    EXPECT_EQ(more(REMOTE_KIND_READ), 2U);
    EXPECT_EQ(more(REMOTE_KIND_WRITE), 2U) << "the last one is a WRITE of its own";
    EXPECT_EQ(after.kind[REMOTE_KIND_READ].bytes - before.kind[REMOTE_KIND_READ].bytes, 256U);
    EXPECT_EQ(after.sent - after.retries - (before.sent - before.retries), 4U);
    remote_close(r);
}

// The network loses, doubles and delays; all calls are under way at once.
TEST(PiecesNetwork, ArriveThroughBadWeather) {
    TestNode node;
    Relay relay(node.port(), 20);
    remote_t* r = nullptr;
    ASSERT_EQ(remote_open(&r, udp_target(relay.port()).c_str(), nullptr), 0);
    raddr_t a = 0;
    ASSERT_EQ(ralloc(r, 1 << 20, REMOTE_RW, &a), 0);
    constexpr std::size_t calls = 64, count = 200;
    std::vector<std::uint8_t> data = noise(calls * count * 8), back(data.size());
    for (bool write : {true, false}) {
        std::vector<AsyncOp> ops(calls);
        for (std::size_t i = 0; i < calls; i++) {
            std::vector<remote_vec> pieces(count);
            for (std::size_t j = 0; j < count; j++) {
                std::size_t at = i * count + j;
                pieces[j] = {a + at * 40, (write ? data : back).data() + at * 8, 8};
            }
            ASSERT_EQ(write ? writev_async(r, pieces.data(), count, &ops[i])
                            : readv_async(r, pieces.data(), count, &ops[i]),
                      0);
        }
        ASSERT_EQ(poll_all(r, ops.data(), ops.size(), forever), 0);
    }
    EXPECT_EQ(back, data);
    remote_close(r);
}

} // namespace

} // namespace remora::test
