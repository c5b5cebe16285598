// SPDX-License-Identifier: GPL-2.0
// Persistent pages of a node: a region that clients read, and that programs alone change.
#include <gtest/gtest.h>

#include "../node/node_test.hpp"

namespace {

using namespace rig;

constexpr uint64_t pages = 4, at = RMEM_PERSISTENT_ADDR;

rmem_node_config with_persistent() {
    rmem_node_config config = small_config();
    config.persistent_pages = pages;
    return config;
}

// Adds 1 to the bytes at the address that it is given.
int step(rmem_call* call) {
    auto* addr = static_cast<const uint64_t*>(rmem_args(call, sizeof(uint64_t)));
    auto* byte = static_cast<uint8_t*>(rmem_at(call, *addr, 1));
    if (!byte)
        return rmem_error(call);
    ++*byte;
    auto* result = static_cast<uint64_t*>(rmem_result(call, sizeof(uint64_t)));
    *result = rmem_persistent_bytes(call);
    return 0;
}
constexpr rmem_offload_ops program{RMEM_OFFLOAD_VERSION, 9, 1, 10, "test", step, nullptr};

class Persistent : public NodeTest {
protected:
    Persistent() : NodeTest(with_persistent()) {
        node.refill();
        EXPECT_TRUE(rmem_node_add_persistent(&node.core, 1, at));
    }
    rmem_node_reason change(uint64_t addr, uint64_t* bytes = nullptr) {
        rmem_head h = client.head(RMEM_CALL, 9, sizeof(addr));
        h.op = 0;
        Bytes payload = wire::bytes_of(addr);
        node.request(client, h, &payload);
        while (node.run_round()) {
        }
        if (bytes && node.ended.back().result.size() >= 8)
            *bytes = base_load_le64(node.ended.back().result.data());
        return node.ended.back().answer.reason;
    }
};

TEST_F(Persistent, ContentIsThereAndClientsReadIt) {
    EXPECT_EQ(node.read(client, at, 16), filled(16, garbage));
    EXPECT_EQ(node.read(client, at + pages * page - 16, 16), filled(16, garbage));
}

TEST_F(Persistent, ClientsCantChangeOrFreeIt) {
    refused(client.head(RMEM_WRITE, at, 8), RMEM_NODE_PERM, RMEM_PERM);
    refused(client.head(RMEM_ZERO, at, page), RMEM_NODE_PERM, RMEM_PERM);
    refused(client.head(RMEM_DISCARD, at, page), RMEM_NODE_PERM, RMEM_PERM);
    EXPECT_EQ(node.free(client, at, pages * page).reply.status, RMEM_PERM);
    EXPECT_EQ(node.read(client, at, 8), filled(8, garbage));
}

TEST_F(Persistent, SpaceIsNeitherClearedNorDeleted) {
    rmem_node_call call;
    EXPECT_FALSE(rmem_node_call_clear(&node.core, &call, 1));
    EXPECT_EQ(rmem_node_space_del(&node.core, 1), RMEM_SPACE_PERSISTENT);
    EXPECT_EQ(node.read(client, at, 8), filled(8, garbage));
    // A view of it goes, and takes no memory with it.
    ASSERT_TRUE(node.add_view(2, 1, 9));
    EXPECT_TRUE(node.remove_space(2));
    EXPECT_EQ(node.read(client, at, 8), filled(8, garbage));
}

TEST_F(Persistent, ProgramOfItsSpaceChangesIt) {
    ASSERT_GE(node.load(program), 0);
    uint64_t bytes = 0;
    EXPECT_EQ(change(at + page, &bytes), RMEM_NODE_OK);
    EXPECT_EQ(bytes, pages * page);
    EXPECT_EQ(node.read(client, at + page, 1), filled(1, garbage + 1));
    EXPECT_EQ(change(at + pages * page), RMEM_NODE_FAILED);
    EXPECT_EQ(change(at - 1), RMEM_NODE_FAILED);
}

TEST_F(Persistent, AnotherSpaceHasNone) {
    ASSERT_TRUE(node.add_space(2));
    ASSERT_GE(node.load(program, 2, {1}), 0);
    uint64_t bytes = 1;
    EXPECT_EQ(change(at, &bytes), RMEM_NODE_FAILED);
}

TEST_F(Persistent, OtherRegionsNeverHaveItsPages) {
    uint64_t all = node.usage().pages - node.usage().pages_promised;
    uint64_t others = node.alloc(client, all * page);
    ASSERT_NE(others, 0u);
    EXPECT_EQ(node.alloc(client, page), 0u);
    for (uint64_t n = 0; n < all; n++) {
        node.refill();
        node.write(client, others + n * page, filled(8, 1));
    }
    EXPECT_EQ(node.read(client, at, 8), filled(8, garbage));
    EXPECT_EQ(node.read(client, at + 3 * page, 8), filled(8, garbage));
}

} // namespace
