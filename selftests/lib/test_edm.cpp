// SPDX-License-Identifier: GPL-2.0
// edm: targets, with a scheduler and while it is silent.
#include <string>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "backend.hpp"
#include "edm_rack.hpp"
#include "patience.hpp"

namespace {

// The calling thread's calls.
thread_local unsigned addresses_asked = 0;

} // namespace

extern "C" int getsockname(int fd, sockaddr* address, socklen_t* bytes) noexcept {
    addresses_asked++;
    return static_cast<int>(syscall(SYS_getsockname, fd, address, bytes));
}

namespace remora::test {

namespace {

using Bytes = std::vector<std::uint8_t>;

class Edm : public testing::Test {
protected:
    remote_t* open(const std::string& target) {
        remote_t* handle = nullptr;
        EXPECT_EQ(remote_open(&handle, target.c_str(), nullptr), 0) << remote_why();
        return handle;
    }
    std::string refusal(const std::string& target, int expected) {
        remote_t* handle = nullptr;
        EXPECT_EQ(remote_open(&handle, target.c_str(), nullptr), expected) << target;
        return remote_why();
    }
    // Writes and reads, and expects the bytes back.
    void use(remote_t* r, raddr_t address, std::size_t bytes, std::uint8_t first) {
        Bytes data(bytes), back(bytes);
        for (std::size_t i = 0; i < bytes; i++)
            data[i] = static_cast<std::uint8_t>(first + i % 251);
        EXPECT_EQ(rwrite(r, address, data.data(), bytes), 0) << remote_why();
        EXPECT_EQ(rread(r, address, back.data(), bytes), 0) << remote_why();
        EXPECT_EQ(data, back);
    }

    // A busy host stands still for a while, and that is no silence of the scheduler's.
    explicit Edm(std::chrono::milliseconds lease = std::chrono::seconds(1))
        : rack(node.port(), lease) {}

