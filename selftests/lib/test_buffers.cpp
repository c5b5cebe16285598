// SPDX-License-Identifier: GPL-2.0
// Registered buffers: whether they are or not, operations do the same.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "async.hpp"
#include "backend.hpp"
#include "remote/remote.hpp"

namespace remora::test {

namespace {

constexpr std::uint64_t forever = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t buffer_bytes = 1 << 20;

class Buffers : public Backends {
protected:
    Buffers() {
        std::mt19937 random(1);
        for (std::uint8_t& byte : data)
            byte = static_cast<std::uint8_t>(random());
    }

    // Writes the buffer's bytes at `at` to the node and reads them back to `back`.
    void go_and_return(std::size_t at, std::size_t back, std::size_t bytes) {
        std::span<std::uint8_t> to = std::span(data).subspan(back, bytes);
        std::vector<std::uint8_t> went(&data[at], &data[at] + bytes);
        ASSERT_EQ(rwrite(r, a, &data[at], bytes), 0);
        std::fill(to.begin(), to.end(), 0);
        ASSERT_EQ(rread(r, a, to.data(), bytes), 0);
        ASSERT_TRUE(std::equal(to.begin(), to.end(), went.begin())) << at << ", " << back;
    }

    std::vector<std::uint8_t> data = std::vector<std::uint8_t>(2 * buffer_bytes);
    raddr_t a = alloc(buffer_bytes);
};

INSTANTIATE_TEST_SUITE_P(Lib, Buffers, testing::ValuesIn(kinds()), kind_name);

// In the registered half, in the other one, and across the edge.
TEST_P(Buffers, AreUsedOrNotAlike) {
    ASSERT_EQ(remote_register(r, data.data(), buffer_bytes), 0);
    for (std::size_t bytes : {1, 16, 4096, 70'000, 300'000}) {
        go_and_return(100'003, 500'001, bytes);
        go_and_return(buffer_bytes - bytes, 5, bytes);
        go_and_return(buffer_bytes - bytes + 1, 5, bytes);
        go_and_return(7, buffer_bytes, bytes);
    }
    EXPECT_EQ(remote_unregister(r, data.data()), 0);
    go_and_return(100'003, 500'001, 300'000);
}

// An op of many ranges uses no registered buffer, whichever op had its slot before.
TEST_P(Buffers, VectorsGoWithout) {
    ASSERT_EQ(remote_register(r, data.data(), buffer_bytes), 0);
    AsyncOp op;
    ASSERT_EQ(write_async(r, a, data.data(), 4096, &op), 0);
    ASSERT_EQ(poll_all(r, &op, 1, forever), 0);
    std::uint8_t* back = &data[buffer_bytes];
    remote_vec pieces[] = {{a + 100, back, 50}, {a + 1000, back + 50, 70}};
    ASSERT_EQ(readv_async(r, pieces, 2, &op), 0);
    ASSERT_EQ(poll_all(r, &op, 1, forever), 0);
    EXPECT_TRUE(std::equal(back, back + 50, &data[100]));
    EXPECT_TRUE(std::equal(back + 50, back + 120, &data[1000]));
    std::uint64_t found = 0;
    ASSERT_EQ(fetch_async(r, a, 8, REMOTE_XOR, 1, &found, &op), 0);
    ASSERT_EQ(poll_all(r, &op, 1, forever), 0);
    EXPECT_EQ(std::memcmp(&found, data.data(), 8), 0);
}

TEST_P(Buffers, ManyAtOnce) {
    constexpr std::size_t each = buffer_bytes / 32;
    for (std::size_t i = 0; i < REMOTE_BUFFERS_MAX; i++)
        ASSERT_EQ(remote_register(r, &data[i * each], each), 0);
    std::vector<std::uint8_t> other(4096);
    EXPECT_EQ(remote_register(r, other.data(), other.size()), -ENOSPC);
    // A number that was given back is used again.
    ASSERT_EQ(remote_unregister(r, &data[7 * each]), 0);
    EXPECT_EQ(remote_register(r, other.data(), other.size()), 0);
    AsyncOp ops[32];
    for (std::size_t i = 0; i < 32; i++)
        ASSERT_EQ(write_async(r, a + i * each, &data[i * each], each, &ops[i]), 0);
    ASSERT_EQ(poll_all(r, ops, 32, forever), 0);
    for (std::size_t i = 0; i < 32; i++)
        ASSERT_EQ(read_async(r, a + i * each, &data[buffer_bytes + i * each], each, &ops[i]), 0);
    ASSERT_EQ(poll_all(r, ops, 32, forever), 0);
    EXPECT_TRUE(std::equal(data.begin(), data.begin() + buffer_bytes, data.begin() + buffer_bytes));
}

TEST_P(Buffers, UnregisteredWhileInFlightOperationsComplete) {
    ASSERT_EQ(remote_register(r, data.data(), data.size()), 0);
    AsyncOp ops[8];
    for (std::size_t i = 0; i < 8; i++)
        ASSERT_EQ(write_async(r, a + i * 100'000, &data[i * 100'000], 100'000, &ops[i]), 0);
    ASSERT_EQ(remote_unregister(r, data.data()), 0);
    ASSERT_EQ(poll_all(r, ops, 8, forever), 0);
    std::vector<std::uint8_t> back(800'000);
    ASSERT_EQ(rread(r, a, back.data(), back.size()), 0);
    EXPECT_TRUE(std::equal(back.begin(), back.end(), data.begin()));
}

TEST_P(Buffers, Refusals) {
    std::uint8_t* memory = data.data();
    EXPECT_EQ(remote_register(nullptr, memory, 10), -EINVAL);
    EXPECT_EQ(remote_register(r, nullptr, 10), -EINVAL);
    EXPECT_EQ(remote_register(r, memory, 0), -EINVAL);
    EXPECT_EQ(remote_register(r, memory, std::size_t{REMOTE_BUFFER_BYTES_MAX} + 1), -EINVAL);
    EXPECT_EQ(remote_unregister(r, memory), -EINVAL);
    EXPECT_EQ(remote_unregister(nullptr, memory), -EINVAL);
    ASSERT_EQ(remote_register(r, memory + 1000, 1000), 0);
    for (std::size_t at : {1, 1000, 1500, 1999})
        EXPECT_EQ(remote_register(r, memory + at, 1000), -EEXIST) << at;
    EXPECT_EQ(remote_register(r, memory, 5000), -EEXIST);
    EXPECT_EQ(remote_unregister(r, memory + 1001), -EINVAL);
    EXPECT_EQ(remote_register(r, memory, 1000), 0);
    EXPECT_EQ(remote_register(r, memory + 2000, 1000), 0);
    EXPECT_EQ(remote_unregister(r, memory + 1000), 0);
    EXPECT_EQ(remote_unregister(r, memory + 1000), -EINVAL);
    EXPECT_EQ(remote_register(r, memory + 1000, 1000), 0);
}

TEST(BuffersOfCpp, EndWithTheirScope) {
    std::vector<std::uint64_t> data(1000);
    auto handle = remote::handle::open("embedded:");
    ASSERT_TRUE(handle) << remote_why();
    {
        auto one = remote::registered::make(*handle, std::span(data));
        ASSERT_TRUE(one);
        EXPECT_EQ(remote::registered::make(*handle, std::span(data).subspan(5)).error(), -EEXIST);
    }
    EXPECT_TRUE(remote::registered::make(*handle, std::span(data).subspan(5)));
}

} // namespace

} // namespace remora::test
