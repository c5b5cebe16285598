// SPDX-License-Identifier: GPL-2.0
// A node restarts: what a handle had there is told once, then it goes on, and nothing that began
// before reaches the new node.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "async.hpp"
#include "backend.hpp"
#include "bus_error.hpp"
#include "mappable.hpp"
#include "remote/remote.hpp"

namespace remora::test {

namespace {

using Told = std::map<raddr_t, std::uint64_t>;

// A stopped node's machine may refuse the port, or say nothing.
bool is_unreachable(int error) {
    return error == -EHOSTUNREACH || error == -ECONNREFUSED || error == -EPROTO;
}

class LostNothing : public Backends {};

INSTANTIATE_TEST_SUITE_P(Lib, LostNothing, testing::ValuesIn(kinds()), kind_name);

TEST_P(LostNothing, NothingIsToldAndNothingChanges) {
    raddr_t a = alloc(100), address = 1;
    std::uint64_t bytes = 1;
    std::uint8_t byte = 7;
    ASSERT_EQ(rwrite(r, a, &byte, 1), 0);
    EXPECT_EQ(remote_lost(r, &address, &bytes), 0);
    EXPECT_EQ(rread(r, a, &byte, 1), 0);
    EXPECT_EQ(byte, 7);
    EXPECT_EQ(remote_lost(r, nullptr, &bytes), -EINVAL);
    EXPECT_EQ(remote_lost(r, &address, nullptr), -EINVAL);
    EXPECT_EQ(remote_lost(nullptr, &address, &bytes), -EINVAL);
}

// A handle to a node that restarts: one of the test's; or the lab's, which stops it, and starts it
// again, when asked on stdout, and answers by a line.
class Lost : public testing::Test {
protected:
    Lost() {
        if (!std::getenv("REMORA_TEST_RESTART")) {
            node = std::make_unique<TestNode>();
            port = node->port();
        }
        r = open();
        page = page_bytes_of(r);
    }
    ~Lost() override { remote_close(r); }

    // timeout_us: 0 is the library's, long enough for a node that is there on a busy machine.
    remote_t* open(std::uint64_t timeout_us = 0) {
        std::string target = port ? udp_target(port) : std::getenv("REMORA_TEST_TARGET");
        remote_options options{};
        options.size = sizeof(options);
        options.timeout_us = timeout_us;
        remote_t* opened = nullptr;
        EXPECT_EQ(remote_open(&opened, target.c_str(), &options), 0) << remote_why();
        return opened;
    }
    raddr_t alloc(std::uint64_t bytes, unsigned permission = REMOTE_RW) {
        raddr_t a = 0;
        EXPECT_EQ(ralloc(r, bytes, permission, &a), 0);
        return a;
    }
    std::uint64_t reads_done() { return counters_of(r).kind[REMOTE_KIND_READ].done; }
    void stop() {
        if (port)
            node.reset();
        else
            ask();
    }
    void start() {
        if (port)
            node = std::make_unique<TestNode>(port);
        else
            ask();
    }
    // So that the handle knows.
    void restart() {
        stop();
        start();
        std::uint8_t byte;
        EXPECT_EQ(rread(r, page, &byte, 1), -ESTALE);
    }
    // All there is to tell, until the handle has gone on.
    Told go_on() {
        Told told;
        raddr_t address = 0, before = 0;
        std::uint64_t bytes = 0;
        int more;
        for (; (more = remote_lost(r, &address, &bytes)) == 1; before = address) {
            EXPECT_GT(address, before);
            EXPECT_TRUE(told.emplace(address, bytes).second);
        }
        EXPECT_EQ(more, 0) << remote_why();
        return told;
    }

