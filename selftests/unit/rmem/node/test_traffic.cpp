// SPDX-License-Identifier: GPL-2.0
// Requests of a space's clients: counted by session, told by space.
#include "node_test.hpp"

namespace {

using namespace rig;

struct Traffic : NodeTest {
    rmem_traffic of(uint32_t space) {
        rmem_traffic_settle_all(&node.core);
        return rmem_spaces_find(&node.core.spaces, space)->traffic;
    }
    void expect(const rmem_traffic& is, uint64_t operations, uint64_t read, uint64_t written) {
        EXPECT_EQ(is.operations, operations);
        EXPECT_EQ(is.read_bytes, read);
        EXPECT_EQ(is.written_bytes, written);
    }
};

TEST_F(Traffic, ExecutedRequestsAreCountedOnce) {
    expect(of(1), 0, 0, 0);
    rmem_head h = client.head(RMEM_WRITE, addr, 100);
    Bytes data = filled(100, 1);
    node.request(client, h, &data);
    node.request(client, h, &data); // a copy
    EXPECT_EQ(node.read(client, addr, 30).size(), 30u);
    expect(of(1), 2, 30, 100);
    expect(of(1), 2, 30, 100); // told once
}

TEST_F(Traffic, RefusedRequestsAreNot) {
    refused(client.head(RMEM_READ, 5, 1), RMEM_NODE_FAULT, RMEM_FAULT);
    expect(of(1), 0, 0, 0);
}

TEST_F(Traffic, SpacesAreToldApart) {
    ASSERT_TRUE(node.add_space(3));
    ASSERT_TRUE(node.add_view(2, 1));
    Client reader{1, 2};
    ASSERT_EQ(node.open(reader, 1).reply.status, RMEM_OK);
    EXPECT_EQ(node.read(reader, addr, 7).size(), 7u);
    node.write(client, addr, filled(9, 1));
    expect(of(1), 1, 0, 9);
    expect(of(2), 1, 7, 0);
    expect(of(3), 0, 0, 0);
}

TEST_F(Traffic, EndedSessionsAreKept) {
    node.write(client, addr, filled(9, 1));
    client.floor = client.next_id; // nothing is owed
    ASSERT_EQ(node.close(client, client.head(RMEM_CLOSE, 0, 0)).reply.status, RMEM_OK);
    expect(of(1), 1, 0, 9);
    ASSERT_EQ(node.open(client, 200).reply.status, RMEM_OK);
    node.write(client, addr, filled(2, 1));
    expect(of(1), 2, 0, 11);
}

TEST_F(Traffic, SpaceAddedAgainBeginsAtZero) {
    node.write(client, addr, filled(9, 1));
    ASSERT_TRUE(node.remove_space(1));
    ASSERT_TRUE(node.add_space(1));
    expect(of(1), 0, 0, 0);
}

} // namespace
