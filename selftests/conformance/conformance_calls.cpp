// SPDX-License-Identifier: GPL-2.0
// QUERY and CALL at a node without offloads.
#include <gtest/gtest.h>

#include "client.hpp"

namespace remora::test {

namespace {

class NoOffload : public testing::TestWithParam<rmem_integrity> {
protected:
    Message call(rmem_type type, std::uint32_t args_bytes) {
        Message message = client.request(type);
        message.head.addr = 7;
        message.head.op = 3;
        message.head.len = args_bytes;
        message.head.piece = type == RMEM_QUERY ? 64 : 0;
        message.payload = [args_bytes](const Names&) { return Bytes(args_bytes, 0x5a); };
        return message;
    }

    Client client{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Levels, NoOffload, testing::Values(RMEM_LINK, RMEM_DIGEST, RMEM_FULL));

TEST_P(NoOffload, CallsAreRefusedAndCopiesAre) {
    for (rmem_type type : {RMEM_QUERY, RMEM_CALL}) {
        const Message message = call(type, 40);
        EXPECT_EQ(client.ask(message), RMEM_NO_OFFLOAD);
        EXPECT_EQ(client.ask(message), RMEM_NO_OFFLOAD);
    }
    EXPECT_EQ(client.ask(call(RMEM_QUERY, 0)), RMEM_NO_OFFLOAD);
}

TEST_P(NoOffload, ViewCallsNothingThatChangesMemory) {
    Client reader(GetParam(), 2, 0, true);
    Message message = reader.request(RMEM_CALL);
    message.head.addr = 7;
    EXPECT_EQ(reader.ask(message), RMEM_PERM);
}

} // namespace

} // namespace remora::test
