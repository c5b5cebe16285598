// SPDX-License-Identifier: GPL-2.0
// Copies inside the node: what they copy, what they refuse, and their order.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "async.hpp"
#include "backend.hpp"
#include "remote/queue.h"

namespace remora::test {

namespace {

constexpr std::uint64_t forever = std::numeric_limits<std::uint64_t>::max();

using Bytes = std::vector<std::uint8_t>;

Bytes noise(std::size_t bytes, unsigned seed) {
    std::mt19937 random(seed);
    Bytes data(bytes);
    std::generate(data.begin(), data.end(), [&] { return static_cast<std::uint8_t>(random()); });
    return data;
}

class Copy : public Backends {
protected:
    Bytes read(raddr_t at, std::size_t bytes) {
        Bytes data(bytes, 0xee);
        EXPECT_EQ(remote_read(r, at, data.data(), bytes), 0);
        return data;
    }
    void write(raddr_t at, const Bytes& data) {
        EXPECT_EQ(remote_write(r, at, data.data(), data.size()), 0);
    }
    // The call, or the operation of a queue and its end.
    int copy(bool async, raddr_t to, raddr_t from, std::size_t bytes) {
        if (!async)
            return remote_copy(r, to, from, bytes);
        AsyncOp op;
        int error = copy_async(r, to, from, bytes, &op);
        return error ? error : poll_all(r, &op, 1, forever);
    }
};

INSTANTIATE_TEST_SUITE_P(Lib, Copy, testing::ValuesIn(kinds()), kind_name);

TEST_P(Copy, CopiesAnyNumberOfBytes) {
    constexpr std::size_t most = (2 << 20) + 12'345;
    raddr_t from = alloc(most + 100), to = alloc(most + 100);
    Bytes data = noise(most, 1);
    write(from + 33, data);
    for (bool async : {false, true}) {
        for (std::size_t bytes :
             {std::size_t{1}, std::size_t{4096}, std::size_t{65'535}, std::size_t{65'536},
              std::size_t{65'537}, std::size_t{300'000}, std::size_t{1 << 20}, most}) {
            write(to, Bytes(bytes + 100, 7));
            ASSERT_EQ(copy(async, to + 50, from + 33, bytes), 0);
            Bytes expected(bytes + 100, 7);
            std::copy_n(data.begin(), bytes, expected.begin() + 50);
            ASSERT_TRUE(read(to, bytes + 100) == expected) << bytes;
        }
    }
    EXPECT_TRUE(read(from + 33, most) == data) << "the source stays";
}

TEST_P(Copy, CopiesNeighboursAndUnwrittenMemory) {
    raddr_t a = alloc(1 << 20), empty = alloc(1 << 20);
    Bytes data = noise(100'000, 2);
    write(a, data);
    EXPECT_EQ(remote_copy(r, a + 100'000, a, 100'000), 0);
    EXPECT_TRUE(read(a + 100'000, 100'000) == data);
    EXPECT_EQ(remote_copy(r, a + 10, empty, 150'000), 0);
    Bytes expected(150'020, 0);
    std::copy_n(data.begin(), 10, expected.begin());
    std::copy_n(data.begin() + 50'010, 10, expected.end() - 10);
    EXPECT_TRUE(read(a, 150'020) == expected);
}

// Overlap is refused for the whole call, before any of its messages is executed.
TEST_P(Copy, RejectsInvalidArguments) {
    raddr_t a = alloc(4 << 20);
    Bytes data = noise(1000, 3);
    write(a, data);
    for (bool async : {false, true}) {
        EXPECT_EQ(copy(async, a + 100, a, 0), -EINVAL) << "as a read of no bytes is";
        EXPECT_EQ(copy(async, a, a, 1), -EINVAL);
        EXPECT_EQ(copy(async, a + 99, a, 100), -EINVAL);
        EXPECT_EQ(copy(async, a, a + 99, 100), -EINVAL);
        EXPECT_EQ(copy(async, a + (1 << 20), a, (1 << 20) + 1), -EINVAL);
        EXPECT_EQ(copy(async, ~raddr_t{0} - 10, a, 100), -EINVAL);
        EXPECT_EQ(copy(async, a, ~raddr_t{0} - 10, 100), -EINVAL);
    }
    EXPECT_EQ(read(a, 1000), data);
    EXPECT_EQ(remote_copy(nullptr, a, a + 100, 1), -EINVAL);
}

TEST_P(Copy, NeedsPermissionAndMemory) {
    raddr_t a = alloc(1 << 20), fixed = 0;
    ASSERT_EQ(remote_alloc(r, 1 << 20, REMOTE_READ, &fixed), 0);
    write(a, Bytes(100, 7));
    for (bool async : {false, true}) {
        EXPECT_EQ(copy(async, fixed, a, 100), -EACCES);
        EXPECT_EQ(copy(async, a + 200, 8, 100), -EFAULT);
        EXPECT_EQ(copy(async, 8, a, 100), -EFAULT);
    }
    EXPECT_EQ(read(a, 300), [] {
        Bytes expected(300, 0);
        std::fill_n(expected.begin(), 100, std::uint8_t{7});
        return expected;
    }());
    EXPECT_EQ(remote_copy(r, a, fixed, 50), 0) << "a source may be read-only";
    EXPECT_EQ(read(a, 100)[49], 0);
    EXPECT_EQ(read(a, 100)[50], 7);
}

// All at once, among reads and writes: each sees what those that began before it have left.
TEST_P(Copy, OverlappingOperationsKeepTheirOrder) {
    constexpr std::size_t bytes = 200'000;
    raddr_t a = alloc(bytes);
    Bytes mirror(bytes, 0);
    std::mt19937 random(5);
    const int rounds = is_slow() ? 5 : 30;
    for (int round = 0; round < rounds; round++) {
        struct Started {
            Bytes data, expected;
        };
        std::vector<Started> started(48);
        std::vector<AsyncOp> ops(started.size());
        for (std::size_t i = 0; i < ops.size(); i++) {
            Started& it = started[i];
            std::size_t length = 1 + random() % (random() % 4 ? 500 : 70'000);
            auto at = [&] { return random() % (random() % 2 ? bytes - length : 2000); };
            std::size_t to = at(), from = at();
            switch (random() % 3) {
            case 0:
                it.data = noise(length, random());
                std::copy(it.data.begin(), it.data.end(),
                          mirror.begin() + static_cast<std::ptrdiff_t>(to));
                ASSERT_EQ(write_async(r, a + to, it.data.data(), length, &ops[i]), 0);
                break;
            case 1:
                it.data = Bytes(length, 0xee);
                it.expected.assign(mirror.begin() + static_cast<std::ptrdiff_t>(from),
                                   mirror.begin() + static_cast<std::ptrdiff_t>(from + length));
                ASSERT_EQ(read_async(r, a + from, it.data.data(), length, &ops[i]), 0);
                break;
            default:
                length = std::min(length, to > from ? to - from : from - to);
                if (!length) {
                    to = from + 1;
                    length = 1;
                }
                std::copy_n(mirror.begin() + static_cast<std::ptrdiff_t>(from), length,
                            mirror.begin() + static_cast<std::ptrdiff_t>(to));
                ASSERT_EQ(copy_async(r, a + to, a + from, length, &ops[i]), 0);
            }
        }
        ASSERT_EQ(poll_all(r, ops.data(), ops.size(), forever), 0);
        for (const Started& it : started) {
            if (!it.expected.empty()) {
                ASSERT_TRUE(it.data == it.expected);
            }
        }
        ASSERT_TRUE(read(a, bytes) == mirror);
    }
}

TEST_P(Copy, CountsAsWrite) {
    raddr_t a = alloc(1 << 20);
    remote_counters before{}, after{};
    before.size = after.size = sizeof(before);
    ASSERT_EQ(remote_stats(r, &before), 0);
    ASSERT_EQ(remote_copy(r, a + 500'000, a, 100'000), 0);
    ASSERT_EQ(remote_stats(r, &after), 0);
    const remote_kind_stats &was = before.kind[REMOTE_KIND_WRITE],
                            &is = after.kind[REMOTE_KIND_WRITE];
    EXPECT_EQ(is.done, was.done + 2) << "messages of 64 KiB";
    EXPECT_EQ(is.bytes, was.bytes + 100'000);
}

} // namespace

} // namespace remora::test
