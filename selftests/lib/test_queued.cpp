// SPDX-License-Identifier: GPL-2.0
// Who waits for what in src/backend/queued.hpp, by a backend whose operations end when the test
// says so.
#include "src/backend/queued.hpp"

#include <atomic>
#include <deque>
#include <list>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "patience.hpp"
#include "src/api/heap.hpp"

namespace remora::lib {

namespace {

using test::comes_true;

class Manual final : public Queued {
public:
    // ---- the test's ----

    // The op that began as number n, from 0; waits for it.
    Op& begun(std::size_t n) {
        std::unique_lock lock(script_);
        changed_.wait(lock, [&] { return begun_.size() > n; });
        return *begun_[n];
    }
    std::size_t begun() {
        std::lock_guard lock(script_);
        return begun_.size();
    }
    // A thread that receives learns that the op has ended.
    void finish(Op& op, int error = 0) {
        std::lock_guard lock(script_);
        finished_.emplace_back(&op, error);
        changed_.notify_all();
    }
    void wait_for_receiver() {
        std::unique_lock lock(script_);
        changed_.wait(lock, [&] { return receivers_ > 0; });
    }
    // Does a thread sleep until the call has ended?
    bool is_awaited(const Call& call) {
        Lock lock(lock_);
        return call.waiters;
    }
    std::uint64_t wake_ups() {
        Lock lock(lock_);
        return Queued::wake_ups();
    }
    // The next flush, whose thread holds the handle's lock, lasts until so many other threads have
    // left their calls to the lock's holder. All flushes are recorded from then on.
    void hold_flush_until_left(std::size_t calls) {
        std::lock_guard lock(script_);
        held_for_ = calls;
        flushes_.clear();
    }
    // Does a flush that is held so wait?
    bool is_flushing() {
        std::lock_guard lock(script_);
        return !held_for_;
    }
    // Number of ops that began before each flush, since the one before it.
    std::vector<std::size_t> flushes() {
        Lock lock(lock_);
        std::lock_guard script(script_);
        return flushes_;
    }

    int dealloc_error = 0;

    // ---- the backend's ----

    std::uint32_t put_bytes() const override { return 1; }
    std::uint32_t vector_bytes() const override { return 0; }
    int alloc(std::uint64_t bytes, std::uint32_t, std::uint64_t, Region& region) override {
        region = {4096, bytes};
        return 0;
    }
    int dealloc(const Region&) override { return dealloc_error; }
    void stats(remote_counters&) override {}
    std::uint64_t page_bytes() const override { return 1; }
    bool disown() override { return true; }

private:
    void begin(Op& op) noexcept override {
        std::lock_guard lock(script_);
        begun_.push_back(&op);
        unflushed_++;
        changed_.notify_all();
    }
    void flush() noexcept override {
        std::size_t calls;
        {
            std::lock_guard lock(script_);
            flushes_.push_back(std::exchange(unflushed_, 0));
            calls = std::exchange(held_for_, 0);
            changed_.notify_all();
        }
        if (!comes_true([&] { return !calls || left_calls() >= calls; }))
            ADD_FAILURE() << left_calls() << " of " << calls << " threads have left their calls";
    }
    // Lock. The list can only be taken as a whole.
    std::size_t left_calls() {
        std::size_t count = 0;
        for (Call* call = left_.take(); call; count++) {
            Call* next = call->next_left;
            left_.add(*call);
            call = next;
        }
        return count;
    }
    bool expects() const override { return true; }
    void receive(Lock& lock, Clock::time_point until) noexcept override {
        lock.unlock();
        std::pair<Op*, int> ended{};
        {
            std::unique_lock script(script_);
            receivers_++;
            changed_.notify_all();
            auto some = [&] { return !finished_.empty(); };
            if (until == never)
                changed_.wait(script, some);
            if (until == never || changed_.wait_until(script, until, some)) {
                ended = finished_.front();
                finished_.pop_front();
            }
        }
        lock.lock();
        if (ended.first)
            end(*ended.first, ended.second);
    }
    void take_in() noexcept override {}
    void take_back(Call&) noexcept override {}

