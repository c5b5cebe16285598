// SPDX-License-Identifier: GPL-2.0
// Locks of keys among calls: who has one, who waits, and who is woken.
#include "remora-node/key_locks.hpp"

#include <cerrno>

#include <gtest/gtest.h>

namespace remora::daemon {
namespace {

class Keys : public testing::Test {
protected:
    KeyLocks locks;
    rmem_run_offload offload{}, other{};
    std::vector<rmem_call> call{4};
    std::vector<rmem_call*> granted;

    Keys() {
        for (rmem_call& each : call)
            each.offload = &offload;
    }
    void release(rmem_call& ended) {
        granted.clear();
        locks.release(&ended, [this](rmem_call* next) { granted.push_back(next); });
    }
};

using Calls = std::vector<rmem_call*>;

TEST_F(Keys, LockIsGrantedInTheOrderOfTheCalls) {
    EXPECT_EQ(locks.lock(&call[0], 7), 0);
    EXPECT_EQ(locks.lock(&call[1], 7), -EAGAIN);
    EXPECT_EQ(locks.lock(&call[2], 7), -EAGAIN);
    EXPECT_EQ(locks.lock(&call[0], 7), 0) << "a holder can ask again";
    release(call[0]);
    EXPECT_EQ(granted, Calls{&call[1]});
    EXPECT_EQ(locks.lock(&call[2], 7), -EAGAIN);
    EXPECT_EQ(locks.lock(&call[1], 7), 0);
    release(call[1]);
    EXPECT_EQ(granted, Calls{&call[2]});
    release(call[2]);
    EXPECT_TRUE(granted.empty());
}

TEST_F(Keys, HolderSleepsOnWhenAWaiterEnds) {
    EXPECT_EQ(locks.lock(&call[0], 7), 0);
    EXPECT_EQ(locks.lock(&call[1], 7), -EAGAIN);
    EXPECT_EQ(locks.lock(&call[2], 7), -EAGAIN);
    release(call[1]);
    EXPECT_TRUE(granted.empty());
    release(call[0]);
    EXPECT_EQ(granted, Calls{&call[2]});
}

TEST_F(Keys, OffloadsHaveKeysOfTheirOwn) {
    call[1].offload = &other;
    EXPECT_EQ(locks.lock(&call[0], 7), 0);
    EXPECT_EQ(locks.lock(&call[1], 7), 0);
}

TEST_F(Keys, DescendingKeysAndTooManyAreRefused) {
    EXPECT_EQ(locks.lock(&call[0], 7), 0);
    EXPECT_EQ(locks.lock(&call[0], 6), -EDEADLK);
    for (std::uint64_t key = 8; key < 7 + RMEM_KEYS_MAX; key++)
        EXPECT_EQ(locks.lock(&call[0], key), 0);
    EXPECT_EQ(locks.lock(&call[0], 1000), -ENOSPC);
    release(call[0]);
    EXPECT_EQ(locks.lock(&call[1], 6), 0);
}

TEST_F(Keys, CallWithoutLocksReleasesNothing) {
    release(call[0]);
    EXPECT_TRUE(granted.empty());
}

} // namespace
} // namespace remora::daemon
