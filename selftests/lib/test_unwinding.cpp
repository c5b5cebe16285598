// SPDX-License-Identifier: GPL-2.0
// Calls that something would unwind: threads that are cancelled in them, and allocations that fail.
// The handle goes on after each, and nothing is lost at the node.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <pthread.h>

#include "backend.hpp"
#include "mappable.hpp"
#include "patience.hpp"
#include "remote/lock.h"
#include "remote/queue.h"

namespace {

// The calling thread's: how many allocations succeed before one fails; negative: none will fail.
thread_local int left_to_succeed = -1;
thread_local bool has_failed = false;

void count_allocation() {
    if (left_to_succeed < 0 || left_to_succeed--)
        return;
    has_failed = true;
    throw std::bad_alloc();
}

} // namespace

// The sanitizer's own ones give the memory, so its checks at the delete stay.
void* operator new(std::size_t bytes) {
    static const auto system = reinterpret_cast<void* (*)(std::size_t)>(dlsym(RTLD_NEXT, "_Znwm"));
    count_allocation();
    return system(bytes);
}

void* operator new[](std::size_t bytes) {
    static const auto system = reinterpret_cast<void* (*)(std::size_t)>(dlsym(RTLD_NEXT, "_Znam"));
    count_allocation();
    return system(bytes);
}

#ifdef __SANITIZE_ADDRESS__
extern "C" void __asan_handle_no_return();
#endif

namespace remora::test {

namespace {

constexpr std::size_t long_bytes = 3 << 20; // several operations, not all in flight at once
constexpr std::uint64_t forever = UINT64_MAX;

class Unwinding : public Backends {};

INSTANTIATE_TEST_SUITE_P(Lib, Unwinding, testing::ValuesIn(kinds()), kind_name);

// ---- cancelled threads ----

// AddressSanitizer doesn't see that cancellation leaves frames, and would take the thread's own end
// for a write beside their objects.
void cancellation_point() {
#ifdef __SANITIZE_ADDRESS__
    __asan_handle_no_return();
#endif
    pthread_testcancel();
}

// A thread that is cancelled at its what()'s next cancellation point.
class Cancellable {
public:
    explicit Cancellable(std::function<void()> what) : what_(std::move(what)) {
        pthread_create(&thread_, nullptr, run, this);
    }
    Cancellable(const Cancellable&) = delete;
    Cancellable& operator=(const Cancellable&) = delete;
    ~Cancellable() { end(); }

    // Cancels it and waits until it has ended.
    void end() {
        if (ended_)
            return;
        ended_ = true;
        pthread_cancel(thread_);
        pthread_join(thread_, nullptr);
    }

private:
    static void* run(void* self) {
        static_cast<Cancellable*>(self)->what_();
        return nullptr;
    }

