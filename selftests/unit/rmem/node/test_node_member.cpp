// SPDX-License-Identifier: GPL-2.0
// Members of a space: clients with keys of their own for one memory; and keys that are revoked.
#include "node_test.hpp"

namespace {

using namespace rig;

constexpr uint8_t member_key = 42;

bool add_member(Node& node, uint32_t space, uint32_t base, uint8_t key) {
    uint8_t bytes[BASE_SIPHASH_KEY_BYTES] = {key};
    return rmem_node_space_add_member(&node.core, space, bytes, base) == RMEM_SPACE_OK;
}

rmem_space_error revoke(Node& node, uint32_t space) {
    rmem_node_call call;
    if (rmem_node_call_revoke(&node.core, &call, space))
        node.run(call);
    const rmem_space_error error = rmem_node_space_revoke(&node.core, space);
    if (error == RMEM_SPACE_OK)
        rmem_node_space_wipe(&node.core);
    return error;
}

// Space 2 is a member of space 1, and member has a session in it.
struct Members : NodeTest {
    Members() { begin(); }
    void begin() {
        ASSERT_TRUE(add_member(node, 2, 1, member_key));
        ASSERT_EQ(node.open(member, 1).reply.status, RMEM_OK);
    }
    rmem_node_reason look(Client& who) {
        return node.request(who, who.head(RMEM_READ, addr, 1)).reason;
    }
    // An ALLOC that its client acknowledges.
    uint64_t own(Client& who, uint64_t bytes) {
        uint64_t at = node.alloc(who, bytes);
        who.floor = who.next_id;
        EXPECT_EQ(node.write(who, at, {1}).reply.status, RMEM_OK);
        return at;
    }

