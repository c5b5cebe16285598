// SPDX-License-Identifier: GPL-2.0
// Operations of several messages by queues: allocation, freeing and locks.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "backend.hpp"
#include "patience.hpp"
#include "remote/coroutine.hpp"
#include "remote/lock.h"
#include "remote/queue.h"

namespace remora::test {

namespace {

constexpr std::uint64_t forever = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t long_lease_us = 120'000'000;

class Steps : public Backends {
protected:
    Steps() { EXPECT_EQ(remote_queue_open(&q, r, nullptr), 0); }
    ~Steps() override { remote_queue_close(q); }

    bool is_device() const { return target().starts_with("dev:"); }
    void submit(const remote_op& op, remote_queue_t* to = nullptr) const {
        ASSERT_EQ(remote_queue_submit(to ? to : q, &op, 1), 1);
    }
    // The result of the one completion that comes next.
    int take(remote_queue_t* from = nullptr) const {
        remote_completion done{};
        EXPECT_EQ(remote_queue_wait(from ? from : q, &done, 1, 1, forever), 1);
        return done.result;
    }
    int run(const remote_op& op) const {
        submit(op);
        return take();
    }
    std::uint32_t tickets(raddr_t lock) {
        std::uint32_t next = 0;
        EXPECT_EQ(rread(r, lock + 8, &next, sizeof(next)), 0);
        return next;
    }
    raddr_t make_lock() {
        const raddr_t lock = alloc(REMOTE_LOCK_BYTES);
        EXPECT_EQ(remote_lock_init(r, lock, long_lease_us), 0);
        return lock;
    }