    std::mutex script_; // all below
    std::condition_variable changed_;
    unsigned receivers_ = 0;
    std::size_t held_for_ = 0, unflushed_ = 0;
    std::vector<std::size_t> flushes_;
    std::vector<Op*> begun_;
    std::deque<std::pair<Op*, int>> finished_;
};

// A thread that reads.
class Reader {
public:
    Reader(Manual& backend, std::uint64_t address, std::uint64_t bytes)
        : data_(bytes), thread_([this, &backend, address] {
              result_ = backend.transfer(Kind::read, address, data_.data(), data_.size(), never);
          }) {}
    int join() {
        thread_.join();
        return result_;
    }

private:
    std::vector<std::uint8_t> data_;
    int result_ = 1;
    std::thread thread_;
};

TEST(Waiting, ACompletionWakesItsOwnWaiter) {
    constexpr std::size_t threads = 64;
    Manual backend;
    std::list<Reader> readers;
    for (std::size_t n = 0; n < threads; n++) {
        readers.emplace_back(backend, n, 1);
        backend.begun(n);
    }
    // From the last one on; the first thread receives until the end.
    for (std::size_t n = threads; n-- > 0; readers.pop_back()) {
        backend.finish(backend.begun(n));
        EXPECT_EQ(readers.back().join(), 0);
    }
    // If each woke all, there would be two thousand.
    EXPECT_LE(backend.wake_ups(), 2 * threads);
}

TEST(Waiting, ACompletionOfAQueueAsksItsOwnThreadsAlone) {
    constexpr int threads = 8;
    Manual backend;
    Reader other(backend, 64, 1); // receives meanwhile
    backend.wait_for_receiver();
    const int one = 1, two = 2; // queues
    std::atomic<int> asked{0};
    std::atomic<bool> done{false};
    std::vector<std::thread> waiting;
    for (int n = 0; n < threads; n++)
        waiting.emplace_back([&] {
            backend.wait_until(
                &one,
                [&] {
                    asked++;
                    return done.load();
                },
                never);
        });
    ASSERT_TRUE(comes_true([&] { return asked >= threads; }));
    backend.wake_ups(); // takes the lock, so all sleep
    auto end_one = [&](const void* queue, std::size_t begun) {
        Call call;
        Op op;
        std::uint8_t byte;
        cut({&op, 1}, call, Kind::read, 0, &byte, 1);
        call.queue = queue;
        call.begin(1);
        backend.start({&op, 1});
        backend.finish(backend.begun(begun));
        EXPECT_TRUE(backend.wait(call, never));
    };
    end_one(&two, 1);
    EXPECT_EQ(asked, threads);
    done = true;
    end_one(&one, 2);
    for (std::thread& thread : waiting)
        thread.join();
    backend.finish(backend.begun(0));
    EXPECT_EQ(other.join(), 0);
}

TEST(Waiting, TheDutyToReceiveIsHandedOver) {
    constexpr std::size_t threads = 64;
    Manual backend;
    std::list<Reader> readers;
    for (std::size_t n = 0; n < threads; n++) {
        readers.emplace_back(backend, n, 1);
        backend.begun(n);
    }
    // Each one that ends is the one that receives, or may be.
    for (std::size_t n = 0; n < threads; n++, readers.pop_front()) {
        backend.finish(backend.begun(n));
        EXPECT_EQ(readers.front().join(), 0);
    }
    EXPECT_LE(backend.wake_ups(), 3 * threads);
}

TEST(Waiting, AllThreadsThatWaitForOneCallAreWoken) {
    Manual backend;
    Call call;
    Op op;
    std::uint8_t byte;
    cut({&op, 1}, call, Kind::read, 0, &byte, 1);
    call.begin(1);
    backend.start({&op, 1});
    std::vector<std::thread> threads;
    for (int n = 0; n < 8; n++)
        threads.emplace_back([&] { EXPECT_TRUE(backend.wait(call, never)); });
    // One that doesn't wait long leaves the others' list whole.
    EXPECT_FALSE(backend.wait(call, Clock::now()));
    backend.finish(op);
    for (std::thread& thread : threads)
        thread.join();
}

TEST(Waiting, ReleaseWaitsForAllEarlierOnes) {
    Manual backend;
    Reader first(backend, 0, 1);
    Op& one = backend.begun(0);
    Reader second(backend, 1, 1);
    Op& two = backend.begun(1);
    std::thread released([&] { EXPECT_EQ(backend.release(never), 0); });
    backend.finish(two);
    EXPECT_EQ(second.join(), 0);
    backend.finish(one);
    EXPECT_EQ(first.join(), 0);
    released.join();
}

// Threads that find the handle's lock taken have their messages sent by one flush (Flock).
TEST(Combining, OperationsThatBeginDuringAFlushLeaveTogetherInTheNextOne) {
    constexpr std::size_t threads = 8;
    Manual backend;
    backend.hold_flush_until_left(threads);
    std::list<Reader> readers;
    readers.emplace_back(backend, 0, 1);
    backend.begun(0);
    // The flush of the first one begins before any other thread looks at the lock.
    ASSERT_TRUE(comes_true([&] { return backend.is_flushing(); }));
    for (std::size_t n = 1; n <= threads; n++)
        readers.emplace_back(backend, n, 1);
    backend.begun(threads);
    const std::vector<std::size_t> flushes = backend.flushes();
    for (std::size_t n = 0; n <= threads; n++)
        backend.finish(backend.begun(n));
    for (Reader& reader : readers)
        EXPECT_EQ(reader.join(), 0);
    ASSERT_GE(flushes.size(), 2U);
    EXPECT_EQ(flushes[0], 1U);
    EXPECT_EQ(flushes[1], threads);
}

TEST(Freeing, AfterARefusalThatNamesNoReasonTheRegionCanBeFreedAgain) {
    Manual backend;
    Locks locks(backend);
    Heap heap(backend, locks);
    raddr_t address = 0;
    ASSERT_EQ(heap.alloc(100, REMOTE_RW, 0, address), 0);
    for (int error : {-EIO, -ECONNRESET, -ETIMEDOUT}) {
        backend.dealloc_error = error;
        EXPECT_EQ(heap.free(address), error);
    }
    backend.dealloc_error = 0;
    EXPECT_EQ(heap.free(address), 0);
    EXPECT_EQ(heap.free(address), -EFAULT);
}

TEST(Freeing, AnotherHandlesRegionIsGoneOnlyIfTheNodeSaysSo) {
    Manual backend;
    Locks locks(backend);
    Heap heap(backend, locks);
    struct Case {
        int read, freed;
    };
    std::size_t n = 0;
    for (const Case& test :
         {Case{-EFAULT, 0}, Case{0, -EFAULT}, Case{-ETIMEDOUT, -ETIMEDOUT}, Case{-EIO, -EIO}}) {
        std::thread node([&] { backend.finish(backend.begun(n), test.read); });
        EXPECT_EQ(heap.free_sized(77, 10), test.freed);
        node.join();
        n++;
    }
}

TEST(GivingUp, ACallThatIsCancelledBeforeItBeginsEndsWithoutTheNode) {
    Manual backend;
    Reader other(backend, 64, 1); // receives meanwhile
    backend.wait_for_receiver();
    Call call;
    Op op;
    std::uint8_t byte;
    cut({&op, 1}, call, Kind::read, 0, &byte, 1);
    call.begin(1);
    call.ops = {&op, 1};
    std::thread canceller([&] { backend.cancel(call); });
    ASSERT_TRUE(comes_true([&] { return backend.is_awaited(call); }));
    backend.start({&op, 1});
    EXPECT_EQ(backend.begun(), 1U);
    if (backend.begun() > 1)
        backend.finish(op);
    canceller.join();
    EXPECT_EQ(call.result, -ECANCELED);
    backend.finish(backend.begun(0));
    EXPECT_EQ(other.join(), 0);
}

TEST(LongTransfer, APieceBeginsAsSoonAsTheFirstInFlightEnds) {
    Manual backend;
    Reader reader(backend, 0, 8 * op_bytes_max);
    for (std::size_t n = 0; n < 8; n++) {
        if (n >= 4)
            backend.finish(backend.begun(n - 4)); // the three behind it are in flight
        EXPECT_EQ(backend.begun(n).address, n * op_bytes_max);
    }
    for (std::size_t n = 4; n < 8; n++)
        backend.finish(backend.begun(n));
    EXPECT_EQ(reader.join(), 0);
}

TEST(LongTransfer, AfterAFailureNoPieceBegins) {
    Manual backend;
    Reader reader(backend, 0, 8 * op_bytes_max);
    backend.begun(3);
    backend.finish(backend.begun(1), -EACCES);
    backend.finish(backend.begun(0), -EFAULT);
    for (std::size_t n = 2; n < 4; n++)
        backend.finish(backend.begun(n));
    EXPECT_EQ(reader.join(), -EFAULT);
    EXPECT_EQ(backend.begun(), 4U);
}

} // namespace

} // namespace remora::lib
