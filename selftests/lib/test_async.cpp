// SPDX-License-Identifier: GPL-2.0
// Asynchronous operations: order, polling, limits.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "async.hpp"
#include "backend.hpp"

namespace remora::test {

namespace {

constexpr std::uint64_t forever = std::numeric_limits<std::uint64_t>::max();

class Async : public Backends {};

INSTANTIATE_TEST_SUITE_P(Lib, Async, testing::ValuesIn(kinds()), kind_name);

// RAW, WAR and WAW, on bytes few enough that most operations are rivals of some other.
TEST_P(Async, OverlappingOperationsKeepTheirOrder) {
    constexpr std::size_t bytes = 3000;
    raddr_t a = alloc(bytes);
    std::vector<std::uint8_t> mirror(bytes, 0);
    std::mt19937 random(11);
    const int rounds = is_slow() ? 10 : 40;
    for (int round = 0; round < rounds; round++) {
        struct Data {
            std::vector<std::uint8_t> data, expected; // expected: of a read
        };
        std::vector<Data> started(64);
        std::vector<AsyncOp> ops(started.size());
        for (std::size_t i = 0; i < started.size(); i++) {
            std::size_t from = random() % bytes, count = 1 + random() % (bytes - from);
            auto first = mirror.begin() + static_cast<std::ptrdiff_t>(from);
            auto last = first + static_cast<std::ptrdiff_t>(count);
            started[i].data.resize(count);
            if (random() % 2) {
                std::fill(first, last, static_cast<std::uint8_t>(random()));
                std::copy(first, last, started[i].data.begin());
                ASSERT_EQ(write_async(r, a + from, started[i].data.data(), count, &ops[i]), 0);
            } else {
                started[i].expected.assign(first, last);
                ASSERT_EQ(read_async(r, a + from, started[i].data.data(), count, &ops[i]), 0);
            }
        }
        ASSERT_EQ(poll_all(r, ops.data(), ops.size(), forever), 0);
        for (const Data& each : started) {
            if (!each.expected.empty()) {
                ASSERT_EQ(each.data, each.expected);
            }
        }
    }
}

// Two threads write ranges that overlap, a third reads both and more, all by one handle. A call of
// at most 1 MiB is one operation, so each shows as a whole. Bytes that one thread alone writes tell
// its last write; bytes that both write hold one of the two last writes.
TEST_P(Async, CallsOfThreadsAreWhole) {
    constexpr std::size_t region = 1 << 20, quarter = 1 << 18, page = 1 << 16;
    struct Range {
        std::size_t from, end;
    };
    struct Case {
        Range one, two, read;
    };
    const Case cases[] = {
        {{0, 64}, {32, 96}, {0, 96}},
        {{1000, 10'000}, {6000, 15'000}, {0, 16'000}},
        {{page - 6000, page + 6000}, {page - 4, page + 8000}, {page - 6000, page + 8000}},
        {{0, quarter}, {100'000, 100'000 + quarter}, {0, 400'000}},
        {{400, quarter + 400}, {page, page + 40}, {0, quarter + 1000}},
        {{300'004, 300'004 + quarter}, {500'000, 500'000 + quarter}, {0, region}},
    };
    raddr_t a = alloc(region);
    const int reads = is_slow() ? 3 : 40;
    for (const Case& test : cases) {
        SCOPED_TRACE("read from " + std::to_string(test.read.from) + " to " +
                     std::to_string(test.read.end));
        std::vector<std::uint32_t> found(region / 4);
        ASSERT_EQ(rwrite(r, a, found.data(), region), 0);
        std::atomic<bool> stop{false};
        std::atomic<int> writing{0};
        std::vector<std::thread> writers;
        for (std::uint32_t which : {1, 2}) {
            writers.emplace_back([&, which] {
                const Range& own = which == 1 ? test.one : test.two;
                std::vector<std::uint32_t> data((own.end - own.from) / 4);
                for (std::uint32_t i = 1; !stop; i++) {
                    std::fill(data.begin(), data.end(), i << 2 | which);
                    ASSERT_EQ(rwrite(r, a + own.from, data.data(), 4 * data.size()), 0);
                    if (i == 1)
                        writing++;
                }
            });
        }
        while (writing < 2 && !HasFailure())
            std::this_thread::yield();
        auto all_of = [&](std::size_t from, std::size_t end) {
            auto words = std::span(found).subspan(from / 4, (end - from) / 4);
            EXPECT_EQ(std::ranges::count(words, words.front()), std::ssize(words))
                << "from " << from << " to " << end;
            return words.front();
        };
        std::uint32_t last_one = 0, last_two = 0;
        for (int i = 0; i < reads && !HasFailure(); i++) {
            ASSERT_EQ(rread(r, a + test.read.from, &found[test.read.from / 4],
                            test.read.end - test.read.from),
                      0);
            // The bytes of one thread alone lie before or behind the bytes of both.
            std::uint32_t one = all_of(test.one.from, test.two.from);
            std::uint32_t both = all_of(test.two.from, std::min(test.one.end, test.two.end));
            std::uint32_t two =
                test.two.end > test.one.end ? all_of(test.one.end, test.two.end) : both;
            if (test.two.end < test.one.end) {
                EXPECT_EQ(all_of(test.two.end, test.one.end), one);
                two = (both & 3) == 2 ? both : last_two;
            }
            EXPECT_TRUE(both == one || both == two) << one << ' ' << both << ' ' << two;
            EXPECT_GE(one, last_one);
            EXPECT_GE(two, last_two);
            last_one = one;
            last_two = two;
        }
        stop = true;
        for (std::thread& writer : writers)
            writer.join();
    }
}

TEST_P(Async, LongOnes) {
    constexpr std::size_t bytes = 3 << 20;
    raddr_t a = alloc(bytes);
    std::vector<std::uint8_t> out(bytes), in(bytes);
    for (std::size_t i = 0; i < bytes; i++)
        out[i] = static_cast<std::uint8_t>(i * 2654435761U >> 13);
    AsyncOp ops[2];
    ASSERT_EQ(write_async(r, a, out.data(), bytes, &ops[0]), 0);
    ASSERT_EQ(read_async(r, a, in.data(), bytes, &ops[1]), 0);
    EXPECT_EQ(poll_all(r, ops, 2, forever), 0);
    EXPECT_EQ(in, out);
}

TEST_P(Async, EachHasItsResult) {
    raddr_t a = alloc(100);
    std::uint8_t byte = 1;
    AsyncOp ops[3];
    ASSERT_EQ(write_async(r, a, &byte, 1, &ops[0]), 0);
    ASSERT_EQ(write_async(r, a + (std::uint64_t{1} << 40), &byte, 1, &ops[1]), 0);
    ASSERT_EQ(read_async(r, a, &byte, 1, &ops[2]), 0);
    EXPECT_EQ(poll_all(r, ops, 3, forever), -EFAULT);
    EXPECT_EQ(ops[0].result, 0);
    EXPECT_EQ(ops[1].result, -EFAULT);
    EXPECT_EQ(ops[2].result, 0);
}

TEST_P(Async, NoMoreThanWereAskedFor) {
    remote_t* few = open(4);
    raddr_t a = 0;
    ASSERT_EQ(ralloc(few, 100, REMOTE_RW, &a), 0);
    std::uint8_t byte[5] = {};
    AsyncOp ops[5];
    for (int i = 0; i < 4; i++)
        ASSERT_EQ(read_async(few, a, &byte[i], 1, &ops[i]), 0);
    EXPECT_EQ(read_async(few, a, &byte[4], 1, &ops[4]), -EAGAIN);
    EXPECT_EQ(poll_all(few, ops, 1, forever), 0);
    EXPECT_EQ(read_async(few, a, &byte[4], 1, &ops[4]), 0);
    EXPECT_EQ(poll_all(few, ops, 5, forever), 0);
    remote_close(few);
}

TEST_P(Async, PollAnyReturnsAnIndexOnceForEachResult) {
    raddr_t a = alloc(64);
    std::vector<AsyncOp> ops(4);
    std::vector<std::uint64_t> values(ops.size());
    std::vector<AsyncOp*> left;
    for (std::size_t i = 0; i < ops.size(); i++) {
        ASSERT_EQ(read_async(r, a + 8 * i, &values[i], sizeof(values[i]), &ops[i]), 0);
        left.push_back(&ops[i]);
    }
    while (!left.empty()) {
        int ended = poll_any(r, left.data(), left.size(), forever);
        ASSERT_GE(ended, 0);
        ASSERT_LT(ended, std::ssize(left));
        EXPECT_EQ(left[static_cast<std::size_t>(ended)]->result, 0);
        left.erase(left.begin() + ended);
    }
}

TEST_P(Async, ReleaseWaitsForAll) {
    raddr_t a = alloc(1 << 20);
    std::vector<std::uint8_t> data(1000, 5);
    std::vector<AsyncOp> ops(100);
    for (std::size_t i = 0; i < ops.size(); i++)
        ASSERT_EQ(write_async(r, a + 1000 * i, data.data(), 1000, &ops[i]), 0);
    EXPECT_EQ(rrelease(r), 0);
    EXPECT_EQ(poll_all(r, ops.data(), ops.size(), 0), 0) << "some hadn't ended";
}

// Each thread begins some, and when both have, each finds that those of the other one have ended.
TEST_P(Async, TwoReleasesAtOnce) {
    constexpr std::size_t count = 32, bytes = 4000;
    raddr_t a = alloc(1 << 20);
    std::vector<std::uint8_t> data(bytes, 5);
    const int rounds = is_slow() ? 10 : 50;
    std::vector<AsyncOp> ops[2] = {std::vector<AsyncOp>(count), std::vector<AsyncOp>(count)};
    std::barrier together(2);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 2; t++) {
        threads.emplace_back([&, t] {
            for (int round = 0; round < rounds; round++) {
                for (std::size_t i = 0; i < count; i++)
                    EXPECT_EQ(
                        write_async(r, a + bytes * (2 * i + t), data.data(), bytes, &ops[t][i]), 0);
                together.arrive_and_wait();
                EXPECT_EQ(rrelease(r), 0);
                EXPECT_EQ(poll_all(r, ops[1 - t].data(), count, 0), 0) << "some hadn't ended";
                together.arrive_and_wait();
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
}

TEST_P(Async, FreeWaitsForOperationsOnItsRange) {
    for (int round = 0; round < 20; round++) {
        raddr_t a = alloc(1 << 20);
        std::vector<std::uint8_t> data(300'000, 7);
        AsyncOp op;
        ASSERT_EQ(write_async(r, a + 1000, data.data(), data.size(), &op), 0);
        EXPECT_EQ(rfree(r, a), 0);
        EXPECT_EQ(poll_all(r, &op, 1, 0), 0) << "freed while a write was in flight";
    }
}

// Others read and write a region while it's freed, by its handle and by another: what they find was
// there, or they learn that it's gone; and what they write is nowhere in the region that has its
// pages next. There are no other pages, but where others may have some, too.
TEST_P(Async, WritesToFreedMemoryNeverReachTheNextRegion) {
    constexpr std::uint64_t pages = 4, all_pages = 512;
    constexpr std::size_t part = 40'000;
    const std::uint64_t page = page_bytes_of(r);
    const std::size_t bytes = pages * page;
    if (GetParam() != Kind::given) {
        raddr_t others = alloc((all_pages - pages) * page);
        std::vector<std::uint8_t> ones(all_pages - pages, 1);
        ASSERT_EQ(write_rows(r, rows(others, page, ones.data(), 1, ones.size())), 0);
    }
    std::vector<remote_t*> handles{r, r};
    if (is_shared())
        handles.push_back(open());
    const int rounds = is_slow() ? 6 : 40;
    for (int round = 0; round < rounds; round++) {
        auto of_round = [&](int which) { return static_cast<std::uint8_t>(1 + round * 3 + which); };
        const std::uint8_t old = of_round(0), late = of_round(1), next = of_round(2);
        auto expect_all = [&](raddr_t at, std::uint8_t expected) {
            std::vector<std::uint8_t> found(bytes);
            ASSERT_EQ(rread(r, at, found.data(), bytes), 0);
            ASSERT_EQ(found, std::vector<std::uint8_t>(bytes, expected));
        };
        raddr_t a = 0, b = 0;
        std::vector<std::uint8_t> data(bytes, old);
        ASSERT_EQ(ralloc(r, bytes, REMOTE_RW, &a), 0);
        ASSERT_EQ(rwrite(r, a, data.data(), bytes), 0);
        std::atomic<std::size_t> done{0};
        std::vector<std::thread> threads;
        for (std::size_t t = 0; t < 2 * handles.size(); t++) {
            threads.emplace_back([&, t, mine = handles[t / 2]] {
                std::mt19937 random(static_cast<unsigned>(t));
                std::vector<std::uint8_t> buffer(part, late);
                int error;
                do {
                    raddr_t at = a + random() % (bytes - part);
                    error = t % 2 ? rwrite(mine, at, buffer.data(), part)
                                  : rread(mine, at, buffer.data(), part);
                    done++;
                    ASSERT_TRUE(error || std::ranges::all_of(buffer, [&](std::uint8_t byte) {
                                    return byte == old || byte == late;
                                }));
                } while (!error);
                ASSERT_EQ(error, -EFAULT);
            });
        }
        while (done < 2 * threads.size())
            std::this_thread::yield();
        EXPECT_EQ(rfree(r, a), 0);
        EXPECT_EQ(ralloc(r, bytes, REMOTE_RW, &b), 0);
        std::fill(data.begin(), data.end(), next);
        EXPECT_EQ(rwrite(r, b, data.data(), bytes), 0);
        expect_all(b, next);
        for (std::thread& thread : threads)
            thread.join();
        expect_all(b, next);
        ASSERT_EQ(rfree(r, b), 0);
    }
    if (handles.back() != r)
        remote_close(handles.back());
}

TEST_P(Async, PollingWithoutWaitingGetsOn) {
    raddr_t a = alloc(1 << 20);
    std::vector<std::uint8_t> data(500'000, 7), back(data.size());
    AsyncOp ops[2];
    ASSERT_EQ(write_async(r, a, data.data(), data.size(), &ops[0]), 0);
    ASSERT_EQ(read_async(r, a, back.data(), back.size(), &ops[1]), 0);
    int error;
    while ((error = poll_all(r, ops, 2, 0)) == -EAGAIN) {
    }
    EXPECT_EQ(error, 0);
    EXPECT_EQ(back, data);
}

TEST_P(Async, CloseEndsThem) {
    remote_t* other = open();
    raddr_t a = 0;
    ASSERT_EQ(ralloc(other, 1 << 20, REMOTE_RW, &a), 0);
    std::vector<std::uint8_t> data(1 << 20, 7);
    AsyncOp op;
    ASSERT_EQ(write_async(other, a, data.data(), data.size(), &op), 0);
    remote_close(other);
}

} // namespace

} // namespace remora::test
