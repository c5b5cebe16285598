// SPDX-License-Identifier: GPL-2.0
// A loop whose queue returns an error while operations are in flight.
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <gtest/gtest.h>

#include "backend.hpp"
#include "remote/queue.h"

// The headers' C++ once more under another name, and over a remote_queue_wait() of this file.
#define remote remote_by_hand
#define remote_queue_wait remote_queue_wait_by_hand

static int remote_queue_wait_by_hand(remote_queue_t* q, remote_completion* completions,
                                     std::size_t max, std::size_t at_least,
                                     std::uint64_t timeout_us);

#include "remote/coroutine.hpp"

#undef remote_queue_wait

static bool fails_next = false;

static int remote_queue_wait_by_hand(remote_queue_t* q, remote_completion* completions,
                                     std::size_t max, std::size_t at_least,
                                     std::uint64_t timeout_us) {
    if (std::exchange(fails_next, false))
        return -ENOMEM;
    return remote_queue_wait(q, completions, max, at_least, timeout_us);
}

namespace remora::test {

namespace {

using Bytes = std::array<std::byte, 8>;

remote::task read_one(remote::loop& loop, raddr_t address, Bytes& to) {
    auto read = co_await loop.read(address, to);
    co_return read.error();
}

TEST(Loop, OperationThatWasToldOfAFailureOfTheQueueWritesNoMore) {
    TestNode node;
    Relay relay(node.port(), 0);
    auto opened = remote::handle::open(udp_target(relay.port()).c_str());
    ASSERT_TRUE(opened) << remote_why();
    auto address = opened->alloc(100);
    ASSERT_TRUE(address);
    Bytes ones, untouched{}, later{};
    ones.fill(std::byte{1});
    ASSERT_TRUE(opened->write(*address, ones));
    remote::loop loop(*opened);
    relay.keep([](const rmem_head&) { return true; });
    remote::task told = read_one(loop, *address, untouched);
    fails_next = true;
    while (!told.done())
        loop.run_once();
    EXPECT_LT(told.error(), 0);
    relay.keep(nullptr);
    relay.send_kept();
    remote::task read = read_one(loop, *address, later);
    loop.run();
    EXPECT_EQ(read.error(), 0);
    EXPECT_EQ(later, ones);
    EXPECT_EQ(untouched, Bytes{});
}

} // namespace

} // namespace remora::test
