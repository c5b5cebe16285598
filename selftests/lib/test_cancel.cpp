// SPDX-License-Identifier: GPL-2.0
// Operations that are cancelled, or whose time is up; what may still come of them, and what must
// not.
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "async.hpp"
#include "backend.hpp"
#include "patience.hpp"
#include "remote/queue.h"

namespace remora::test {

namespace {

constexpr std::uint64_t forever = std::numeric_limits<std::uint64_t>::max();

// ---- on every backend ----

class Cancel : public Backends {
protected:
    // 0 or -ECANCELED; embedded, operations have ended before they could be cancelled.
    int cancelled(const AsyncOp& op) {
        EXPECT_EQ(cancel(r, &op), 0);
        AsyncOp polled = op;
        int result = poll_all(r, &polled, 1, 0);
        EXPECT_TRUE(result == 0 || (is_shared() && result == -ECANCELED)) << result;
        return result;
    }
    std::uint64_t value(raddr_t at) {
        std::uint64_t found = 0;
        EXPECT_EQ(rread(r, at, &found, sizeof(found)), 0);
        return found;
    }
};

INSTANTIATE_TEST_SUITE_P(Lib, Cancel, testing::ValuesIn(kinds()), kind_name);

TEST_P(Cancel, OneOfMany) {
    raddr_t a = alloc(64 * 8);
    std::vector<std::uint64_t> values(64);
    std::vector<AsyncOp> ops(values.size());
    for (std::size_t i = 0; i < values.size(); i++) {
        values[i] = i + 1;
        ASSERT_EQ(write_async(r, a + 8 * i, &values[i], 8, &ops[i]), 0);
    }
    constexpr std::size_t chosen = 40;
    int result = cancelled(ops[chosen]);
    values[chosen] = 0; // cancel() gave the buffer back
    ops[chosen].result = result;
    poll_all(r, ops.data(), ops.size(), forever);
    for (std::size_t i = 0; i < ops.size(); i++) {
        std::uint64_t found = value(a + 8 * i);
        EXPECT_EQ(ops[i].result, i == chosen ? result : 0);
        EXPECT_TRUE(found == i + 1 || (i == chosen && result && found == 0)) << i << ": " << found;
    }
}

TEST_P(Cancel, TwiceOrTooLateOrAStrangersIsHarmless) {
    raddr_t a = alloc(8);
    std::uint64_t data = 7;
    AsyncOp op;
    ASSERT_EQ(write_async(r, a, &data, 8, &op), 0);
    EXPECT_EQ(cancel(r, &op), 0);
    EXPECT_EQ(cancel(r, &op), 0);
    int result = poll_all(r, &op, 1, 0);
    EXPECT_EQ(cancel(r, &op), 0) << "it has been polled";
    EXPECT_EQ(poll_all(r, &op, 1, 0), result);
    ASSERT_EQ(write_async(r, a, &data, 8, &op), 0);
    EXPECT_EQ(poll_all(r, &op, 1, forever), 0);
    EXPECT_EQ(cancel(r, &op), 0);
    EXPECT_EQ(op.result, 0);

    remote_t* other = open();
    ASSERT_EQ(read_async(r, a, &data, 8, &op), 0);
    EXPECT_EQ(cancel(other, &op), 0) << "it isn't in that handle's queue";
    EXPECT_EQ(poll_all(r, &op, 1, forever), 0);
    remote_close(other);
}

// The last write is there, whichever writes were cancelled before, and stays.
TEST_P(Cancel, CancelledWriteNeverOverwritesALaterOne) {
    constexpr std::size_t words = 32;
    raddr_t a = alloc(words * 8);
    std::vector<std::uint64_t> mirror(words, 0);
    std::mt19937 random(5);
    const std::uint64_t rounds = is_slow() ? 150 : 1000;
    for (std::uint64_t round = 1; round <= rounds; round++) {
        std::size_t at = random() % words;
        std::uint64_t old[3] = {round << 8, round << 8 | 1, round << 8 | 2};
        AsyncOp ops[3];
        for (unsigned i = 0; i < 3; i++) // the second and the third wait for the first
            ASSERT_EQ(write_async(r, a + 8 * at, &old[i], 8, &ops[i]), 0);
        std::size_t first = random() % 3;
        for (std::size_t i = 0; i < 3; i++)
            cancelled(ops[(first + i) % 3]);
        old[0] = old[1] = old[2] = ~0ULL;
        mirror[at] = round << 8 | 3;
        ASSERT_EQ(rwrite(r, a + 8 * at, &mirror[at], 8), 0);
        std::size_t other = random() % words;
        ASSERT_EQ(value(a + 8 * other), mirror[other]);
    }
    for (std::size_t i = 0; i < words; i++)
        ASSERT_EQ(value(a + 8 * i), mirror[i]);
}

// The polling thread gets -ECANCELED, or the operation's earlier result.
TEST_P(Cancel, ByAnotherThread) {
    constexpr std::size_t count = 8;
    raddr_t a = alloc(1 << 20);
    std::vector<std::uint8_t> data(100'000, 3);
    const int rounds = is_slow() ? 10 : 60;
    std::uint64_t found[count] = {};
    AsyncOp ops[count];
    std::atomic<int> started{0}, over{0}; // rounds
    std::thread canceller([&] {
        for (int round = 1; round <= rounds; round++) {
            while (started < round) {
            }
            for (const AsyncOp& op : ops)
                EXPECT_EQ(cancel(r, &op), 0);
            over = round;
        }
    });
    for (int round = 1; round <= rounds; round++) {
        for (std::size_t i = 0; i < count; i++) {
            if (i % 2)
                ASSERT_EQ(fetch_async(r, a, 8, REMOTE_ADD, 1, &found[i], &ops[i]), 0);
            else
                ASSERT_EQ(write_async(r, a + 8 + i, data.data(), data.size(), &ops[i]), 0);
        }
        started = round;
        poll_all(r, ops, count, forever);
        while (over < round) {
        }
        for (const AsyncOp& op : ops)
            ASSERT_TRUE(op.result == 0 || op.result == -ECANCELED || op.result == -ECONNRESET)
                << op.result;
    }
    canceller.join();
    std::uint64_t last = 5;
    EXPECT_EQ(rwrite(r, a, &last, 8), 0);
    EXPECT_EQ(value(a), 5U);
}

// A waiter that times out keeps its place in the queue, so it gets the lock on release.
TEST_P(Cancel, WaitingForALockTakesNoLongerThanItMay) {
    remote_t* other = open(0, is_slow() ? 4'000'000 : 1'000'000);
    remote_t* first = is_shared() ? r : other;
    raddr_t lock = 0;
    ASSERT_EQ(ralloc(other, REMOTE_LOCK_BYTES, REMOTE_RW, &lock), 0);
    ASSERT_EQ(rlock(first, lock), 0);
    std::thread([&] {
        EXPECT_EQ(rlock(other, lock), -ETIMEDOUT);
        EXPECT_EQ(runlock(other, lock), -EPERM);
    }).join();
    EXPECT_EQ(runlock(first, lock), 0);
    std::thread([&] {
        EXPECT_EQ(rlock(other, lock), 0);
        EXPECT_EQ(runlock(other, lock), 0);
    }).join();
    EXPECT_EQ(rfree(other, lock), 0);
    remote_close(other);
}

// ---- where the lab has cut the link to the node of REMORA_TEST_TARGET ----

std::vector<Kind> kinds_that_are_silent() {
    return std::getenv("REMORA_TEST_SILENT") ? kinds() : std::vector<Kind>{};
}

class Silent : public Backends {
protected:
    // Whether there is memory only the node knows.
    static constexpr raddr_t somewhere = 1 << 20;
    std::vector<std::uint8_t> data = std::vector<std::uint8_t>(600'000, 4);
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Silent);
INSTANTIATE_TEST_SUITE_P(Lib, Silent, testing::ValuesIn(kinds_that_are_silent()), kind_name);

TEST_P(Silent, OperationsEndAtTheTimeLimit) {
    remote_t* limited = open(0, 50'000);
    std::uint64_t found;
    EXPECT_EQ(rread(limited, somewhere, data.data(), 8), -ETIMEDOUT);
    EXPECT_EQ(rwrite(limited, somewhere, data.data(), data.size()), -ETIMEDOUT);
    EXPECT_EQ(remote_fetch(limited, somewhere, 8, REMOTE_ADD, 1, &found), -ETIMEDOUT);
    AsyncOp ops[2]; // the second waits for the first
    Within within(50'000);
    for (AsyncOp& op : ops)
        ASSERT_EQ(write_async(limited, somewhere, data.data(), data.size(), &op), 0);
    poll_all(limited, ops, 2, forever);
    EXPECT_EQ(ops[0].result, -ETIMEDOUT);
    EXPECT_EQ(ops[1].result, -ETIMEDOUT);
    EXPECT_EQ(rfence(limited), -ETIMEDOUT);
    remote_close(limited);
}

TEST_P(Silent, CancelledOperationsEnd) {
    constexpr std::size_t count = 300; // more than a ring has room for
    std::vector<AsyncOp> ops(count);
    for (AsyncOp& op : ops)
        ASSERT_EQ(read_async(r, somewhere, data.data(), 100, &op), 0);
    AsyncOp change;
    ASSERT_EQ(write_async(r, somewhere, data.data(), 100, &change), 0);
    EXPECT_EQ(cancel(r, &change), 0);
    for (AsyncOp& op : ops) {
        ASSERT_EQ(cancel(r, &op), 0);
        EXPECT_EQ(poll_all(r, &op, 1, 0), -ECANCELED);
    }
    EXPECT_EQ(poll_all(r, &change, 1, 0), -ECANCELED);
}

// One of the two waits in order for the other. Without io_uring, its thread waits for that.
TEST_P(Silent, OperationsOfThreadsThatWaitInOrderAreCancelledByAnother) {
    const Watchdog watchdog("threads whose operations were cancelled");
    remote_queue_t* q = nullptr;
    ASSERT_EQ(remote_queue_open(&q, r, nullptr), 0);
    for (int round = 0; round < 10; round++) {
        std::vector<std::thread> threads;
        for (std::uint64_t name : {1, 2})
            threads.emplace_back([&, name] {
                const remote_op op = remote_op_write(somewhere, data.data(), data.size(), name);
                EXPECT_EQ(remote_queue_submit(q, &op, 1), 1);
            });
        for (std::uint64_t name : {1, 2})
            EXPECT_TRUE(comes_true([&] { return remote_queue_cancel(q, name) == 1; }));
        for (std::thread& thread : threads)
            thread.join();
        std::array<remote_completion, 2> done{};
        ASSERT_EQ(remote_queue_wait(q, done.data(), 2, 2, forever), 2);
        for (const remote_completion& each : done)
            EXPECT_EQ(each.result, -ECANCELED);
    }
    remote_queue_close(q);
}

TEST_P(Silent, CloseSucceedsWithOperationsInFlight) {
    AsyncOp ops[8];
    for (AsyncOp& op : ops)
        ASSERT_EQ(write_async(r, somewhere, data.data(), data.size(), &op), 0);
}

// ---- with a network that does what it's told ----

class Held : public testing::Test {
protected:
    Held() {
        options.size = sizeof(options);
        options.timeout_us = forever;
        EXPECT_EQ(remote_open(&r, udp_target(relay.port()).c_str(), &options), 0);
        EXPECT_EQ(remote_open(&direct, udp_target(node.port()).c_str(), &options), 0);
        EXPECT_EQ(ralloc(r, 1 << 20, REMOTE_RW, &a), 0);
    }
    ~Held() override {
        remote_close(direct);
        remote_close(r);
    }

    // From now on the relay keeps requests about these addresses of the region back.
    void keep(std::uint64_t from, std::uint64_t bytes) {
        relay.keep([first = a + from, bytes](const rmem_head& head) {
            return head.type <= RMEM_TYPE_END && head.addr - first < bytes;
        });
    }
    void wait_for_kept(std::size_t count) {
        while (relay.kept() < count)
            std::this_thread::yield();
    }
    // The node has executed all that was kept when another one's request has been answered.
    void send_kept() {
        relay.keep(nullptr);
        relay.send_kept();
        value(direct, 1000);
    }
    void start_write(std::uint64_t at, const std::uint64_t& data, AsyncOp& op) {
        ASSERT_EQ(write_async(r, a + at, &data, 8, &op), 0);
    }
    // A write of `one` at 8 is cancelled behind an older one at 0, while copies of both are on
    // their way. If this thread is slow, both kept may be the older one's, and the other one may
    // not have been sent; then this starts both again.
    void cancel_behind(AsyncOp& older, AsyncOp& op) {
        auto is_op = [this](const rmem_head& head) { return head.addr == a + 8; };
        for (;;) {
            keep(0, 16);
            start_write(0, one, older);
            start_write(8, one, op);
            wait_for_kept(2);
            if (relay.has_kept(is_op))
                break;
            send_kept();
            EXPECT_EQ(poll_all(r, &op, 1, forever), 0);
            EXPECT_EQ(poll_all(r, &older, 1, forever), 0);
            value(r, 1000); // no copy of them is on its way to the relay
        }
        EXPECT_EQ(cancel(r, &op), 0);
    }
    std::uint64_t value(remote_t* handle, std::uint64_t at) {
        std::uint64_t found = 0;
        EXPECT_EQ(rread(handle, a + at, &found, sizeof(found)), 0);
        return found;
    }
    std::uint64_t reopened() { return counters_of(r).reopened; }

    remote_options options{};
    TestNode node;
    Relay relay{node.port(), 0};
    remote_t *r = nullptr, *direct = nullptr;
    raddr_t a = 0;
    const std::uint64_t one = 1, two = 2, three = 3;
};

TEST_F(Held, WhileTheNodeIsSilent) {
    relay.keep([](const rmem_head&) { return true; });
    std::uint64_t read = 5, found = 5;
    AsyncOp ops[3];
    ASSERT_EQ(fetch_async(r, a + 16, 8, REMOTE_ADD, 1, &found, &ops[0]), 0);
    start_write(0, one, ops[1]);
    ASSERT_EQ(read_async(r, a + 8, &read, 8, &ops[2]), 0);
    EXPECT_EQ(poll_all(r, ops, 3, 0), -EAGAIN);
    wait_for_kept(2);
    for (std::size_t i : {1, 2, 0})
        EXPECT_EQ(cancel(r, &ops[i]), 0);
    poll_all(r, ops, 3, 0);
    EXPECT_EQ(ops[0].result, -ECANCELED);
    EXPECT_EQ(ops[1].result, -ECANCELED);
    EXPECT_EQ(ops[2].result, -ECANCELED);
    EXPECT_EQ(found, 5U);
    // Not yet the changes: a copy that reaches the node before the new session is executed.
    relay.keep(
        [](const rmem_head& head) { return head.type == RMEM_WRITE || head.type == RMEM_ATOMIC; });
    EXPECT_EQ(value(r, 0), 0U);
    EXPECT_EQ(reopened(), 1U);
    send_kept();
    EXPECT_EQ(value(r, 0), 0U);
    EXPECT_EQ(value(r, 16), 0U);
}

// An executed operation whose answer is in flight isn't executed again when a write of the same
// session is cancelled.
class Beside : public Held {
protected:
    // `other` is about 8 bytes at 0; meanwhile() comes when it has been executed.
    template <typename Start, typename Meanwhile>
    void give_up_beside(Start start, AsyncOp& other, Meanwhile meanwhile) {
        std::atomic<bool> is_sent{false};
        relay.keep([first = a, &is_sent](const rmem_head& head) {
            if (head.type & RMEM_RESPONSE)
                return head.addr == first;
            is_sent = is_sent || head.addr == first + 24;
            return head.addr == first + 24;
        });
        start();
        wait_for_kept(1);
        AsyncOp op;
        start_write(24, one, op);
        while (!is_sent)
            std::this_thread::yield();
        meanwhile();
        EXPECT_EQ(cancel(r, &op), 0);
        EXPECT_EQ(poll_all(r, &op, 1, forever), -ECANCELED);
        keep(24, 8); // a copy that reaches the node before the new session is executed
        EXPECT_EQ(poll_all(r, &other, 1, forever), 0);
        send_kept();
        EXPECT_EQ(value(r, 24), 0U);
        EXPECT_EQ(reopened(), 1U);
    }
};

TEST_F(Beside, AWriteIsDoneOnce) {
    AsyncOp write;
    give_up_beside([&] { start_write(0, one, write); }, write,
                   [&] { EXPECT_EQ(rwrite(direct, a, &two, 8), 0); });
    EXPECT_EQ(value(direct, 0), 2U);
}

TEST_F(Beside, AnAdditionIsDoneOnce) {
    AsyncOp add;
    std::uint64_t found = 5;
    auto start = [&] { ASSERT_EQ(fetch_async(r, a, 8, REMOTE_ADD, 7, &found, &add), 0); };
    give_up_beside(start, add, [&] { EXPECT_EQ(value(direct, 0), 7U); });
    EXPECT_EQ(found, 0U);
    EXPECT_EQ(value(direct, 0), 7U);
}

// An older write keeps the floor below the ids of the one that is cancelled, so that alone wouldn't
// keep its copy from being executed.
TEST_F(Held, ACopyThatComesLateDoesNoHarm) {
    AsyncOp older, op;
    cancel_behind(older, op);
    EXPECT_EQ(poll_all(r, &op, 1, 0), -ECANCELED);
    keep(0, 8);
    ASSERT_EQ(rwrite(r, a + 8, &two, 8), 0);
    send_kept();
    EXPECT_EQ(value(direct, 8), 2U);
    EXPECT_EQ(poll_all(r, &older, 1, forever), 0);
    EXPECT_EQ(value(r, 0), 1U);
    EXPECT_EQ(reopened(), 1U);
}

// Of many pieces in one message neither.
TEST_F(Held, ACopyOfManyPiecesThatComesLateDoesNoHarm) {
    std::uint64_t data[2] = {1, 1}, back[2] = {};
    remote_vec pieces[] = {{a + 8, &data[0], 8}, {a + 64, &data[1], 8}};
    AsyncOp older, op, behind;
    relay.keep(
        [](const rmem_head& head) { return head.type == RMEM_WRITE || head.type == RMEM_WRITEV; });
    start_write(0, one, older);
    ASSERT_EQ(writev_async(r, pieces, 2, &op), 0);
    start_write(64, three, behind); // in order
    wait_for_kept(2);
    EXPECT_EQ(cancel(r, &op), 0);
    EXPECT_EQ(poll_all(r, &op, 1, 0), -ECANCELED);
    keep(0, 8);
    ASSERT_EQ(rwrite(r, a + 8, &two, 8), 0);
    EXPECT_EQ(poll_all(r, &behind, 1, forever), 0);
    send_kept();
    pieces[0].buffer = &back[0];
    pieces[1].buffer = &back[1];
    EXPECT_EQ(remote_readv(direct, pieces, 2), 0);
    EXPECT_EQ(back[0], 2U);
    EXPECT_EQ(back[1], 3U);
    EXPECT_EQ(poll_all(r, &older, 1, forever), 0);
    EXPECT_EQ(value(r, 0), 1U);
}

// Nor to what others write, once anything has succeeded that began afterwards.
TEST_F(Held, NorToOtherHandles) {
    AsyncOp older, op;
    cancel_behind(older, op);
    EXPECT_EQ(value(r, 64), 0U);
    ASSERT_EQ(rwrite(direct, a + 8, &two, 8), 0);
    send_kept();
    EXPECT_EQ(value(direct, 8), 2U);
    EXPECT_EQ(poll_all(r, &op, 1, 0), -ECANCELED);
    EXPECT_EQ(poll_all(r, &older, 1, forever), 0);
}

// A long copy is many messages, and one that is lost keeps none of those after it back.
TEST_F(Held, OtherPartsOfALongCopyAreSentWhileTheFirstIsLost) {
    constexpr std::uint64_t part = 64 << 10, parts = 20;
    raddr_t from = 0;
    ASSERT_EQ(ralloc(r, 2 * parts * part, REMOTE_RW, &from), 0);
    raddr_t to = from + parts * part;
    std::vector<std::uint8_t> data(parts * part), back(data.size());
    for (std::size_t i = 0; i < data.size(); i++)
        data[i] = static_cast<std::uint8_t>(i / part + i);
    ASSERT_EQ(rwrite(r, from, data.data(), data.size()), 0);
    std::atomic<std::uint64_t> sent{0}; // bits: parts
    relay.keep([&sent, to](const rmem_head& head) {
        if (head.type == RMEM_COPY)
            sent |= 1ULL << (head.addr - to) / part;
        return head.type == RMEM_COPY && head.addr == to;
    });
    int result = 1;
    std::thread copier([&] { result = remote_copy(r, to, from, data.size()); });
    wait_for_kept(1);
    // All that are in flight at once. On a host that has much to do, it may take many round trips.
    auto patience = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    while (sent != 0xffff && std::chrono::steady_clock::now() < patience)
        std::this_thread::yield();
    EXPECT_EQ(sent, 0xffffU);
    relay.keep(nullptr);
    relay.send_kept();
    copier.join();
    EXPECT_EQ(result, 0);
    ASSERT_EQ(rread(direct, to, back.data(), back.size()), 0);
    EXPECT_TRUE(back == data);
}

// A fence does this. A release doesn't: it has nothing to wait for and sends nothing to the node.
TEST_F(Held, FenceEndsCancelledOperations) {
    AsyncOp op;
    keep(0, 8);
    start_write(0, one, op);
    wait_for_kept(1);
    EXPECT_EQ(cancel(r, &op), 0);
    EXPECT_EQ(poll_all(r, &op, 1, 0), -ECANCELED);
    EXPECT_EQ(rrelease(r), 0);
    EXPECT_EQ(rfence(r), 0);
    ASSERT_EQ(rwrite(direct, a, &two, 8), 0);
    send_kept();
    EXPECT_EQ(value(direct, 0), 2U);
}

TEST_F(Held, AFenceIsAnsweredByTheNode) {
    const remote_counters before = counters_of(r);
    EXPECT_EQ(rrelease(r), 0);
    remote_counters after = counters_of(r);
    EXPECT_EQ(after.sent, before.sent);
    EXPECT_EQ(rfence(r), 0);
    after = counters_of(r);
    EXPECT_GT(after.sent, before.sent);
    EXPECT_GT(after.received, before.received);
}

// Two threads release: each waits for the other's operations, and for those of a third.
TEST_F(Held, ReleaseWaitsForOperationsOfAllThreads) {
    AsyncOp first;
    keep(0, 8);
    start_write(0, one, first);
    wait_for_kept(1);
    std::atomic<int> begun{0}, over{0};
    std::vector<std::thread> threads;
    for (std::uint64_t t = 1; t <= 2; t++) {
        threads.emplace_back([&, t] {
            AsyncOp op;
            start_write(64 * t, two, op);
            begun++;
            while (begun < 2)
                std::this_thread::yield();
            EXPECT_EQ(rrelease(r), 0);
            over++;
            EXPECT_EQ(poll_all(r, &op, 1, 0), 0);
            for (std::uint64_t at : {0, 64, 128})
                EXPECT_NE(value(direct, at), 0U);
        });
    }
    // Theirs are there, so that one only is left.
    while (!value(direct, 64) || !value(direct, 128))
        std::this_thread::yield();
    EXPECT_EQ(poll_all(r, &first, 1, 1000), -EAGAIN);
    EXPECT_EQ(over, 0);
    send_kept();
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(poll_all(r, &first, 1, 0), 0);
}

// Three writes of the same bytes, the first of which is cancelled: the others are executed.
TEST_F(Held, CancelLetsOperationsThatWaitInOrderRun) {
    AsyncOp ops[3];
    keep(0, 8);
    start_write(0, one, ops[0]);
    start_write(0, two, ops[1]);
    start_write(0, three, ops[2]);
    wait_for_kept(1);
    relay.keep(nullptr);
    EXPECT_EQ(cancel(r, &ops[0]), 0);
    EXPECT_EQ(poll_all(r, &ops[1], 2, forever), 0);
    send_kept();
    EXPECT_EQ(value(direct, 0), 3U);
    EXPECT_EQ(poll_all(r, ops, 1, 0), -ECANCELED);
}

// An operation that waits in order hasn't been sent, so cancelling it renews no session.
TEST_F(Held, OperationCancelledWhileItWaitsInOrderIsNeverSent) {
    AsyncOp ops[3];
    keep(0, 8);
    start_write(0, one, ops[0]);
    start_write(0, two, ops[1]);
    start_write(0, one, ops[2]);
    wait_for_kept(1);
    EXPECT_EQ(cancel(r, &ops[2]), 0);
    EXPECT_EQ(cancel(r, &ops[1]), 0);
    EXPECT_EQ(poll_all(r, &ops[1], 2, 0), -ECANCELED);
    send_kept();
    EXPECT_EQ(poll_all(r, &ops[0], 1, forever), 0);
    EXPECT_EQ(value(direct, 0), 1U);
    EXPECT_EQ(reopened(), 0U);
}

TEST_F(Held, ALateAnswerTouchesNoBuffer) {
    std::vector<std::uint8_t> buffer(300'000, 7);
    AsyncOp op;
    keep(0, buffer.size());
    ASSERT_EQ(read_async(r, a, buffer.data(), buffer.size(), &op), 0);
    wait_for_kept(1);
    EXPECT_EQ(cancel(r, &op), 0);
    std::fill(buffer.begin(), buffer.end(), 8);
    send_kept();
    EXPECT_EQ(value(r, 1000),
              0U); // the answers to the cancelled operation were handled before this one's
    EXPECT_EQ(poll_all(r, &op, 1, 0), -ECANCELED);
    EXPECT_EQ(buffer, std::vector<std::uint8_t>(buffer.size(), 8));
    EXPECT_EQ(reopened(), 0U);
}

// Threads that cancel whatever is in flight, and one that submits.
TEST_F(Held, CancelBesideSubmitEndsOperationsWithoutTheNode) {
    constexpr int rounds = 2000;
    remote_queue_t* q = nullptr;
    ASSERT_EQ(remote_queue_open(&q, r, nullptr), 0);
    relay.cut(true);
    std::atomic<bool> over{false};
    std::vector<std::thread> cancellers;
    for (int n = 0; n < 2; n++)
        cancellers.emplace_back([&] {
            while (!over)
                remote_queue_cancel(q, 7);
        });
    std::uint64_t data = 0;
    for (int round = 0; round < rounds; round++) {
        remote_op op = remote_op_read(a, &data, 8, 7);
        ASSERT_EQ(remote_queue_submit(q, &op, 1), 1);
        remote_completion done{};
        ASSERT_EQ(remote_queue_wait(q, &done, 1, 1, forever), 1);
        ASSERT_EQ(done.result, -ECANCELED) << round;
    }
    over = true;
    for (std::thread& canceller : cancellers)
        canceller.join();
    remote_queue_close(q);
}

TEST_F(Held, CancelEndsAPollWithoutTheNode) {
    AsyncOp op;
    relay.cut(true);
    start_write(0, one, op);
    const AsyncOp same = op;
    std::atomic<bool> polling{false};
    std::thread poller([&] {
        polling = true;
        EXPECT_EQ(poll_all(r, &op, 1, forever), -ECANCELED);
    });
    while (!polling) {
    }
    EXPECT_EQ(cancel(r, &same), 0);
    poller.join();
    relay.cut(false);
}

TEST_F(Held, ALongOneEndsAsAWhole) {
    std::vector<std::uint8_t> data(1 << 20, 3);
    AsyncOp op;
    keep(500'000, 100'000);
    ASSERT_EQ(write_async(r, a, data.data(), data.size(), &op), 0);
    while (!relay.kept())
        ASSERT_EQ(poll_all(r, &op, 1, 1000), -EAGAIN);
    EXPECT_EQ(cancel(r, &op), 0);
    EXPECT_EQ(poll_all(r, &op, 1, 0), -ECANCELED);
    std::fill(data.begin(), data.end(), 4);
    relay.keep(nullptr);
    ASSERT_EQ(rwrite(r, a, data.data(), data.size()), 0);
    send_kept();
    std::vector<std::uint8_t> back(data.size());
    EXPECT_EQ(rread(direct, a, back.data(), back.size()), 0);
    EXPECT_EQ(back, data);
}

// Its data go in several messages, and the signal with the last one, when the others are there.
TEST_F(Held, APutThatIsCancelledGivesNoSignal) {
    std::vector<std::uint8_t> data(100'000, 3);
    remote_signal signal{a, 8, REMOTE_ADD, 1};
    for (std::uint64_t what : {4096, 95'000}) { // one of the others; the last
        AsyncOp op;
        keep(what, 1000);
        ASSERT_EQ(put_async(r, a + 4096, data.data(), data.size(), &signal, &op), 0);
        while (!relay.kept())
            ASSERT_EQ(poll_all(r, &op, 1, 1000), -EAGAIN);
        EXPECT_EQ(cancel(r, &op), 0);
        EXPECT_EQ(poll_all(r, &op, 1, 0), -ECANCELED);
        // Copies are kept until there is a new session: before, the node executes them.
        ASSERT_EQ(rwrite(r, a + 8, &two, 8), 0);
        send_kept();
        EXPECT_EQ(value(direct, 0), 0U);
    }
    ASSERT_EQ(remote_put(r, a + 4096, data.data(), data.size(), &signal), 0);
    EXPECT_EQ(value(direct, 0), 1U);
}

// ---- timeouts ----

TEST_F(Held, EveryCallEndsAtTheHandlesTimeLimit) {
    options.call_timeout_us = 20'000;
    remote_t* limited = nullptr;
    ASSERT_EQ(remote_open(&limited, udp_target(relay.port()).c_str(), &options), 0);
    relay.cut(true);
    std::uint64_t data[2] = {}, other[2] = {};
    remote_vec pieces[2] = {{a, &data[0], 8}, {a + 64, &data[1], 8}};
    std::vector<std::uint8_t> large(2 << 20);
    AsyncOp op;
    EXPECT_EQ(rread(limited, a, data, 8), -ETIMEDOUT);
    EXPECT_EQ(rwrite(limited, a, data, 8), -ETIMEDOUT);
    EXPECT_EQ(rread(limited, a, large.data(), 1 << 20), -ETIMEDOUT);
    EXPECT_EQ(remote_readv(limited, pieces, 2), -ETIMEDOUT);
    EXPECT_EQ(remote_writev(limited, pieces, 2), -ETIMEDOUT);
    EXPECT_EQ(read_rows(limited, rows(a, 64, data, 8, 2)), -ETIMEDOUT);
    EXPECT_EQ(remote_fetch(limited, a, 8, REMOTE_ADD, 1, nullptr), -ETIMEDOUT);
    EXPECT_EQ(cas(limited, a, 8, data, 1), -ETIMEDOUT);
    EXPECT_EQ(remote_cas(limited, a, 16, data, other), -ETIMEDOUT);
    remote_signal signal{a, 8, REMOTE_ADD, 1};
    EXPECT_EQ(remote_put(limited, a + 64, data, 8, &signal), -ETIMEDOUT);
    EXPECT_EQ(remote_put(limited, a + 64, large.data(), 1 << 20, &signal), -ETIMEDOUT);
    EXPECT_EQ(remote_wait(limited, a, 8, REMOTE_EQ, 1, forever, nullptr), -ETIMEDOUT);
    EXPECT_EQ(remote_lock_init(limited, a, 1'000'000), -ETIMEDOUT);
    EXPECT_EQ(rlock(limited, a), -ETIMEDOUT);
    EXPECT_EQ(rfence(limited), -ETIMEDOUT);
    EXPECT_EQ(rrelease(limited), 0) << "nothing is under way";
    ASSERT_EQ(write_async(limited, a, data, 8, &op), 0);
    EXPECT_EQ(rrelease(limited), -ETIMEDOUT);
    relay.cut(false);
    EXPECT_EQ(poll_all(limited, &op, 1, forever), 0) << "the limit is that of synchronous calls";
    remote_close(limited);
}

TEST_F(Held, WaitForAnIntegerEndsAtItsTimeoutWhenTheNodeFallsSilent) {
    options.call_timeout_us = 30'000'000;
    remote_t* limited = nullptr;
    ASSERT_EQ(remote_open(&limited, udp_target(relay.port()).c_str(), &options), 0);
    std::atomic<unsigned> reads{0};
    relay.keep([&](const rmem_head& head) { return head.type == RMEM_READ && reads++; });
    std::uint64_t found = 5;
    EXPECT_EQ(remote_wait(limited, a, 8, REMOTE_EQ, 1, 50'000, &found), -EAGAIN);
    EXPECT_EQ(found, 0U);
    relay.keep(nullptr);
    remote_close(limited);
}

TEST_F(Held, EveryOperationEndsAtItsTimeout) {
    relay.cut(true);
    Within within(20'000);
    std::uint64_t data[2] = {}, found = 0;
    remote_vec pieces[2] = {{a, &data[0], 8}, {a + 64, &data[1], 8}};
    remote_signal signal{a, 8, REMOTE_ADD, 1};
    AsyncOp ops[6];
    ASSERT_EQ(read_async(r, a + 128, data, 8, &ops[0]), 0);
    ASSERT_EQ(write_async(r, a, data, 8, &ops[1]), 0);
    ASSERT_EQ(readv_async(r, pieces, 2, &ops[2]), 0);
    ASSERT_EQ(writev_async(r, pieces, 2, &ops[3]), 0);
    ASSERT_EQ(fetch_async(r, a, 8, REMOTE_ADD, 1, &found, &ops[4]), 0);
    ASSERT_EQ(put_async(r, a + 64, data, 8, &signal, &ops[5]), 0);
    EXPECT_EQ(poll_all(r, ops, 6, forever), -ETIMEDOUT);
    for (const AsyncOp& op : ops)
        EXPECT_EQ(op.result, -ETIMEDOUT);
    relay.cut(false);
}

TEST_F(Held, OthersAreLeftAlone) {
    relay.cut(true);
    AsyncOp ops[4];
    start_write(0, one, ops[0]);
    {
        Within within(1'000'000'000);
        start_write(8, one, ops[1]);
        within.set(20'000);
        start_write(16, one, ops[2]);
        within.set(30'000);
        start_write(0, two, ops[3]); // in order, behind one that has none
    }
    EXPECT_EQ(poll_all(r, &ops[2], 2, forever), -ETIMEDOUT);
    EXPECT_EQ(ops[3].result, -ETIMEDOUT);
    EXPECT_EQ(poll_all(r, ops, 2, 0), -EAGAIN);
    relay.cut(false);
    EXPECT_EQ(poll_all(r, ops, 2, forever), 0);
    EXPECT_EQ(value(r, 0), 1U);
    EXPECT_EQ(value(r, 16), 0U);
}

TEST_F(Held, LateCopyOfATimedOutWriteIsRefused) {
    AsyncOp older;
    keep(0, 16);
    start_write(0, one, older);
    {
        Within within(20'000);
        EXPECT_EQ(write_in_time(r, a + 8, &one, 8), -ETIMEDOUT);
    }
    keep(0, 8);
    ASSERT_EQ(rwrite(r, a + 8, &two, 8), 0);
    send_kept();
    EXPECT_EQ(value(direct, 8), 2U);
    EXPECT_EQ(poll_all(r, &older, 1, forever), 0);
}

// Some in time, some not, while another thread, whose time has no end, receives for all.
TEST_F(Held, TimeoutsOfManyThreads) {
    std::atomic<bool> stop{false};
    std::thread patient([&] {
        while (!stop)
            value(r, 512);
    });
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 3; t++) {
        threads.emplace_back([&, t] {
            std::mt19937 random(static_cast<unsigned>(t));
            for (std::uint64_t i = 1; i <= 40; i++) {
                std::uint64_t wanted = t << 32 | i;
                {
                    Within within(1 + random() % 300);
                    int error = write_in_time(r, a + 8 * t, &wanted, 8);
                    ASSERT_TRUE(error == 0 || error == -ETIMEDOUT) << error;
                    if (error)
                        wanted = 0;
                }
                wanted |= std::uint64_t{1} << 60;
                ASSERT_EQ(rwrite(r, a + 8 * t, &wanted, 8), 0);
                ASSERT_EQ(value(r, 8 * t), wanted);
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    stop = true;
    patient.join();
}

} // namespace

} // namespace remora::test
