// SPDX-License-Identifier: GPL-2.0
// The C++ face: what it owns, and what it returns.
#include <array>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <memory_resource>
#include <numeric>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "backend.hpp"
#include "remote/coroutine.hpp"
#include "remote/pmr.hpp"

namespace remora::test {

namespace {

struct Point {
    double x, y;
};

class Cpp : public testing::Test {
protected:
    void SetUp() override {
        auto opened = remote::handle::open("embedded:size=4M");
        ASSERT_TRUE(opened) << remote_why();
        handle = std::move(*opened);
    }
    remote::handle handle;
};

// With a network that does what it's told.
class CppHeld : public testing::Test {
protected:
    CppHeld() { EXPECT_TRUE(handle && address) << remote_why(); }

    TestNode node;
    Relay relay{node.port(), 0};
    remote::result<remote::handle> handle = remote::handle::open(udp_target(relay.port()).c_str());
    remote::result<raddr_t> address =
        handle ? handle->alloc(8192) : remote::result<raddr_t>::failed(handle.error());
};

TEST_F(Cpp, TypedAddresses) {
    auto address = handle.alloc(4096);
    ASSERT_TRUE(address);
    remote::ptr<Point> point(handle, *address);
    EXPECT_TRUE(point.set({1, 2}));
    EXPECT_TRUE(point[3].set({3, 4}));
    EXPECT_EQ(point.get()->x, 1);
    EXPECT_EQ((point + 3).get()->y, 4);
    EXPECT_EQ(point[1].get()->y, 0);
    EXPECT_EQ(point[3].address(), *address + 3 * sizeof(Point));
    EXPECT_TRUE(handle.free(*address));
    EXPECT_EQ(point.get().error(), -EFAULT);
    EXPECT_EQ(point.set({}).error(), -EFAULT);
    EXPECT_EQ(handle.free(*address).error(), -EFAULT);
    EXPECT_EQ(remote::ptr<int>().get().error(), -EINVAL);
    EXPECT_EQ(remote::ptr<int>().set(1).error(), -EINVAL);
}

TEST_F(Cpp, AVectorFreesItself) {
    raddr_t address = 0;
    {
        auto numbers = remote::vector<int>::make(handle, 1000);
        ASSERT_TRUE(numbers);
        remote::vector<int> moved = std::move(*numbers);
        address = moved.address();
        EXPECT_EQ(moved.size(), 1000U);
        EXPECT_EQ(moved[999].get().value_or(-1), 0);
        std::vector<int> out(500), in(500);
        std::iota(out.begin(), out.end(), 7);
        EXPECT_TRUE(moved.write(250, out));
        EXPECT_TRUE(moved.read(250, in));
        EXPECT_EQ(in, out);
        EXPECT_EQ(*moved[250].get(), 7);
        EXPECT_EQ(moved.read(501, in).error(), -EFAULT);
        EXPECT_EQ(moved.write(1001, std::span<const int>()).error(), -EFAULT);
        EXPECT_TRUE(moved.write(1000, std::span<const int>()));
    }
    int number;
    EXPECT_EQ(rread(handle.get(), address, &number, sizeof(number)), -EFAULT);
}

TEST_F(Cpp, AMappingUnmapsItself) {
    auto address = handle.alloc(1 << 20);
    ASSERT_TRUE(address);
    {
        auto made = remote::mapping::make(handle, *address, 1 << 20);
        ASSERT_TRUE(made) << remote_why();
        remote::mapping moved = std::move(*made);
        EXPECT_EQ(made->size(), 0U);
        EXPECT_EQ(moved.as<int>().size(), (1U << 20) / sizeof(int));
        moved.as<int>()[1000] = 7;
        EXPECT_TRUE(moved.sync());
        EXPECT_EQ(remote::ptr<int>(handle, *address)[1000].get().value_or(0), 7);
        moved.as<int>()[1000] = 8;
        moved.data()[0] = std::byte{9};
    }
    EXPECT_EQ(remote::ptr<int>(handle, *address)[1000].get().value_or(0), 8);
    auto again = remote::mapping::make(handle, *address, 1 << 20, REMOTE_READ);
    ASSERT_TRUE(again) << remote_why();
    EXPECT_EQ(again->as<const int>()[0], 9);
    EXPECT_TRUE(again->unmap());
    EXPECT_TRUE(again->unmap()) << "nothing is left to be unmapped";
    EXPECT_EQ(again->sync().error(), -EINVAL);
}

TEST_F(Cpp, FailuresReturnTheirErrno) {
    EXPECT_EQ(remote::handle::open("nothing:").error(), -EINVAL);
    EXPECT_EQ(handle.alloc(0).error(), -EINVAL);
    EXPECT_EQ(handle.alloc(1 << 30).error(), -ENOSPC);
    EXPECT_EQ(remote::vector<Point>::make(handle, ~std::size_t{0}).error(), -EINVAL);
    EXPECT_TRUE(handle.release());
    EXPECT_EQ(remote::mapping::make(handle, 1 << 20, 1).error(), -EINVAL);
    EXPECT_EQ(remote::mapping().sync().error(), -EINVAL);
    remote::handle empty;
    EXPECT_EQ(empty.alloc(1).error(), -EINVAL);
    EXPECT_EQ(empty.release().error(), -EINVAL);
    EXPECT_EQ(remote::result<int>::failed(-EIO).value_or(5), 5);
}

TEST_F(Cpp, AtomicsHaveTheirSign) {
    auto address = handle.alloc(64);
    ASSERT_TRUE(address);
    remote::atomic<std::int32_t> number(handle, *address);
    EXPECT_EQ(*number.fetch_sub(3), 0);
    EXPECT_EQ(*number.fetch_min(5), -3);
    EXPECT_EQ(*number.fetch_max(5), -3);
    EXPECT_EQ(*number.exchange(-7), 5);
    std::int32_t expected = -8;
    EXPECT_FALSE(*number.compare_exchange(expected, 1));
    EXPECT_EQ(expected, -7);
    const remote::result<bool> done = number.compare_exchange(expected, 1);
    EXPECT_TRUE(*done);
    static_assert(!std::is_constructible_v<bool, remote::result<bool>>,
                  "it would hide a lost race");
    static_assert(std::is_constructible_v<bool, remote::result<int>>);
    EXPECT_EQ(*number.load(), 1);
    EXPECT_TRUE(number.store(-9));
    EXPECT_EQ(*number.load(), -9);
    EXPECT_EQ(remote::atomic<int>(handle, *address + 2).load().error(), -EINVAL);
    remote::atomic<std::uint64_t> wide(handle, *address + 8);
    EXPECT_EQ(*wide.fetch_or(~0ULL), 0U);
    EXPECT_EQ(*wide.fetch_min(4), ~0ULL);
    EXPECT_EQ(remote::atomic<int>(handle, *address + 2).fetch_add(1).error(), -EINVAL);
}

TEST_F(Cpp, PutsSignal) {
    auto address = handle.alloc(64);
    ASSERT_TRUE(address);
    remote::atomic<std::uint32_t> ready(handle, *address);
    const std::array<int, 3> out{1, 2, 3};
    EXPECT_EQ(ready.wait(REMOTE_NE, 0, 0).error(), -EAGAIN);
    EXPECT_TRUE(handle.put(*address + 8, std::span<const int>(out), ready.signal(REMOTE_ADD, 4)));
    EXPECT_EQ(ready.wait(REMOTE_GE, 4).value_or(0), 4U);
    std::array<int, 3> in{};
    EXPECT_TRUE(handle.read(*address + 8, std::span<int>(in)));
    EXPECT_EQ(in, out);
    remote::atomic<std::int32_t> below(handle, *address);
    EXPECT_TRUE(handle.put(*address + 8, std::span<const int>(out), below.signal(REMOTE_SMIN, -1)));
    EXPECT_EQ(*ready.fetch_add(0), ~0U);
    EXPECT_EQ(remote::atomic<std::uint32_t>(handle, 2).wait(REMOTE_EQ, 0).error(), -EINVAL);
}

TEST_F(Cpp, ALockIsGivenBackAtItsEnd) {
    static_assert(!std::is_move_constructible_v<remote::held_lock>, "it belongs to its thread");
    auto address = handle.alloc(REMOTE_LOCK_BYTES);
    ASSERT_TRUE(address);
    for (int i = 0; i < 3; i++) {
        remote::held_lock held(handle, *address);
        ASSERT_TRUE(held) << held.error();
        EXPECT_FALSE(held.passed_over());
        EXPECT_TRUE(held.extend());
        EXPECT_EQ(remote::held_lock(handle, *address).error(), -EDEADLK);
    }
    remote::held_lock held(handle, *address);
    EXPECT_TRUE(held.give());
    EXPECT_FALSE(held);
    EXPECT_EQ(held.extend().error(), -EPERM);
    EXPECT_TRUE(held.give());
    EXPECT_EQ(remote::held_lock(handle, 4).error(), -EINVAL);
}

TEST(CppResult, Chains) {
    using remote::result;
    const auto half = [](int value) {
        return value % 2 ? result<int>::failed(-EDOM) : result<int>(value / 2);
    };
    EXPECT_EQ(result<int>(8).and_then(half).and_then(half).value(), 2);
    EXPECT_EQ(result<int>(6).and_then(half).and_then(half).error(), -EDOM);
    EXPECT_EQ(result<int>::failed(-EIO).and_then(half).error(), -EIO);
    EXPECT_EQ(result<int>(8).transform([](int value) { return value / 3.0; }).value(), 8 / 3.0);
    EXPECT_EQ(result<int>::failed(-EIO).transform([](int) { return 1; }).error(), -EIO);
    int seen = 0;
    EXPECT_TRUE(result<int>(8).transform([&](int value) { seen = value; }));
    EXPECT_EQ(seen, 8);
    EXPECT_EQ(result<void>(0).and_then([&] { return half(seen); }).value_or(0), 4);
    EXPECT_EQ(result<void>(-EIO).and_then([&] { return half(seen); }).error(), -EIO);
    EXPECT_EQ(result<void>(0).transform([] { return 5; }).value_or(0), 5);
    EXPECT_EQ(result<void>(-EIO).transform([] {}).error(), -EIO);
    EXPECT_EQ(result<int>::failed(-EIO).value_or(3), 3);
}

// As std::invoke() calls them.
TEST(CppResult, ChainsThroughMembers) {
    struct Half {
        int value = 0;
        remote::result<int> half() const {
            return value % 2 ? remote::result<int>::failed(-EDOM) : remote::result<int>(value / 2);
        }
        int twice() const { return 2 * value; }
    };
    const remote::result<Half> eight(Half{8});
    EXPECT_EQ(eight.transform(&Half::value).value(), 8);
    EXPECT_EQ(eight.transform(&Half::twice).value(), 16);
    EXPECT_EQ(eight.and_then(&Half::half).value(), 4);
    EXPECT_EQ(remote::result<Half>(Half{7}).and_then(&Half::half).error(), -EDOM);
    EXPECT_EQ(remote::result<Half>(Half{7}).transform(&Half::value).value(), 7);
    EXPECT_EQ(remote::result<Half>::failed(-EIO).transform(&Half::value).error(), -EIO);
}

// Types that a program can't copy, and can't make of nothing.
TEST(CppResult, HoldsTypesThatAreOnlyMoved) {
    struct OnlyMoved {
        explicit OnlyMoved(int number) : number(std::make_unique<int>(number)) {}
        std::unique_ptr<int> number;
    };
    remote::result<OnlyMoved> one(OnlyMoved(7));
    EXPECT_EQ(*one->number, 7);
    auto number = std::move(one).transform([](OnlyMoved&& moved) { return *moved.number; });
    EXPECT_EQ(number.value(), 7);
    EXPECT_EQ(remote::result<OnlyMoved>::failed(-EIO).error(), -EIO);
}

TEST(CppResultDeathTest, AbortsWhenAskedForAValueThatIsNotThere) {
    EXPECT_DEATH((void)*remote::result<int>::failed(-EIO), "without a value");
    EXPECT_DEATH((void)remote::result<std::vector<int>>::failed(-EIO)->size(), "without a value");
    EXPECT_DEATH((void)remote::result<int>::failed(5), "negative errno");
    EXPECT_DEATH((void)(remote::span<int>()[0]), "beyond the end");
}

TEST_F(Cpp, EmptySpansAreNothingToDo) {
    remote::loop loop(handle);
    auto queue = remote::queue::open(handle);
    ASSERT_TRUE(queue);
    EXPECT_TRUE(handle.read(0, std::span<std::byte>()));
    EXPECT_TRUE(handle.write(0, std::span<const std::byte>()));
    EXPECT_TRUE(handle.read(0, std::span<int>()));
    EXPECT_TRUE(handle.readv({}));
    EXPECT_TRUE(handle.writev({}));
    EXPECT_TRUE(remote::span<int>().read(0, {}));
    EXPECT_EQ(queue->read(0, {}).wait().value_or(-1), 0);
    EXPECT_EQ(queue->write(0, {}).wait().value_or(-1), 0);
    remote::task task = [](remote::loop& its) -> remote::task {
        auto read = co_await its.read(0, {});
        auto written = co_await its.write(0, {});
        co_return read&& written ? 1 : -1;
    }(loop);
    EXPECT_TRUE(task.done());
    EXPECT_EQ(task.error(), 1);
}

TEST_F(Cpp, AnAllocationFreesItself) {
    raddr_t address = 0, kept = 0;
    {
        auto made = remote::allocation::make(handle, 1 << 16);
        ASSERT_TRUE(made);
        address = made->address();
        EXPECT_EQ(made->bytes(), 1U << 16);
        remote::allocation moved = std::move(*made);
        EXPECT_EQ(made->address(), 0U);
        EXPECT_EQ(made->bytes(), 0U);
        auto other = remote::allocation::make(handle, 1 << 16, REMOTE_READ);
        ASSERT_TRUE(other);
        kept = other->release();
        EXPECT_TRUE(other->free()) << "it owns nothing";
    }
    EXPECT_EQ(handle.free(address).error(), -EFAULT);
    EXPECT_TRUE(handle.free(kept));
    EXPECT_EQ(remote::allocation::make(handle, 0).error(), -EINVAL);
}

TEST_F(Cpp, ContainersLiveInMappedMemory) {
    auto memory = remote::allocation::make(handle, 2 << 20);
    ASSERT_TRUE(memory);
    auto mapped = remote::mapping::make(handle, memory->address(), 2 << 20);
    ASSERT_TRUE(mapped) << remote_why();
    remote::mapped_resource resource(std::move(*mapped));
    const std::byte* from = resource.data();
    {
        std::pmr::map<int, std::pmr::string> table(&resource);
        for (int i = 0; i < 2000; i++)
            table.emplace(i, std::string(100, static_cast<char>('a' + i % 26)));
        for (int i = 0; i < 2000; i += 2)
            table.erase(i);
        for (const auto& [key, value] : table)
            ASSERT_EQ(std::string(value), std::string(100, static_cast<char>('a' + key % 26)));
        auto at = reinterpret_cast<const std::byte*>(table.begin()->second.data());
        EXPECT_TRUE(at >= from && at < from + (2 << 20));
    }
    // Large blocks are used again, joined with their neighbours, at any alignment.
    for (int round = 0; round < 3; round++) {
        std::pmr::vector<std::byte> first(600 << 10, &resource), second(600 << 10, &resource);
        EXPECT_THROW((std::pmr::vector<std::byte>(2 << 20, &resource)), std::bad_alloc);
    }
    std::pmr::vector<std::byte> most(1200 << 10, &resource);
    void* aligned = resource.allocate(8192, 4096);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(aligned) % 4096, 0U);
    resource.deallocate(aligned, 8192, 4096);
    EXPECT_TRUE(resource.sync());
}

// ---- coroutines ----

remote::task exchange(remote::loop& loop, raddr_t integer, std::uint64_t from, std::uint64_t to,
                      std::uint64_t& found) {
    auto done = co_await loop.cas(integer, 8, &from, &to, &found);
    co_return done ? *done : done.error();
}

TEST_F(Cpp, AsynchronousCompareAndSwap) {
    auto address = handle.alloc(64);
    ASSERT_TRUE(address);
    remote::loop loop(handle);
    std::uint64_t found = 5;
    remote::task first = exchange(loop, *address, 0, 7, found);
    loop.run();
    EXPECT_EQ(first.error(), 1);
    EXPECT_EQ(found, 0U);
    remote::task second = exchange(loop, *address, 0, 8, found);
    loop.run();
    EXPECT_EQ(second.error(), 0);
    EXPECT_EQ(found, 7U);
    auto queue = remote::queue::open(handle);
    ASSERT_TRUE(queue);
    const std::uint64_t seven = 7, nine = 9;
    EXPECT_EQ(*queue->cas(*address, 8, &seven, &nine).wait(), 1);
    EXPECT_EQ(*queue->cas(*address, 8, &seven, &nine, &found).wait(), 0);
    EXPECT_EQ(found, 9U);
}

// A byte from one end of the region to the other, by way of the task's own memory.
remote::task carry(remote::loop& loop, raddr_t from, raddr_t to, raddr_t sum) {
    std::array<std::byte, 100> bytes;
    if (auto read = co_await loop.read(from, bytes); !read)
        co_return read.error();
    if (auto written = co_await loop.write(to, bytes); !written)
        co_return written.error();
    if (auto put = co_await loop.put(to, bytes, {sum - 8, 8, REMOTE_ADD, 1}); !put)
        co_return put.error();
    uint64_t found = 0;
    auto added = co_await loop.fetch(sum, 8, REMOTE_ADD, 1, &found);
    co_return added.error();
}

// More of them than the queue takes operations.
void carry_all(const remote::handle& handle) {
    constexpr raddr_t count = 50;
    auto address = handle.alloc(count * 1000);
    ASSERT_TRUE(address);
    raddr_t sum = *address + count * 1000 - 8;
    std::vector<std::byte> data(100);
    for (raddr_t i = 0; i < count; i++) {
        std::fill(data.begin(), data.end(), static_cast<std::byte>(i + 1));
        ASSERT_TRUE(handle.write(*address + i * 1000, std::span<const std::byte>(data)));
    }
    remote::loop loop(handle, 16);
    std::vector<remote::task> tasks;
    for (raddr_t i = 0; i < count; i++)
        tasks.push_back(carry(loop, *address + i * 1000, *address + i * 1000 + 500, sum));
    EXPECT_FALSE(tasks.back().done());
    EXPECT_EQ(tasks.back().error(), -EINPROGRESS);
    loop.run();
    for (const remote::task& task : tasks) {
        ASSERT_TRUE(task.done());
        EXPECT_EQ(task.error(), 0);
    }
    for (raddr_t i = 0; i < count; i++) {
        ASSERT_TRUE(handle.read(*address + i * 1000 + 500, std::span(data)));
        EXPECT_EQ(data[99], static_cast<std::byte>(i + 1));
    }
    EXPECT_EQ(*remote::atomic<uint64_t>(handle, sum).fetch_add(0), count);
    EXPECT_EQ(*remote::atomic<uint64_t>(handle, sum - 8).fetch_add(0), count);
}

TEST_F(Cpp, Coroutines) {
    carry_all(handle);
}

TEST(CppNetwork, Coroutines) {
    TestNode node;
    auto opened = remote::handle::open(udp_target(node.port()).c_str());
    ASSERT_TRUE(opened) << remote_why();
    carry_all(*opened);
}

remote::task read_one(remote::loop& loop, raddr_t from) {
    std::array<std::byte, 8> bytes;
    auto read = co_await loop.read(from, bytes);
    co_return read.error();
}

remote::task read_within(remote::loop& loop, raddr_t from, std::chrono::microseconds time) {
    std::array<std::byte, 8> bytes;
    auto read = co_await loop.read(from, bytes).within(time);
    co_return read.error();
}

// Long enough for a message of its own.
remote::task read_long(remote::loop& loop, raddr_t from) {
    std::array<std::byte, 2000> bytes;
    auto read = co_await loop.read(from, bytes);
    co_return read.error();
}

remote::task read_long_twice(remote::loop& loop, raddr_t from, int& ended) {
    std::vector<remote::task> parts;
    parts.push_back(read_long(loop, from));
    parts.push_back(read_long(loop, from));
    int error = co_await remote::all_of(std::move(parts));
    ended++;
    co_return error;
}

remote::task read_some_then_heal(remote::loop& loop, raddr_t from, Relay& relay) {
    std::array<std::byte, 8> bytes;
    for (int i = 0; i < 3; i++) {
        if (auto read = co_await loop.read(from, bytes); !read)
            co_return read.error();
    }
    relay.keep(nullptr);
    co_return 0;
}

// The relay loses the first task's datagrams until the second task has ended.
TEST_F(CppHeld, LostDatagramStallsItsOwnCoroutineAlone) {
    relay.keep([lost = *address](const rmem_head& head) {
        return head.type == RMEM_READ && head.addr == lost;
    });
    remote::loop loop(*handle);
    remote::task stalled = read_long(loop, *address);
    // Until then both are sent, in a datagram of their own.
    remote::task late = read_within(loop, *address, std::chrono::milliseconds(20));
    loop.run_once();
    EXPECT_FALSE(stalled.done());
    remote::task other = read_some_then_heal(loop, *address + 4096, relay);
    loop.run();
    EXPECT_EQ(other.error(), 0);
    EXPECT_EQ(stalled.error(), 0);
}

remote::task read_often(remote::loop& loop, raddr_t from) {
    std::array<std::byte, 8> bytes;
    for (;;) {
        if (auto read = co_await loop.read(from, bytes); !read)
            co_return read.error();
    }
}

// More tasks than operations may be under way, so that some are cancelled before they began.
TEST(CppNetwork, CoroutinesThatAreCancelledOrLate) {
    TestNode node;
    Relay relay(node.port(), 0);
    remote_options options{};
    options.size = sizeof(options);
    options.timeout_us = std::numeric_limits<std::uint64_t>::max();
    auto opened = remote::handle::open(udp_target(relay.port()).c_str(), &options);
    ASSERT_TRUE(opened) << remote_why();
    auto address = opened->alloc(100);
    ASSERT_TRUE(address);
    relay.cut(true);
    remote::loop loop(*opened, 2);
    remote::task late = read_within(loop, *address, std::chrono::milliseconds(20));
    loop.run();
    EXPECT_EQ(late.error(), -ETIMEDOUT);
    std::vector<remote::task> tasks;
    for (int i = 0; i < 4; i++)
        tasks.push_back(read_often(loop, *address));
    loop.cancel();
    loop.run();
    for (const remote::task& task : tasks)
        EXPECT_EQ(task.error(), -ECANCELED);
    relay.cut(false);
}

remote::task read_both(remote::loop& loop, raddr_t one, raddr_t two, int& order) {
    std::vector<remote::task> parts;
    parts.push_back(read_one(loop, one));
    parts.push_back(read_one(loop, two));
    int error = co_await remote::all_of(std::move(parts));
    order = order * 10 + 1;
    co_return error;
}

TEST_F(Cpp, TasksCompose) {
    auto address = handle.alloc(100);
    ASSERT_TRUE(address);
    remote::loop loop(handle);
    int order = 0;
    remote::task good = read_both(loop, *address, *address + 8, order);
    remote::task bad = read_both(loop, *address, raddr_t{1} << 50, order);
    EXPECT_EQ(order, 0);
    loop.run();
    EXPECT_EQ(order, 11);
    EXPECT_EQ(good.error(), 0);
    EXPECT_EQ(bad.error(), -EFAULT);
}

// A task awaits others, whose operations the relay keeps; what they read into is gone with them.
TEST_F(CppHeld, DestroyingAnUnfinishedTaskCancelsItsOperation) {
    relay.keep([](const rmem_head&) { return true; });
    remote::loop loop(*handle);
    int ended = 0;
    {
        remote::task stuck = read_long_twice(loop, *address, ended);
        remote::task late = read_within(loop, *address, std::chrono::milliseconds(20));
        loop.run_once();
        EXPECT_EQ(late.error(), -ETIMEDOUT);
        EXPECT_FALSE(stuck.done());
        remote::task unsent = read_long_twice(loop, *address, ended);
    }
    relay.keep(nullptr);
    relay.send_kept();
    loop.run();
    EXPECT_EQ(ended, 0);
    remote::task last = read_long(loop, *address);
    loop.run();
    EXPECT_EQ(last.error(), 0);
}

TEST_F(Cpp, ObjectsOutliveTheMoveOfTheirHandle) {
    auto opened = remote::handle::open("embedded:size=4M");
    ASSERT_TRUE(opened);
    auto numbers = remote::vector<int>::make(*opened, 10);
    ASSERT_TRUE(numbers);
    remote::handle moved = std::move(*opened);
    EXPECT_TRUE((*numbers)[3].set(7));
    remote::span<int> part = remote::span<int>(*numbers).subspan(2, 4);
    EXPECT_EQ(part[1].get().value_or(0), 7);
    std::array<int, 5> in{};
    EXPECT_EQ(part.read(0, in).error(), -EFAULT);
    EXPECT_TRUE(part.read(1, std::span(in).first(3)));
    EXPECT_EQ(in[0], 7);
    const remote_vec pieces[] = {{part.address() + 4, &in[4], sizeof(int)}};
    EXPECT_TRUE(moved.readv(pieces));
    EXPECT_EQ(in[4], 7);
    moved = remote::handle();
    EXPECT_EQ(part[0].get().error(), -EBADF);
}

// The object gives up what it had before, as its destructor does.
TEST_F(Cpp, MoveAssignmentReplacesALiveObject) {
    auto address = handle.alloc(4096);
    ASSERT_TRUE(address);
    auto first = remote::vector<int>::make(handle, 1000),
         second = remote::vector<int>::make(handle, 1000);
    ASSERT_TRUE(first && second);
    const raddr_t gone = first->address(), kept = second->address();
    *first = std::move(*second);
    EXPECT_EQ(first->address(), kept);
    EXPECT_EQ(handle.free(gone).error(), -EFAULT) << "the vector freed it";

    auto queue = remote::queue::open(handle);
    ASSERT_TRUE(queue);
    const std::array<std::byte, 8> out{std::byte{3}};
    std::array<std::byte, 8> in{};
    remote::pending operation = queue->write(*address + 128, out);
    operation = queue->read(*address + 128, in);
    remote::queue moved = std::move(*queue);
    EXPECT_EQ(operation.wait().value_or(-1), 0);
    EXPECT_EQ(in, out);

    const remote_vec pieces[] = {{*address + 200, const_cast<std::byte*>(out.data()), out.size()}};
    EXPECT_TRUE(handle.writev(pieces));
    EXPECT_TRUE(handle.read(*address + 200, std::span(in)));
    EXPECT_EQ(in, out);
}

TEST_F(Cpp, PendingOperationsNeedNoLoop) {
    auto address = handle.alloc(100);
    ASSERT_TRUE(address);
    auto queue = remote::queue::open(handle, 2);
    ASSERT_TRUE(queue);
    std::array<std::byte, 8> out{std::byte{5}}, in{};
    uint64_t found = 1;
    remote::pending write = queue->write(*address, out);
    remote::pending read = queue->read(*address, in);
    remote::pending fetch = queue->fetch(*address, 8, REMOTE_ADD, 1, &found);
    remote::pending moved = std::move(read);
    EXPECT_EQ(moved.wait().value_or(-1), 0);
    EXPECT_TRUE(write.done());
    EXPECT_TRUE(fetch.wait());
    EXPECT_EQ(found, 5U);
    EXPECT_EQ(in, out);
    EXPECT_EQ(remote::queue().read(*address, in).wait().error(), -EINVAL);
}

TEST_F(Cpp, PendingThatHasEndedKeepsItsResultWhenCancelled) {
    auto address = handle.alloc(100);
    ASSERT_TRUE(address);
    auto queue = remote::queue::open(handle);
    ASSERT_TRUE(queue);
    std::array<std::byte, 8> out{std::byte{5}}, in{};
    uint64_t found = 1;
    remote::pending write = queue->write(*address, out);
    remote::pending fetch = queue->fetch(*address, 8, REMOTE_ADD, 1, &found);
    remote::pending refused = queue->read(raddr_t{1} << 50, in);
    fetch.cancel();
    EXPECT_TRUE(fetch.wait());
    EXPECT_EQ(found, 5U);
    refused.cancel();
    EXPECT_EQ(refused.wait().error(), -EFAULT);
    EXPECT_TRUE(write.wait());
}

// The parent's thread alone takes completions of its queue.
TEST_F(CppHeld, PendingEndsInAChildOfFork) {
    auto queue = remote::queue::open(*handle);
    ASSERT_TRUE(queue);
    std::array<std::byte, 8> in{};
    relay.keep([](const rmem_head&) { return true; });
    remote::pending read = queue->read(*address, in), other = queue->read(*address, in);
    pid_t child = fork();
    if (!child) {
        other.cancel();
        _exit(read.done() && read.wait().error() == -ECHILD && other.wait().error() == -ECHILD ? 0
                                                                                               : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_FALSE(read.done());
    relay.keep(nullptr);
    relay.send_kept();
    EXPECT_TRUE(read.wait());
    EXPECT_TRUE(other.wait());
}

TEST_F(CppHeld, DestroyedPendingOperationIsCancelled) {
    auto queue = remote::queue::open(*handle);
    ASSERT_TRUE(queue);
    std::array<std::byte, 8> other{};
    relay.cut(true);
    {
        std::array<std::byte, 8> in{};
        remote::pending read = queue->read(*address, in);
        EXPECT_FALSE(read.done());
        remote::pending cancelled = queue->read(*address, in);
        cancelled.cancel();
        EXPECT_EQ(cancelled.wait().error(), -ECANCELED);
    }
    relay.cut(false);
    EXPECT_TRUE(queue->read(*address, other).wait());
}

TEST_F(Cpp, RegionsAreListed) {
    auto address = handle.alloc(100, REMOTE_RW | REMOTE_OWN_PAGES);
    ASSERT_TRUE(address);
    std::array<remote_region, 4> all;
    EXPECT_EQ(handle.list(0, all).value_or(9), 1U);
    EXPECT_EQ(all[0].address, *address);
    EXPECT_EQ(handle.list(0, {}).value_or(9), 0U);
    EXPECT_EQ(handle.alloc_at(*address, 100).error(), -EADDRNOTAVAIL);
    auto elsewhere = handle.alloc_at(*address, 100, REMOTE_RW | REMOTE_ANYWHERE);
    ASSERT_TRUE(elsewhere);
    EXPECT_NE(*elsewhere, *address);
    EXPECT_EQ(handle.list(0, all).value_or(9), 2U);
    auto queue = remote::queue::open(handle);
    ASSERT_TRUE(queue);
    EXPECT_TRUE(queue->release().wait());
    EXPECT_TRUE(queue->fence().wait());
}

TEST_F(Cpp, OperationOfNoKindIsInvalid) {
    remote::loop loop(handle);
    remote::task task = [](remote::loop& its) -> remote::task {
        auto done = co_await its.start(remote_op{});
        co_return done.error();
    }(loop);
    loop.run();
    EXPECT_EQ(task.error(), -EINVAL);
}

TEST_F(Cpp, FailedOperationReturnsItsErrorToTheCoroutine) {
    remote::loop loop(handle);
    remote::task task = carry(loop, raddr_t{1} << 50, 0, 0);
    loop.run();
    EXPECT_EQ(task.error(), -EFAULT);
}

} // namespace

} // namespace remora::test
