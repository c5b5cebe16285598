// SPDX-License-Identifier: GPL-2.0
// Integers changed at the node, and what threads see of them.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "backend.hpp"
#include "history.hpp"

namespace remora::test {

namespace {

constexpr std::uint64_t forever = std::numeric_limits<std::uint64_t>::max();

// ---- the checker itself ----

TEST(History, WhatCouldHaveBeen) {
    EXPECT_TRUE(is_linearizable({}, 0));
    // A read that overlaps a write finds either.
    for (std::uint64_t found : {0, 1}) {
        EXPECT_TRUE(
            is_linearizable({{Event::write, 1, 0, 0, 0, 10}, {Event::read, 0, 0, found, 5, 6}}, 0));
    }
    // Two additions at once, seen by each other in one order or the other.
    EXPECT_TRUE(is_linearizable({{Event::add, 1, 0, 2, 0, 10}, {Event::add, 2, 0, 0, 0, 10}}, 0));
    // One whose end isn't known may have happened late, or never.
    Event unknown{Event::write, 7, 0, 0, 0, 0, false};
    EXPECT_TRUE(is_linearizable(
        {unknown, {Event::read, 0, 0, 0, 100, 101}, {Event::read, 0, 0, 7, 200, 201}}, 0));
    EXPECT_TRUE(is_linearizable({unknown, {Event::read, 0, 0, 0, 100, 101}}, 0));
}

TEST(History, WhatCouldNotHaveBeen) {
    // After a write ended, a read finds what was before.
    EXPECT_FALSE(is_linearizable({{Event::write, 1, 0, 0, 0, 1}, {Event::read, 0, 0, 0, 2, 3}}, 0));
    // New, then old.
    EXPECT_FALSE(is_linearizable({{Event::write, 1, 0, 0, 0, 10},
                                  {Event::read, 0, 0, 1, 2, 3},
                                  {Event::read, 0, 0, 0, 4, 5}},
                                 0));
    // Two additions that find the same; one that was done twice.
    EXPECT_FALSE(is_linearizable({{Event::add, 1, 0, 0, 0, 10}, {Event::add, 1, 0, 0, 0, 10}}, 0));
    EXPECT_FALSE(is_linearizable({{Event::add, 1, 0, 0, 0, 1}, {Event::read, 0, 0, 2, 2, 3}}, 0));
    // Before it began.
    EXPECT_FALSE(
        is_linearizable({{Event::write, 7, 0, 0, 50, 0, false}, {Event::read, 0, 0, 7, 0, 10}}, 0));
    // Both exchanged the same.
    EXPECT_FALSE(is_linearizable({{Event::cas, 1, 0, 0, 0, 10}, {Event::cas, 2, 0, 0, 0, 10}}, 0));
}

// ---- integers ----

class Atomic : public Backends {
protected:
    std::uint64_t fetch(raddr_t a, std::size_t bytes, remote_fetch what, std::uint64_t value) {
        std::uint64_t found = 0xdead;
        EXPECT_EQ(rfetch(r, a, bytes, what, value, &found), 0);
        return found;
    }
    // Each of so many handles, opened after r, had something of it, both ways.
    void expect_trouble(std::size_t handles) {
        std::vector<Relay::Troubles> flows = relay->troubles();
        ASSERT_EQ(flows.size(), 1 + handles);
        for (std::size_t i = 1; i < flows.size(); i++) {
            for (const Relay::Trouble& trouble : {flows[i].to_node, flows[i].to_client}) {
                EXPECT_GT(trouble.lost, 0U) << "handle " << i;
                EXPECT_GT(trouble.doubled, 0U) << "handle " << i;
                EXPECT_GT(trouble.delayed, 0U) << "handle " << i;
            }
        }
    }
};

INSTANTIATE_TEST_SUITE_P(Lib, Atomic, testing::ValuesIn(kinds()), kind_name);

TEST_P(Atomic, FindWhatWasThere) {
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
    EXPECT_EQ(rfetch(r, a, 8, REMOTE_ADD, 1, nullptr), 0);
    std::uint64_t value = 0;
    EXPECT_EQ(rread(r, a, &value, sizeof(value)), 0);
    EXPECT_EQ(value, 2U);
}

TEST_P(Atomic, CompareAndSwap) {
    raddr_t a = alloc(64);
    std::uint64_t expected = 1;
    EXPECT_EQ(rcas(r, a, 8, &expected, 9), 0);
    EXPECT_EQ(expected, 0U);
    EXPECT_EQ(rcas(r, a, 8, &expected, 9), 1);
    EXPECT_EQ(expected, 0U);
    expected = 9;
    EXPECT_EQ(rcas(r, a, 4, &expected, 10), 1);
    std::uint64_t wide[2] = {10, 1}, next[2] = {~0ULL, 77};
    int has_16 = rcas128(r, a, wide, next);
    if (has_16 == -EINVAL)
        GTEST_SKIP() << "this processor has none of 16 bytes";
    EXPECT_EQ(has_16, 0);
    EXPECT_EQ(wide[0], 10U);
    EXPECT_EQ(wide[1], 0U);
    EXPECT_EQ(rcas128(r, a, wide, next), 1);
    std::uint64_t back[2];
    EXPECT_EQ(rread(r, a, back, sizeof(back)), 0);
    EXPECT_EQ(std::memcmp(back, next, sizeof(back)), 0);
}

TEST_P(Atomic, TestAndSet) {
    raddr_t a = alloc(4);
    EXPECT_EQ(rtas(r, a), 0);
    EXPECT_EQ(rtas(r, a), 1);
    std::uint32_t zero = 0;
    EXPECT_EQ(rwrite(r, a, &zero, sizeof(zero)), 0);
    EXPECT_EQ(rtas(r, a), 0);
}

TEST_P(Atomic, WhatCantBe) {
    raddr_t a = alloc(64), fixed = alloc(64, REMOTE_READ);
    std::uint64_t found = 5, both[2] = {};
    rop_t op;
    EXPECT_EQ(rfetch(r, a + 4, 8, REMOTE_ADD, 1, &found), -EINVAL);
    EXPECT_EQ(rfetch(r, a + 2, 4, REMOTE_ADD, 1, &found), -EINVAL);
    for (std::size_t bytes : {0, 1, 2, 3, 16, 64})
        EXPECT_EQ(rfetch(r, a, bytes, REMOTE_ADD, 1, &found), -EINVAL);
    for (int what : {-1, 0, 2, 11})
        EXPECT_EQ(rfetch(r, a, 8, static_cast<remote_fetch>(what), 1, &found), -EINVAL);
    EXPECT_EQ(rcas(r, a, 8, nullptr, 1), -EINVAL);
    EXPECT_EQ(rcas128(r, a + 8, both, both), -EINVAL);
    EXPECT_EQ(rcas128(r, a, nullptr, both), -EINVAL);
    EXPECT_EQ(rfetch_async(r, a, 8, REMOTE_ADD, 1, nullptr, nullptr), -EINVAL);
    EXPECT_EQ(rcas_async(r, a, 8, nullptr, 1, &op), -EINVAL);
    EXPECT_EQ(rfetch(nullptr, a, 8, REMOTE_ADD, 1, &found), -EINVAL);
    EXPECT_EQ(rfetch(r, fixed, 8, REMOTE_ADD, 1, &found), -EACCES);
    EXPECT_EQ(rfetch(r, raddr_t{1} << 50, 8, REMOTE_ADD, 1, &found), -EFAULT);
    EXPECT_EQ(found, 5U);
    EXPECT_EQ(rread(r, a, both, 8), 0);
    EXPECT_EQ(both[0], 0U);
}

// More than the node keeps results of, with others between; each finds another sum.
TEST_P(Atomic, ManyAtOnce) {
    raddr_t a = alloc(4096);
    const std::size_t count = 600;
    std::vector<std::uint64_t> found(count), read(count);
    std::vector<rop_t> ops(2 * count);
    for (std::size_t i = 0; i < count; i++) {
        ASSERT_EQ(rfetch_async(r, a, 8, REMOTE_ADD, 1, &found[i], &ops[2 * i]), 0);
        ASSERT_EQ(rread_async(r, a + 8 + 8 * (i % 100), &read[i], 8, &ops[2 * i + 1]), 0);
        if (i % 100 == 99) {
            ASSERT_EQ(rpoll(r, &ops[2 * (i - 99)], 200, forever), 0);
        }
    }
    // Those that overlap keep their order.
    for (std::size_t i = 0; i < count; i++)
        ASSERT_EQ(found[i], i);
    std::uint64_t expected = count;
    rop_t op;
    ASSERT_EQ(rcas_async(r, a, 8, &expected, 3, &op), 0);
    ASSERT_EQ(rpoll(r, &op, 1, forever), 0);
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
                    ASSERT_EQ(rfetch(mine, a, 8, REMOTE_ADD, 1, nullptr), 0);
                    continue;
                }
                std::uint64_t seen = 0;
                int swapped;
                while (!(swapped = rcas(mine, a, 8, &seen, seen + 1))) {
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
    std::vector<rop_t> ops(64);
    std::vector<std::uint64_t> values(64);
    std::iota(values.begin(), values.end(), 1);
    for (std::size_t i = 0; i < 64; i++)
        ASSERT_EQ(rwrite_async(r, a + 8 * i, &values[i], 8, &ops[i]), 0);
    EXPECT_EQ(rfence(r), 0);
    EXPECT_EQ(rpoll(r, ops.data(), ops.size(), 0), 0); // all have ended
    EXPECT_EQ(rfence(nullptr), -EINVAL);
}

// Eight threads by as many handles as there may be, about one integer.
TEST_P(Atomic, WhatThreadsSeeIsLinearizable) {
    constexpr int threads = 8, each = 12;
    raddr_t a = alloc(8 * 64);
    std::vector<remote_t*> handles;
    for (int t = 0; t < threads; t++)
        handles.push_back(is_shared() ? open() : r);
    const int rounds = is_slow() ? 8 : 30;
    for (int round = 0; round < rounds; round++) {
        raddr_t at = a + 8 * static_cast<raddr_t>(round);
        std::vector<std::vector<Event>> seen(threads);
        std::vector<std::thread> all;
        for (int t = 0; t < threads; t++) {
            all.emplace_back([&, t] {
                std::mt19937_64 random(static_cast<unsigned>(round * threads + t));
                remote_t* mine = handles[static_cast<std::size_t>(t)];
                std::uint64_t last = 0;
                for (int i = 0; i < each; i++) {
                    Event event{static_cast<Event::Kind>(random() % 4)};
                    // No two write the same, so that what was found says whose it was.
                    event.value = static_cast<std::uint64_t>((round * threads + t) * each + i + 1)
                                  << 20;
                    event.compare = last;
                    event.begin = history_now();
                    int error = 0;
                    switch (event.kind) {
                    case Event::read:
                        error = rread(mine, at, &event.found, 8);
                        break;
                    case Event::write:
                        error = rwrite(mine, at, &event.value, 8);
                        break;
                    case Event::add:
                        error = rfetch(mine, at, 8, REMOTE_ADD, event.value, &event.found);
                        break;
                    case Event::cas:
                        event.found = event.compare;
                        error = std::min(rcas(mine, at, 8, &event.found, event.value), 0);
                        break;
                    }
                    event.end = history_now();
                    ASSERT_EQ(error, 0);
                    last = event.kind == Event::write ? event.value : event.found;
                    seen[static_cast<std::size_t>(t)].push_back(event);
                }
            });
        }
        for (std::thread& thread : all)
            thread.join();
        std::vector<Event> history;
        for (const auto& part : seen)
            history.insert(history.end(), part.begin(), part.end());
        ASSERT_TRUE(is_linearizable(history, 0)) << "round " << round;
    }
    if (relay)
        expect_trouble(threads);
    for (remote_t* handle : handles) {
        if (handle != r)
            remote_close(handle);
    }
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
        rop_t op;
        relay.keep(which);
        EXPECT_EQ(rfetch_async(r, a, 8, REMOTE_ADD, 1, &found, &op), 0);
        while (!relay.kept())
            EXPECT_EQ(rpoll(r, &op, 1, 1000), -EAGAIN);
        remote_t* other = open(node.port());
        EXPECT_EQ(rread(other, a, &value, 8), 0);
        remote_close(other);
        relay.keep(nullptr);
        relay.send_kept();
        int result = rpoll(r, &op, 1, forever);
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
                int error = rfetch(mine, a, 8, REMOTE_ADD, 1, nullptr);
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
