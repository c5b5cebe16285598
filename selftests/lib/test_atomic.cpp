// SPDX-License-Identifier: GPL-2.0
// Integers changed at the node, each once.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include "async.hpp"
#include "backend.hpp"

namespace remora::test {

namespace {

constexpr std::uint64_t forever = std::numeric_limits<std::uint64_t>::max();

class Atomic : public Backends {
protected:
    std::uint64_t fetch(raddr_t a, std::size_t bytes, remote_change what, std::uint64_t value) {
        std::uint64_t found = 0xdead;
        EXPECT_EQ(remote_fetch(r, a, bytes, what, value, &found), 0);
        return found;
    }
};

INSTANTIATE_TEST_SUITE_P(Lib, Atomic, testing::ValuesIn(kinds()), kind_name);

TEST_P(Atomic, EachReturnsTheIntegerBeforeIt) {
    raddr_t a = alloc(64);
    EXPECT_EQ(fetch(a, 8, REMOTE_ADD, 5), 0U);
    EXPECT_EQ(fetch(a, 8, REMOTE_ADD, ~0ULL), 5U);
    EXPECT_EQ(fetch(a, 4, REMOTE_SWAP, 0xf0), 4U);
    EXPECT_EQ(fetch(a, 8, REMOTE_OR, 0x0f), 0xf0U);
    EXPECT_EQ(fetch(a, 8, REMOTE_AND, 0x3c), 0xffU);
    EXPECT_EQ(fetch(a, 8, REMOTE_XOR, 0x04), 0x3cU);
    EXPECT_EQ(fetch(a, 8, REMOTE_MIN, 0x10), 0x38U);
    EXPECT_EQ(fetch(a, 8, REMOTE_MAX, 0x11), 0x10U);
    EXPECT_EQ(fetch(a, 4, REMOTE_SMIN, static_cast<std::uint32_t>(-2)), 0x11U);
    EXPECT_EQ(fetch(a, 4, REMOTE_SMAX, 1), 0xffff'fffeU);
    EXPECT_EQ(remote_fetch(r, a, 8, REMOTE_ADD, 1, nullptr), 0);
    std::uint64_t value = 0;
    EXPECT_EQ(rread(r, a, &value, sizeof(value)), 0);
    EXPECT_EQ(value, 2U);
}

TEST_P(Atomic, CompareAndSwap) {
    raddr_t a = alloc(64);
    std::uint64_t expected = 1;
    EXPECT_EQ(cas(r, a, 8, &expected, 9), 0);
    EXPECT_EQ(expected, 0U);
    EXPECT_EQ(cas(r, a, 8, &expected, 9), 1);
    EXPECT_EQ(expected, 0U);
    expected = 9;
    EXPECT_EQ(cas(r, a, 4, &expected, 10), 1);
    std::uint64_t wide[2] = {10, 1}, next[2] = {~0ULL, 77};
    int has_16 = remote_cas(r, a, 16, wide, next);
    if (has_16 == -EINVAL && !must_have_cas_16(GetParam()))
        GTEST_SKIP() << "this processor has none of 16 bytes";
    EXPECT_EQ(has_16, 0);
    EXPECT_EQ(wide[0], 10U);
    EXPECT_EQ(wide[1], 0U);
    EXPECT_EQ(remote_cas(r, a, 16, wide, next), 1);
    std::uint64_t back[2];
    EXPECT_EQ(rread(r, a, back, sizeof(back)), 0);
    EXPECT_EQ(std::memcmp(back, next, sizeof(back)), 0);
}

TEST_P(Atomic, RejectsInvalidArguments) {
    raddr_t a = alloc(64), fixed = alloc(64, REMOTE_READ);
    std::uint64_t found = 5, both[2] = {};
    EXPECT_EQ(remote_fetch(r, a + 4, 8, REMOTE_ADD, 1, &found), -EINVAL);
    EXPECT_EQ(remote_fetch(r, a + 2, 4, REMOTE_ADD, 1, &found), -EINVAL);
    for (std::size_t bytes : {0, 1, 2, 3, 16, 64})
        EXPECT_EQ(remote_fetch(r, a, bytes, REMOTE_ADD, 1, &found), -EINVAL);
    for (int what : {-1, 0, 2, 11})
        EXPECT_EQ(remote_fetch(r, a, 8, static_cast<remote_change>(what), 1, &found), -EINVAL);
    EXPECT_EQ(cas(r, a, 8, nullptr, 1), -EINVAL);
    EXPECT_EQ(remote_cas(r, a + 8, 16, both, both), -EINVAL);
    EXPECT_EQ(remote_cas(r, a, 16, nullptr, both), -EINVAL);
    EXPECT_EQ(fetch_async(r, a, 8, REMOTE_ADD, 1, nullptr, nullptr), -EINVAL);
    EXPECT_EQ(remote_fetch(nullptr, a, 8, REMOTE_ADD, 1, &found), -EINVAL);
    EXPECT_EQ(remote_fetch(r, fixed, 8, REMOTE_ADD, 1, &found), -EACCES);
    EXPECT_EQ(remote_fetch(r, raddr_t{1} << 50, 8, REMOTE_ADD, 1, &found), -EFAULT);
    EXPECT_EQ(found, 5U);
    EXPECT_EQ(rread(r, a, both, 8), 0);
    EXPECT_EQ(both[0], 0U);
}

// More than the node keeps results of, with others between; each finds another sum.
TEST_P(Atomic, ManyAtOnce) {
    raddr_t a = alloc(4096);
    const std::size_t count = 600;
    std::vector<std::uint64_t> found(count), read(count);
    std::vector<AsyncOp> ops(2 * count);
    for (std::size_t i = 0; i < count; i++) {
        ASSERT_EQ(fetch_async(r, a, 8, REMOTE_ADD, 1, &found[i], &ops[2 * i]), 0);
        ASSERT_EQ(read_async(r, a + 8 + 8 * (i % 100), &read[i], 8, &ops[2 * i + 1]), 0);
        if (i % 100 == 99) {
            ASSERT_EQ(poll_all(r, &ops[2 * (i - 99)], 200, forever), 0);
        }
    }
    // Overlapping operations keep their order.
    for (std::size_t i = 0; i < count; i++)
        ASSERT_EQ(found[i], i);
    std::uint64_t expected = count;
    AsyncOp op;
    ASSERT_EQ(cas_async(r, a, 8, &expected, 3, &op), 0);
    ASSERT_EQ(poll_all(r, &op, 1, forever), 0);
    EXPECT_EQ(expected, count);
    EXPECT_EQ(fetch(a, 8, REMOTE_ADD, 0), 3U);
}

TEST_P(Atomic, ThreadsLoseNoIncrement) {
    raddr_t a = alloc(8);
    const int rounds = is_slow() ? 60 : 400;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&] {
            remote_t* mine = is_shared() ? open() : r;
            for (int i = 0; i < rounds; i++) {
                if (i % 2) {
                    ASSERT_EQ(remote_fetch(mine, a, 8, REMOTE_ADD, 1, nullptr), 0);
                    continue;
                }
                std::uint64_t seen = 0;
                int swapped;
                while (!(swapped = cas(mine, a, 8, &seen, seen + 1))) {
                }
                ASSERT_EQ(swapped, 1);
            }
            if (mine != r)
                remote_close(mine);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(fetch(a, 8, REMOTE_ADD, 0), static_cast<std::uint64_t>(4 * rounds));
}

TEST_P(Atomic, Fence) {
    raddr_t a = alloc(4096);
    std::vector<AsyncOp> ops(64);
    std::vector<std::uint64_t> values(64);
    std::iota(values.begin(), values.end(), 1);
    for (std::size_t i = 0; i < 64; i++)
        ASSERT_EQ(write_async(r, a + 8 * i, &values[i], 8, &ops[i]), 0);
    EXPECT_EQ(rfence(r), 0);
    EXPECT_EQ(poll_all(r, ops.data(), ops.size(), 0), 0); // all have ended
    EXPECT_EQ(rfence(nullptr), -EINVAL);
}

// ---- sessions that end ----

// A node with one session, which whoever comes next takes from the one before.
class Evicted : public testing::Test {
protected:
    remote_t* open(std::uint16_t port) {
        remote_t* handle = nullptr;
        EXPECT_EQ(remote_open(&handle, udp_target(port).c_str(), nullptr), 0) << remote_why();
        return handle;
    }
    // An addition is under way, of whose messages the relay keeps those back; then its session
    // ends.
    int add(const Relay::Which& which) {
        remote_t* r = open(relay.port());
        EXPECT_EQ(ralloc(r, 8, REMOTE_RW, &a), 0);
        std::uint64_t found = 5;
        AsyncOp op;
        relay.keep(which);
        EXPECT_EQ(fetch_async(r, a, 8, REMOTE_ADD, 1, &found, &op), 0);
        while (!relay.kept())
            EXPECT_EQ(poll_all(r, &op, 1, 1000), -EAGAIN);
        remote_t* other = open(node.port());
        EXPECT_EQ(rread(other, a, &value, 8), 0);
        remote_close(other);
        relay.keep(nullptr);
        relay.send_kept();
        int result = poll_all(r, &op, 1, forever);
        EXPECT_EQ(found, 5U);
        std::uint64_t after = 0;
        EXPECT_EQ(rread(r, a, &after, 8), 0) << "the handle has no session any more";
        EXPECT_EQ(after, value) << "executed after its session ended";
        remote_close(r);
        return result;
    }

    TestNode node{0, 1, 1};
    Relay relay{node.port(), 0};
    raddr_t a = 0;
    std::uint64_t value = 0; // when it had ended
};

TEST_F(Evicted, BeforeItWasExecuted) {
    EXPECT_EQ(add([](const rmem_head& head) { return head.type == RMEM_ATOMIC; }), -ECONNRESET);
    EXPECT_EQ(value, 0U);
}

TEST_F(Evicted, AfterItWasExecuted) {
    EXPECT_EQ(add([](const rmem_head& head) {
                  return head.type == (RMEM_ATOMIC | RMEM_RESPONSE) && head.status == RMEM_OK;
              }),
              -ECONNRESET);
    EXPECT_EQ(value, 1U);
}

// Two handles take the session from each other all the time.
TEST_F(Evicted, OnceOrNever) {
    remote_t* first = open(relay.port());
    ASSERT_EQ(ralloc(first, 8, REMOTE_RW, &a), 0);
    std::atomic<std::uint64_t> done{0}, unknown{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; t++) {
        threads.emplace_back([&, t] {
            remote_t* mine = t ? open(node.port()) : first;
            for (int i = 0; i < 20; i++) {
                int error = remote_fetch(mine, a, 8, REMOTE_ADD, 1, nullptr);
                ASSERT_TRUE(!error || error == -ECONNRESET) << error;
                (error ? unknown : done)++;
            }
            remote_close(mine);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    remote_t* last = open(node.port());
    ASSERT_EQ(rread(last, a, &value, 8), 0);
    remote_close(last);
    EXPECT_GE(value, done);
    EXPECT_LE(value, done + unknown);
}

} // namespace

} // namespace remora::test