    TestNode node;
    EdmRack rack;
};

// Leases that end during a test.
class BriefEdm : public Edm {
protected:
    BriefEdm() : Edm(EdmRack::brief_lease) {}
};

} // namespace

TEST_F(Edm, LongOnesAreScheduledAndShortOnesAreNot) {
    remote_t* r = open(rack.target());
    raddr_t address = 0;
    ASSERT_EQ(ralloc(r, 1 << 20, REMOTE_RW, &address), 0);
    const std::uint64_t before = rack.forwards() + rack.grants();
    use(r, address, 64, 1);
    EXPECT_EQ(rack.forwards() + rack.grants(), before);
    use(r, address, 1 << 20, 2);
    EXPECT_GT(rack.forwards(), 0U);
    EXPECT_GT(rack.grants(), rack.forwards()); // of writes, too
    EXPECT_EQ(counters_of(r).unscheduled, 0U);
    remote_close(r);
}

TEST_F(Edm, AddressOfASocketIsAskedForWhenItIsConnectedAlone) {
    addresses_asked = 0;
    remote_t* r = open(rack.target());
    EXPECT_GT(addresses_asked, 0U);
    raddr_t address = 0;
    ASSERT_EQ(ralloc(r, 1 << 20, REMOTE_RW, &address), 0);
    // An answer that a busy host delays has the transport look whether the address has changed.
    EXPECT_TRUE(comes_true([&] {
        addresses_asked = 0;
        use(r, address, 1 << 16, 2);
        return !addresses_asked;
    }));
    remote_close(r);
}

TEST_F(BriefEdm, MessagesGoWithoutASilentSchedulerAndReturnToIt) {
    remote_t* r = open(rack.target());
    raddr_t address = 0;
    ASSERT_EQ(ralloc(r, 1 << 20, REMOTE_RW, &address), 0);
    use(r, address, 1 << 20, 1);
    rack.silence(true);
    EXPECT_TRUE(comes_true([&] {
        use(r, address, 100'000, 2);
        return counters_of(r).unscheduled > 0;
    }));
    rack.silence(false);
    EXPECT_TRUE(comes_true([&] {
        const std::uint64_t granted = rack.grants(), unscheduled = counters_of(r).unscheduled;
        use(r, address, 100'000, 3);
        return rack.grants() > granted && counters_of(r).unscheduled == unscheduled;
    }));
    remote_close(r);
}

// Its lease has ended: the next messages wait for the join, and none is sent without a grant. A
// host that stands still for a lease breaks that, not each time.
TEST_F(BriefEdm, JoinsAnewAfterAPause) {
    remote_t* r = open(rack.target());
    raddr_t address = 0;
    ASSERT_EQ(ralloc(r, 1 << 20, REMOTE_RW, &address), 0);
    EXPECT_TRUE(comes_true([&] {
        std::this_thread::sleep_for(4 * EdmRack::brief_lease);
        const std::uint64_t granted = rack.grants(), unscheduled = counters_of(r).unscheduled;
        use(r, address, 100'000, 1);
        return rack.grants() > granted && counters_of(r).unscheduled == unscheduled;
    }));
    remote_close(r);
}

TEST_F(Edm, HandlesOfAProgramShareItsPort) {
    std::vector<remote_t*> handles;
    for (int i = 0; i < 4; i++)
        handles.push_back(open(rack.target()));
    raddr_t address = 0;
    ASSERT_EQ(ralloc(handles[0], 4 << 20, REMOTE_RW, &address), 0);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < handles.size(); i++)
        threads.emplace_back([&, i] {
            for (std::uint8_t n = 0; n < 20; n++)
                use(handles[i], address + (i << 20), 200'000, n);
        });
    for (std::thread& thread : threads)
        thread.join();
    std::string other = rack.target();
    other.replace(other.find("rate="), 6, "rate=2");
    EXPECT_NE(refusal(other, -EBUSY).find("is at port 3 already"), std::string::npos);
    for (remote_t* each : handles) {
        EXPECT_EQ(counters_of(each).unscheduled, 0U);
        remote_close(each);
    }
}

TEST_F(Edm, AHandleClosedUnderWayLeavesOthersTheirGrants) {
    remote_t* stays = open(rack.target());
    raddr_t address = 0;
    ASSERT_EQ(ralloc(stays, 1 << 20, REMOTE_RW, &address), 0);
    const Bytes data(300'000, 7);
    for (int n = 0; n < 10; n++) {
        remote_options options{};
        options.size = sizeof(options);
        options.call_timeout_us = 1; // gives up while its datagrams wait
        remote_t* goes = nullptr;
        ASSERT_EQ(remote_open(&goes, rack.target().c_str(), &options), 0) << remote_why();
        rwrite(goes, address, data.data(), data.size());
        remote_close(goes);
        use(stays, address, 100'000, static_cast<std::uint8_t>(n));
    }
    remote_close(stays);
}

TEST_F(Edm, BadTargetsAreTold) {
    const auto has = [](const std::string& text, const char* part) {
        return text.find(part) != std::string::npos;
    };
    const std::string keys = ",rack=" + key_file() + ",key=" + key_file();
    EXPECT_PRED2(has, refusal("edm:127.0.0.1" + keys, -EINVAL), "edm:SCHEDULER/PORT@NODE");
    EXPECT_PRED2(has, refusal("edm:127.0.0.1/2@127.0.0.1,rate=1" + keys, -EINVAL), "add ,as=PORT");
    EXPECT_PRED2(has, refusal("edm:127.0.0.1/2@127.0.0.1,as=3" + keys, -EINVAL), "add ,rate=MBIT");
    EXPECT_PRED2(has, refusal("edm:127.0.0.1/2@127.0.0.1,as=2,rate=1" + keys, -EINVAL),
                 "needs another");
    EXPECT_PRED2(has, refusal("edm:127.0.0.1/2@127.0.0.1,as=3,rate=1,key=" + key_file(), -ENOKEY),
                 "add ,rack=FILE");
    EXPECT_PRED2(has, refusal("edm:127.0.0.1/999@127.0.0.1,as=3,rate=1" + keys, -EINVAL), "999");
    EXPECT_PRED2(has, refusal(rack.target() + ",integrity=sealed", -EPROTONOSUPPORT),
                 "use integrity=full");
    // No scheduler listens at that port.
    EXPECT_PRED2(has, refusal("edm:127.0.0.1:9/2@127.0.0.1,as=3,rate=1" + keys, -EHOSTUNREACH),
                 "does not welcome port 3");
}

} // namespace remora::test
