// SPDX-License-Identifier: GPL-2.0
// Small allocations share pages, and nobody notices.
#include <cerrno>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "async.hpp"
#include "backend.hpp"

namespace remora::test {

namespace {

class Heap : public Backends {
protected:
    std::vector<std::uint8_t> read(raddr_t a, std::size_t bytes) {
        std::vector<std::uint8_t> data(bytes, 0xee);
        EXPECT_EQ(rread(r, a, data.data(), bytes), 0);
        return data;
    }
};

INSTANTIATE_TEST_SUITE_P(Lib, Heap, testing::ValuesIn(kinds()), kind_name);

// More of them than the node has pages; each is its own, aligned, and zero at first.
TEST_P(Heap, ManySmallOnes) {
    std::map<raddr_t, std::size_t> all;
    const int count = is_slow() ? 100 : 2000;
    std::mt19937 random(3);
    for (int i = 0; i < count; i++) {
        std::size_t bytes = 1 + random() % (i % 10 ? 64 : 4000), aligned = 16;
        while (aligned < bytes)
            aligned *= 2;
        raddr_t a = alloc(bytes);
        EXPECT_EQ(a % aligned, 0U);
        auto next = all.lower_bound(a);
        ASSERT_TRUE(next == all.end() || a + bytes <= next->first);
        ASSERT_TRUE(next == all.begin() || std::prev(next)->first + std::prev(next)->second <= a);
        ASSERT_EQ(read(a, bytes), std::vector<std::uint8_t>(bytes, 0));
        std::vector<std::uint8_t> mark(bytes, static_cast<std::uint8_t>(a >> 4));
        ASSERT_EQ(rwrite(r, a, mark.data(), bytes), 0);
        all[a] = bytes;
    }
    for (auto [a, bytes] : all)
        ASSERT_EQ(read(a, bytes),
                  std::vector<std::uint8_t>(bytes, static_cast<std::uint8_t>(a >> 4)));
    for (auto [a, bytes] : all)
        ASSERT_EQ(rfree(r, a), 0);
    for (auto [a, bytes] : all)
        ASSERT_EQ(rfree(r, a), -EFAULT);
}

// Freed and given out again and again: zeros each time, and no more pages of the node.
TEST_P(Heap, FreedOnesComeBackZeroed) {
    raddr_t kept = alloc(100);
    std::set<raddr_t> pages;
    const int rounds = is_slow() ? 30 : 1000;
    for (int i = 0; i < rounds; i++) {
        raddr_t a = alloc(100);
        pages.insert(a / page_bytes_of(r));
        ASSERT_EQ(read(a, 100), std::vector<std::uint8_t>(100, 0));
        std::vector<std::uint8_t> data(100, 0xaa);
        AsyncOp op;
        ASSERT_EQ(write_async(r, a, data.data(), data.size(), &op), 0);
        ASSERT_EQ(rfree(r, a), 0); // waits for that
        ASSERT_EQ(poll_all(r, &op, 1, 0), 0);
    }
    EXPECT_EQ(pages.size(), 1U);
    EXPECT_EQ(rfree(r, kept), 0);
}

TEST_P(Heap, EmptySlabsGoBack) {
    raddr_t a = alloc(100);
    ASSERT_EQ(rfree(r, a), 0);
    std::uint8_t byte;
    EXPECT_EQ(rread(r, a, &byte, 1), -EFAULT);
}

TEST_P(Heap, FreeOfNoAllocationIsRefused) {
    raddr_t a = alloc(100);
    EXPECT_EQ(rfree(r, a + 16), -EFAULT);
    EXPECT_EQ(rfree(r, a + 128), -EFAULT); // a slot that nobody has
    EXPECT_EQ(rfree(r, a - 1), -EFAULT);
    EXPECT_EQ(rfree(r, a), 0);
    EXPECT_EQ(rfree(r, a), -EFAULT);
}

TEST_P(Heap, ThreadsAllocateAndFree) {
    const int rounds = is_slow() ? 10 : 100;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; t++) {
        threads.emplace_back([&, t] {
            std::mt19937 random(t);
            std::vector<raddr_t> mine;
            for (int i = 0; i < rounds; i++) {
                raddr_t a = 0;
                ASSERT_EQ(ralloc(r, 1 + random() % 300, REMOTE_RW, &a), 0);
                std::uint64_t mark = t, back = ~0ULL;
                ASSERT_EQ(rread(r, a, &back, 1), 0);
                ASSERT_EQ(back & 0xff, 0U);
                ASSERT_EQ(rwrite(r, a, &mark, 1), 0);
                mine.push_back(a);
                if (random() % 2) {
                    std::swap(mine[random() % mine.size()], mine.back());
                    ASSERT_EQ(rread(r, mine.back(), &back, 1), 0);
                    ASSERT_EQ(back & 0xff, mark);
                    ASSERT_EQ(rfree(r, mine.back()), 0);
                    mine.pop_back();
                }
            }
            for (raddr_t a : mine)
                ASSERT_EQ(rfree(r, a), 0);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
}

} // namespace

} // namespace remora::test