    const Watchdog watchdog{"an operation of several messages"};
    remote_queue_t* q = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Lib, Steps, testing::ValuesIn(kinds()), kind_name);

// ---- memory ----

TEST_P(Steps, AllocatedMemoryIsZeroAndGoneWhenFreed) {
    raddr_t a = 0;
    if (is_device()) {
        const remote_op ops[] = {remote_op_alloc(0, 64, REMOTE_RW, &a, 1), remote_op_free(8, 2)};
        EXPECT_EQ(remote_queue_submit(q, &ops[0], 1), -EOPNOTSUPP);
        EXPECT_EQ(remote_queue_submit(q, &ops[1], 1), -EOPNOTSUPP);
        return;
    }
    for (const std::size_t bytes : {std::size_t{40}, std::size_t{300'000}}) {
        EXPECT_EQ(run(remote_op_alloc(0, bytes, REMOTE_RW, &a, 1)), 0);
        std::vector<std::uint8_t> data(bytes, 7), back(bytes, 1);
        ASSERT_EQ(rread(r, a, back.data(), bytes), 0);
        EXPECT_EQ(std::ranges::count(back, 0), static_cast<std::ptrdiff_t>(bytes));
        ASSERT_EQ(rwrite(r, a, data.data(), bytes), 0);
        EXPECT_EQ(run(remote_op_free(a, 2)), 0);
        EXPECT_EQ(run(remote_op_free(a, 3)), -EFAULT);
        EXPECT_EQ(rfree(r, a), -EFAULT);
        EXPECT_EQ(rread(r, a, back.data(), bytes), -EFAULT) << "its page wasn't given back";
    }
}

TEST_P(Steps, ManyAtOnceAreApart) {
    if (is_device())
        return;
    constexpr std::size_t count = 48;
    std::array<raddr_t, count> at{};
    std::vector<remote_op> ops;
    for (std::size_t n = 0; n < count; n++)
        ops.push_back(remote_op_alloc(0, n % 3 ? 100 : 70'000, REMOTE_RW, &at[n], n));
    ASSERT_EQ(remote_queue_submit(q, ops.data(), count), static_cast<int>(count));
    for (std::size_t n = 0; n < count; n++)
        EXPECT_EQ(take(), 0);
    std::ranges::sort(at);
    for (std::size_t n = 0; n + 1 < count; n++)
        EXPECT_GE(at[n + 1] - at[n], 100U);
    // Each by the other way than it was allocated, too.
    for (std::size_t n = 0; n < count; n += 2)
        EXPECT_EQ(rfree(r, at[n]), 0);
    ops.clear();
    for (std::size_t n = 1; n < count; n += 2)
        ops.push_back(remote_op_free(at[n], n));
    ASSERT_EQ(remote_queue_submit(q, ops.data(), ops.size()), static_cast<int>(ops.size()));
    for (std::size_t n = 0; n < ops.size(); n++)
        EXPECT_EQ(take(), 0);
}

TEST_P(Steps, WantedAddressIsHadOrRefusedWithoutALeak) {
    if (is_device())
        return;
    const std::uint64_t page = page_bytes_of(r);
    raddr_t a = 0, b = 0;
    ASSERT_EQ(run(remote_op_alloc(0, page, REMOTE_RW, &a, 1)), 0);
    std::array<remote_region, 64> regions{};
    const int before = remote_list(r, 0, regions.data(), regions.size());
    EXPECT_EQ(run(remote_op_alloc(a, page, REMOTE_RW, &b, 1)), -EADDRNOTAVAIL);
    EXPECT_EQ(remote_list(r, 0, regions.data(), regions.size()), before);
    EXPECT_EQ(b, 0U);
    EXPECT_EQ(run(remote_op_alloc(a, page, REMOTE_RW | REMOTE_ANYWHERE, &b, 1)), 1);
    EXPECT_NE(b, a);
    EXPECT_EQ(run(remote_op_free(b, 1)), 0);
    EXPECT_EQ(run(remote_op_free(a, 1)), 0);
}

TEST_P(Steps, FreeWaitsForOperationsOnTheMemory) {
    if (is_device())
        return;
    const std::uint64_t bytes = 200'000;
    const raddr_t a = alloc(bytes);
    std::vector<std::uint8_t> data(bytes, 3), back(bytes);
    const remote_op ops[] = {remote_op_write(a, data.data(), bytes, 0),
                             remote_op_read(a, back.data(), bytes, 1), remote_op_free(a, 2),
                             remote_op_read(a, data.data(), 8, 3)};
    ASSERT_EQ(remote_queue_submit(q, ops, 4), 4);
    std::array<remote_completion, 4> done{};
    ASSERT_EQ(remote_queue_wait(q, done.data(), 4, 4, forever), 4);
    for (const remote_completion& each : done)
        EXPECT_EQ(each.result, each.user_data == 3 ? -EFAULT : 0) << each.user_data;
    EXPECT_EQ(back, std::vector<std::uint8_t>(bytes, 3));
}

TEST_P(Steps, OperationLinkedBehindAFreeOfItsMemoryEnds) {
    if (is_device())
        return;
    std::uint8_t byte = 0;
    const raddr_t a = alloc(200'000);
    std::array<remote_op, 3> row{remote_op_write(a, &byte, 1, 0), remote_op_free(a, 1),
                                 remote_op_read(a, &byte, 1, 2)};
    row[0].flags = row[1].flags = REMOTE_OP_LINK;
    ASSERT_EQ(remote_queue_submit(q, row.data(), 3), 3);
    EXPECT_EQ(take(), 0);
    EXPECT_EQ(take(), 0);
    EXPECT_EQ(take(), -EFAULT);
}

TEST_P(Steps, InvalidOnesAreRefused) {
    raddr_t a = 0;
    const int memory = is_device() ? -EOPNOTSUPP : -EINVAL;
    for (const remote_op& op :
         {remote_op_alloc(0, 0, REMOTE_RW, &a, 1), remote_op_alloc(0, 8, REMOTE_WRITE, &a, 1),
          remote_op_alloc(0, 8, REMOTE_RW | REMOTE_ANYWHERE, &a, 1),
          remote_op_alloc(0, 8, REMOTE_RW, nullptr, 1)})
        EXPECT_EQ(remote_queue_submit(q, &op, 1), memory);
    for (const remote_op& op :
         {remote_op_lock(4, 1), remote_op_lock(0, 1), remote_op_unlock(12, 1)})
        EXPECT_EQ(remote_queue_submit(q, &op, 1), -EINVAL);
    EXPECT_EQ(run(remote_op_lock(raddr_t{1} << 50, 1)), -EFAULT);
    EXPECT_EQ(run(remote_op_unlock(alloc(64), 1)), -EPERM);
}

// ---- locks ----

// The protected sum is changed by a read and a write, which together aren't atomic.
TEST_P(Steps, OneHolderAtATime) {
    const raddr_t lock = make_lock(), sum = alloc(8);
    const int rounds = is_slow() ? 10 : 60;
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&, t] {
            remote_queue_t* mine = nullptr;
            ASSERT_EQ(remote_queue_open(&mine, r, nullptr), 0);
            for (int i = 0; i < rounds; i++) {
                std::uint64_t value = 0;
                remote_op row[] = {remote_op_lock(lock, 0),
                                   remote_op_read(sum, &value, sizeof(value), 1)};
                row[0].flags = REMOTE_OP_LINK;
                if (t % 2) {
                    ASSERT_EQ(rlock(r, lock), 0);
                    ASSERT_EQ(rread(r, sum, &value, sizeof(value)), 0);
                } else {
                    ASSERT_EQ(remote_queue_submit(mine, row, 2), 2);
                    ASSERT_EQ(take(mine), 0);
                    ASSERT_EQ(take(mine), 0);
                }
                value++;
                remote_op last[] = {remote_op_write(sum, &value, sizeof(value), 2),
                                    remote_op_unlock(lock, 3)};
                last[0].flags = REMOTE_OP_LINK;
                ASSERT_EQ(remote_queue_submit(mine, last, 2), 2);
                ASSERT_EQ(take(mine), 0);
                ASSERT_EQ(take(mine), 0);
            }
            remote_queue_close(mine);
        });
    }
    threads.clear();
    std::uint64_t value = 0;
    ASSERT_EQ(rread(r, sum, &value, sizeof(value)), 0);
    EXPECT_EQ(value, static_cast<std::uint64_t>(4 * rounds));
}

// An UNLOCK and a RELEASE wait for the operations in flight.
TEST_P(Steps, UnlocksAndReleasesEndOnceBesideAThreadThatReads) {
    const raddr_t lock = make_lock(), a = alloc(100'000);
    const std::jthread reader([&](const std::stop_token& stop) {
        std::vector<std::uint8_t> data(100'000);
        while (!stop.stop_requested())
            EXPECT_EQ(rread(r, a, data.data(), data.size()), 0);
    });
    for (int i = 0; i < 50; i++) {
        ASSERT_EQ(run(remote_op_lock(lock, 1)), 0);
        ASSERT_EQ(run(remote_op_unlock(lock, 1)), 0);
        ASSERT_EQ(run(remote_op_release(1)), 0);
    }
}

TEST_P(Steps, ThreadThatTakesALockTwiceIsRefused) {
    const raddr_t lock = make_lock();
    EXPECT_EQ(run(remote_op_lock(lock, 1)), 0);
    EXPECT_EQ(run(remote_op_lock(lock, 1)), -EDEADLK);
    EXPECT_EQ(rlock(r, lock), -EDEADLK);
    EXPECT_EQ(remote_lock_extend(r, lock), 0);
    EXPECT_EQ(run(remote_op_unlock(lock, 1)), 0);
    EXPECT_EQ(run(remote_op_unlock(lock, 1)), -EPERM);
    EXPECT_EQ(tickets(lock), 1U);
}

TEST_P(Steps, SecondLockOfAThreadIsRefusedWhileTheFirstWaits) {
    if (!is_shared())
        return; // the submission waits
    const raddr_t lock = make_lock();
    std::atomic<bool> over = false;
    std::atomic<bool> held = false;
    std::thread holder([&] {
        EXPECT_EQ(rlock(r, lock), 0);
        held = true;
        EXPECT_TRUE(comes_true([&] { return over.load(); }));
        EXPECT_EQ(runlock(r, lock), 0);
    });
    EXPECT_TRUE(comes_true([&] { return held.load(); }));
    remote_op ops[] = {remote_op_lock(lock, 1), remote_op_lock(lock, 2)};
    ASSERT_EQ(remote_queue_submit(q, ops, 2), 2);
    remote_completion done{};
    ASSERT_EQ(remote_queue_wait(q, &done, 1, 1, forever), 1);
    EXPECT_EQ(done.user_data, 2U);
    EXPECT_EQ(done.result, -EDEADLK);
    EXPECT_EQ(rlock(r, lock), -EDEADLK);
    over = true;
    holder.join();
    EXPECT_EQ(take(), 0);
    EXPECT_EQ(run(remote_op_unlock(lock, 3)), 0);
}

// Held by another thread of this handle until the end of the test, or give().
class Contended : public Steps {
protected:
    Contended() {
        lock = make_lock();
        holder = std::thread([this] {
            EXPECT_EQ(rlock(r, lock), 0);
            held = true;
            EXPECT_TRUE(comes_true([&] { return is_over.load(); }));
            std::uint64_t data = 5;
            if (bytes) {
                EXPECT_EQ(rwrite(r, bytes, &data, sizeof(data)), 0);
            }
            EXPECT_EQ(runlock(r, lock), 0);
        });
        EXPECT_TRUE(comes_true([&] { return held.load(); }));
    }
    ~Contended() override { give(); }
    void give() {
        is_over = true;
        if (holder.joinable())
            holder.join();
    }
    // Until the LOCK waits for its turn. A thread has to wait for that to make progress.
    void wait_for_ticket(std::uint32_t count) {
        remote_completion done{};
        EXPECT_TRUE(comes_true([&] {
            EXPECT_EQ(remote_queue_wait(q, &done, 1, 1, 1000), 0);
            return tickets(lock) == count;
        }));
        // The answer is there, too: the operation reads the turn now.
        const std::uint64_t reads = counters_of(r).kind[REMOTE_KIND_READ].done;
        EXPECT_TRUE(comes_true([&] {
            EXPECT_EQ(remote_queue_wait(q, &done, 1, 1, 1000), 0);
            return counters_of(r).kind[REMOTE_KIND_READ].done >= reads + 2;
        }));
    }

    raddr_t lock = 0;
    std::atomic<raddr_t> bytes = 0; // the holder writes there, before it gives the lock back
    std::atomic<bool> held = false, is_over = false;
    std::thread holder;
};

INSTANTIATE_TEST_SUITE_P(Lib, Contended, testing::ValuesIn([] {
                             std::vector<Kind> shared = kinds();
                             std::erase(shared, Kind::embedded);
                             return shared;
                         }()),
                         kind_name);

// Nothing but the lock is in flight. When the thread that watched over its pauses leaves, another
// one has to.
TEST_P(Contended, ThreadThatWaitsGetsTheLockAfterOthersHaveLeft) {
    submit(remote_op_lock(lock, 1));
    wait_for_ticket(2);
    std::atomic<int> taken = 0;
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; t++) {
        threads.emplace_back([&, t] {
            remote_completion done{};
            // The first ones leave early.
            const int count =
                remote_queue_wait(q, &done, 1, 1, t == 2 ? forever : 20'000U * (t + 1));
            EXPECT_LE(count, 1);
            if (count == 1) {
                EXPECT_EQ(done.result, 0);
            }
            taken += count;
        });
    }
    threads[0].join();
    threads[1].join();
    give();
    threads[2].join();
    EXPECT_EQ(taken, 1);
    EXPECT_EQ(run(remote_op_unlock(lock, 2)), 0);
}

// In the meantime its turn came.
TEST_P(Contended, CancelledLockLeavesItsPlaceToTheNextOne) {
    submit(remote_op_lock(lock, 1));
    wait_for_ticket(2);
    EXPECT_EQ(remote_queue_cancel(q, 1), 1);
    EXPECT_EQ(take(), -ECANCELED);
    give();
    EXPECT_EQ(run(remote_op_unlock(lock, 1)), -EPERM);
    EXPECT_EQ(run(remote_op_lock(lock, 2)), 0);
    EXPECT_EQ(tickets(lock), 2U) << "another one was drawn";
    EXPECT_EQ(run(remote_op_unlock(lock, 3)), 0);
}

TEST_P(Contended, LockEndsAtItsTimeout) {
    remote_op op = remote_op_lock(lock, 1);
    op.timeout_us = is_slow() ? 1'000'000 : 100'000;
    EXPECT_EQ(run(op), -ETIMEDOUT);
    give();
    EXPECT_EQ(run(remote_op_lock(lock, 2)), 0);
    EXPECT_EQ(run(remote_op_unlock(lock, 3)), 0);
}

// Else the holder would wait for its own waiter.
TEST_P(Contended, HolderDoesNotWaitForALockNorForTheRowBehindIt) {
    bytes = alloc(8);
    std::uint64_t data = 9;
    remote_op row[] = {remote_op_lock(lock, 1), remote_op_write(bytes, &data, sizeof(data), 2),
                       remote_op_unlock(lock, 3)};
    row[0].flags = row[1].flags = REMOTE_OP_LINK;
    ASSERT_EQ(remote_queue_submit(q, row, 3), 3);
    wait_for_ticket(2);
    EXPECT_EQ(remote_release(r), 0);
    EXPECT_EQ(remote_fence(r), 0);
    give();
    for (int n = 0; n < 3; n++)
        EXPECT_EQ(take(), 0);
    std::uint64_t found = 0;
    ASSERT_EQ(rread(r, bytes, &found, sizeof(found)), 0);
    EXPECT_EQ(found, 9U);
}

TEST_P(Contended, OperationBehindALockIsCancelledAtOnce) {
    const raddr_t at = alloc(8);
    std::uint64_t data = 9, back = 0;
    remote_op row[] = {remote_op_lock(lock, 1), remote_op_write(at, &data, sizeof(data), 2),
                       remote_op_read(at, &back, sizeof(back), 3)};
    row[0].flags = row[1].flags = REMOTE_OP_LINK;
    ASSERT_EQ(remote_queue_submit(q, row, 3), 3);
    EXPECT_EQ(remote_queue_cancel(q, 2), 1);
    EXPECT_EQ(take(), -ECANCELED);
    EXPECT_EQ(take(), -ECANCELED);
    give();
    EXPECT_EQ(take(), 0) << "the lock isn't cancelled";
    EXPECT_EQ(run(remote_op_unlock(lock, 4)), 0);
}

TEST_P(Contended, CloseEndsALockThatWaits) {
    submit(remote_op_lock(lock, 1));
    wait_for_ticket(2);
    remote_queue_close(std::exchange(q, nullptr));
}

// ---- C++ ----

TEST_P(Steps, CoroutineAllocatesUnderALock) {
    const raddr_t lock = make_lock();
    remote::result<remote::handle> opened = remote::handle::open(target().c_str());
    if (!is_shared() || is_device())
        return;
    ASSERT_TRUE(opened) << opened.error();
    remote::loop loop(*opened);
    auto work = [](remote::loop& in, raddr_t word) -> remote::task {
        raddr_t a = 0;
        std::array<std::byte, 8> data{std::byte{1}}, back{};
        if (auto held = co_await in.lock(word); !held)
            co_return held.error();
        if (auto made = co_await in.alloc(1000, a); !made)
            co_return made.error();
        if (auto written = co_await in.write(a, data); !written)
            co_return written.error();
        if (auto read = co_await in.read(a, back); !read)
            co_return read.error();
        if (auto freed = co_await in.free(a); !freed)
            co_return freed.error();
        auto given = co_await in.unlock(word);
        co_return back == data ? given.error() : -EIO;
    };
    remote::task task = work(loop, lock);
    loop.run();
    EXPECT_EQ(task.error(), 0);
}

// ---- with a network that keeps messages back ----

class StepsHeld : public testing::Test {
protected:
    StepsHeld() {
        options.size = sizeof(options);
        options.timeout_us = forever;
        EXPECT_EQ(remote_open(&r, udp_target(relay.port()).c_str(), &options), 0);
        EXPECT_EQ(remote_open(&direct, udp_target(node.port()).c_str(), &options), 0);
        EXPECT_EQ(ralloc(r, 1 << 20, REMOTE_RW, &a), 0);
        EXPECT_EQ(remote_queue_open(&q, r, nullptr), 0);
    }
    ~StepsHeld() override {
        remote_queue_close(q);
        remote_close(direct);
        remote_close(r);
    }
    void submit(const remote_op& op) { ASSERT_EQ(remote_queue_submit(q, &op, 1), 1); }
    int take() {
        remote_completion done{};
        EXPECT_EQ(remote_queue_wait(q, &done, 1, 1, forever), 1);
        return done.result;
    }
    void keep(unsigned type) {
        relay.keep([type](const rmem_head& head) { return head.type == type; });
    }
    void wait_for_kept() {
        EXPECT_TRUE(comes_true([&] { return relay.kept() > 0; }));
    }
    void send_kept() {
        relay.keep(nullptr);
        relay.send_kept();
    }
    // The user_data of the next completion, whose result is 0.
    std::uint64_t take_next() {
        remote_completion done{};
        EXPECT_EQ(remote_queue_wait(q, &done, 1, 1, forever), 1);
        EXPECT_EQ(done.result, 0) << done.user_data;
        return done.user_data;
    }
    // Handles the answers that have arrived; no operation ends.
    void look() {
        remote_completion done{};
        EXPECT_EQ(remote_queue_wait(q, &done, 1, 0, 0), 0) << done.user_data;
    }
    void keep_answers(rmem_type type) { keep(unsigned{type} | RMEM_RESPONSE); }
    std::uint32_t word(raddr_t at) {
        std::uint32_t value = 0;
        EXPECT_EQ(rread(direct, at, &value, sizeof(value)), 0);
        return value;
    }
    // Number of extensions of the present turn.
    std::uint32_t extensions(raddr_t lock) { return word(lock) >> 1; }
    int regions() {
        std::array<remote_region, 256> found{};
        return remote_list(direct, 0, found.data(), found.size());
    }
    // A WRITE of user_data 1 is kept, and the node has executed the ALLOC of user_data 2.
    void allocate_behind_a_write() {
        keep(RMEM_WRITE);
        submit(remote_op_write(a, &datum, sizeof(datum), 1));
        wait_for_kept();
        submit(remote_op_alloc(0, 70'000, REMOTE_RW, &made, 2));
        EXPECT_TRUE(comes_true([&] {
            remote_completion done{};
            EXPECT_EQ(remote_queue_wait(q, &done, 1, 1, 1000), 0);
            return regions() == 2;
        }));
    }

    const Watchdog watchdog{"an operation of several messages beside a node that is held"};
    remote_options options{};
    TestNode node;
    Relay relay{node.port(), 0};
    remote_t *r = nullptr, *direct = nullptr;
    remote_queue_t* q = nullptr;
    raddr_t a = 0, made = 0;
    std::uint64_t datum = 1;
};

// Cancelled while the ticket is drawn. Each round is one of a fresh lock. The library waits for the
// answer for a bounded time, so a round that took this thread too long shows nothing.
TEST_F(StepsHeld, CancelledLockKeepsTheTicketThatIsJustBeingDrawn) {
    for (int round = 0;; round++) {
        ASSERT_LT(round, 100) << "no round was quick enough";
        const raddr_t lock = a + 64 * static_cast<unsigned>(round);
        // A lost ticket costs the lease, and then tells.
        ASSERT_EQ(remote_lock_init(direct, lock, 5'000'000), 0);
        ASSERT_EQ(rlock(direct, lock), 0);
        keep(RMEM_ATOMIC);
        const auto began = std::chrono::steady_clock::now();
        submit(remote_op_lock(lock, 1));
        wait_for_kept();
        std::thread canceller([&] { EXPECT_EQ(remote_queue_cancel(q, 1), 1); });
        send_kept();
        canceller.join();
        const bool is_quick =
            std::chrono::steady_clock::now() - began < std::chrono::milliseconds(400);
        EXPECT_EQ(take(), -ECANCELED);
        ASSERT_EQ(runlock(direct, lock), 0);
        if (!is_quick)
            continue;
        submit(remote_op_lock(lock, 2));
        EXPECT_EQ(take(), 0);
        std::uint32_t next = 0;
        ASSERT_EQ(rread(direct, lock + 8, &next, sizeof(next)), 0);
        EXPECT_EQ(next, 2U) << "the ticket was lost, and another one drawn";
        submit(remote_op_unlock(lock, 3));
        EXPECT_EQ(take(), 0);
        return;
    }
}

TEST_F(StepsHeld, CancelEndsThemAllThoughTheNodeIsSilent) {
    raddr_t small = 0, large = 0, freed = 0;
    ASSERT_EQ(ralloc(r, 70'000, REMOTE_RW, &freed), 0);
    relay.cut(true);
    submit(remote_op_alloc(0, 40, REMOTE_RW, &small, 1));
    submit(remote_op_alloc(0, 70'000, REMOTE_RW, &large, 2));
    submit(remote_op_free(freed, 3));
    submit(remote_op_lock(a, 4));
    remote_op timed = remote_op_alloc(0, 70'000, REMOTE_RW, &large, 5);
    timed.timeout_us = 1000;
    submit(timed);
    EXPECT_EQ(take(), -ETIMEDOUT);
    for (std::uint64_t n = 1; n <= 4; n++) {
        EXPECT_EQ(remote_queue_cancel(q, n), 1) << n;
        EXPECT_EQ(take(), -ECANCELED) << n;
    }
    relay.cut(false);
    EXPECT_EQ(rfree(r, freed), 0);
    EXPECT_TRUE(comes_true([&] { return regions() == 1; })) << regions() << " regions";
}

// The region is the client's once an id above the ALLOC's is the oldest: the write is older.
TEST_F(StepsHeld, AllocEndsWhenTheNodeKnowsThatItIsKnown) {
    allocate_behind_a_write();
    remote_completion done{};
    EXPECT_EQ(remote_queue_wait(q, &done, 1, 1, 20'000), 0);
    send_kept();
    EXPECT_EQ(take(), 0);
    EXPECT_EQ(take(), 0);
    EXPECT_EQ(rwrite(r, made, &datum, sizeof(datum)), 0);
}

TEST_F(StepsHeld, AllocThatIsCancelledWhenTheNodeHasAllocatedLeavesNoRegion) {
    allocate_behind_a_write();
    EXPECT_EQ(remote_queue_cancel(q, 2), 1);
    EXPECT_EQ(take(), -ECANCELED);
    EXPECT_TRUE(comes_true([&] { return regions() == 1; })) << regions() << " regions";
    send_kept();
    EXPECT_EQ(take(), 0);
}

// The FREE that undoes it doesn't arrive, which another thread's cancel waits for.
TEST_F(StepsHeld, CancelIsBoundedThoughTheUndoingIsHeld) {
    relay.keep([](const rmem_head& head) { return head.type == RMEM_FREE; });
    submit(remote_op_alloc(a, 70'000, REMOTE_RW, &made, 1)); // another region is there
    remote_completion done{};
    EXPECT_TRUE(comes_true([&] {
        EXPECT_EQ(remote_queue_wait(q, &done, 1, 1, 1000), 0);
        return relay.kept() > 0;
    }));
    EXPECT_EQ(remote_queue_cancel(q, 1), 1);
    EXPECT_EQ(take(), -ECANCELED);
    relay.keep(nullptr);
    EXPECT_EQ(rfence(r), 0);
    EXPECT_TRUE(comes_true([&] { return regions() == 1; })) << regions() << " regions";
}

// An answer that is handled late leaves less of the lease than it says: others could have measured
// it since the node executed the message. None of these waits is an upper bound.
TEST_F(StepsHeld, LockIsExtendedIfItsAnswerIsHandledLate) {
    ASSERT_EQ(remote_lock_init(direct, a, long_lease_us), 0);
    submit(remote_op_lock(a, 1));
    EXPECT_TRUE(comes_true([&] { return word(a + 8) == 1; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(take(), 0);
    EXPECT_GE(extensions(a), 1U);
}

TEST_F(StepsHeld, ExtensionIsRepeatedIfItsAnswerIsHandledLate) {
    const auto lease = std::chrono::milliseconds(400);
    ASSERT_EQ(remote_lock_init(direct, a, std::chrono::microseconds(lease).count()), 0);
    submit(remote_op_lock(a, 1));
    EXPECT_TRUE(comes_true([&] { return word(a + 8) == 1; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(comes_true([&] {
        look();
        return counters_of(r).kind[REMOTE_KIND_INTEGER].done == 1;
    }));
    keep_answers(RMEM_ATOMIC);
    EXPECT_TRUE(comes_true([&] {
        look();
        return extensions(a) == 1;
    }));
    std::this_thread::sleep_for(lease / 2);
    relay.keep(nullptr);
    EXPECT_EQ(take(), 0);
    EXPECT_GE(extensions(a), 2U);
}

TEST_F(StepsHeld, LateAnswerToAnUnlockLeavesTheNextLockHeld) {
    ASSERT_EQ(remote_lock_init(direct, a, long_lease_us), 0);
    submit(remote_op_lock(a, 1));
    ASSERT_EQ(take(), 0);
    keep_answers(RMEM_ATOMIC);
    submit(remote_op_unlock(a, 2));
    EXPECT_TRUE(comes_true([&] { return word(a + 4) == 1; }));
    const std::uint64_t reads = counters_of(r).kind[REMOTE_KIND_READ].done;
    submit(remote_op_lock(a, 3));
    EXPECT_TRUE(comes_true([&] {
        look();
        return counters_of(r).kind[REMOTE_KIND_READ].done > reads;
    }));
    relay.keep(nullptr);
    EXPECT_EQ(take(), 0);
    EXPECT_EQ(take(), 0);
    EXPECT_EQ(remote_lock_extend(r, a), 0);
    submit(remote_op_unlock(a, 4));
    EXPECT_EQ(take(), 0);
}

TEST_F(StepsHeld, ReleaseWaitsForAnUnlockThatHadToWait) {
    std::uint64_t data = 1;
    ASSERT_EQ(rlock(r, a), 0);
    keep(RMEM_WRITE);
    const remote_op ops[] = {remote_op_write(a + 4096, &data, sizeof(data), 1),
                             remote_op_unlock(a, 2), remote_op_release(3)};
    ASSERT_EQ(remote_queue_submit(q, ops, 3), 3);
    wait_for_kept();
    std::thread releaser([&] {
        EXPECT_EQ(remote_release(r), 0);
        EXPECT_EQ(word(a + 4), 1U) << "the lock isn't given yet";
    });
    send_kept();
    for (std::uint64_t n = 1; n <= 3; n++)
        EXPECT_EQ(take_next(), n);
    releaser.join();
}

// The turn is the lock's first, so the memory that was freed looks like it.
TEST_F(StepsHeld, FreeWaitsForTheUnlockOfItsMemory) {
    std::uint64_t data = 1;
    raddr_t lock = 0, neighbour = 0;
    ASSERT_EQ(ralloc(r, REMOTE_LOCK_BYTES, REMOTE_RW, &lock), 0);
    ASSERT_EQ(ralloc(r, REMOTE_LOCK_BYTES, REMOTE_RW, &neighbour), 0);
    ASSERT_EQ(rlock(r, lock), 0);
    keep(RMEM_WRITE);
    const remote_op ops[] = {remote_op_write(a, &data, sizeof(data), 1), remote_op_unlock(lock, 2),
                             remote_op_free(lock, 3)};
    ASSERT_EQ(remote_queue_submit(q, ops, 3), 3);
    wait_for_kept();
    // A message that was sent before is executed when this one has ended.
    EXPECT_EQ(rread(r, a + 4096, &data, sizeof(data)), 0);
    look();
    send_kept();
    for (std::uint64_t n = 1; n <= 3; n++)
        EXPECT_EQ(take_next(), n);
    EXPECT_EQ(word(lock), 0U);
    EXPECT_EQ(word(lock + 4), 0U) << "a free slot was changed";
}

// By a handle of its own: none of its pages has room.
TEST_F(StepsHeld, SmallAllocationsOfABatchShareAPage) {
    constexpr std::size_t count = 128;
    std::array<raddr_t, count> at{};
    std::vector<remote_op> ops;
    for (std::size_t n = 0; n < count; n++)
        ops.push_back(remote_op_alloc(0, 16, REMOTE_RW, &at[n], n));
    const int before = regions();
    ASSERT_EQ(remote_queue_submit(q, ops.data(), count), static_cast<int>(count));
    for (std::size_t n = 0; n < count; n++)
        EXPECT_EQ(take(), 0);
    EXPECT_EQ(regions(), before + 1);
}

// The slots of the one that is cancelled go to none of the others, which wait for them.
TEST_F(StepsHeld, SmallAllocationEndsThoughTheOneBeforeItIsCancelled) {
    std::array<raddr_t, 2> at{};
    keep(RMEM_ALLOC);
    submit(remote_op_alloc(0, 16, REMOTE_RW, &at[0], 1));
    submit(remote_op_alloc(0, 16, REMOTE_RW, &at[1], 2));
    wait_for_kept();
    EXPECT_EQ(remote_queue_cancel(q, 1), 1);
    EXPECT_EQ(take(), -ECANCELED);
    relay.keep(nullptr);
    EXPECT_EQ(take(), 0);
    EXPECT_EQ(rfree(r, at[1]), 0);
}

} // namespace

} // namespace remora::test
