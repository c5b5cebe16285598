// SPDX-License-Identifier: GPL-2.0
// remora-tx's client on a queue that refuses and fails.
#include "apps/tx/client.hpp"

#include <cerrno>

#include <gtest/gtest.h>

#include "../../fake_remote.hpp"
#include "support/failure.hpp"

namespace remora::tx {
namespace {

class TxClient : public testing::Test {
protected:
    test::FakeRemote remote;
    Client client{"", 1, 0};

    void write() { client.run({}, {{0, "data"}}); }
};

TEST_F(TxClient, TriesAgainAfterEachErrorThatCanPass) {
    client.patience = std::chrono::hours(1);
    for (int error :
         {EAGAIN, EUSERS, ESTALE, ENOSYS, ETIMEDOUT, ECONNRESET, ECONNREFUSED, EHOSTUNREACH}) {
        remote.submit_errors = {-error};
        remote.results = {-error, 0};
        EXPECT_NO_THROW(write()) << error;
    }
    EXPECT_EQ(remote.submitted(), 2U * 8U);
}

TEST_F(TxClient, GivesUpAtOtherErrors) {
    client.patience = std::chrono::hours(1);
    remote.results = {-EACCES};
    EXPECT_THROW(write(), Failure);
}

TEST_F(TxClient, TriesAgainWhenTheQueueHasRoomForAPartAlone) {
    client.patience = std::chrono::hours(1);
    remote.room = 1;
    remote.results = {0};
    remote.submit_errors = {0, -EACCES};
    EXPECT_THROW(client.run({}, {{0, std::string(4000, 'x')}}), Failure);
    EXPECT_EQ(remote.refused(), 1U);
    EXPECT_TRUE(remote.submit_errors.empty()) << "a second try";
}

TEST_F(TxClient, LeavesNothingInFlightWhenTheQueueFails) {
    remote.wait_errors = {-ENOMEM};
    EXPECT_THROW(write(), Failure);
    EXPECT_EQ(remote.submitted(), 1U);
    EXPECT_EQ(remote.in_flight(), 0U) << "the operation's buffers are gone";
    EXPECT_EQ(remote.closed(), 1U);
    EXPECT_THROW(write(), Failure);
}

} // namespace
} // namespace remora::tx
