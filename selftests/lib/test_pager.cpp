// SPDX-License-Identifier: GPL-2.0
// What a mapping asks of its backend: how many operations, how long, and what it does when they
// fail.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bus_error.hpp"
#include "remora/rmem.h"
#include "src/mmap/mapping.hpp"

namespace remora::test {

namespace {

using lib::Call;
using lib::Change;
using lib::Clock;
using lib::Kind;
using lib::Mapping;
using lib::Op;
using lib::Region;

const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

// Memory that counts what is done to it. Operations end when they are waited for, in any order.
class CountingBackend final : public lib::Backend {
public:
    static constexpr std::uint64_t begin = 1 << 20;

    explicit CountingBackend(std::size_t bytes) : memory(bytes) {}

    void start(std::span<Op> ops) override {
        for (Op& op : ops) {
            std::lock_guard lock(lock_);
            bool is_read = op.kind == Kind::read;
            (is_read ? reads : writes)++;
            (is_read ? read_bytes : written_bytes) += op.bytes;
            under_way_.push_back(&op);
            under_way_max = std::max<std::size_t>(under_way_max, under_way_.size());
        }
    }
    bool wait(const Call& call, Clock::time_point) override {
        std::lock_guard lock(lock_);
        while (!call.ended()) {
            std::size_t at = random_() % under_way_.size();
            Op& op = *under_way_[at];
            under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(at));
            op.call->end_op(carry_out(op));
        }
        return true;
    }
    void wait_until(const void*, const std::function<bool()>&, Clock::time_point) override {}
    int transfer(Kind, std::uint64_t, std::uint8_t*, std::uint64_t, Clock::time_point) override {
        return -EIO;
    }
    void cancel(Call&) override {}
    int release(Clock::time_point) override { return 0; }
    int fence(Clock::time_point) override { return -EIO; }
    int zero(std::uint64_t, std::uint32_t) override { return -EIO; }
    int change(std::uint64_t, std::uint32_t, Change&, Clock::time_point) override { return -EIO; }
    void stats(remote_counters&) override {}
    int alloc(std::uint64_t, std::uint32_t, std::uint64_t, Region&) override { return -EIO; }
    int dealloc(const Region&) override { return -EIO; }
    std::uint64_t page_bytes() const override { return 1 << RMEM_PAGE_SHIFT_MIN; }
    std::uint32_t put_bytes() const override { return 1024; }
    std::uint32_t vector_bytes() const override { return 0; }
    bool disown() override { return true; }

    std::vector<std::uint8_t> memory;
    std::atomic<std::size_t> reads{0}, writes{0}, read_bytes{0}, written_bytes{0}, under_way_max{0};
    // Results of operations, for one block of 64 KiB or for all.
    static constexpr std::size_t all_blocks = ~std::size_t{0};
    std::atomic<int> read_error{0}, write_error{0};
    std::atomic<std::size_t> failing_block{all_blocks};

private:
    int carry_out(const Op& op) {
        bool is_read = op.kind == Kind::read;
        std::size_t at = op.address - begin, block = failing_block;
        EXPECT_EQ(op.address >> RMEM_PAGE_SHIFT_MIN,
                  (op.address + op.bytes - 1) >> RMEM_PAGE_SHIFT_MIN)
            << "it crosses a page of the node";
        if (block == all_blocks || block == at >> RMEM_PAGE_SHIFT_MIN) {
            if (int error = is_read ? read_error : write_error)
                return error;
        }
        if (is_read)
            std::memcpy(op.data, &memory[at], op.bytes);
        else
            std::memcpy(&memory[at], op.data, op.bytes);
        return 0;
    }

    std::mutex lock_;
    std::vector<Op*> under_way_;
    std::mt19937 random_{1};
};

class Pager : public testing::Test {
protected:
    static constexpr std::size_t pages = 256;

