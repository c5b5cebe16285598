// SPDX-License-Identifier: GPL-2.0
// The C++ face: what it owns, and what it returns.
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "remote/remote.hpp"

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

TEST_F(Cpp, WhatFailsSaysSo) {
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

} // namespace

} // namespace remora::test