    std::unique_ptr<TestNode> node;
    std::uint16_t port = 0; // 0: the node is the lab's
    remote_t* r = nullptr;
    std::uint64_t page = 0;

private:
    static void ask() {
        static unsigned asked = 0;
        char line[8];
        std::printf("\nnode %u\n", ++asked);
        std::fflush(stdout);
        if (!std::fgets(line, sizeof(line), stdin))
            std::abort();
    }
};

TEST_F(Lost, EachAllocationIsReportedOnceThenTheHandleWorks) {
    Told given;
    raddr_t small = alloc(100);
    given[small] = 128;
    given[alloc(1)] = 16;
    given[alloc(16)] = 16;
    given[alloc(100, REMOTE_READ)] = page;
    given[alloc(3 * page + 1)] = 4 * page;
    raddr_t freed_small = alloc(16), freed = alloc(page), wanted = 0;
    ASSERT_EQ(rfree(r, freed_small), 0);
    ASSERT_EQ(rfree(r, freed), 0);
    ASSERT_GE(remote_alloc_at(r, 1000 * page, page, REMOTE_RW | REMOTE_ANYWHERE, &wanted), 0);
    given[wanted] = page;
    restart();
    EXPECT_EQ(go_on(), given);
    EXPECT_TRUE(go_on().empty());

    std::uint8_t byte = 5;
    raddr_t a = alloc(page), b = alloc(10);
    EXPECT_EQ(rwrite(r, a, &byte, 1), 0);
    EXPECT_EQ(rread(r, b, &byte, 1), 0);
    EXPECT_EQ(byte, 0);
    EXPECT_EQ(rfree(r, a), 0);
    EXPECT_EQ(rfree(r, wanted), -EFAULT);
}

// A piece of a page that has room, too, for which the node needn't be asked.
TEST_F(Lost, UntilAllIsToldEverythingSaysSo) {
    raddr_t small = alloc(16), large = alloc(page), address = 0;
    std::uint64_t bytes = 0;
    restart();
    for (int told = 0; told <= 2; told++) {
        std::uint8_t byte = 0;
        EXPECT_EQ(rread(r, small, &byte, 1), -ESTALE);
        EXPECT_EQ(rwrite(r, large, &byte, 1), -ESTALE);
        EXPECT_EQ(remote_fetch(r, small, 8, REMOTE_ADD, 1, nullptr), -ESTALE);
        EXPECT_EQ(ralloc(r, 16, REMOTE_RW, &address), -ESTALE);
        EXPECT_EQ(ralloc(r, page, REMOTE_RW, &address), -ESTALE);
        EXPECT_EQ(rfree(r, small), -ESTALE);
        EXPECT_EQ(rfree(r, large), -ESTALE);
        EXPECT_EQ(rfence(r), -ESTALE);
        EXPECT_EQ(remote_lost(r, &address, &bytes), told < 2 ? 1 : 0);
    }
    EXPECT_EQ(ralloc(r, 16, REMOTE_RW, &address), 0);
}

// An allocation whose free meets the restart isn't freed, so remote_lost() reports it.
TEST_F(Lost, AllocationThatWasNotFreedIsReported) {
    raddr_t small = alloc(16), large = alloc(page);
    stop();
    start();
    EXPECT_EQ(rfree(r, large), -ESTALE);
    EXPECT_EQ(rfree(r, small), -ESTALE);
    EXPECT_EQ(go_on(), (Told{{small, 16}, {large, page}}));
}

TEST_F(Lost, ItWaitsForANodeThatCanBeReached) {
    remote_close(std::exchange(r, open(2'000'000)));
    raddr_t a = alloc(page), address = 0;
    std::uint64_t bytes = 0;
    restart();
    stop();
    EXPECT_EQ(remote_lost(r, &address, &bytes), 1);
    EXPECT_EQ(address, a);
    EXPECT_TRUE(is_unreachable(remote_lost(r, &address, &bytes)));
    EXPECT_NE(std::string(remote_why()), "");
    EXPECT_EQ(ralloc(r, page, REMOTE_RW, &address), -ESTALE);
    start();
    EXPECT_TRUE(go_on().empty());
    alloc(page);
}

TEST_F(Lost, ItMayRestartAgain) {
    for (int boot = 0; boot < 5; boot++) {
        raddr_t a = alloc(page);
        restart();
        EXPECT_EQ(go_on(), (Told{{a, page}}));
    }
    const remote_counters counters = counters_of(r);
    EXPECT_EQ(counters.kind[REMOTE_KIND_READ].failed, 5U) << "since the handle was opened";
}

TEST_F(Lost, TogetherTheyAreToldEachOnce) {
    constexpr int count = 400;
    std::vector<raddr_t> given;
    for (int i = 0; i < count; i++)
        given.push_back(alloc(i % 100 ? 1024 : page));
    restart();
    std::vector<raddr_t> told[4];
    std::vector<std::thread> threads;
    for (std::vector<raddr_t>& mine : told) {
        threads.emplace_back([&] {
            raddr_t address = 0;
            std::uint64_t bytes = 0;
            int more;
            while ((more = remote_lost(r, &address, &bytes)) == 1)
                mine.push_back(address);
            EXPECT_EQ(more, 0);
            EXPECT_EQ(ralloc(r, 16, REMOTE_RW, &address), 0) << "it has gone on";
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    std::vector<raddr_t> all;
    for (const std::vector<raddr_t>& mine : told)
        all.insert(all.end(), mine.begin(), mine.end());
    std::ranges::sort(all);
    std::ranges::sort(given);
    EXPECT_EQ(all, given);
}

// Each thread has a handle; they recover one after the other between restarts, and during them.
TEST_F(Lost, ManyHandlesRecoverFromRepeatedRestarts) {
    constexpr int count = 4, restarts = 3;
    std::atomic<int> went_on[count]{};
    std::atomic<bool> stopped{false};
    auto live = [&](std::size_t which, remote_t* mine) {
        raddr_t a = 0, lost = 0;
        std::uint64_t bytes = 0;
        for (std::uint64_t round = which; !stopped; round += count) {
            std::uint64_t found = 0;
            int error = a ? 0 : ralloc(mine, page, REMOTE_RW, &a);
            if (!error)
                error = rwrite(mine, a, &round, sizeof(round));
            if (!error)
                error = rread(mine, a, &found, sizeof(found));
            if (!error) {
                EXPECT_EQ(found, round);
                continue;
            }
            if (error == -ETIMEDOUT) // while there is no node
                continue;
            ASSERT_EQ(error, -ESTALE);
            int told;
            while ((told = remote_lost(mine, &lost, &bytes)) == 1)
                EXPECT_EQ(lost, a);
            if (is_unreachable(told))
                continue;
            ASSERT_EQ(told, 0) << remote_why();
            a = 0;
            went_on[which]++;
        }
        EXPECT_EQ(a ? rfree(mine, a) : 0, 0);
        remote_close(mine);
    };
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; i++)
        threads.emplace_back(live, i, open());
    for (int boot = 1; boot <= restarts; boot++) {
        stop();
        start();
        for (std::atomic<int>& each : went_on) {
            while (each < boot)
                std::this_thread::yield();
        }
    }
    stopped = true;
    for (std::thread& thread : threads)
        thread.join();
    // One that slept through all of it.
    std::uint8_t byte;
    EXPECT_EQ(rread(r, page, &byte, 1), -ESTALE);
    go_on();
    alloc(page);
}

// ---- what began before ----

// The same address at the new node, of another owner.
TEST_F(Lost, AsynchronousOnesEndAndArePolled) {
    raddr_t a = alloc(page), again = 0;
    std::uint8_t byte = 1;
    stop();
    AsyncOp ops[3];
    for (AsyncOp& op : ops) // the second and third wait for the first
        ASSERT_EQ(write_async(r, a, &byte, 1, &op), 0);
    start();
    EXPECT_EQ(poll_all(r, &ops[0], 1, UINT64_MAX), -ESTALE);
    go_on();
    ASSERT_EQ(remote_alloc_at(r, a, page, REMOTE_RW, &again), 0);
    EXPECT_EQ(cancel(r, &ops[1]), 0);
    EXPECT_EQ(poll_all(r, ops, 3, UINT64_MAX), -ESTALE);
    EXPECT_EQ(ops[1].result, -ESTALE);
    EXPECT_EQ(ops[2].result, -ESTALE);
    EXPECT_EQ(rread(r, again, &byte, 1), 0);
    EXPECT_EQ(byte, 0);
}

TEST_F(Lost, AMappingOfBeforeNeverWrites) {
    SKIP_UNLESS_MAPPABLE();
    raddr_t a = alloc(64 * page), again = 0;
    void* memory = nullptr;
    ASSERT_EQ(remote_mmap(r, a, 64 * page, REMOTE_RW, nullptr, &memory), 0) << remote_why();
    auto* mapped = static_cast<std::uint8_t*>(memory);
    mapped[0] = 1;
    mapped[page] = 2;
    ASSERT_EQ(remote_msync(r, mapped + page, 4096), 0);
    restart();
    go_on();
    ASSERT_EQ(remote_alloc_at(r, a, 64 * page, REMOTE_RW, &again), 0);
    std::vector<std::uint8_t> data(page, 9), back(page);
    ASSERT_EQ(rwrite(r, again, data.data(), page), 0);
    mapped[0] = 4; // is here
    EXPECT_EQ(bus_error_at(mapped + 40 * page), mapped + 40 * page);
    EXPECT_EQ(remote_msync(r, mapped, 64 * page), -ESTALE);
    EXPECT_EQ(remote_msync(r, mapped + page, 4096), -ESTALE) << "what was written is lost";
    EXPECT_EQ(remote_munmap(r, mapped), -ESTALE);
    EXPECT_EQ(rread(r, again, back.data(), page), 0);
    EXPECT_EQ(back, data);

    ASSERT_EQ(remote_mmap(r, again, page, REMOTE_RW, nullptr, &memory), 0) << remote_why();
    mapped = static_cast<std::uint8_t*>(memory);
    EXPECT_EQ(mapped[100], 9);
    mapped[100] = 8;
    EXPECT_EQ(remote_munmap(r, memory), 0);
    EXPECT_EQ(rread(r, again + 100, back.data(), 1), 0);
    EXPECT_EQ(back[0], 8);
}

TEST_F(Lost, AMappingMayOutliveIt) {
    SKIP_UNLESS_MAPPABLE();
    raddr_t a = alloc(page);
    void* memory = nullptr;
    ASSERT_EQ(remote_mmap(r, a, page, REMOTE_RW, nullptr, &memory), 0) << remote_why();
    *static_cast<std::uint8_t*>(memory) = 1;
    restart();
    go_on();
    remote_close(std::exchange(r, nullptr));
}

TEST_F(Lost, LocksArentHeldAnyMore) {
    raddr_t lock = alloc(REMOTE_LOCK_BYTES), again = 0;
    ASSERT_EQ(rlock(r, lock), 0);
    restart();
    EXPECT_EQ(runlock(r, lock), -ESTALE);
    go_on();
    EXPECT_EQ(runlock(r, lock), -EPERM);
    EXPECT_EQ(remote_lock_extend(r, lock), -EPERM);
    again = alloc(REMOTE_LOCK_BYTES);
    EXPECT_EQ(rlock(r, again), 0);
    EXPECT_EQ(runlock(r, again), 0);
}

// The waiters poll, and the restarted node would show them a value.
TEST_F(Lost, WaitersEndWithTheRestart) {
    raddr_t a = alloc(page), again = 0;
    raddr_t lock = a, integer = a + 64;
    ASSERT_EQ(rlock(r, lock), 0);
    std::uint64_t before = reads_done();
    std::thread waiter(
        [&] { EXPECT_EQ(remote_wait(r, integer, 8, REMOTE_EQ, 1, UINT64_MAX, nullptr), -ESTALE); });
    while (reads_done() == before) // until the waiter has seen the integer
        std::this_thread::yield();
    std::thread locker([&] { EXPECT_EQ(rlock(r, lock), -ESTALE); });
    // Until the locker has drawn its ticket.
    EXPECT_EQ(remote_wait(r, lock + 8, 4, REMOTE_EQ, 2, UINT64_MAX, nullptr), 0);
    restart();
    go_on();
    ASSERT_EQ(remote_alloc_at(r, a, page, REMOTE_RW, &again), 0);
    std::uint64_t one = 1;
    EXPECT_EQ(rwrite(r, integer, &one, 8), 0);
    EXPECT_EQ(rwrite(r, lock, &one, 8), 0);
    locker.join();
    waiter.join();
}

TEST_F(Lost, BuffersStayRegistered) {
    std::vector<std::uint8_t> buffer(page);
    ASSERT_EQ(remote_register(r, buffer.data(), buffer.size()), 0);
    restart();
    go_on();
    raddr_t a = alloc(page);
    EXPECT_EQ(rwrite(r, a, buffer.data(), buffer.size()), 0);
    EXPECT_EQ(remote_register(r, buffer.data(), 1), -EEXIST);
    EXPECT_EQ(remote_unregister(r, buffer.data()), 0);
}

// With an operation to be polled, and a mapping, of before.
TEST_F(Lost, AChildMayCloseIt) {
    SKIP_UNLESS_MAPPABLE();
    raddr_t a = alloc(page), address = 0;
    std::uint64_t bytes = 0;
    void* memory = nullptr;
    ASSERT_EQ(remote_mmap(r, a, page, REMOTE_RW, nullptr, &memory), 0) << remote_why();
    std::uint8_t byte = 1;
    AsyncOp op;
    ASSERT_EQ(write_async(r, a, &byte, 1, &op), 0);
    restart();
    go_on();
    pid_t child = fork();
    if (!child) {
        bool refused = remote_lost(r, &address, &bytes) == -ECHILD;
        remote_close(r);
        _exit(refused ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    alloc(page);
    EXPECT_LE(poll_all(r, &op, 1, UINT64_MAX),
              0); // the operation may have ended before the restart
}

TEST(LostCpp, RegionsOneByOne) {
    auto node = std::make_unique<TestNode>();
    auto handle = remote::handle::open(udp_target(node->port()).c_str());
    ASSERT_TRUE(handle) << remote_why();
    auto a = handle->alloc(1 << 20);
    ASSERT_TRUE(a);
    EXPECT_FALSE(handle->lost().value());
    std::uint16_t port = node->port();
    node.reset();
    node = std::make_unique<TestNode>(port);
    EXPECT_EQ(handle->free(*a).error(), -ESTALE);
    auto region = handle->lost();
    ASSERT_TRUE(region && *region);
    EXPECT_EQ((*region)->address, *a);
    EXPECT_EQ((*region)->bytes, 1U << 20);
    EXPECT_FALSE(handle->lost().value());
    EXPECT_TRUE(handle->alloc(100));
    EXPECT_EQ(remote::handle().lost().error(), -EINVAL);
}

} // namespace

} // namespace remora::test