    Client member{1, 2}; // of the same name as the other, which is no matter
};

TEST_F(Members, ShareTheMemoryOfTheirSpace) {
    node.write(client, addr, filled(10, 7));
    EXPECT_EQ(node.read(member, addr, 10), filled(10, 7));
    EXPECT_EQ(node.write(member, addr + 5, filled(5, 8)).reply.status, RMEM_OK);
    EXPECT_EQ(node.read(client, addr + 5, 5), filled(5, 8));
    uint64_t theirs = own(member, page);
    ASSERT_NE(theirs, 0u);
    EXPECT_EQ(node.write(client, theirs, {9}).reply.status, RMEM_OK);
    EXPECT_EQ(node.read(member, theirs, 1), filled(1, 9));
    EXPECT_EQ(node.free(client, theirs, page).reply.status, RMEM_OK);
    EXPECT_EQ(node.request(member, member.head(RMEM_READ, theirs, 1)).reason, RMEM_NODE_FAULT);
}

TEST_F(Members, CountForTheQuotaOfTheirSpace) {
    ASSERT_TRUE(node.add_space(3, 2 * page));
    ASSERT_TRUE(add_member(node, 4, 3, 44));
    Client first(5, 3), second(6, 4);
    ASSERT_EQ(node.open(first, 1).reply.status, RMEM_OK);
    ASSERT_EQ(node.open(second, 1).reply.status, RMEM_OK);
    EXPECT_NE(node.alloc(first, page), 0u);
    EXPECT_NE(node.alloc(second, page), 0u);
    EXPECT_EQ(node.alloc(second, page), 0u);
}

TEST_F(Members, HaveKeysThatNoOtherClientOfTheSpaceHas) {
    uint8_t taken[BASE_SIPHASH_KEY_BYTES] = {member_key};
    EXPECT_EQ(rmem_node_space_add_member(&node.core, 3, key_bytes, 1), RMEM_SPACE_SAME_KEY);
    EXPECT_EQ(rmem_node_space_add_member(&node.core, 3, taken, 1), RMEM_SPACE_SAME_KEY);
    EXPECT_EQ(rmem_node_space_add_view(&node.core, 3, taken, 1), RMEM_SPACE_SAME_KEY);
    ASSERT_TRUE(node.add_view(3, 1, 50));
    taken[0] = 50;
    EXPECT_EQ(rmem_node_space_add_member(&node.core, 4, taken, 1), RMEM_SPACE_SAME_KEY);
    EXPECT_EQ(rmem_node_space_add_member(&node.core, 4, taken, 2), RMEM_SPACE_IS_VIEW);
    EXPECT_EQ(rmem_node_space_add_member(&node.core, 4, taken, 9), RMEM_SPACE_NO_BASE);
    EXPECT_EQ(rmem_node_space_del(&node.core, 1), RMEM_SPACE_VIEWED);
}

TEST_F(Members, RevokedOneIsRefusedAndTheOthersAreServed) {
    ASSERT_TRUE(add_member(node, 3, 1, 43));
    Client other(7, 3);
    ASSERT_EQ(node.open(other, 1).reply.status, RMEM_OK);
    uint64_t theirs = own(member, page);
    ASSERT_EQ(revoke(node, 2), RMEM_SPACE_OK);
    EXPECT_EQ(rmem_node_key(&node.core, 2), nullptr);
    EXPECT_EQ(look(member), RMEM_NODE_NO_SESSION);
    EXPECT_NE(node.open(member, 2).reply.status, RMEM_OK);
    EXPECT_EQ(node.read(other, theirs, 1), filled(1, 1)) << "what it allocated stays";
    EXPECT_EQ(look(client), RMEM_NODE_OK);
    EXPECT_EQ(node.usage().sessions, 2u);
    EXPECT_EQ(revoke(node, 2), RMEM_SPACE_UNKNOWN);
    // Its id is free for another key.
    ASSERT_TRUE(add_member(node, 2, 1, 45));
    EXPECT_EQ(look(member), RMEM_NODE_NO_SESSION);
}

// No other client could know of it.
TEST_F(Members, AllocThatARevokedOneDidNotAcknowledgeIsUndone) {
    ASSERT_NE(node.alloc(member, page), 0u);
    const uint64_t promised = node.usage().pages_promised;
    ASSERT_EQ(revoke(node, 2), RMEM_SPACE_OK);
    EXPECT_EQ(node.usage().pages_promised, promised - 1);
    EXPECT_EQ(node.usage().allocs_undone, 1u);
}

TEST_F(Members, ReachTheMemoryAfterTheSpacesOwnKeyIsRevoked) {
    node.write(client, addr, filled(10, 7));
    client.floor = client.next_id;
    ASSERT_EQ(look(client), RMEM_NODE_OK); // acknowledges the region
    ASSERT_EQ(revoke(node, 1), RMEM_SPACE_OK);
    EXPECT_EQ(rmem_node_key(&node.core, 1), nullptr);
    EXPECT_EQ(rmem_spaces_find(&node.core.spaces, 1)->key.k[0], 0u);
    EXPECT_EQ(look(client), RMEM_NODE_NO_SESSION);
    EXPECT_EQ(node.read(member, addr, 10), filled(10, 7));
    EXPECT_EQ(node.write(member, addr, filled(1, 8)).reply.status, RMEM_OK);
    EXPECT_TRUE(add_member(node, 3, 1, 46));
    EXPECT_EQ(revoke(node, 1), RMEM_SPACE_REVOKED);
    EXPECT_EQ(look(member), RMEM_NODE_OK);
}

// A session that a space with this one's slot left behind owes memory, and its end takes several
// steps. No OPEN of the space that is revoked comes between them.
TEST_F(Members, NoSessionBeginsWhileTheSlotsFormerSpaceIsUndone) {
    Client late(7, 3);
    ASSERT_NE(node.alloc(member, 8 * page), 0u);
    ASSERT_EQ(rmem_node_space_del(&node.core, 2), RMEM_SPACE_OK); // leaves member's session
    ASSERT_TRUE(node.add_space(3));
    rmem_node_call call;
    ASSERT_TRUE(rmem_node_call_revoke(&node.core, &call, 3));
    rmem_head h = late.open_head(1);
    late.open.integrity = late.integrity;
    while (node.step(call)) {
        rmem_node_call open;
        EXPECT_FALSE(rmem_node_call_enter(&node.core, &call, &open, node.now_ns, &h, &late.peer,
                                          &late.open));
    }
    EXPECT_EQ(call.memory, call.attempt.place.memory);
}

TEST_F(Members, SessionOfARevokedKeyIsRefusedEvenIfItIsThere) {
    ASSERT_EQ(rmem_node_space_revoke(&node.core, 1), RMEM_SPACE_OK);
    EXPECT_EQ(look(client), RMEM_NODE_NO_SESSION);
    EXPECT_EQ(look(member), RMEM_NODE_OK);
}

TEST_F(Members, AllocThatAClearedOneDidNotAcknowledgeIsUndone) {
    own(member, page);
    const uint64_t promised = node.usage().pages_promised;
    ASSERT_NE(node.alloc(member, page), 0u);
    EXPECT_TRUE(node.remove_space(2));
    EXPECT_EQ(node.usage().pages_promised, promised);
    EXPECT_EQ(node.usage().sessions, 1u);
}

// One that was verified before, and waited in the queue.
TEST_F(Members, OpenThatWaitedDuringTheRevocationOpensNothing) {
    rmem_head h = client.open_head(200);
    client.open.integrity = client.integrity;
    ASSERT_EQ(revoke(node, 1), RMEM_SPACE_OK);
    rmem_node_call late = node.begin(client, h, &client.open);
    EXPECT_EQ(node.run(late).action, RMEM_ACT_DROP);
    EXPECT_EQ(node.usage().sessions, 1u);
}

TEST_F(Members, RevokedSpaceIsDeletedAsAnyOther) {
    ASSERT_EQ(revoke(node, 2), RMEM_SPACE_OK);
    ASSERT_EQ(revoke(node, 1), RMEM_SPACE_OK);
    EXPECT_EQ(rmem_node_space_del(&node.core, 1), RMEM_SPACE_OK) << "its ALLOC was undone";
    ASSERT_TRUE(node.add_space(1));
    EXPECT_NE(rmem_node_key(&node.core, 1), nullptr);
}

TEST_F(Members, RequireTheLevelOfTheirSpace) {
    rmem_node_space_require(&node.core, 1, RMEM_FULL);
    ASSERT_TRUE(add_member(node, 3, 1, 47));
    Client other(8, 3);
    EXPECT_EQ(node.open(other, 1).reply.status, RMEM_PERM);
    other.integrity = RMEM_FULL;
    EXPECT_EQ(node.open(other, 2).reply.status, RMEM_OK);
}

} // namespace
