// SPDX-License-Identifier: GPL-2.0
// Completion queues: what is taken, how often, and when.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend.hpp"
#include "remote/queue.h"

namespace remora::test {

namespace {

constexpr std::uint64_t forever = std::numeric_limits<std::uint64_t>::max();

class Queues : public Backends {
protected:
    ~Queues() override { remote_queue_close(q); }
    void open_queue(std::uint32_t depth) {
        remote_queue_options options{};
        options.size = sizeof(options);
        options.depth = depth;
        ASSERT_EQ(remote_queue_open(&q, r, &options), 0);
    }
    // Takes count completions; results by user_data, which are below count.
    std::vector<int> take(std::size_t count) {
        std::vector<remote_completion> done(count);
        EXPECT_EQ(remote_queue_wait(q, done.data(), count, count, forever),
                  static_cast<int>(count));
        std::vector<int> results(count, 1 << 20);
        for (const remote_completion& each : done) {
            EXPECT_LT(each.user_data, count);
            EXPECT_EQ(results[each.user_data], 1 << 20) << "taken twice";
            results[each.user_data] = each.result;
        }
        return results;
    }

    remote_queue_t* q = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Lib, Queues, testing::ValuesIn(kinds()), kind_name);

TEST_P(Queues, EveryKindOfOperationHasItsResult) {
    open_queue(16);
    raddr_t a = alloc(4096);
    std::array<std::uint64_t, 4> out{1, 2, 3, 4}, in{};
    std::uint64_t found[2] = {}, none[2] = {}, next[2] = {8, 9}, there = 0;
    remote_vec written[] = {{a + 100, &out[0], 8}, {a + 200, &out[1], 8}};
    remote_signal signal{a + 64, 8, REMOTE_ADD, 5};
    remote_op ops[] = {
        remote_op_write(a, out.data(), 32, 0),
        remote_op_writev(written, 2, 1),
        remote_op_fetch(a, 8, REMOTE_ADD, 10, &there, 2),
        remote_op_cas(a + 80, 16, none, next, found, 3),
        remote_op_cas(a + 80, 8, none, next, nullptr, 4),
        remote_op_put(a + 300, out.data(), 8, &signal, 5),
        remote_op_read(a, in.data(), 8, 6),
    };
    ASSERT_EQ(remote_queue_submit(q, ops, std::size(ops)), 7);
    std::vector<int> results = take(std::size(ops));
    EXPECT_EQ(results[0], 0);
    EXPECT_EQ(results[1], 0);
    EXPECT_EQ(results[2], 0);
    if (results[3] == 1) {
        remote_op late = remote_op_cas(a + 80, 16, none, next, found, 0);
        ASSERT_EQ(remote_queue_submit(q, &late, 1), 1);
        EXPECT_EQ(take(1)[0], 0);
        EXPECT_EQ(found[0], 8U);
        EXPECT_EQ(found[1], 9U);
        std::uint64_t back[2] = {};
        EXPECT_EQ(rread(r, a + 80, back, 16), 0);
        EXPECT_EQ(back[1], 9U);
    } else {
        EXPECT_EQ(results[3], -EINVAL);
        EXPECT_FALSE(must_have_cas_16(GetParam()));
    }
    EXPECT_EQ(results[4], results[3] == 1 ? 0 : 1);
    EXPECT_EQ(results[5], 0);
    EXPECT_EQ(results[6], 0);
    EXPECT_EQ(there, 1U);
    EXPECT_EQ(in[0], 11U) << "overlapping operations keep their order";
    remote_vec read[] = {{a + 100, &in[0], 8}, {a + 200, &in[1], 8}, {a + 64, &in[2], 8}};
    remote_op readv = remote_op_readv(read, 3, 0);
    ASSERT_EQ(remote_queue_submit(q, &readv, 1), 1);
    EXPECT_EQ(take(1)[0], 0);
    EXPECT_EQ(in[0], 1U);
    EXPECT_EQ(in[1], 2U);
    EXPECT_EQ(in[2], 5U);
}

// Small reads share messages where there are any; one that is refused leaves the others alone.
TEST_P(Queues, ReadsOfABatchEndEachByItself) {
    constexpr std::size_t count = 300;
    open_queue(count);
    raddr_t a = alloc(count * 16);
    std::vector<std::uint64_t> out(count * 2), in(count, 0);
    std::iota(out.begin(), out.end(), 1);
    ASSERT_EQ(rwrite(r, a, out.data(), count * 16), 0);
    std::vector<remote_op> ops;
    for (std::size_t i = 0; i < count; i++) {
        raddr_t at = i == 77 ? raddr_t{1} << 50 : a + 16 * i;
        ops.push_back(remote_op_read(at, &in[i], 8, i));
    }
    ASSERT_EQ(remote_queue_submit(q, ops.data(), count), static_cast<int>(count));
    std::vector<int> results = take(count);
    for (std::size_t i = 0; i < count; i++) {
        EXPECT_EQ(results[i], i == 77 ? -EFAULT : 0) << i;
        EXPECT_EQ(in[i], i == 77 ? 0 : out[2 * i]) << i;
    }
}

// All that are in flight under the number, and no others.
TEST_P(Queues, CancelEndsTheOperationsOfItsNumberAlone) {
    constexpr std::size_t count = 1000;
    open_queue(count);
    raddr_t a = alloc(count * 8);
    std::vector<std::uint64_t> in(count);
    std::vector<remote_op> ops;
    for (std::size_t i = 0; i < count; i++) // a third of them adjacent, which share messages
        ops.push_back(i % 3 ? remote_op_fetch(a + 8 * i, 8, REMOTE_ADD, 1, &in[i], i % 50)
                            : remote_op_read(a + 8 * (i / 2 * 2), &in[i], 8, i % 50));
    ASSERT_EQ(remote_queue_submit(q, ops.data(), count), static_cast<int>(count));
    std::size_t cancelled = 0;
    for (std::uint64_t number = 0; number < 50; number += 2) {
        int result = remote_queue_cancel(q, number);
        ASSERT_TRUE(result > 0 || result == -ENOENT) << result;
        cancelled += result > 0 ? static_cast<std::size_t>(result) : 0;
    }
    std::vector<remote_completion> done(count);
    ASSERT_EQ(remote_queue_wait(q, done.data(), count, count, forever), static_cast<int>(count));
    std::vector<int> seen(50);
    for (const remote_completion& each : done) {
        seen[each.user_data]++;
        EXPECT_TRUE(each.result == 0 || (each.result == -ECANCELED && each.user_data % 2 == 0))
            << each.result << " of " << each.user_data;
    }
    EXPECT_EQ(seen, std::vector<int>(50, count / 50));
    EXPECT_LE(std::ranges::count(done, -ECANCELED, &remote_completion::result),
              static_cast<std::ptrdiff_t>(cancelled));
}

TEST_P(Queues, FullQueueTakesMoreOnceCompletionsAreTaken) {
    open_queue(4);
    raddr_t a = alloc(100);
    std::uint8_t byte[6] = {};
    std::vector<remote_op> ops;
    for (std::size_t i = 0; i < 6; i++)
        ops.push_back(remote_op_read(a, &byte[i], 1, i));
    EXPECT_EQ(remote_queue_submit(q, ops.data(), 6), 4);
    EXPECT_EQ(remote_queue_submit(q, &ops[4], 2), -EAGAIN);
    take(4);
    ops[4].user_data = 0;
    ops[5].user_data = 1;
    EXPECT_EQ(remote_queue_submit(q, &ops[4], 2), 2);
    take(2);
    remote_completion done;
    EXPECT_EQ(remote_queue_wait(q, &done, 1, 1, forever), 0) << "nothing is in flight";
}

TEST_P(Queues, InvalidOperationEndsTheBatch) {
    open_queue(4);
    raddr_t a = alloc(100);
    std::uint8_t byte = 0;
    remote_op good = remote_op_read(a, &byte, 1, 0), bad = good;
    bad.kind = 99;
    remote_op ops[] = {good, bad, good};
    EXPECT_EQ(remote_queue_submit(q, ops, 3), 1);
    EXPECT_EQ(remote_queue_submit(q, &ops[1], 2), -EINVAL);
    EXPECT_EQ(take(1)[0], 0);
    std::uint64_t word = 0;
    for (remote_op each :
         {remote_op_read(a, nullptr, 1, 0), remote_op_read(a, &byte, 0, 0),
          remote_op_write(a, &byte, std::size_t{2} << 30, 0), remote_op_readv(nullptr, 1, 0),
          remote_op_fetch(a + 1, 8, REMOTE_ADD, 1, &word, 0),
          remote_op_fetch(a, 3, REMOTE_ADD, 1, &word, 0),
          remote_op_cas(a + 8, 16, std::array<std::uint64_t, 2>{}.data(),
                        std::array<std::uint64_t, 2>{}.data(), &word, 0),
          remote_op_put(a, &byte, 1, nullptr, 0)})
        EXPECT_EQ(remote_queue_submit(q, &each, 1), -EINVAL) << each.kind;
    EXPECT_EQ(remote_queue_submit(nullptr, &good, 1), -EINVAL);
    EXPECT_EQ(remote_queue_submit(q, nullptr, 1), -EINVAL);
    EXPECT_EQ(remote_queue_submit(q, &good, 0), -EINVAL);
    EXPECT_EQ(remote_queue_wait(q, nullptr, 1, 0, 0), -EINVAL);
    EXPECT_EQ(remote_queue_cancel(q, 5), -ENOENT);
    remote_queue_options options{};
    remote_queue_t* other = nullptr;
    EXPECT_EQ(remote_queue_open(&other, r, &options), -EINVAL) << "no size";
    options.size = sizeof(options);
    options.depth = ~0U;
    EXPECT_EQ(remote_queue_open(&other, r, &options), -EINVAL);
}

TEST_P(Queues, OperationsOfANewerProgramAreTakenIfUnknownFieldsAreZero) {
    struct Newer {
        remote_op op;
        std::uint64_t unknown;
    };
    open_queue(4);
    raddr_t a = alloc(100);
    std::uint8_t byte[2] = {};
    Newer ops[2] = {{remote_op_read(a, &byte[0], 1, 0), 0}, {remote_op_read(a, &byte[1], 1, 1), 0}};
    ops[0].op.size = ops[1].op.size = sizeof(Newer);
    EXPECT_EQ(remote_queue_submit(q, &ops[0].op, 2), 2);
    take(2);
    ops[1].unknown = 1;
    EXPECT_EQ(remote_queue_submit(q, &ops[0].op, 2), 1);
    take(1);
    EXPECT_EQ(remote_queue_submit(q, &ops[1].op, 1), -EINVAL);
}

// Threads take from one queue: each completion once.
TEST_P(Queues, EachCompletionIsTakenByOneThread) {
    constexpr std::size_t count = 32;
    open_queue(count);
    raddr_t a = alloc(count * 8);
    const int rounds = is_slow() ? 20 : 100;
    for (int round = 0; round < rounds; round++) {
        std::vector<std::uint64_t> in(count);
        std::vector<std::atomic<int>> taken(count);
        std::vector<remote_op> ops;
        for (std::size_t i = 0; i < count; i++)
            ops.push_back(remote_op_read(a + 8 * i, &in[i], 8, i));
        ASSERT_EQ(remote_queue_submit(q, ops.data(), count), static_cast<int>(count));
        std::vector<std::thread> threads;
        for (int t = 0; t < 2; t++) {
            threads.emplace_back([&] {
                remote_completion done[4];
                int got;
                while ((got = remote_queue_wait(q, done, 4, 1, forever)) > 0) {
                    for (const remote_completion& each :
                         std::span(done).first(static_cast<std::size_t>(got)))
                        taken[each.user_data]++;
                }
            });
        }
        for (std::thread& thread : threads)
            thread.join();
        for (std::size_t i = 0; i < count; i++)
            ASSERT_EQ(taken[i], 1) << i;
    }
}

// As an event loop does it.
TEST_P(Queues, DescriptorSaysWhenToLook) {
    open_queue(0);
    raddr_t a = alloc(64 * 16);
    for (int round = 0; round < 20; round++) {
        std::vector<std::uint64_t> in(64);
        std::vector<remote_op> ops;
        for (std::size_t i = 0; i < in.size(); i++)
            ops.push_back(remote_op_read(a + 16 * i, &in[i], 8, i));
        ASSERT_EQ(remote_queue_submit(q, ops.data(), ops.size()), 64);
        std::size_t taken = 0;
        while (taken < ops.size()) {
            std::uint64_t next_us = 0;
            pollfd ready{remote_queue_fd(q, &next_us), POLLIN, 0};
            ASSERT_GE(ready.fd, 0);
            int ms = next_us > 1'000'000 ? -1 : static_cast<int>((next_us + 999) / 1000);
            ASSERT_GE(poll(&ready, 1, ms), 0);
            remote_completion done[16];
            int got = remote_queue_wait(q, done, 16, 0, 0);
            ASSERT_GE(got, 0);
            taken += static_cast<std::size_t>(got);
        }
        std::uint64_t next_us = 0;
        EXPECT_GE(remote_queue_fd(q, &next_us), 0);
        EXPECT_EQ(next_us, forever);
    }
}

// With at_least 0 it is a look, whatever the time limit.
TEST_P(Queues, LookDoesNotWait) {
    open_queue(2);
    raddr_t a = alloc(1 << 20);
    std::vector<std::uint8_t> data(1 << 20);
    remote_op op = remote_op_read(a, data.data(), data.size(), 1);
    ASSERT_EQ(remote_queue_submit(q, &op, 1), 1);
    remote_completion done{};
    int got;
    while (!(got = remote_queue_wait(q, &done, 1, 0, forever))) {
    }
    EXPECT_EQ(got, 1);
    EXPECT_EQ(done.result, 0);
}

// Once the call has returned, the buffer is the caller's, even while a batch is being submitted.
TEST_P(Queues, CancelReturnsTheBufferWhileAnotherThreadSubmits) {
    constexpr std::size_t count = 64, bytes = 64 << 10;
    open_queue(count);
    raddr_t a = alloc(bytes);
    std::vector<std::uint8_t> ones(bytes, 1), mine(bytes, 2);
    ASSERT_EQ(rwrite(r, a, ones.data(), bytes), 0);
    std::vector<std::vector<std::uint8_t>> in(count, std::vector<std::uint8_t>(bytes));
    std::vector<remote_op> ops;
    for (std::size_t i = 0; i < count; i++)
        ops.push_back(remote_op_read(a, in[i].data(), bytes, i));
    std::atomic<bool> submitted{false};
    std::thread other([&] {
        EXPECT_EQ(remote_queue_submit(q, ops.data(), count), static_cast<int>(count));
        submitted = true;
    });
    int cancelled = -ENOENT;
    while (cancelled == -ENOENT && !submitted)
        cancelled = remote_queue_cancel(q, count - 1);
    if (cancelled == 1)
        in[count - 1] = mine;
    other.join();
    take(count);
    if (cancelled == 1) {
        EXPECT_EQ(in[count - 1], mine);
    }
}

TEST_P(Queues, CloseOfTheHandleEndsItsQueuesOperations) {
    remote_t* other = open();
    raddr_t a = 0;
    ASSERT_EQ(ralloc(other, 1 << 20, REMOTE_RW, &a), 0);
    remote_queue_t* of_other = nullptr;
    ASSERT_EQ(remote_queue_open(&of_other, other, nullptr), 0);
    std::vector<std::uint8_t> data(1 << 20);
    remote_op op = remote_op_read(a, data.data(), data.size(), 1);
    ASSERT_EQ(remote_queue_submit(of_other, &op, 1), 1);
    if (is_shared()) {
        ASSERT_EQ(rfree(other, a), 0);
    }
    remote_close(other);
    remote_completion done{};
    EXPECT_EQ(remote_queue_wait(of_other, &done, 1, 1, forever), 1);
    EXPECT_EQ(done.user_data, 1U);
    EXPECT_EQ(remote_queue_wait(of_other, &done, 1, 1, forever), -EBADF);
    EXPECT_EQ(remote_queue_submit(of_other, &op, 1), -EBADF);
    remote_queue_close(of_other);
}

// However late, and even if others were opened since.
TEST_P(Queues, ClosedQueueIsRefusedAndClosedOnce) {
    open_queue(4);
    raddr_t a = alloc(100);
    remote_queue_t* closed = nullptr;
    ASSERT_EQ(remote_queue_open(&closed, r, nullptr), 0);
    remote_queue_close(closed);
    remote_queue_t* next = nullptr;
    ASSERT_EQ(remote_queue_open(&next, r, nullptr), 0);
    EXPECT_NE(closed, next);
    for (remote_queue_t* each : {closed, reinterpret_cast<remote_queue_t*>(&a)}) {
        std::uint8_t byte = 0;
        std::uint64_t next_us;
        remote_completion done;
        remote_op op = remote_op_read(a, &byte, 1, 0);
        EXPECT_EQ(remote_queue_submit(each, &op, 1), -EBADF);
        EXPECT_EQ(remote_queue_wait(each, &done, 1, 0, 0), -EBADF);
        EXPECT_EQ(remote_queue_cancel(each, 0), -EBADF);
        EXPECT_EQ(remote_queue_fd(each, &next_us), -EBADF);
        remote_queue_close(each);
    }
    std::uint8_t byte = 0;
    remote_op op = remote_op_read(a, &byte, 1, 0);
    remote_completion done;
    ASSERT_EQ(remote_queue_submit(next, &op, 1), 1);
    EXPECT_EQ(remote_queue_wait(next, &done, 1, 1, forever), 1);
    remote_queue_close(next);
    remote_queue_close(next);
}

TEST_P(Queues, ClosedAfterItsHandleAndTwice) {
    remote_t* other = open();
    remote_queue_t* its = nullptr;
    ASSERT_EQ(remote_queue_open(&its, other, nullptr), 0);
    remote_close(other);
    remote_queue_close(its);
    remote_queue_close(its);
}

TEST_P(Queues, ChildOfForkMayOnlyClose) {
    open_queue(4);
    raddr_t a = alloc(100);
    std::uint8_t byte = 0;
    remote_op op = remote_op_read(a, &byte, 1, 0);
    pid_t child = fork();
    if (!child) {
        remote_completion done;
        std::uint64_t next_us;
        bool good = remote_queue_submit(q, &op, 1) == -ECHILD &&
                    remote_queue_wait(q, &done, 1, 0, 0) == -ECHILD &&
                    remote_queue_cancel(q, 0) == -ECHILD && remote_queue_fd(q, &next_us) == -ECHILD;
        remote_queue_close(q);
        _exit(!good);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ASSERT_EQ(remote_queue_submit(q, &op, 1), 1);
    take(1);
}

// ---- with a network that does what it's told ----

class QueuesHeld : public testing::Test {
protected:
    QueuesHeld() {
        EXPECT_EQ(remote_open(&r, udp_target(relay.port()).c_str(), nullptr), 0);
        EXPECT_EQ(ralloc(r, 1 << 20, REMOTE_RW, &a), 0);
        EXPECT_EQ(remote_queue_open(&q, r, nullptr), 0);
    }
    ~QueuesHeld() override {
        remote_queue_close(q);
        remote_close(r);
    }
    // The results of all in flight.
    std::vector<remote_completion> take(std::size_t count) {
        std::vector<remote_completion> done(count);
        EXPECT_EQ(remote_queue_wait(q, done.data(), count, count, forever),
                  static_cast<int>(count));
        return done;
    }

    TestNode node;
    Relay relay{node.port(), 0};
    remote_t* r = nullptr;
    remote_queue_t* q = nullptr;
    raddr_t a = 0;
};

// Its buffer is its owner's again, while the others, in the same message, are still on their way.
TEST_F(QueuesHeld, CancelledReadLeavesTheOthersOfItsMessageAlone) {
    std::uint64_t in[4] = {}, ones = ~0ULL;
    for (std::size_t i = 0; i < 4; i++)
        ASSERT_EQ(rwrite(r, a + 8 * i, &ones, 8), 0);
    relay.cut(true);
    remote_op ops[4];
    for (std::size_t i = 0; i < 4; i++)
        ops[i] = remote_op_read(a + 8 * i, &in[i], 8, i);
    ASSERT_EQ(remote_queue_submit(q, ops, 4), 4);
    EXPECT_EQ(remote_queue_cancel(q, 2), 1);
    EXPECT_EQ(remote_queue_cancel(q, 2), -ENOENT);
    remote_completion first = take(1)[0];
    EXPECT_EQ(first.user_data, 2U);
    EXPECT_EQ(first.result, -ECANCELED);
    relay.cut(false);
    for (const remote_completion& each : take(3))
        EXPECT_EQ(each.result, 0) << each.user_data;
    for (std::size_t i = 0; i < 4; i++)
        EXPECT_EQ(in[i], i == 2 ? 0 : ones) << i;
}

// The first one's message is kept: the others end before, in the order of their ends.
TEST_F(QueuesHeld, CompletionsComeInTheOrderOfTheEnds) {
    std::vector<std::uint8_t> data(2000);
    relay.keep([kept = a](const rmem_head& head) { return head.addr == kept; });
    remote_op ops[] = {remote_op_read(a, data.data(), 2000, 1),
                       remote_op_write(a + 4096, data.data(), 2000, 2)};
    ASSERT_EQ(remote_queue_submit(q, ops, 2), 2);
    EXPECT_EQ(take(1)[0].user_data, 2U);
    relay.keep(nullptr);
    relay.send_kept();
    EXPECT_EQ(take(1)[0].user_data, 1U);
}

TEST_F(QueuesHeld, EachOperationHasItsOwnDeadline) {
    std::uint64_t in[3] = {};
    relay.cut(true);
    remote_op ops[3];
    for (std::size_t i = 0; i < 3; i++)
        ops[i] = remote_op_read(a + 8 * i, &in[i], 8, i);
    ops[0].timeout_us = 40'000;
    ops[1].timeout_us = 10'000;
    ASSERT_EQ(remote_queue_submit(q, ops, 3), 3);
    std::uint64_t next_us = 0;
    EXPECT_GE(remote_queue_fd(q, &next_us), 0);
    EXPECT_LE(next_us, 10'000U);
    std::vector<remote_completion> late = take(2);
    EXPECT_EQ(late[0].user_data, 1U);
    EXPECT_EQ(late[1].user_data, 0U);
    EXPECT_EQ(late[0].result, -ETIMEDOUT);
    EXPECT_EQ(late[1].result, -ETIMEDOUT);
    remote_completion none;
    EXPECT_EQ(remote_queue_wait(q, &none, 1, 1, 1000), 0) << "the time is up";
    relay.cut(false);
    EXPECT_EQ(take(1)[0].result, 0);
}

// Another thread receives for all; the event loop's thread learns of its own operation's end.
TEST_F(QueuesHeld, DescriptorIsReadableWhenAnotherThreadReceivedTheAnswer) {
    std::atomic<bool> stop{false};
    std::thread other([&] {
        std::uint64_t word;
        while (!stop)
            EXPECT_EQ(rread(r, a + 512, &word, 8), 0);
    });
    std::uint64_t in = 0;
    for (int i = 0; i < 100; i++) {
        remote_op op = remote_op_read(a, &in, 8, 7);
        ASSERT_EQ(remote_queue_submit(q, &op, 1), 1);
        remote_completion done;
        int got = 0;
        while (!got) {
            std::uint64_t next_us = 0;
            pollfd ready{remote_queue_fd(q, &next_us), POLLIN, 0};
            ASSERT_GE(poll(&ready, 1, -1), 0);
            got = remote_queue_wait(q, &done, 1, 0, 0);
        }
        EXPECT_EQ(done.user_data, 7U);
    }
    stop = true;
    other.join();
}

// An event loop that has nothing in flight must be able to sleep.
TEST_F(QueuesHeld, LateAnswerLeavesTheDescriptorQuiet) {
    std::uint64_t in = 0, next_us = 0;
    pollfd ready{remote_queue_fd(q, &next_us), POLLIN, 0};
    relay.keep([](const rmem_head&) { return true; });
    remote_op op = remote_op_read(a, &in, 8, 1);
    op.timeout_us = 10'000;
    ASSERT_EQ(remote_queue_submit(q, &op, 1), 1);
    EXPECT_EQ(take(1)[0].result, -ETIMEDOUT);
    ASSERT_EQ(remote_queue_fd(q, &next_us), ready.fd);
    EXPECT_EQ(next_us, forever);
    EXPECT_EQ(poll(&ready, 1, 0), 0);
    relay.keep(nullptr);
    const std::size_t late = relay.kept();
    ASSERT_GT(late, 0U);
    relay.send_kept();
    EXPECT_EQ(poll(&ready, 1, -1), 1);
    remote_completion none;
    std::size_t looks = 0;
    do {
        EXPECT_EQ(remote_queue_wait(q, &none, 1, 0, 0), 0);
        ASSERT_EQ(remote_queue_fd(q, &next_us), ready.fd);
        ASSERT_LE(++looks, late) << "an idle event loop would spin";
    } while (poll(&ready, 1, 100));
}

TEST_F(QueuesHeld, CloseCancelsOperationsInFlight) {
    std::uint64_t in[70] = {};
    relay.cut(true);
    std::vector<remote_op> ops;
    for (std::size_t i = 0; i < std::size(in); i++)
        ops.push_back(i % 10 ? remote_op_read(a + 8 * i, &in[i], 8, i)
                             : remote_op_write(a + 8 * i, &in[i], 8, i));
    ASSERT_EQ(remote_queue_submit(q, ops.data(), ops.size()), 70);
    remote_queue_close(q);
    q = nullptr;
    relay.cut(false);
    std::uint64_t word;
    EXPECT_EQ(rread(r, a, &word, 8), 0);
}

// ---- linked operations ----

remote_op linked(remote_op op) {
    op.flags |= REMOTE_OP_LINK;
    return op;
}

TEST_P(Queues, LinkedOperationsAreExecutedInTheirOrder) {
    open_queue(16);
    raddr_t a = alloc(4096), b = a + 2048;
    std::uint64_t one = 1, in = 0, found = 0;
    const remote_op ops[] = {
        linked(remote_op_write(a, &one, 8, 0)), linked(remote_op_copy(b, a, 8, 1)),
        linked(remote_op_fetch(b, 8, REMOTE_ADD, 5, &found, 2)), remote_op_read(b, &in, 8, 3)};
    ASSERT_EQ(remote_queue_submit(q, ops, std::size(ops)), 4);
    EXPECT_EQ(take(4), (std::vector<int>{0, 0, 0, 0}));
    EXPECT_EQ(found, 1U);
    EXPECT_EQ(in, 6U);
}

TEST_P(Queues, FailureEndsTheOperationsLinkedBehindItAlone) {
    open_queue(16);
    raddr_t a = alloc(4096);
    std::uint64_t zero = 0, two = 2, three = 3, found[2] = {};
    const raddr_t none = a + (raddr_t{1} << 40);
    const remote_op ops[] = {linked(remote_op_write(a, &two, 8, 0)),
                             linked(remote_op_write(none, &two, 8, 1)),
                             linked(remote_op_write(a, &three, 8, 2)),
                             remote_op_write(a + 8, &three, 8, 3),
                             remote_op_write(a + 16, &three, 8, 4),
                             linked(remote_op_cas(a + 24, 8, &two, &three, found, 5)),
                             remote_op_write(a + 32, &three, 8, 6),
                             linked(remote_op_cas(a + 40, 8, &zero, &three, nullptr, 7)),
                             remote_op_write(a + 48, &three, 8, 8)};
    ASSERT_EQ(remote_queue_submit(q, ops, std::size(ops)), 9);
    EXPECT_EQ(take(9),
              (std::vector<int>{0, -EFAULT, -ECANCELED, -ECANCELED, 0, 0, -ECANCELED, 1, 0}));
    std::array<std::uint64_t, 7> there{};
    ASSERT_EQ(rread(r, a, there.data(), sizeof(there)), 0);
    EXPECT_EQ(there, (std::array<std::uint64_t, 7>{2, 0, 3, 0, 0, 3, 3}));
}

// Small reads share a message, but not with one that a link can cancel.
TEST_P(Queues, FailureEndsNoReadBesideTheLinkedOne) {
    open_queue(8);
    raddr_t a = alloc(64);
    std::uint64_t two = 2, three = 3, in[2] = {7, 7};
    const remote_op ops[] = {linked(remote_op_cas(a, 8, &two, &three, nullptr, 0)),
                             remote_op_read(a + 8, &in[0], 8, 1),
                             remote_op_read(a + 16, &in[1], 8, 2)};
    ASSERT_EQ(remote_queue_submit(q, ops, std::size(ops)), 3);
    EXPECT_EQ(take(3), (std::vector<int>{0, -ECANCELED, 0}));
    EXPECT_EQ(in[1], 0U);
}

// The integer changes when all bytes are written, however many messages that takes.
TEST_P(Queues, UnorderedPutThatFailsLeavesTheInteger) {
    open_queue(8);
    raddr_t a = alloc(4096);
    const raddr_t none = a + (raddr_t{1} << 40);
    std::uint64_t integer = 7;
    const std::vector<std::byte> bytes(1 << 20, std::byte{1});
    const remote_signal signal = {.address = a, .bytes = 8, .what = REMOTE_ADD, .value = 1};
    remote_op put = remote_op_put(none, bytes.data(), bytes.size(), &signal, 0);
    put.flags = REMOTE_OP_UNORDERED;
    ASSERT_EQ(remote_queue_submit(q, &put, 1), 1);
    EXPECT_EQ(take(1), std::vector<int>{-EFAULT});
    ASSERT_EQ(rread(r, a, &integer, 8), 0);
    EXPECT_EQ(integer, 0U);
}

TEST_P(Queues, LinkedRowThatIsNotWholeOrTooLongIsInvalid) {
    open_queue(8);
    raddr_t a = alloc(64 * 8);
    std::uint64_t value = 7;
    remote_op open_end[] = {remote_op_write(a, &value, 8, 0),
                            linked(remote_op_write(a, &value, 8, 1))};
    EXPECT_EQ(remote_queue_submit(q, open_end, 2), 1);
    EXPECT_EQ(take(1), std::vector<int>{0});
    EXPECT_EQ(remote_queue_submit(q, &open_end[1], 1), -EINVAL);
    std::vector<remote_op> row(REMOTE_LINKED_MAX + 1, linked(remote_op_write(a, &value, 8, 0)));
    row.back().flags = 0;
    EXPECT_EQ(remote_queue_submit(q, row.data(), row.size()), -EINVAL) << "too many";
    row.erase(row.begin());
    EXPECT_EQ(remote_queue_submit(q, row.data(), row.size()), -EINVAL) << "the queue is too short";
    row.resize(8);
    row.back().flags = 0;
    for (std::size_t n = 0; n < row.size(); n++)
        row[n].user_data = n;
    EXPECT_EQ(remote_queue_submit(q, row.data(), row.size()), 8);
    EXPECT_EQ(take(8), std::vector<int>(8, 0));
}

// More rows than a batch has operations, and than the queue has room for.
TEST_P(Queues, RowsStartWhole) {
    open_queue(200);
    raddr_t a = alloc(8 * 400);
    std::uint64_t value = 7;
    std::vector<remote_op> ops;
    for (std::uint64_t n = 0; n < 400; n++) {
        ops.push_back(remote_op_write(a + 8 * n, &value, 8, n % 198));
        ops.back().flags = n % 3 == 2 ? 0 : REMOTE_OP_LINK;
    }
    ops.back().flags = 0;
    EXPECT_EQ(remote_queue_submit(q, ops.data(), ops.size()), 198) << "200 holds 66 rows of three";
    EXPECT_EQ(take(198), std::vector<int>(198, 0));
}

// The relay keeps the first one's messages.
TEST_F(QueuesHeld, CancelledOperationEndsTheRowBehindIt) {
    for (std::uint64_t cancelled : {0, 1, 2}) {
        std::uint64_t value = 7, in[2] = {};
        relay.keep([](const rmem_head&) { return true; });
        const remote_op ops[] = {linked(remote_op_read(a, &in[0], 8, 0)),
                                 linked(remote_op_read(a + 8, &in[1], 8, 1)),
                                 remote_op_write(a + 16, &value, 8, 2)};
        ASSERT_EQ(remote_queue_submit(q, ops, 3), 3);
        EXPECT_EQ(remote_queue_cancel(q, cancelled), 1);
        relay.keep(nullptr);
        relay.send_kept();
        for (const remote_completion& each : take(3))
            EXPECT_EQ(each.result, each.user_data < cancelled ? 0 : -ECANCELED) << each.user_data;
        EXPECT_EQ(rread(r, a + 16, &value, 8), 0);
        EXPECT_EQ(value, 0U) << "nothing was written";
    }
}

// The completion of the late one is taken, and its slot used again, before the first one ends.
TEST_F(QueuesHeld, LinkedOperationThatIsLateIsForgottenByTheOneBefore) {
    remote_queue_options options{};
    options.size = sizeof(options);
    options.depth = 2;
    remote_queue_close(q);
    ASSERT_EQ(remote_queue_open(&q, r, &options), 0);
    std::uint64_t in[3] = {};
    relay.keep([](const rmem_head&) { return true; });
    remote_op ops[] = {linked(remote_op_read(a, &in[0], 8, 0)), remote_op_read(a + 8, &in[1], 8, 1),
                       remote_op_read(a, &in[2], 8, 2)};
    ops[1].timeout_us = 10'000;
    ASSERT_EQ(remote_queue_submit(q, ops, 2), 2);
    const remote_completion late = take(1).front();
    EXPECT_EQ(late.user_data, 1U);
    EXPECT_EQ(late.result, -ETIMEDOUT);
    ASSERT_EQ(remote_queue_submit(q, &ops[2], 1), 1);
    relay.keep(nullptr);
    relay.send_kept();
    for (const remote_completion& each : take(2))
        EXPECT_EQ(each.result, 0) << each.user_data;
}

// ---- release, fence, no order, limits of a call ----

TEST_P(Queues, ReleaseAndFenceEndAfterAllBefore) {
    open_queue(64);
    raddr_t a = alloc(1 << 20);
    std::vector<std::uint8_t> data(30'000, 5);
    std::vector<remote_op> ops;
    for (std::uint64_t n = 0; n < 20; n++)
        ops.push_back(remote_op_write(a + 30'000 * n, data.data(), data.size(), n));
    ops.push_back(remote_op_release(20));
    ops.push_back(remote_op_fence(21));
    ops.push_back(linked(remote_op_write(a, data.data(), 8, 22)));
    ops.push_back(linked(remote_op_release(23)));
    ops.push_back(remote_op_write(a, data.data(), 8, 24));
    ASSERT_EQ(remote_queue_submit(q, ops.data(), ops.size()), 25);
    std::vector<remote_completion> done(25);
    ASSERT_EQ(remote_queue_wait(q, done.data(), 25, 25, forever), 25);
    std::vector<std::size_t> place(25);
    for (std::size_t n = 0; n < 25; n++) {
        EXPECT_EQ(done[n].result, 0);
        place[done[n].user_data] = n;
    }
    for (std::size_t n = 0; n < 20; n++)
        EXPECT_LT(place[n], place[20]);
    EXPECT_LT(place[20], place[21]);
    EXPECT_LT(place[22], place[23]);
    EXPECT_LT(place[23], place[24]);
}

TEST_P(Queues, UnorderedOperationsHaveTheirResults) {
    open_queue(64);
    raddr_t a = alloc(1 << 16);
    std::array<std::uint64_t, 32> out, in{};
    std::iota(out.begin(), out.end(), 1);
    std::vector<remote_op> ops;
    for (std::uint64_t n = 0; n < 32; n++) {
        ops.push_back(remote_op_write(a + 8 * n, &out[n], 8, n));
        ops.back().flags = REMOTE_OP_UNORDERED;
    }
    ASSERT_EQ(remote_queue_submit(q, ops.data(), ops.size()), 32);
    EXPECT_EQ(take(32), std::vector<int>(32, 0));
    for (std::uint64_t n = 0; n < 32; n++) {
        ops[n] = remote_op_read(a + 8 * n, &in[n], 8, n);
        ops[n].flags = REMOTE_OP_UNORDERED;
    }
    ASSERT_EQ(remote_queue_submit(q, ops.data(), ops.size()), 32);
    EXPECT_EQ(take(32), std::vector<int>(32, 0));
    EXPECT_EQ(in, out);
}

TEST_P(Queues, ExecuteIsTheCallOfTheOperationsName) {
    raddr_t a = alloc(4096);
    std::uint64_t out = 5, in = 0, expected = 6, desired = 9, found = 0;
    remote_op write = remote_op_write(a, &out, 8, 0), read = remote_op_read(a, &in, 8, 0),
              add = remote_op_fetch(a, 8, REMOTE_ADD, 1, &found, 0),
              cas = remote_op_cas(a, 8, &expected, &desired, &found, 0), fence = remote_op_fence(0),
              bad = remote_op{}, link = linked(write);
    EXPECT_EQ(remote_execute(r, &write), 0);
    EXPECT_EQ(remote_execute(r, &add), 0);
    EXPECT_EQ(found, 5U);
    EXPECT_EQ(remote_execute(r, &cas), 1);
    EXPECT_EQ(remote_execute(r, &cas), 0) << "another integer is there";
    EXPECT_EQ(found, 9U);
    EXPECT_EQ(remote_execute(r, &fence), 0);
    EXPECT_EQ(remote_execute(r, &read), 0);
    EXPECT_EQ(in, 9U);
    EXPECT_EQ(remote_execute(r, &bad), -EINVAL);
    EXPECT_EQ(remote_execute(r, &link), -EINVAL);
    EXPECT_EQ(remote_execute(r, nullptr), -EINVAL);
    EXPECT_EQ(remote_execute(nullptr, &read), -EINVAL);
}

TEST_F(QueuesHeld, ExecuteEndsAtTheLimitOfItsCall) {
    std::uint64_t value = 7;
    remote_op read = remote_op_read(a, &value, 8, 0);
    read.timeout_us = 20'000;
    relay.keep([](const rmem_head&) { return true; });
    EXPECT_EQ(remote_execute(r, &read), -ETIMEDOUT);
    relay.keep(nullptr);
    relay.send_kept();
    read.timeout_us = 0;
    EXPECT_EQ(remote_execute(r, &read), 0);
    EXPECT_EQ(value, 0U);
}

} // namespace

} // namespace remora::test