    std::function<void()> what_;
    pthread_t thread_{};
    bool ended_ = false;
};

TEST_P(Unwinding, ThreadsThatAreCancelledInCallsLeaveTheOthersAlone) {
    const Watchdog watchdog("a call after another thread was cancelled");
    raddr_t a = alloc(long_bytes);
    const unsigned rounds = is_slow() ? 5 : 20;
    for (unsigned round = 0; round < rounds; round++) {
        std::vector<std::uint8_t> data(long_bytes);
        std::atomic<unsigned> reads{0};
        Cancellable reader([&] {
            for (;; reads++) {
                cancellation_point();
                EXPECT_EQ(rread(r, a, data.data(), 1 + data.size() * (reads % 3) / 3), 0);
            }
        });
        ASSERT_TRUE(comes_true([&] { return reads > round % 4; }));
        reader.end();
        std::uint8_t byte;
        ASSERT_EQ(rread(r, a, &byte, 1), 0);
    }
}

// Its ticket isn't lost with it.
TEST_P(Unwinding, ThreadThatIsCancelledWhileItWaitsForALockTakesIt) {
    const Watchdog watchdog("a lock after a waiting thread was cancelled");
    raddr_t lock = alloc(16);
    ASSERT_EQ(remote_lock_init(r, lock, 3'600'000'000), 0);
    ASSERT_EQ(remote_lock(r, lock), 0);
    std::atomic<bool> began{false};
    std::atomic<int> took{1}, gave{1};
    Cancellable waiter([&] {
        began = true;
        took = remote_lock(r, lock);
        gave = remote_unlock(r, lock);
        cancellation_point();
    });
    // Its ticket is drawn: then it waits, or soon does.
    ASSERT_TRUE(comes_true([&] {
        std::uint32_t next = 0;
        return began && !rread(r, lock + 8, &next, sizeof(next)) && next == 2;
    }));
    ASSERT_EQ(remote_unlock(r, lock), 0);
    waiter.end();
    EXPECT_EQ(took, 0);
    EXPECT_EQ(gave, 0);
    EXPECT_EQ(remote_lock(r, lock), 0);
    EXPECT_EQ(remote_unlock(r, lock), 0);
}

// ---- allocations that fail ----

// A call, and the functions that make and undo its conditions with all the memory there is.
struct Step {
    const char* name;
    std::function<int()> call;
    std::function<void()> before = [] {};
    std::function<void()> undo = [] {}; // after a success
};

class Poor : public Backends {
protected:
    int open_again(remote_t** other) const { return remote_open(other, target_.c_str(), nullptr); }
    // Each allocation of the call fails once.
    void run(const Step& step) {
        SCOPED_TRACE(step.name);
        for (int n = 0;; n++) {
            ASSERT_LT(n, 10'000);
            step.before();
            has_failed = false;
            left_to_succeed = n;
            const int result = step.call();
            left_to_succeed = -1;
            if (result >= 0)
                step.undo();
            else
                EXPECT_EQ(result, -ENOMEM) << remote_strerror(result) << ", allocation " << n;
            std::uint8_t byte;
            ASSERT_EQ(rread(r, a, &byte, 1), 0) << "after allocation " << n;
            if (has_failed)
                continue;
            EXPECT_GE(result, 0) << remote_strerror(result);
            return;
        }
    }
    std::uint64_t free_bytes() {
        remote_node node{};
        node.size = sizeof(node);
        EXPECT_EQ(remote_info(r, &node), 0) << remote_why();
        return node.free_bytes;
    }
    void close_queue() {
        remote_queue_close(q);
        q = nullptr;
    }

    // Each allocation makes a round, and by edm each datagram makes some.
    const std::size_t bytes = GetParam() == Kind::edm ? 30'000 : long_bytes, third = bytes / 3;
    raddr_t a = alloc(long_bytes), b = alloc(long_bytes);
    raddr_t found = 0;
    std::vector<std::uint8_t> data = std::vector<std::uint8_t>(bytes);
    remote_queue_t* q = nullptr;

private:
    const std::string target_ = target();
};

INSTANTIATE_TEST_SUITE_P(Lib, Poor, testing::ValuesIn(kinds()), kind_name);

TEST_P(Poor, HandlesAreOpenedAndClosed) {
    remote_t* other = nullptr;
    run({"open", [&] { return open_again(&other); }, [] {}, [&] { remote_close(other); }});
    run({"close",
         [&] {
             remote_close(other);
             return 0;
         },
         [&] { ASSERT_EQ(open_again(&other), 0); }});
}

TEST_P(Poor, FailedAllocationLeavesNothingAtTheNode) {
    const std::uint64_t page = page_bytes_of(r), before = free_bytes();
    auto free = [&] { ASSERT_EQ(rfree(r, found), 0); };
    auto allocate = [&](std::uint64_t bytes) {
        return [&, bytes] { ASSERT_EQ(ralloc(r, bytes, REMOTE_RW, &found), 0); };
    };
    run({"region", [&] { return ralloc(r, page, REMOTE_RW, &found); }, [] {}, free});
    run({"wanted", [&] { return remote_alloc_at(r, b + 64 * page, page, REMOTE_RW, &found); },
         [] {}, free});
    run({"small", [&] { return ralloc(r, page / 4, REMOTE_RW, &found); }, [] {}, free});
    for (std::uint64_t bytes : {page, page / 4}) {
        run({"free",
             [&] {
                 const int error = rfree(r, found);
                 return error == -ENOMEM ? rfree(r, found) : error;
             },
             allocate(bytes)});
    }
    run({"free sized",
         [&] {
             const int error = remote_free_sized(r, found, page);
             return error == -ENOMEM ? remote_free_sized(r, found, page) : error;
         },
         allocate(page)});
    EXPECT_EQ(free_bytes(), before);
}

TEST_P(Poor, SmallAllocationsFillTheirPageAgain) {
    const std::uint64_t page = page_bytes_of(r);
    std::array<raddr_t, 4> quarters{};
    for (raddr_t& each : quarters)
        ASSERT_EQ(ralloc(r, page / 4, REMOTE_RW, &each), 0);
    run({"free of a full page", [&] { return rfree(r, quarters[2]); }, [] {},
         [&] {
             raddr_t again = 0;
             ASSERT_EQ(ralloc(r, page / 4, REMOTE_RW, &again), 0);
             EXPECT_EQ(again, quarters[2]);
         }});
    for (raddr_t each : quarters)
        EXPECT_EQ(rfree(r, each), 0);
}

TEST_P(Poor, DataGoesBothWays) {
    const std::array<remote_vec, 3> pieces{
        {{a, data.data(), 10}, {a + 100, data.data() + 10, third}, {b, data.data(), 1}}};
    const remote_signal signal{b, 8, REMOTE_ADD, 1};
    std::uint64_t word = 0;
    run({"read", [&] { return rread(r, a, data.data(), data.size()); }});
    run({"write", [&] { return rwrite(r, a, data.data(), data.size()); }});
    run({"readv", [&] { return remote_readv(r, pieces.data(), pieces.size()); }});
    run({"writev", [&] { return remote_writev(r, pieces.data(), pieces.size()); }});
    run({"copy", [&] { return remote_copy(r, a, b, data.size()); }});
    run({"put", [&] { return remote_put(r, a, data.data(), data.size(), &signal); }});
    run({"fetch", [&] { return remote_fetch(r, a, 8, REMOTE_ADD, 1, &word); }});
    run({"cas", [&] { return remote_cas(r, a, 8, &word, &word); }});
    run({"wait", [&] { return remote_wait(r, b, 8, REMOTE_GE, 0, forever, &word); }});
    run({"release", [&] { return remote_release(r); }});
    run({"fence", [&] { return remote_fence(r); }});
    remote_counters counters{};
    counters.size = sizeof(counters);
    run({"stats", [&] { return remote_stats(r, &counters); }});
    run({"info", [&] {
             remote_node node{};
             node.size = sizeof(node);
             return remote_info(r, &node);
         }});
    raddr_t lost = 0;
    run({"lost", [&] { return remote_lost(r, &lost, &word); }});
}

TEST_P(Poor, NamesBuffersAndMappings) {
    std::uint64_t bytes = 0;
    auto withdraw = [&] { ASSERT_EQ(remote_publish(r, "name", 0), 0); };
    run({"publish", [&] { return remote_publish(r, "name", a); }, [] {}, withdraw});
    ASSERT_EQ(remote_publish(r, "name", a), 0);
    run({"lookup", [&] { return remote_lookup(r, "name", &found, &bytes); }});
    withdraw();
    run({"register", [&] { return remote_register(r, data.data(), data.size()); }, [] {},
         [&] { ASSERT_EQ(remote_unregister(r, data.data()), 0); }});
    run({"unregister", [&] { return remote_unregister(r, data.data()); },
         [&] { ASSERT_EQ(remote_register(r, data.data(), data.size()), 0); }});
    SKIP_UNLESS_MAPPABLE();
    void* memory = nullptr;
    auto unmap = [&] { ASSERT_EQ(remote_munmap(r, memory), 0); };
    auto map = [&] {
        ASSERT_EQ(remote_mmap(r, a, 1 << 20, REMOTE_RW, nullptr, &memory), 0) << remote_why();
        *static_cast<volatile std::uint8_t*>(memory) = 1;
    };
    run({"mmap", [&] { return remote_mmap(r, a, 1 << 20, REMOTE_RW, nullptr, &memory); }, [] {},
         unmap});
    run({"msync", [&] { return remote_msync(r, memory, 1 << 20); }, map, unmap});
    run({"munmap", [&] { return remote_munmap(r, memory); }, map});
}

// A ticket that nobody notes would be passed over after the lease, and remote_lock() return 1.
TEST_P(Poor, Locks) {
    raddr_t lock = alloc(16);
    auto take = [&] { ASSERT_EQ(remote_lock(r, lock), 0); };
    auto give = [&] { ASSERT_EQ(remote_unlock(r, lock), 0); };
    run({"init", [&] { return remote_lock_init(r, lock, 1'000'000); }});
    auto passes_none_over = [&] {
        const int got = remote_lock(r, lock);
        return got == 1 ? -ETIMEDOUT : got;
    };
    run({"lock", passes_none_over, [] {}, give});
    run({"extend", [&] { return remote_lock_extend(r, lock); }, take, give});
    run({"unlock", [&] { return remote_unlock(r, lock); }, take});
}

TEST_P(Poor, Queues) {
    const std::array<remote_vec, 2> pieces{{{a, data.data(), 100}, {b, data.data() + 100, 100}}};
    const remote_signal signal{b, 8, REMOTE_ADD, 1};
    std::uint64_t found_range[2];
    const std::array<remote_op, 12> ops{
        remote_op_read(a, data.data(), 8, 1),
        remote_op_read(a + 8, data.data() + 8, 8, 2),
        remote_op_write(a, data.data(), third, 3),
        remote_op_readv(pieces.data(), pieces.size(), 4),
        remote_op_writev(pieces.data(), pieces.size(), 5),
        remote_op_copy(a, b, third, 6),
        remote_op_put(a, data.data(), third, &signal, 7),
        remote_op_fetch(a, 8, REMOTE_ADD, 1, nullptr, 8),
        remote_op_publish("queued", a, 9),
        remote_op_lookup("none", found_range, 10),
        remote_op_publish("queued", 0, 11),
        remote_op_read(b, data.data(), third, 12),
    };
    std::array<remote_completion, ops.size()> done;
    auto open_queue = [&] { ASSERT_EQ(remote_queue_open(&q, r, nullptr), 0); };
    auto fill = [&] {
        close_queue(); // of a call that failed
        open_queue();
        ASSERT_EQ(remote_queue_submit(q, ops.data(), 8), 8);
    };
    run({"open", [&] { return remote_queue_open(&q, r, nullptr); }, [] {}, [&] { close_queue(); }});
    for (std::size_t at = 0; at < ops.size(); at++) {
        SCOPED_TRACE(at);
        open_queue();
        run({"submit", [&] { return remote_queue_submit(q, &ops[at], ops.size() - at); }, [] {},
             [&] {
                 ASSERT_GE(remote_queue_wait(q, done.data(), done.size(), done.size(), forever), 1);
             }});
        close_queue();
    }
    run({"wait",
         [&] {
             // A call that fails has taken none.
             int taken = 0;
             while (taken < 8) {
                 const int now = remote_queue_wait(q, done.data(), done.size(), 8, forever);
                 if (!now)
                     return -ENOENT;
                 taken += now == -ENOMEM ? 0 : now;
             }
             return taken;
         },
         fill, [&] { close_queue(); }});
    run({"cancel",
         [&] {
             const int cancelled = remote_queue_cancel(q, 3);
             return cancelled == -ENOENT ? 0 : cancelled;
         },
         fill, [&] { close_queue(); }});
    std::uint64_t next_us = 0;
    run({"fd",
         [&] {
             const int fd = remote_queue_fd(q, &next_us);
             return fd == -ENOMEM ? remote_queue_fd(q, &next_us) : fd;
         },
         open_queue, [&] { close_queue(); }});
    run({"close",
         [&] {
             close_queue();
             return 0;
         },
         fill});
}

} // namespace

} // namespace remora::test
