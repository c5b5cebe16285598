// SPDX-License-Identifier: GPL-2.0
// What is written is read, and what can't be is refused.
#include <cerrno>
#include <limits>
#include <random>
#include <vector>

#include "async.hpp"
#include "backend.hpp"

namespace remora::test {

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes random_bytes(std::size_t bytes, unsigned seed) {
    std::mt19937 random(seed);
    Bytes data(bytes);
    for (std::uint8_t& byte : data)
        byte = static_cast<std::uint8_t>(random());
    return data;
}

class Data : public Backends {
protected:
    Bytes read(raddr_t address, std::size_t bytes) {
        Bytes data(bytes, 0xee);
        EXPECT_EQ(rread(r, address, data.data(), bytes), 0);
        return data;
    }
    int write(raddr_t address, const Bytes& data) {
        return rwrite(r, address, data.data(), data.size());
    }
};

INSTANTIATE_TEST_SUITE_P(Lib, Data, testing::ValuesIn(kinds()), kind_name);

TEST_P(Data, EveryLengthAtEveryPlace) {
    raddr_t a = alloc(4 << 20);
    Bytes mirror(4 << 20, 0);
    std::mt19937 random(7);
    for (std::size_t bytes : {1, 2, 3, 15, 16, 100, 1399, 1400, 4096, 8704, 8705, 65535, 65536,
                              65537, 262'144, 262'145, 1'100'000}) {
        std::size_t at = random() % (mirror.size() - bytes);
        Bytes data = random_bytes(bytes, static_cast<unsigned>(bytes));
        ASSERT_EQ(write(a + at, data), 0) << bytes;
        std::copy(data.begin(), data.end(), mirror.begin() + static_cast<std::ptrdiff_t>(at));
        ASSERT_EQ(read(a + at, bytes), data) << bytes;
    }
    EXPECT_EQ(read(a, mirror.size()), mirror);
}

TEST_P(Data, IsZeroAtFirstAndAfterItWasFreed) {
    const int count = is_slow() ? 4 : 20;
    for (int round = 0; round < 3; round++) {
        std::vector<raddr_t> regions;
        for (int i = 0; i < count; i++) {
            regions.push_back(alloc(1 << 20));
            EXPECT_EQ(read(regions.back() + 70'000, 1000), Bytes(1000, 0));
            EXPECT_EQ(write(regions.back(), Bytes(200'000, 0xaa)), 0);
        }
        for (raddr_t a : regions)
            EXPECT_EQ(rfree(r, a), 0);
    }
}

TEST_P(Data, FreedMemoryIsRefused) {
    raddr_t a = alloc(page_bytes_of(r));
    EXPECT_EQ(write(a, {1, 2}), 0);
    EXPECT_EQ(rfree(r, a), 0);
    std::uint8_t byte;
    EXPECT_EQ(rread(r, a, &byte, 1), -EFAULT);
    EXPECT_EQ(write(a, {1}), -EFAULT);
    EXPECT_EQ(rfree(r, a), -EFAULT) << "twice";
    EXPECT_EQ(rfree(r, 12345), -EFAULT);
}

TEST_P(Data, ARegionHasAnEnd) {
    std::uint64_t page = page_bytes_of(r);
    raddr_t a = alloc(page);
    EXPECT_EQ(write(a + page - 2, {1, 2}), 0);
    EXPECT_EQ(write(a + page - 1, {1, 2}), -EFAULT);
    EXPECT_EQ(write(a + page, {1}), -EFAULT);
    EXPECT_EQ(read(a + page - 2, 2), (Bytes{1, 2}));
    std::uint8_t bytes[4];
    EXPECT_EQ(rread(r, a + page - 2, bytes, 4), -EFAULT);
    EXPECT_EQ(rread(r, a - 1, bytes, 2), -EFAULT);
}

TEST_P(Data, PermissionsHold) {
    raddr_t a = alloc(100, REMOTE_READ);
    EXPECT_EQ(read(a, 3), Bytes(3, 0));
    EXPECT_EQ(write(a, {1}), -EACCES);
    EXPECT_EQ(rfree(r, a), 0);
}

TEST_P(Data, ArgumentsThatCantBe) {
    raddr_t a = alloc(100), other = 0;
    std::uint8_t byte = 0;
    AsyncOp op;
    EXPECT_EQ(rread(r, a, &byte, 0), -EINVAL);
    EXPECT_EQ(rread(r, a, nullptr, 1), -EINVAL);
    EXPECT_EQ(rread(nullptr, a, &byte, 1), -EINVAL);
    EXPECT_EQ(rwrite(r, std::numeric_limits<raddr_t>::max(), &byte, 2), -EINVAL);
    EXPECT_EQ(write_async(r, a, &byte, 1, nullptr), -EINVAL);
    EXPECT_EQ(read_async(r, a, &byte, 0, &op), -EINVAL);
    EXPECT_EQ(read_async(r, a, &byte, std::numeric_limits<std::size_t>::max(), &op), -EINVAL);
    EXPECT_EQ(read_async(r, 0, &byte, std::numeric_limits<std::size_t>::max(), &op), -EINVAL);
    EXPECT_EQ(rread(r, 0, &byte, std::numeric_limits<std::size_t>::max()), -EFAULT);
    EXPECT_EQ(ralloc(r, 0, REMOTE_RW, &other), -EINVAL);
    EXPECT_EQ(ralloc(r, 1, REMOTE_WRITE, &other), -EINVAL);
    EXPECT_EQ(ralloc(r, 1, 8, &other), -EINVAL);
    EXPECT_EQ(ralloc(r, 1, REMOTE_RW, nullptr), -EINVAL);
    EXPECT_EQ(remote_alloc_at(r, 0, 1, REMOTE_RW, &other), -EINVAL);
    EXPECT_EQ(ralloc(r, std::uint64_t{1} << 60, REMOTE_RW, &other), -ENOSPC);
    remote_node node{};
    node.size = sizeof(node);
    EXPECT_EQ(remote_info(nullptr, &node), -EINVAL);
    EXPECT_EQ(read(a, 1), Bytes(1, 0));
}

// Near the end of the addresses, each a has a million of pages that nobody was given.
raddr_t far_from(raddr_t a) {
    return raddr_t{0} - (a << 20);
}

TEST_P(Data, AWantedAddress) {
    std::uint64_t page = page_bytes_of(r);
    raddr_t wanted = far_from(alloc(page)), found = 0;
    EXPECT_EQ(remote_alloc_at(r, wanted, 2 * page, REMOTE_RW, &found), 0);
    EXPECT_EQ(found, wanted);
    EXPECT_EQ(write(found + page, {1}), 0);
    constexpr unsigned anywhere = REMOTE_RW | REMOTE_ANYWHERE;
    EXPECT_EQ(remote_alloc_at(r, wanted + page, page, anywhere, &found), 1) << "in use";
    EXPECT_NE(found, wanted + page);
    EXPECT_EQ(write(found, {2}), 0);
    EXPECT_EQ(read(wanted + page, 1), Bytes{1});
    EXPECT_EQ(remote_alloc_at(r, wanted + 1, page, REMOTE_RW, &found), -EINVAL)
        << "no page begins there";
    EXPECT_EQ(ralloc(r, page, anywhere, &found), -EINVAL) << "no address is wanted";
}

// A program that takes any error for a failure has nothing to free.
TEST_P(Data, AWantedAddressThatIsNotToBeHadIsAnErrorAndLeaksNothing) {
    const std::uint64_t page = page_bytes_of(r);
    raddr_t wanted = far_from(alloc(page)), found = 0, untouched = 7;
    ASSERT_EQ(remote_alloc_at(r, wanted, page, REMOTE_RW, &found), 0);
    const int rounds = 3;
    std::vector<remote_region> before(64), after(64);
    const int regions = remote_list(r, 0, before.data(), before.size());
    ASSERT_GT(regions, 0);
    for (int round = 0; round < rounds; round++)
        EXPECT_EQ(remote_alloc_at(r, wanted, page, REMOTE_RW, &untouched), -EADDRNOTAVAIL);
    EXPECT_EQ(untouched, 7U);
    EXPECT_EQ(remote_list(r, 0, after.data(), after.size()), regions);
    EXPECT_EQ(rfree(r, found), 0);
}

TEST_P(Data, WantedAddressesMayDescend) {
    constexpr std::uint8_t regions = 20;
    std::uint64_t page = page_bytes_of(r);
    raddr_t a = alloc(page), end = far_from(a), found = 0;
    for (std::uint8_t i = 0; i < regions;
         i++) { // each has two pages, and one behind it that is nobody's
        ASSERT_EQ(remote_alloc_at(r, end - 3 * i * page, 2 * page, REMOTE_RW, &found), 0);
        ASSERT_EQ(found, end - 3 * i * page);
        ASSERT_EQ(write(found + page, {i}), 0);
    }
    for (std::uint8_t i = 0; i < regions; i++) {
        EXPECT_EQ(read(end - 3 * i * page + page, 1), Bytes{i});
        EXPECT_EQ(rfree(r, end - 3 * i * page), 0);
    }
    EXPECT_EQ(remote_alloc_at(r, end - 3 * page, page, REMOTE_RW | REMOTE_ANYWHERE, &found), 1)
        << "was in use";
    EXPECT_LT(found, end - 3 * regions * page);
    EXPECT_LT(alloc(page), found + 1000 * page) << "where it would be without a wish";
}

TEST_P(Data, TheNodeHasAnEnd) {
    std::vector<raddr_t> regions;
    raddr_t a = 0;
    int error;
    while (!(error = ralloc(r, 4 << 20, REMOTE_RW, &a)))
        regions.push_back(a);
    EXPECT_EQ(error, -ENOSPC);
    if (GetParam() != Kind::given) {
        EXPECT_EQ(regions.size(), 8U);
    }
    const std::size_t bytes = is_slow() ? 100'000 : 4 << 20;
    for (raddr_t each : regions)
        EXPECT_EQ(write(each, Bytes(bytes, 1)), 0) << "what was promised isn't there";
    EXPECT_EQ(rfree(r, regions.back()), 0);
    EXPECT_EQ(ralloc(r, 4 << 20, REMOTE_RW, &regions.back()), 0);
    for (raddr_t each : regions)
        EXPECT_EQ(rfree(r, each), 0);
}

} // namespace

} // namespace remora::test
