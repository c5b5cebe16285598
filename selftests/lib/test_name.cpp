// SPDX-License-Identifier: GPL-2.0
// Names of allocations: who finds them, when they end, and what is refused. Lists of regions.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "async.hpp"
#include "backend.hpp"
#include "remote/coroutine.hpp"
#include "remote/queue.h"
#include "victim.hpp"

namespace remora::test {

namespace {

constexpr std::uint64_t forever = std::numeric_limits<std::uint64_t>::max();
constexpr unsigned names_max = 128;

using Found = std::array<std::uint64_t, 2>; // address, bytes

class Names : public Backends {
protected:
    ~Names() override {
        if (other && other != r)
            remote_close(other);
    }
    // Another handle to the same memory, if there can be one.
    remote_t* another() { return other = other ? other : is_shared() ? open() : r; }

    // The call, or the operation of a queue and its end.
    static int publish(bool async, remote_t* by, const char* name, raddr_t address) {
        if (!async)
            return remote_publish(by, name, address);
        AsyncOp op;
        int error = publish_async(by, name, address, &op);
        return error ? error : poll_all(by, &op, 1, forever);
    }
    static int lookup(bool async, remote_t* by, const char* name, Found& found) {
        found = {1, 1};
        if (!async)
            return remote_lookup(by, name, &found[0], &found[1]);
        AsyncOp op;
        int error = lookup_async(by, name, found.data(), &op);
        return error ? error : poll_all(by, &op, 1, forever);
    }
    int lookup(const char* name) {
        Found found;
        return lookup(false, r, name, found);
    }

