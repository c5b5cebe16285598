// SPDX-License-Identifier: GPL-2.0
// A space shared with who may only read it, by a view: what he sees, and that he changes nothing.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <unistd.h>

#include "async.hpp"
#include "backend.hpp"

namespace remora::test {

namespace {

using Bytes = std::vector<std::uint8_t>;

const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

// Of the datagrams, so many percent go astray.
class View : public testing::TestWithParam<unsigned> {
protected:
    View() {
        std::uint16_t port = node.port();
        if (GetParam()) {
            relay = std::make_unique<Relay>(port, GetParam());
            port = relay->port();
        }
        EXPECT_EQ(remote_open(&writer, udp_target(node.port()).c_str(), nullptr), 0)
            << remote_why();
        EXPECT_EQ(remote_open(&reader, view_target(port).c_str(), nullptr), 0) << remote_why();
        EXPECT_EQ(ralloc(writer, bytes, REMOTE_RW, &a), 0);
    }
    ~View() override {
        remote_close(reader);
        remote_close(writer);
    }

    // As the reader sees it.
    Bytes seen(raddr_t address, std::size_t count) {
        Bytes data(count, 0xee);
        EXPECT_EQ(rread(reader, address, data.data(), count), 0);
        return data;
    }

    static constexpr std::uint64_t bytes = 1 << 20;
    TestNode node;
    std::unique_ptr<Relay> relay;
    remote_t *writer = nullptr, *reader = nullptr;
    raddr_t a = 0;
};

INSTANTIATE_TEST_SUITE_P(Lib, View, testing::Values(0U, 10U), [](const auto& of) {
    return std::string(of.param ? "BadNetwork" : "Udp");
});

TEST_P(View, ShowsWrites) {
    Bytes data(bytes);
    for (std::size_t i = 0; i < data.size(); i++)
        data[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
    EXPECT_EQ(seen(a, 100), Bytes(100, 0)) << "never written";
    ASSERT_EQ(rwrite(writer, a, data.data(), bytes), 0);
    EXPECT_EQ(seen(a, bytes), data);
    std::vector<Bytes> parts(100, Bytes(10));
    std::vector<remote_vec> pieces;
    for (std::size_t i = 0; i < parts.size(); i++)
        pieces.push_back({a + i * 1000, parts[i].data(), parts[i].size()});
    EXPECT_EQ(remote_readv(reader, pieces.data(), pieces.size()), 0);
    for (std::size_t i = 0; i < parts.size(); i++)
        EXPECT_TRUE(std::equal(parts[i].begin(), parts[i].end(), &data[i * 1000])) << i;
    AsyncOp op;
    Bytes later(bytes);
    ASSERT_EQ(read_async(reader, a, later.data(), bytes, &op), 0);
    EXPECT_EQ(poll_all(reader, &op, 1, UINT64_MAX), 0);
    EXPECT_EQ(later, data);
}

TEST_P(View, ShowsAllocationsAndFrees) {
    raddr_t small = 0, fixed = 0, large = 0;
    ASSERT_EQ(ralloc(writer, 100, REMOTE_RW, &small), 0);
    ASSERT_EQ(ralloc(writer, bytes, REMOTE_READ, &fixed), 0);
    ASSERT_EQ(ralloc(writer, bytes, REMOTE_RW, &large), 0);
    EXPECT_EQ(rwrite(writer, small, "hello", 5), 0);
    EXPECT_EQ(seen(small, 5), (Bytes{'h', 'e', 'l', 'l', 'o'}));
    EXPECT_EQ(seen(fixed, 5), Bytes(5, 0));
    EXPECT_EQ(seen(large, 5), Bytes(5, 0));
    EXPECT_EQ(rfree(writer, large), 0);
    std::uint8_t byte;
    EXPECT_EQ(rread(reader, large, &byte, 1), -EFAULT);
}

TEST_P(View, FindsNames) {
    raddr_t address = 0;
    std::uint64_t found = 0;
    EXPECT_EQ(remote_lookup(reader, "table", &address, &found), -ENOENT);
    ASSERT_EQ(remote_publish(writer, "table", a), 0);
    ASSERT_EQ(remote_lookup(reader, "table", &address, &found), 0);
    EXPECT_EQ(address, a);
    EXPECT_EQ(found, bytes);
    EXPECT_EQ(remote_publish(reader, "table", 0), -EACCES);
    EXPECT_EQ(remote_publish(reader, "mine", a), -EACCES);
    EXPECT_EQ(remote_lookup(reader, "table", &address, nullptr), 0);
}

TEST_P(View, ChangesNothing) {
    std::uint64_t before = 5, found = 0;
    ASSERT_EQ(rwrite(writer, a, &before, sizeof(before)), 0);
    Bytes data(bytes, 9);
    std::uint64_t expected[2] = {5, 0};
    const std::uint64_t desired[2] = {6, 6};
    std::vector<remote_vec> pieces(3, remote_vec{a, data.data(), 8});
    raddr_t mine = 0;
    remote_signal signal{a + 64, 8, REMOTE_ADD, 1};
    AsyncOp op;
    // Often, for a refusal must not be remembered as something done.
    for (int round = 0; round < 3; round++) {
        EXPECT_EQ(rwrite(reader, a, data.data(), 1), -EACCES);
        EXPECT_EQ(rwrite(reader, a, data.data(), bytes), -EACCES);
        EXPECT_EQ(remote_writev(reader, pieces.data(), pieces.size()), -EACCES);
        EXPECT_EQ(write_rows(reader, rows(a, 100, data.data(), 10, 5)), -EACCES);
        EXPECT_EQ(remote_fetch(reader, a, 8, REMOTE_ADD, 1, &found), -EACCES);
        EXPECT_EQ(cas(reader, a, 8, &expected[0], 6), -EACCES);
        EXPECT_EQ(remote_cas(reader, a, 16, expected, desired), -EACCES);
        EXPECT_EQ(remote_put(reader, a, data.data(), 100, &signal), -EACCES);
        EXPECT_EQ(remote_put(reader, a, data.data(), 100'000, &signal), -EACCES);
        EXPECT_EQ(rlock(reader, a + 128), -EACCES);
        EXPECT_EQ(ralloc(reader, 100, REMOTE_RW, &mine), -EACCES);
        EXPECT_EQ(ralloc(reader, bytes, REMOTE_RW, &mine), -EACCES);
        EXPECT_EQ(ralloc(reader, bytes, REMOTE_READ, &mine), -EACCES);
        EXPECT_EQ(rfree(reader, a), -EFAULT) << "it isn't the reader's";
        EXPECT_EQ(remote_free_sized(reader, a, bytes), -EACCES);
        ASSERT_EQ(write_async(reader, a, data.data(), 100, &op), 0);
        EXPECT_EQ(poll_all(reader, &op, 1, UINT64_MAX), -EACCES);
        EXPECT_EQ(seen(a, 200), [&] {
            Bytes all(200, 0);
            all[0] = 5;
            return all;
        }());
    }
    EXPECT_EQ(remote_fetch(writer, a, 8, REMOTE_ADD, 1, &found), 0);
    EXPECT_EQ(found, 5U);
}

TEST_P(View, ReaderSeesTheSignalOfAPut) {
    Bytes data(1000, 3);
    std::uint64_t found = 0;
    std::thread putting([&] {
        remote_signal signal{a + bytes - 8, 8, REMOTE_ADD, 1};
        EXPECT_EQ(remote_put(writer, a + 5, data.data(), data.size(), &signal), 0);
    });
    EXPECT_EQ(remote_wait(reader, a + bytes - 8, 8, REMOTE_NE, 0, 20'000'000, &found), 0);
    EXPECT_EQ(found, 1U);
    EXPECT_EQ(seen(a + 5, data.size()), data);
    EXPECT_EQ(rfence(reader), 0);
    putting.join();
}

TEST_P(View, IsMapped) {
    Bytes data(bytes, 4);
    ASSERT_EQ(rwrite(writer, a, data.data(), bytes), 0);
    void* memory = nullptr;
    ASSERT_EQ(remote_mmap(reader, a, bytes, REMOTE_READ, nullptr, &memory), 0) << remote_why();
    EXPECT_EQ(std::memcmp(memory, data.data(), bytes), 0);
    EXPECT_EQ(remote_munmap(reader, memory), 0);
    // To be written here, but not there.
    ASSERT_EQ(remote_mmap(reader, a, bytes, REMOTE_RW, nullptr, &memory), 0) << remote_why();
    static_cast<std::uint8_t*>(memory)[3 * page] = 7;
    EXPECT_EQ(remote_msync(reader, memory, bytes), -EACCES);
    EXPECT_EQ(remote_munmap(reader, memory), -EACCES);
    EXPECT_EQ(seen(a, bytes), data);
}

// Its key opens the view, and nothing else.
TEST_P(View, KeyIsOfTheViewAlone) {
    std::string target = view_target(node.port());
    target.resize(target.rfind(",space="));
    remote_options options{};
    options.size = sizeof(options);
    options.timeout_us = 300'000;
    remote_t* other = nullptr;
    EXPECT_EQ(remote_open(&other, target.c_str(), &options), -EKEYREJECTED);
    EXPECT_EQ(remote_open(&other, (udp_target(node.port()) + ",space=2").c_str(), &options),
              -EKEYREJECTED);
}

} // namespace

} // namespace remora::test
