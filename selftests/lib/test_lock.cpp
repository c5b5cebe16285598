// SPDX-License-Identifier: GPL-2.0
// Locks: one holder at a time, in turn, and none that is dead for long.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <latch>
#include <mutex>
#include <thread>
#include <vector>

#include "async.hpp"
#include "backend.hpp"
#include "victim.hpp"

namespace remora::test {

namespace {

// None of what a test does meanwhile takes that long, whatever is lost on the way.
constexpr std::uint64_t long_lease_us = 120'000'000;

// Which threads had the lock, in their order. Its own mutex is for the sanitizer: of locks that the
// kernel takes for a program, by /dev/rmemN, it knows nothing.
class Turns {
public:
    void add(std::size_t thread) {
        std::lock_guard guard(lock_);
        threads_.push_back(thread);
    }
    std::vector<std::size_t> all() {
        std::lock_guard guard(lock_);
        return threads_;
    }

private:
    std::mutex lock_;
    std::vector<std::size_t> threads_;
};

class Lock : public Backends {
protected:
    // The word at an offset of the lock.
    std::uint32_t word(raddr_t lock, unsigned offset) {
        std::uint32_t value = 0;
        EXPECT_EQ(rread(r, lock + offset, &value, sizeof(value)), 0);
        return value;
    }
    // Until so many have drawn a ticket.
    void wait_for_takers(raddr_t lock, std::uint32_t count) {
        while (word(lock, 8) < count)
            std::this_thread::yield();
    }
    // By a handle that then ends without giving it back.
    void die_with(raddr_t lock) {
        std::thread([&] {
            remote_t* dead = is_shared() ? open() : r;
            ASSERT_EQ(rlock(dead, lock), 0);
            if (dead != r)
                remote_close(dead);
        }).join();
    }
};

INSTANTIATE_TEST_SUITE_P(Lib, Lock, testing::ValuesIn(kinds()), kind_name);

TEST_P(Lock, TakenAndGivenBack) {
    raddr_t lock = alloc(REMOTE_LOCK_BYTES);
    for (int i = 0; i < 10; i++) {
        ASSERT_EQ(rlock(r, lock), 0);
        ASSERT_EQ(remote_lock_extend(r, lock), 0);
        ASSERT_EQ(runlock(r, lock), 0);
    }
    EXPECT_EQ(runlock(r, lock), -EPERM);
    EXPECT_EQ(remote_lock_extend(r, lock), -EPERM);
}

TEST_P(Lock, RejectsInvalidArguments) {
    raddr_t lock = alloc(64);
    EXPECT_EQ(rlock(r, lock + 4), -EINVAL);
    EXPECT_EQ(rlock(r, 0), -EINVAL);
    EXPECT_EQ(rlock(nullptr, lock), -EINVAL);
    EXPECT_EQ(remote_lock_init(r, lock, 999), -EINVAL);
    EXPECT_EQ(remote_lock_init(r, lock, ~0ULL), -EINVAL);
    EXPECT_EQ(rlock(r, raddr_t{1} << 50), -EFAULT);
    EXPECT_EQ(rlock(r, alloc(64, REMOTE_READ)), -EACCES);
}

// The protected data is changed by a read and a write, which together aren't atomic.
TEST_P(Lock, OneHolderAtATime) {
    raddr_t lock = alloc(REMOTE_LOCK_BYTES), sum = alloc(8);
    ASSERT_EQ(remote_lock_init(r, lock, long_lease_us), 0);
    const int rounds = is_slow() ? 15 : 100;
    std::atomic<int> holders{0};
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&] {
            remote_t* mine = is_shared() ? open() : r;
            for (int i = 0; i < rounds; i++) {
                ASSERT_EQ(rlock(mine, lock), 0);
                ASSERT_EQ(++holders, 1);
                std::uint64_t value = 0;
                AsyncOp op;
                ASSERT_EQ(rread(mine, sum, &value, sizeof(value)), 0);
                value++;
                ASSERT_EQ(write_async(mine, sum, &value, sizeof(value), &op), 0);
                holders--;
                ASSERT_EQ(runlock(mine, lock), 0); // the write has ended, too
                ASSERT_EQ(poll_all(mine, &op, 1, 0), 0);
            }
            if (mine != r)
                remote_close(mine);
        });
    }
    for (std::jthread& thread : threads)
        thread.join();
    std::uint64_t value = 0;
    ASSERT_EQ(rread(r, sum, &value, sizeof(value)), 0);
    EXPECT_EQ(value, static_cast<std::uint64_t>(4 * rounds));
}