    Pager() : backend(pages * page) {
        for (std::size_t i = 0; i < backend.memory.size(); i++)
            backend.memory[i] = static_cast<std::uint8_t>(i * 2654435761U >> 13);
        mirror = backend.memory;
    }
    void map(std::uint64_t cache_pages, std::uint64_t prefetch_pages = 1) {
        mapping.emplace(backend, CountingBackend::begin, pages * page, true,
                        lib::PagerLimits{cache_pages * page, prefetch_pages * page});
    }
    volatile std::uint8_t& at(std::size_t number) { return mapping->memory()[number * page]; }
    void touch(std::size_t first, std::size_t count) {
        for (std::size_t i = first; i < first + count; i++)
            ASSERT_EQ(at(i), mirror[i * page]);
    }
    void change(std::size_t number) { at(number) = mirror[number * page] ^= 0xff; }
    std::size_t pages_here() {
        std::vector<unsigned char> here(pages);
        EXPECT_EQ(mincore(mapping->memory(), pages * page, here.data()), 0);
        return static_cast<std::size_t>(
            std::count_if(here.begin(), here.end(), [](unsigned char each) { return each & 1; }));
    }

    CountingBackend backend;
    std::vector<std::uint8_t> mirror;
    std::optional<Mapping> mapping;
};

// ---- in ----

TEST_F(Pager, APageIsReadOnce) {
    map(pages);
    EXPECT_EQ(backend.reads, 0U);
    for (int round = 0; round < 3; round++)
        touch(40, 1);
    EXPECT_EQ(backend.reads, 1U);
    EXPECT_EQ(backend.read_bytes, page);
    EXPECT_EQ(mapping->finish(), 0);
    EXPECT_EQ(backend.writes, 0U) << "it was never written to";
}

TEST_F(Pager, ARunIsReadAhead) {
    map(pages, 64);
    touch(0, pages);
    // 1, 4, 8, 16, 32 pages, and from then on 64, in blocks of 16.
    EXPECT_LE(backend.reads, 5 + pages / 16 + 3);
    EXPECT_GE(backend.under_way_max, 3U) << "they don't wait for each other";
    EXPECT_EQ(backend.read_bytes, pages * page) << "each page once";
}

TEST_F(Pager, NotFurtherThanIsAllowed) {
    map(pages);
    touch(0, pages);
    EXPECT_EQ(backend.reads, pages);
}

TEST_F(Pager, JumpsReadNoMoreThanTheyTouch) {
    map(pages, 64);
    for (std::size_t i = 0; i < pages; i += 2)
        touch(i * 37 % pages, 1);
    EXPECT_EQ(backend.reads, pages / 2);
    EXPECT_EQ(backend.read_bytes, pages / 2 * page);
}

TEST_F(Pager, FailedReadAheadHasNoEffect) {
    map(pages, 64);
    backend.failing_block = 3;
    backend.read_error = -EFAULT;
    touch(0, 3 * 16);
    backend.read_error = 0;
    touch(0, pages);
}

TEST_F(Pager, TouchingAnUnreadablePageRaisesSigbus) {
    map(pages, 64);
    backend.failing_block = 3;
    backend.read_error = -EFAULT;
    EXPECT_EQ(bus_error_at(&at(50)), &at(50));
    EXPECT_EQ(bus_error_at(&at(50)), &at(50)) << "it doesn't heal";
    EXPECT_EQ(bus_error_at(&at(52)), &at(52));
    touch(0, 48);
    touch(64, pages - 64);
    backend.read_error = 0;
    EXPECT_EQ(bus_error_at(&at(50)), &at(50));
    touch(51, 1);
    EXPECT_EQ(mapping->finish(), 0);
}

TEST_F(Pager, EveryPageMayFail) {
    map(16, 4);
    backend.read_error = -ETIMEDOUT;
    for (std::size_t i = 0; i < pages; i += 2)
        EXPECT_EQ(bus_error_at(&at(i)), &at(i));
    backend.read_error = 0;
    for (std::size_t i = 1; i < pages; i += 2)
        touch(i, 1);
}

// ---- out ----

TEST_F(Pager, NeighboursAreWrittenTogether) {
    map(pages, 64);
    for (std::size_t i = 0; i < pages; i++)
        change(i);
    EXPECT_EQ(mapping->sync(mapping->memory(), pages * page), 0);
    EXPECT_EQ(backend.memory, mirror);
    EXPECT_EQ(backend.writes, pages / 16);
    EXPECT_GE(backend.under_way_max, 8U) << "they don't wait for each other";
    EXPECT_EQ(mapping->sync(mapping->memory(), pages * page), 0);
    EXPECT_EQ(backend.writes, pages / 16) << "nothing was dirty";
}

TEST_F(Pager, SyncWritesOnlyDirtyPagesInItsRange) {
    map(pages, 64);
    touch(0, pages);
    for (std::size_t i : {3, 4, 40, 41, 100})
        change(i);
    EXPECT_EQ(mapping->sync(&mapping->memory()[40 * page + 5], page), 0);
    EXPECT_EQ(backend.writes, 1U);
    EXPECT_EQ(backend.written_bytes, 2 * page) << "a run is written as a whole";
    change(41);
    EXPECT_EQ(mapping->finish(), 0);
    EXPECT_EQ(backend.writes, 4U);
    EXPECT_EQ(backend.written_bytes, (2 + 2 + 1 + 1) * page);
    EXPECT_EQ(backend.memory, mirror);
}

TEST_F(Pager, TheCacheIsBounded) {
    map(32, 8);
    for (std::size_t i = 0; i < pages; i++) {
        if (i % 3)
            change(i);
        else
            touch(i, 1);
        ASSERT_LE(pages_here(), 32U);
    }
    EXPECT_GE(pages_here(), 16U) << "hardly any of it is used";
    EXPECT_EQ(mapping->finish(), 0);
    EXPECT_EQ(backend.memory, mirror);
}

// A program that goes through dirty pages doesn't wait a round trip for each.
TEST_F(Pager, RoomIsMadeForSeveral) {
    map(128, 32);
    for (std::size_t i = 0; i < pages; i++)
        change(i);
    EXPECT_EQ(mapping->finish(), 0);
    EXPECT_LE(backend.writes, pages / 16 + 8);
}

TEST_F(Pager, UnwritablePagesAreKept) {
    map(pages);
    change(7);
    change(100);
    backend.write_error = -ETIMEDOUT;
    EXPECT_EQ(mapping->sync(mapping->memory(), pages * page), -ETIMEDOUT);
    EXPECT_EQ(mapping->sync(&mapping->memory()[50 * page], page), 0) << "nothing is dirty there";
    touch(7, 1);
    backend.write_error = 0;
    EXPECT_EQ(mapping->sync(mapping->memory(), pages * page), 0);
    EXPECT_EQ(backend.memory, mirror);
    change(8);
    backend.write_error = -ESTALE;
    EXPECT_EQ(mapping->finish(), -ESTALE);
}

// One block of dirty pages that are refused, and the cache full of others.
TEST_F(Pager, OthersGoIfSomeCant) {
    map(32, 8);
    for (std::size_t i = 0; i < 16; i++)
        change(i);
    backend.failing_block = 0;
    backend.write_error = -EACCES;
    for (std::size_t i = 16; i < pages; i++)
        change(i);
    EXPECT_EQ(mapping->sync(mapping->memory(), pages * page), -EACCES);
    EXPECT_EQ(mapping->sync(&mapping->memory()[16 * page], (pages - 16) * page), 0);
    touch(0, 16);
    EXPECT_TRUE(std::equal(mirror.begin() + static_cast<std::ptrdiff_t>(16 * page), mirror.end(),
                           backend.memory.begin() + static_cast<std::ptrdiff_t>(16 * page)));
    backend.write_error = 0;
    EXPECT_EQ(mapping->finish(), 0);
    EXPECT_EQ(backend.memory, mirror);
}

TEST_F(Pager, NoRoomIsABusErrorAndNothingIsLost) {
    for (int error : {-EACCES, -ETIMEDOUT}) {
        map(16);
        for (std::size_t i = 0; i < 16; i++)
            change(i);
        backend.write_error = error;
        EXPECT_EQ(bus_error_at(&at(20)), &at(20));
        EXPECT_EQ(mapping->sync(mapping->memory(), pages * page), error);
        touch(0, 16);
        backend.write_error = 0;
        touch(21, 16);
        EXPECT_EQ(mapping->finish(), 0);
        EXPECT_EQ(backend.memory, mirror);
        mapping.reset();
    }
}

// A kernel short of memory may fail to place a page in the middle of a run.
TEST_F(Pager, FailedPlacementLeavesOtherPagesUsable) {
    map(pages, 64);
    ASSERT_EQ(munmap(mapping->memory() + 22 * page, page), 0);
    touch(0, 22);
    touch(23, pages - 23);
    for (std::size_t i = 23; i < pages; i++)
        change(i);
    EXPECT_EQ(mapping->finish(), 0);
    EXPECT_EQ(backend.memory, mirror);
}

// The kernel has areas of it then, and runs that go from one to the next.
TEST_F(Pager, LockingAPartChangesNothing) {
    map(pages, 64);
    ASSERT_EQ(mlock2(mapping->memory(), 8 * page, MLOCK_ONFAULT), 0) << std::strerror(errno);
    touch(0, pages);
    EXPECT_EQ(backend.read_bytes, pages * page) << "each page once";
    for (std::size_t i = 0; i < pages; i++)
        change(i);
    EXPECT_EQ(mapping->sync(mapping->memory(), pages * page), 0);
    EXPECT_EQ(backend.writes, pages / 16);
    EXPECT_EQ(backend.memory, mirror);
}

// As mlockall() would, which the sanitizers keep from the kernel.
TEST_F(Pager, LockedMemoryIsBoundedAllTheSame) {
    map(16, 4);
    ASSERT_EQ(mlock2(mapping->memory(), 8 * page, MLOCK_ONFAULT), 0) << std::strerror(errno);
    for (std::size_t i = 0; i < pages; i++)
        change(i);
    EXPECT_LE(pages_here(), 16U);
    EXPECT_EQ(mapping->finish(), 0);
    EXPECT_EQ(backend.memory, mirror);
}

// Each thread has bytes in every page: they are written to all the time while pages come and go,
// and somebody asks for all of it to be written back.
TEST_F(Pager, NoWriteIsLost) {
    constexpr std::size_t threads = 4;
    map(16, 4);
    std::atomic<bool> stop{false};
    std::thread syncing([&] {
        while (!stop)
            ASSERT_EQ(mapping->sync(mapping->memory(), pages * page), 0);
    });
    std::vector<std::thread> running;
    for (std::size_t t = 0; t < threads; t++) {
        running.emplace_back([&, t] {
            std::mt19937 random(static_cast<unsigned>(t));
            for (int step = 0; step < 4000; step++) {
                // Mostly among few pages.
                std::size_t among = random() % 4 ? 24 : pages;
                std::size_t byte = random() % (among * page / threads) * threads + t;
                volatile std::uint8_t& it = mapping->memory()[byte];
                ASSERT_EQ(it, mirror[byte]);
                it = mirror[byte] = static_cast<std::uint8_t>(random());
            }
        });
    }
    for (std::thread& thread : running)
        thread.join();
    stop = true;
    syncing.join();
    EXPECT_EQ(mapping->finish(), 0);
    EXPECT_EQ(backend.memory, mirror);
}

// ---- who asks ----

TEST_F(Pager, RangesThatCantBe) {
    map(pages);
    std::uint8_t* memory = mapping->memory();
    EXPECT_EQ(mapping->sync(memory, 0), -EINVAL);
    EXPECT_EQ(mapping->sync(memory, pages * page + 1), -EINVAL);
    EXPECT_EQ(mapping->sync(memory + pages * page, 1), -EINVAL);
    EXPECT_EQ(mapping->sync(memory + 1, ~std::size_t{0}), -EINVAL);
    EXPECT_EQ(mapping->sync(memory - 1, 1), -EINVAL);
    EXPECT_EQ(mapping->sync(memory + pages * page - 1, 1), 0);
    EXPECT_EQ(mapping->finish(), 0);
    EXPECT_EQ(mapping->sync(memory, 1), -EINVAL);
}

} // namespace

} // namespace remora::test