    remote_t* other = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Lib, Names, testing::ValuesIn(kinds()), kind_name);

TEST_P(Names, PublishedAllocationIsFoundByAnotherHandle) {
    const std::uint64_t page = page_bytes_of(r);
    for (bool async : {false, true}) {
        raddr_t a = alloc(3 * page - 1), address = 0;
        ASSERT_EQ(remote_write(r, a, "hello", 5), 0);
        ASSERT_EQ(publish(async, r, "table", a), 0);
        Found found;
        ASSERT_EQ(lookup(async, another(), "table", found), 0);
        EXPECT_EQ(found, (Found{a, 3 * page}));
        std::array<char, 5> back{};
        EXPECT_EQ(remote_read(another(), found[0], back.data(), back.size()), 0);
        EXPECT_EQ(std::string(back.data(), back.size()), "hello");
        EXPECT_EQ(remote_lookup(another(), "table", &address, nullptr), 0);
        EXPECT_EQ(address, a);
        for (const char* near : {"tab", "table ", "Table"})
            EXPECT_EQ(lookup(async, another(), near, found), -ENOENT);
        ASSERT_EQ(publish(async, another(), "table", 0), 0) << "any handle withdraws it";
    }
}

TEST_P(Names, ExistingNameIsRefusedUntilWithdrawn) {
    const std::uint64_t page = page_bytes_of(r);
    raddr_t a = alloc(page), b = alloc(2 * page);
    for (bool async : {false, true}) {
        EXPECT_EQ(publish(async, r, "a", 0), -ENOENT);
        ASSERT_EQ(publish(async, r, "a", a), 0);
        EXPECT_EQ(publish(async, r, "a", a), -EEXIST);
        EXPECT_EQ(publish(async, another(), "a", b), -EEXIST);
        ASSERT_EQ(publish(async, r, "alias", a), 0) << "an allocation may have several names";
        ASSERT_EQ(publish(async, r, "a", 0), 0);
        EXPECT_EQ(lookup("a"), -ENOENT);
        EXPECT_EQ(lookup("alias"), 0);
        ASSERT_EQ(publish(async, another(), "a", b), 0);
        Found found;
        ASSERT_EQ(lookup(async, r, "a", found), 0);
        EXPECT_EQ(found, (Found{b, 2 * page}));
        EXPECT_EQ(publish(async, r, "a", 0), 0);
        EXPECT_EQ(publish(async, r, "alias", 0), 0);
    }
}

TEST_P(Names, NamesEndWithTheirAllocation) {
    raddr_t a = 0, b = alloc(page_bytes_of(r));
    ASSERT_EQ(remote_alloc(r, page_bytes_of(r), REMOTE_READ, &a), 0);
    ASSERT_EQ(remote_publish(r, "a", a), 0);
    ASSERT_EQ(remote_publish(r, "alias", a), 0);
    ASSERT_EQ(remote_publish(r, "b", b), 0);
    EXPECT_EQ(remote_free(r, a), 0);
    EXPECT_EQ(lookup("a"), -ENOENT);
    EXPECT_EQ(lookup("alias"), -ENOENT);
    EXPECT_EQ(lookup("b"), 0);
    EXPECT_EQ(remote_publish(r, "a", a), -EFAULT);
}

TEST_P(Names, NameOutlivesTheHandleThatPublishedIt) {
    if (!is_shared())
        GTEST_SKIP() << "an embedded node ends with its handle";
    raddr_t a = alloc(page_bytes_of(r));
    ASSERT_EQ(remote_publish(another(), "a", a), 0);
    remote_close(other);
    other = nullptr;
    EXPECT_EQ(lookup("a"), 0);
}

TEST_P(Names, NameHasOneTo64Bytes) {
    raddr_t a = alloc(page_bytes_of(r)), address = 0;
    Found found;
    for (bool async : {false, true}) {
        for (const std::string& name : {std::string("x"), std::string(64, 'x'),
                                        std::string(63, 'x'), std::string("\xff\x01/ \n")}) {
            EXPECT_EQ(publish(async, r, name.c_str(), a), 0) << name;
            EXPECT_EQ(lookup(async, another(), name.c_str(), found), 0) << name;
            EXPECT_EQ(publish(async, r, name.c_str(), 0), 0) << name;
        }
        for (const std::string& name :
             {std::string(), std::string(65, 'x'), std::string(1000, 'x')}) {
            EXPECT_EQ(publish(async, r, name.c_str(), a), -EINVAL) << name.size();
            EXPECT_EQ(publish(async, r, name.c_str(), 0), -EINVAL) << name.size();
            EXPECT_EQ(lookup(async, r, name.c_str(), found), -EINVAL) << name.size();
        }
        EXPECT_EQ(publish(async, r, nullptr, a), -EINVAL);
        EXPECT_EQ(lookup(async, r, nullptr, found), -EINVAL);
    }
    EXPECT_EQ(remote_lookup(r, "x", nullptr, nullptr), -EINVAL);
    EXPECT_EQ(remote_publish(nullptr, "x", a), -EINVAL);
    EXPECT_EQ(remote_lookup(nullptr, "x", &address, nullptr), -EINVAL);
}

TEST_P(Names, OnlyTheBeginOfAWholeAllocationIsNamed) {
    const std::uint64_t page = page_bytes_of(r);
    raddr_t a = alloc(2 * page), first = alloc(100), second = alloc(100);
    for (bool async : {false, true}) {
        EXPECT_EQ(publish(async, r, "a", a + page), -EFAULT);
        EXPECT_EQ(publish(async, r, "a", a + 1), -EFAULT);
        EXPECT_EQ(publish(async, r, "a", ~raddr_t{0} / page * page), -EFAULT);
        EXPECT_EQ(publish(async, r, "a", first), -EINVAL) << "it shares a page";
        EXPECT_EQ(publish(async, r, "a", second), -EINVAL);
    }
    EXPECT_EQ(lookup("a"), -ENOENT);
}

TEST_P(Names, SpaceWithAllItsNamesTakesNoMore) {
    raddr_t a = alloc(page_bytes_of(r));
    for (unsigned n = 0; n < names_max; n++)
        ASSERT_EQ(remote_publish(r, std::to_string(n).c_str(), a), 0) << n;
    for (bool async : {false, true}) {
        EXPECT_EQ(publish(async, r, "more", a), -ENOSPC);
        EXPECT_EQ(publish(async, r, "5", a), -EEXIST);
        ASSERT_EQ(publish(async, r, "77", 0), 0);
        EXPECT_EQ(publish(async, r, "more", a), 0);
        ASSERT_EQ(publish(async, r, "more", 0), 0);
        EXPECT_EQ(publish(async, r, "77", a), 0);
    }
    EXPECT_EQ(lookup("127"), 0);
}

// Each of them is executed once, so there is one winner, whose allocation is found.
TEST_P(Names, ConcurrentPublishersOfANameHaveOneWinner) {
    constexpr unsigned many = 4;
    std::vector<raddr_t> regions;
    for (unsigned i = 0; i < many; i++)
        regions.push_back(alloc(page_bytes_of(r)));
    another();
    const int rounds = is_slow() ? 5 : 20;
    for (int round = 0; round < rounds; round++) {
        std::vector<int> result(many, 1);
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < many; i++)
            threads.emplace_back(
                [&, i] { result[i] = remote_publish(i % 2 ? other : r, "leader", regions[i]); });
        for (std::thread& thread : threads)
            thread.join();
        unsigned winners = 0;
        Found found;
        ASSERT_EQ(lookup(false, r, "leader", found), 0);
        for (unsigned i = 0; i < many; i++) {
            EXPECT_TRUE(result[i] == 0 || result[i] == -EEXIST) << result[i];
            winners += !result[i];
            EXPECT_EQ(!result[i], found[0] == regions[i]);
        }
        EXPECT_EQ(winners, 1U);
        ASSERT_EQ(remote_publish(r, "leader", 0), 0);
    }
}

TEST_P(Names, QueueReadsNamesBeforeSubmitReturns) {
    constexpr std::size_t count = 20;
    raddr_t a = alloc(page_bytes_of(r));
    remote_queue_t* q = nullptr;
    ASSERT_EQ(remote_queue_open(&q, r, nullptr), 0);
    std::vector<remote_op> ops(count);
    std::vector<std::string> names(count);
    std::vector<remote_completion> done(count);
    std::vector<Found> found(count);
    auto run = [&](auto make) {
        for (std::size_t i = 0; i < count; i++) {
            names[i] = "name " + std::to_string(i);
            ops[i] = make(i);
        }
        EXPECT_EQ(remote_queue_submit(q, ops.data(), count), static_cast<int>(count));
        for (std::string& name : names)
            name.assign(name.size(), 'z');
        EXPECT_EQ(remote_queue_wait(q, done.data(), count, count, forever),
                  static_cast<int>(count));
        for (const remote_completion& each : done)
            EXPECT_EQ(each.result, 0) << each.user_data;
    };
    run([&](std::size_t i) { return remote_op_publish(names[i].c_str(), a, i); });
    run([&](std::size_t i) {
        return remote_op_lookup(names[i].c_str(), i % 2 ? found[i].data() : nullptr, i);
    });
    for (std::size_t i = 1; i < count; i += 2)
        EXPECT_EQ(found[i], (Found{a, page_bytes_of(r)}));
    run([&](std::size_t i) { return remote_op_publish(names[i].c_str(), 0, i); });
    remote_queue_close(q);
}

TEST_P(Names, CountsAsOther) {
    raddr_t a = alloc(page_bytes_of(r));
    const remote_kind_stats was = counters_of(r).kind[REMOTE_KIND_OTHER];
    ASSERT_EQ(remote_publish(r, "a", a), 0);
    ASSERT_EQ(lookup("a"), 0);
    ASSERT_EQ(lookup("b"), -ENOENT);
    const remote_kind_stats is = counters_of(r).kind[REMOTE_KIND_OTHER];
    EXPECT_EQ(is.done, was.done + 2);
    EXPECT_EQ(is.failed, was.failed + 1);
    EXPECT_EQ(is.bytes, was.bytes);
}

TEST(NamesNetwork, CancelledPublishIsNotExecutedLate) {
    TestNode node;
    Relay relay(node.port(), 0);
    remote_t* r = nullptr;
    ASSERT_EQ(remote_open(&r, udp_target(relay.port()).c_str(), nullptr), 0) << remote_why();
    raddr_t a = 0, address = 0;
    ASSERT_EQ(remote_alloc(r, page_bytes_of(r), REMOTE_RW, &a), 0);
    const std::uint64_t before = counters_of(r).reopened;
    relay.keep([](const rmem_head& head) { return head.type == RMEM_PUBLISH; });
    AsyncOp op;
    ASSERT_EQ(publish_async(r, "late", a, &op), 0);
    while (!relay.kept())
        std::this_thread::yield();
    EXPECT_EQ(cancel(r, &op), 0);
    EXPECT_EQ(poll_all(r, &op, 1, forever), -ECANCELED);
    EXPECT_EQ(remote_fence(r), 0);
    relay.keep(nullptr);
    relay.send_kept();
    EXPECT_EQ(remote_lookup(r, "late", &address, nullptr), -ENOENT);
    EXPECT_EQ(counters_of(r).reopened, before + 1);
    EXPECT_EQ(remote_publish(r, "late", a), 0);
    remote_close(r);
}

TEST(NamesNetwork, RestartedNodeHasNoNames) {
    auto node = std::make_unique<TestNode>();
    const std::uint16_t port = node->port();
    remote_t* r = nullptr;
    ASSERT_EQ(remote_open(&r, udp_target(port).c_str(), nullptr), 0) << remote_why();
    raddr_t a = 0, address = 0;
    std::uint64_t bytes = 0;
    ASSERT_EQ(remote_alloc(r, page_bytes_of(r), REMOTE_RW, &a), 0);
    ASSERT_EQ(remote_publish(r, "a", a), 0);
    node.reset();
    node = std::make_unique<TestNode>(port);
    EXPECT_EQ(remote_lookup(r, "a", &address, nullptr), -ESTALE);
    EXPECT_EQ(remote_publish(r, "b", a), -ESTALE);
    EXPECT_EQ(remote_lost(r, &address, &bytes), 1);
    EXPECT_EQ(remote_lost(r, &address, &bytes), 0);
    EXPECT_EQ(remote_lookup(r, "a", &address, nullptr), -ENOENT);
    remote_close(r);
}

remote::task rename(remote::loop& loop, const char* from, const char* to, Found& found) {
    if (auto done = co_await loop.lookup(from, found); !done)
        co_return done.error();
    if (auto done = co_await loop.publish(to, found[0]); !done)
        co_return done.error();
    auto done = co_await loop.publish(from, 0);
    co_return done.error();
}

TEST(NamesCpp, HandlesQueuesAndCoroutinesHaveThem) {
    auto opened = remote::handle::open("embedded:size=4M");
    ASSERT_TRUE(opened) << remote_why();
    remote::handle& handle = *opened;
    const std::uint64_t bytes = 2 * page_bytes_of(handle.get());
    raddr_t a = *handle.alloc(bytes);
    EXPECT_TRUE(handle.publish("a", a));
    EXPECT_EQ(handle.publish("b", 0).error(), -EINVAL) << "not by mistake";
    EXPECT_EQ(handle.publish("a", a).error(), -EEXIST);
    auto region = handle.lookup("a");
    ASSERT_TRUE(region);
    EXPECT_EQ(region->address, a);
    EXPECT_EQ(region->bytes, bytes);
    Found found{};
    {
        remote::loop loop(handle);
        remote::task task = rename(loop, "a", "b", found);
        loop.run();
        EXPECT_EQ(task.error(), 0);
        EXPECT_EQ(found, (Found{a, bytes}));
        remote::task again = rename(loop, "a", "b", found);
        loop.run();
        EXPECT_EQ(again.error(), -ENOENT);
    }
    auto queue = remote::queue::open(handle);
    ASSERT_TRUE(queue);
    found = {};
    EXPECT_TRUE(queue->publish("c", a).wait());
    EXPECT_TRUE(queue->lookup("c", found).wait());
    EXPECT_EQ(found, (Found{a, bytes}));
    EXPECT_TRUE(handle.withdraw("c"));
    EXPECT_EQ(handle.withdraw("c").error(), -ENOENT);
    EXPECT_EQ(handle.lookup("c").error(), -ENOENT);
    EXPECT_EQ(remote::handle().lookup("b").error(), -EINVAL);
}

// ---- sharing ----

// A program shares a small structure so.
TEST_P(Names, SmallAllocationWithItsOwnPagesIsSharedByName) {
    const std::uint64_t page = page_bytes_of(r);
    std::array<std::uint8_t, 64> out{}, in{};
    out.fill(5);
    raddr_t a = 0;
    ASSERT_EQ(remote_alloc(r, 64, REMOTE_RW | REMOTE_OWN_PAGES, &a), 0);
    ASSERT_EQ(rwrite(r, a, out.data(), out.size()), 0);
    ASSERT_EQ(remote_publish(r, "small", a), 0);
    Found found;
    ASSERT_EQ(lookup(false, another(), "small", found), 0);
    EXPECT_EQ(found[0], a);
    EXPECT_EQ(found[1], page);
    EXPECT_EQ(rread(another(), found[0], in.data(), in.size()), 0);
    EXPECT_EQ(in, out);
    EXPECT_EQ(remote_free_sized(another(), found[0], found[1]), 0);
    EXPECT_EQ(lookup("small"), -ENOENT);
    EXPECT_EQ(rread(r, a, in.data(), in.size()), -EFAULT);
}

TEST(Sharing, SmallStructureOfAProcessThatCrashedIsFoundAndFreed) {
    TestNode node;
    const std::string target = udp_target(node.port());
    Victim owner([&] {
        remote_t* mine = nullptr;
        raddr_t a = 0;
        const std::uint64_t value = 42;
        return !remote_open(&mine, target.c_str(), nullptr) &&
               !remote_alloc(mine, 64, REMOTE_RW | REMOTE_OWN_PAGES, &a) &&
               !remote_write(mine, a, &value, sizeof(value)) && !remote_publish(mine, "it", a);
    });
    ASSERT_TRUE(owner.run());
    owner.kill();
    remote_t* r = nullptr;
    ASSERT_EQ(remote_open(&r, target.c_str(), nullptr), 0) << remote_why();
    raddr_t a = 0;
    std::uint64_t bytes = 0, value = 0;
    ASSERT_EQ(remote_lookup(r, "it", &a, &bytes), 0);
    EXPECT_EQ(remote_read(r, a, &value, sizeof(value)), 0);
    EXPECT_EQ(value, 42U);
    remote_region region{};
    EXPECT_EQ(remote_list(r, 0, &region, 1), 1);
    EXPECT_EQ(region.address, a);
    EXPECT_STREQ(region.name, "it");
    EXPECT_EQ(remote_free_sized(r, a, bytes), 0);
    EXPECT_EQ(remote_list(r, 0, &region, 1), 0);
    remote_close(r);
}

// ---- lists ----

TEST_P(Names, ListTellsEachRegionOnceInTheOrderOfAddresses) {
    const std::uint64_t page = page_bytes_of(r);
    std::vector<remote_region> before(256);
    const int others = remote_list(r, 0, before.data(), before.size());
    ASSERT_GE(others, 0);
    ASSERT_LT(others, 256);
    raddr_t named = 0, plain = 0, small = 0;
    ASSERT_EQ(remote_alloc(r, 3 * page - 5, REMOTE_RW, &named), 0);
    ASSERT_EQ(remote_alloc(r, page, REMOTE_READ, &plain), 0);
    ASSERT_EQ(remote_alloc(r, 16, REMOTE_RW, &small), 0);
    ASSERT_EQ(remote_publish(r, "one", named), 0);
    ASSERT_EQ(remote_publish(r, "two", named), 0);
    for (std::size_t at_once : {1, 2, 256}) {
        std::vector<remote_region> all, some(at_once);
        int n;
        raddr_t from = 0;
        do {
            n = remote_list(r, from, some.data(), some.size());
            ASSERT_GE(n, 0);
            all.insert(all.end(), some.begin(), some.begin() + n);
            from = all.back().address + 1;
        } while (n == static_cast<int>(at_once));
        EXPECT_EQ(std::ssize(all), others + 3);
        EXPECT_TRUE(
            std::ranges::is_sorted(all, std::ranges::less_equal(), &remote_region::address));
        const auto find = [&](raddr_t a) -> const remote_region& {
            auto at = std::ranges::find(all, a, &remote_region::address);
            EXPECT_NE(at, all.end());
            return at == all.end() ? all.front() : *at;
        };
        EXPECT_EQ(find(named).bytes, 3 * page);
        EXPECT_EQ(find(named).permission, unsigned{REMOTE_RW});
        EXPECT_EQ(find(named).names, 2U);
        EXPECT_TRUE(!std::strcmp(find(named).name, "one") || !std::strcmp(find(named).name, "two"));
        EXPECT_EQ(find(plain).permission, unsigned{REMOTE_READ});
        EXPECT_EQ(find(plain).names, 0U);
        EXPECT_STREQ(find(plain).name, "");
        EXPECT_EQ(find(small / page * page).bytes, page) << "the page that it shares";
    }
    remote_region region{};
    EXPECT_EQ(remote_list(r, named + 1, &region, 1), 1);
    EXPECT_GT(region.address, named);
    EXPECT_EQ(remote_list(r, ~raddr_t{0}, &region, 1), 0);
    EXPECT_EQ(remote_list(r, 0, nullptr, 1), -EINVAL);
    EXPECT_EQ(remote_list(r, 0, &region, 0), -EINVAL);
    for (raddr_t a : {named, plain, small})
        EXPECT_EQ(rfree(r, a), 0);
    EXPECT_EQ(remote_list(r, 0, before.data(), before.size()), others);
}

TEST_P(Names, ListByAQueue) {
    raddr_t a = alloc(1 << 20);
    remote_queue_t* q = nullptr;
    ASSERT_EQ(remote_queue_open(&q, r, nullptr), 0);
    remote_region there{}, none{};
    none.bytes = 7;
    const remote_op ops[] = {remote_op_list(a, &there, 0), remote_op_list(~raddr_t{0}, &none, 1),
                             remote_op_list(0, nullptr, 2)};
    EXPECT_EQ(remote_queue_submit(q, ops, 3), 2) << "the last one has no destination";
    remote_completion done[2];
    ASSERT_EQ(remote_queue_wait(q, done, 2, 2, forever), 2);
    EXPECT_EQ(done[0].result, 0);
    EXPECT_EQ(done[1].result, 0);
    EXPECT_EQ(there.address, a);
    EXPECT_EQ(none.bytes, 0U);
    remote_queue_close(q);
}

} // namespace

} // namespace remora::test