// By one handle, too, each is its own.
TEST_P(Lock, ThreadsOfOneHandle) {
    raddr_t lock = alloc(REMOTE_LOCK_BYTES), sum = alloc(8);
    ASSERT_EQ(remote_lock_init(r, lock, long_lease_us), 0);
    const int rounds = is_slow() ? 15 : 100;
    std::latch begin(4);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&] {
            begin.arrive_and_wait();
            for (int i = 0; i < rounds; i++) {
                ASSERT_EQ(rlock(r, lock), 0);
                std::uint64_t value = 0;
                ASSERT_EQ(rread(r, sum, &value, sizeof(value)), 0);
                value++;
                ASSERT_EQ(rwrite(r, sum, &value, sizeof(value)), 0);
                ASSERT_EQ(runlock(r, lock), 0);
            }
        });
    }
    for (std::jthread& thread : threads)
        thread.join();
    std::uint64_t value = 0;
    ASSERT_EQ(rread(r, sum, &value, sizeof(value)), 0);
    EXPECT_EQ(value, static_cast<std::uint64_t>(4 * rounds));
    ASSERT_EQ(rlock(r, lock), 0);
    std::thread([&] {
        EXPECT_EQ(runlock(r, lock), -EPERM);
        EXPECT_EQ(remote_lock_extend(r, lock), -EPERM);
    }).join();
    EXPECT_EQ(runlock(r, lock), 0);
}

// Takers queue while the lock is held, and get it in the order they came.
TEST_P(Lock, InTheOrderTheyCame) {
    constexpr std::uint32_t takers = 5;
    raddr_t lock = alloc(REMOTE_LOCK_BYTES);
    ASSERT_EQ(remote_lock_init(r, lock, long_lease_us), 0);
    ASSERT_EQ(rlock(r, lock), 0);
    Turns turns;
    std::vector<std::jthread> threads;
    for (std::uint32_t t = 0; t < takers; t++) {
        threads.emplace_back([&, t] {
            remote_t* mine = is_shared() ? open() : r;
            ASSERT_EQ(rlock(mine, lock), 0);
            turns.add(t);
            ASSERT_EQ(runlock(mine, lock), 0);
            if (mine != r)
                remote_close(mine);
        });
        wait_for_takers(lock, t + 2);
    }
    ASSERT_EQ(runlock(r, lock), 0);
    for (std::jthread& thread : threads)
        thread.join();
    EXPECT_EQ(turns.all(), (std::vector<std::size_t>{0, 1, 2, 3, 4}));
}

TEST_P(Lock, HolderThatLocksAgainIsRefusedAtOnce) {
    raddr_t lock = alloc(REMOTE_LOCK_BYTES);
    ASSERT_EQ(rlock(r, lock), 0);
    EXPECT_EQ(rlock(r, lock), -EDEADLK);
    EXPECT_EQ(word(lock, 8), 1U) << "a second ticket was drawn";
    EXPECT_EQ(remote_lock_extend(r, lock), 0) << "the lock is still held";
    EXPECT_EQ(runlock(r, lock), 0);
    EXPECT_EQ(rlock(r, lock), 0);
    EXPECT_EQ(runlock(r, lock), 0);
}

TEST_P(Lock, FormerHolderWithAnExpiredLeaseMayLockAgain) {
    raddr_t lock = alloc(REMOTE_LOCK_BYTES);
    ASSERT_EQ(remote_lock_init(r, lock, 50'000), 0);
    ASSERT_EQ(rlock(r, lock), 0);
    std::thread([&] {
        EXPECT_EQ(rlock(r, lock), 1);
        EXPECT_EQ(runlock(r, lock), 0);
    }).join();
    EXPECT_EQ(rlock(r, lock), 0);
    EXPECT_EQ(runlock(r, lock), 0);
}

// The system gives the id of a thread that has ended to another thread.
TEST_P(Lock, ThreadWithTheIdOfADeadHolderHoldsNothing) {
    raddr_t lock = alloc(REMOTE_LOCK_BYTES);
    ASSERT_EQ(remote_lock_init(r, lock, long_lease_us), 0);
    std::thread::id dead;
    std::thread([&] {
        dead = std::this_thread::get_id();
        ASSERT_EQ(rlock(r, lock), 0);
    }).join();
    bool has_same_id = false;
    for (int tries = 0; tries < 100 && !has_same_id; tries++) {
        std::thread([&] {
            has_same_id = std::this_thread::get_id() == dead;
            EXPECT_EQ(remote_lock_extend(r, lock), -EPERM);
            EXPECT_EQ(runlock(r, lock), -EPERM);
        }).join();
    }
    EXPECT_TRUE(has_same_id);
}

TEST_P(Lock, DeadHolderIsPassedOver) {
    raddr_t lock = alloc(REMOTE_LOCK_BYTES);
    ASSERT_EQ(remote_lock_init(r, lock, 50'000), 0);
    die_with(lock);
    EXPECT_EQ(rlock(r, lock), 1);
    EXPECT_EQ(runlock(r, lock), 0);
    EXPECT_EQ(rlock(r, lock), 0); // and that's told once
    EXPECT_EQ(runlock(r, lock), 0);
}

// A process that is killed while it holds the lock and two wait for it: they get it in turn when
// the lease has run out, and the first is told. Where the machine is so busy that another lease may
// have run out meanwhile nothing is shown: then a longer one is tried.
TEST_P(Lock, KilledHolderIsPassedOver) {
    using Clock = std::chrono::steady_clock;
    if (!is_shared())
        GTEST_SKIP() << "another process would have another node";
    std::vector<remote_t*> handles{open(), open()};
    bool in_time = false;
    for (auto lease = std::chrono::milliseconds(400); !in_time; lease *= 2) {
        ASSERT_LT(lease, std::chrono::seconds(20));
        raddr_t lock = alloc(REMOTE_LOCK_BYTES);
        ASSERT_EQ(remote_lock_init(r, lock, std::chrono::microseconds(lease).count()), 0);
        Victim holder([&] {
            remote_t* own = open();
            return own && rlock(own, lock) == 0;
        });
        ASSERT_TRUE(holder.run());
        struct Taker {
            int taken = -1, given = -1;
            Clock::time_point began{}, held{};
        };
        std::vector<Taker> takers(handles.size());
        Turns turns;
        std::vector<std::jthread> threads;
        Clock::time_point came = Clock::now();
        for (std::size_t t = 0; t < takers.size(); t++) {
            threads.emplace_back([&, t] {
                Taker& own = takers[t];
                own.began = Clock::now();
                own.taken = rlock(handles[t], lock);
                own.held = Clock::now();
                turns.add(t);
                own.given = runlock(handles[t], lock);
            });
            wait_for_takers(lock, static_cast<std::uint32_t>(t + 2));
        }
        holder.kill();
        Clock::time_point killed = Clock::now(), before = killed;
        // Waits until the killed holder has the turn; before: when that was last asked.
        for (Clock::time_point asked = killed; !word(lock, 4); asked = Clock::now())
            before = asked;
        for (std::jthread& thread : threads)
            thread.join();
        in_time = killed - came < lease && Clock::now() - before < lease;
        if (in_time) {
            EXPECT_EQ(takers[0].taken, 1);
            EXPECT_GE(takers[0].held - takers[0].began, lease);
            EXPECT_EQ(takers[1].taken, 0) << "that's told once";
            EXPECT_EQ(takers[0].given, 0);
            EXPECT_EQ(takers[1].given, 0);
            EXPECT_EQ(turns.all(), (std::vector<std::size_t>{0, 1}));
        }
    }
    for (remote_t* handle : handles)
        remote_close(handle);
}

// Not dead, only slow: it learns that the lock is another's.
TEST_P(Lock, LeaseThatRanOut) {
    raddr_t lock = alloc(REMOTE_LOCK_BYTES);
    ASSERT_EQ(remote_lock_init(r, lock, 50'000), 0);
    ASSERT_EQ(rlock(r, lock), 0);
    std::atomic<int> step{0};
    std::thread other([&] {
        EXPECT_EQ(rlock(r, lock), 1);
        step = 1;
        step.notify_one();
        step.wait(1);
        EXPECT_EQ(remote_lock_extend(r, lock), 0);
        EXPECT_EQ(runlock(r, lock), 0);
    });
    step.wait(0);
    EXPECT_EQ(remote_lock_extend(r, lock), -EPERM);
    EXPECT_EQ(runlock(r, lock), -EPERM);
    step = 2;
    step.notify_one();
    other.join();
    ASSERT_EQ(rlock(r, lock), 0);
    EXPECT_EQ(runlock(r, lock), 0);
}

// A waiter waits throughout, and the holder extends for many leases. If the machine is so busy that
// extensions come further apart than a lease, the test shows nothing and tries a longer lease.
TEST_P(Lock, ExtendedIsHeldForLonger) {
    using Clock = std::chrono::steady_clock;
    bool in_time = false;
    for (auto lease = std::chrono::milliseconds(400); !in_time; lease *= 2) {
        ASSERT_LT(lease, std::chrono::seconds(20));
        raddr_t lock = alloc(REMOTE_LOCK_BYTES);
        ASSERT_EQ(remote_lock_init(r, lock, std::chrono::microseconds(lease).count()), 0);
        ASSERT_EQ(rlock(r, lock), 0);
        std::atomic<bool> given{false};
        int taken = -1;
        bool early = false;
        std::thread other([&] {
            remote_t* mine = is_shared() ? open() : r;
            taken = rlock(mine, lock);
            early = !given;
            EXPECT_EQ(runlock(mine, lock), 0);
            if (mine != r)
                remote_close(mine);
        });
        // From before one call was made to after the next one's answer: the node did both within
        // that.
        Clock::duration gap{};
        Clock::time_point before = Clock::now(), until = Clock::time_point::max();
        auto timed = [&](int (*call)(remote_t*, raddr_t)) {
            auto asked = Clock::now();
            int error = call(r, lock);
            gap = std::max(gap, Clock::now() - before);
            before = asked;
            return error;
        };
        int extended;
        do {
            extended = timed(remote_lock_extend);
            if (until == Clock::time_point::max() && word(lock, 8) >= 2)
                until = Clock::now() + lease * 5 / 2;
        } while (extended == 0 && Clock::now() < until);
        given = true;
        int returned = timed(runlock);
        other.join();
        in_time = gap < lease;
        if (in_time) {
            EXPECT_EQ(extended, 0);
            EXPECT_EQ(returned, 0);
            EXPECT_EQ(taken, 0);
            EXPECT_FALSE(early);
        }
    }
}

// A handle whose rlock() timed out uses the same ticket in its next rlock().
TEST(LockRow, PlaceIsKeptAfterAnError) {
    TestNode node;
    Relay relay(node.port(), 0);
    remote_t *r = nullptr, *other = nullptr;
    remote_options hasty{sizeof(hasty), 1'000'000, REMOTE_DIGEST, 0};
    ASSERT_EQ(remote_open(&r, udp_target(node.port()).c_str(), nullptr), 0);
    ASSERT_EQ(remote_open(&other, udp_target(relay.port()).c_str(), &hasty), 0);
    raddr_t lock = 0;
    ASSERT_EQ(ralloc(r, REMOTE_LOCK_BYTES, REMOTE_RW, &lock), 0);
    ASSERT_EQ(rlock(r, lock), 0);
    std::atomic<bool> failed{false};
    std::thread taker([&] {
        EXPECT_EQ(rlock(other, lock), -ETIMEDOUT);
        relay.cut(false);
        failed = true;
        failed.notify_one();
        int error;
        while ((error = rlock(other, lock)) == -ETIMEDOUT) {
        }
        EXPECT_EQ(error, 0);
        EXPECT_EQ(runlock(other, lock), 0);
    });
    std::uint32_t next = 0;
    while (next < 2)
        ASSERT_EQ(rread(r, lock + 8, &next, sizeof(next)), 0);
    // The taker knows its ticket once it polls the turn.
    relay.count_from_now();
    while (relay.datagrams() < 4)
        std::this_thread::yield();
    relay.cut(true);
    failed.wait(false);
    EXPECT_EQ(runlock(r, lock), 0);
    taker.join();
    ASSERT_EQ(rread(r, lock + 8, &next, sizeof(next)), 0);
    EXPECT_EQ(next, 2U); // no third was drawn
    remote_close(other);
    remote_close(r);
}

} // namespace

} // namespace remora::test
