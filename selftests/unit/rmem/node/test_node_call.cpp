// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <vector>

#include "node_test.hpp"

namespace {

using rig::Bytes;
using rig::Client;
using rig::filled;
using rig::NodeTest;
using rig::page;

// ---- sessions ---------------------------------------------------------------------------------

TEST_F(NodeTest, OpenTells) {
    Client other(2);
    rmem_answer answer = node.open(other, 5);
    EXPECT_EQ(answer.reply.type, RMEM_OPEN | RMEM_RESPONSE);
    EXPECT_EQ(answer.reply.id, 5u);
    EXPECT_EQ(rmem_wire_payload_bytes(&answer.reply), sizeof(rmem_opened));
    EXPECT_EQ(answer.reply.len, sizeof(rmem_opened));
    EXPECT_EQ(base_load_le64(&node.opened.memory_bytes), 64 * page);
    EXPECT_EQ(base_load_le64(&node.opened.free_bytes), 56 * page);
    EXPECT_EQ(base_load_le32(&node.opened.page_bytes), page);
    EXPECT_EQ(base_load_le32(&node.opened.piece_bytes), 4096u);
    EXPECT_EQ(node.usage().sessions, 2u);
}

TEST_F(NodeTest, RepeatedOpenGetsTheSameSessionWhileUnused) {
    Client other(2);
    node.open(other, 5);
    uint64_t session = other.session;
    rmem_answer answer = node.open(other, 5);
    EXPECT_EQ(answer.reason, RMEM_NODE_REPEATED);
    EXPECT_EQ(other.session, session);
    node.read(other, addr, 1);
    auto before = node.snapshot();
    answer = node.open(other, 5);
    EXPECT_EQ(answer.action, RMEM_ACT_DROP); // a late copy: it must not end the session
    EXPECT_EQ(answer.reason, RMEM_NODE_REPEATED);
    EXPECT_TRUE(before == node.snapshot());
    node.open(other, 6);
    EXPECT_NE(other.session, session);
    EXPECT_EQ(node.usage().sessions, 2u);
}

// An eavesdropper may send an old OPEN again, from anywhere: it ends no session.
TEST_F(NodeTest, LateOpenIsNoAttempt) {
    Client other(2);
    node.open(other, 5);
    node.open(other, 9);
    node.read(other, addr, 1);
    Client copy = other;
    copy.peer.port++;
    for (uint64_t nonce : {5, 8, 1}) {
        auto before = node.snapshot();
        rmem_answer answer = node.open(copy, nonce);
        EXPECT_EQ(answer.action, RMEM_ACT_DROP);
        EXPECT_EQ(answer.reason, RMEM_NODE_STALE);
        EXPECT_TRUE(before == node.snapshot()) << nonce;
    }
    EXPECT_EQ(node.write(other, addr, filled(1, 1)).reason, RMEM_NODE_OK);
    Client stranger(3);
    EXPECT_EQ(node.open(stranger, 1).reason, RMEM_NODE_OK) << "each client counts its own";
}

TEST_F(NodeTest, CopyOfOpenFromElsewhereIsNotAnswered) {
    Client other(2);
    node.open(other, 5);
    Client moved = other;
    moved.peer.port++;
    EXPECT_EQ(node.open(moved, 5).action, RMEM_ACT_DROP);
    EXPECT_EQ(node.open(other, 5).reason, RMEM_NODE_REPEATED);
    EXPECT_EQ(node.usage().sessions, 2u);
}

TEST_F(NodeTest, OpenThatNamesTheSessionRenewsIt) {
    rmem_head write = client.head(RMEM_WRITE, addr, 1);
    Bytes data = filled(1, 1);
    ASSERT_EQ(node.request(client, write, &data).reason, RMEM_NODE_OK);
    Client old = client;
    rmem_answer answer = node.renew(client, 101);
    EXPECT_EQ(answer.reason, RMEM_NODE_OK);
    EXPECT_EQ(node.opened.renewed, 1);
    ASSERT_NE(client.session, old.session);
    uint64_t session = client.session;
    client.session = old.session;
    EXPECT_EQ(node.renew(client, 101).reason, RMEM_NODE_REPEATED) << "its answer may be lost";
    EXPECT_EQ(node.opened.renewed, 1);
    EXPECT_EQ(client.session, session);
    EXPECT_EQ(node.request(old, write, &data).reply.status, RMEM_NO_SESSION);
    write.session = session;
    EXPECT_EQ(node.request(client, write, &data).reason, RMEM_NODE_REPEATED);
    client.session = old.session;
    EXPECT_EQ(node.renew(client, 101).action, RMEM_ACT_DROP) << "late, for it is in use";
    EXPECT_EQ(node.usage().sessions, 1u);
}

// The client heard of none of the names that its session got.
TEST_F(NodeTest, NameBeforeRenewsUntilTheNewOneIsUsed) {
    rmem_head write = client.head(RMEM_WRITE, addr, 1);
    Bytes data = filled(1, 1);
    ASSERT_EQ(node.request(client, write, &data).reason, RMEM_NODE_OK);
    const uint64_t known = client.session;
    for (uint64_t nonce = 101; nonce < 104; nonce++) {
        client.session = known;
        EXPECT_EQ(node.renew(client, nonce).reason, RMEM_NODE_OK);
        EXPECT_EQ(node.opened.renewed, 1);
    }
    write.session = client.session;
    EXPECT_EQ(node.request(client, write, &data).reason, RMEM_NODE_REPEATED);
    client.session = known;
    EXPECT_EQ(node.renew(client, 104).reason, RMEM_NODE_OK);
    EXPECT_EQ(node.opened.renewed, 0) << "it was used";
}

// Then it is a new session, and the one of before ends.
TEST_F(NodeTest, OpenOfAnotherClientRenewsNothing) {
    uint64_t nonce = 100;
    auto refuses = [&](auto change) {
        client.floor = client.next_id;
        node.read(client, addr, 1);
        uint64_t session = client.session;
        Client other = client;
        change(other);
        EXPECT_EQ(node.renew(other, ++nonce).reason, RMEM_NODE_OK);
        EXPECT_EQ(node.opened.renewed, 0);
        EXPECT_NE(other.session, session);
        client.floor = client.next_id = 1;
        client.session = 0;
        EXPECT_EQ(node.renew(client, ++nonce).reason, RMEM_NODE_OK);
        EXPECT_EQ(node.opened.renewed, 0);
    };
    refuses([](Client& other) { other.integrity = RMEM_FULL; });
    refuses([](Client& other) { other.session ^= 1; });
    refuses([](Client& other) { other.session ^= 1ull << 40; });
    Client stranger(2);
    stranger.session = client.session;
    EXPECT_EQ(node.renew(stranger, 1).reason, RMEM_NODE_OK);
    EXPECT_EQ(node.opened.renewed, 0);
    EXPECT_EQ(node.read(client, addr, 1).size(), 1u) << "it is still there";
    ASSERT_TRUE(node.add_space(2));
    Client namesake(1, 2);
    namesake.session = client.session;
    EXPECT_EQ(node.renew(namesake, 1).reason, RMEM_NODE_OK);
    EXPECT_EQ(node.opened.renewed, 0);
}

TEST_F(NodeTest, LateRenewalIsNoAttempt) {
    Client old = client;
    node.renew(client, 101);
    node.renew(client, 102);
    uint64_t session = client.session;
    auto before = node.snapshot();
    EXPECT_EQ(node.renew(old, 101).action, RMEM_ACT_DROP);
    EXPECT_TRUE(before == node.snapshot());
    EXPECT_EQ(node.read(client, addr, 1).size(), 1u);
    EXPECT_EQ(client.session, session);
}

TEST_F(NodeTest, ClientIdsOfOtherSpacesAreOthers) {
    ASSERT_TRUE(node.add_space(2));
    Client namesake(1, 2);
    node.open(namesake, 5);
    EXPECT_EQ(node.write(client, addr, filled(10, 1)).reason, RMEM_NODE_OK);
}

TEST_F(NodeTest, NoSlotForAnotherSession) {
    for (uint8_t n = 2; n < 5; n++) {
        Client other(n);
        ASSERT_EQ(node.open(other, n).reply.status, RMEM_OK);
    }
    Client fifth(9);
    auto before = node.snapshot();
    rmem_answer answer = node.open(fifth, 1);
    EXPECT_EQ(answer.reply.status, RMEM_BUSY);
    EXPECT_EQ(answer.reason, RMEM_NODE_BUSY);
    EXPECT_TRUE(before == node.snapshot());
}

TEST_F(NodeTest, SlotUsedAgainBetweenChoiceAndLock) {
    Client others[3] = {Client(2), Client(3), Client(4)};
    for (Client& other : others)
        node.open(other, 1);
    node.now_ns += 2000 * BASE_NSEC_PER_MSEC;
    Client fifth(9);
    rmem_node_call call = node.begin(fifth, fifth.open_head(1), &fifth.open);
    while (call.slot < 0)
        ASSERT_TRUE(rmem_node_call_step(&node.core, &call));
    ASSERT_EQ(call.slot, int(rmem_node_slot(&node.core, client.session)));
    node.read(client, addr, 1);
    rmem_answer answer = node.run(call);
    EXPECT_EQ(answer.reason, RMEM_NODE_BUSY);
    EXPECT_EQ(node.write(client, addr, filled(1, 1)).reason, RMEM_NODE_OK);
}

// Two tenants share 16 slots, of which a quarter is kept: each has two of it for itself.
class NodeShare : public testing::Test {
protected:
    static constexpr uint64_t idle_ns = 2000 * BASE_NSEC_PER_MSEC;

    static rmem_node_config config() {
        rmem_node_config config = rig::small_config();
        config.sessions_max = 16;
        return config;
    }

    NodeShare() {
        EXPECT_TRUE(node.add_space(1));
        EXPECT_TRUE(node.add_space(2));
    }

    rmem_answer open(uint32_t space) {
        clients.emplace_back(uint8_t(clients.size() + 1), space);
        return node.open(clients.back(), 1);
    }
    void open_all(uint32_t space, unsigned count) {
        for (unsigned n = 0; n < count; n++)
            ASSERT_EQ(open(space).reply.status, RMEM_OK);
    }
    void use(const Client& client) {
        rmem_session* session = rmem_sessions_find(&node.core.sessions, client.session);
        ASSERT_NE(session, nullptr);
        rmem_session_touch(session, ++touched, node.now_ns);
    }
    // All sessions of the space were used just now, but for `idle` of them.
    void use_all(uint32_t space, unsigned idle = 0) {
        for (const Client& client : clients)
            if (client.space == space && client.session && !(idle && idle--))
                use(client);
    }
    unsigned sessions_of(uint32_t space) const {
        unsigned count = 0;
        for (const Client& client : clients)
            count += client.space == space &&
                     rmem_sessions_find(&node.core.sessions, client.session) != nullptr;
        return count;
    }

    rig::Node node{config()};
    std::vector<Client> clients;
    uint64_t touched = 0;
};

TEST_F(NodeShare, BusyOpenEvictsNothing) {
    open_all(1, 12);
    open_all(2, 2);
    node.now_ns += idle_ns;
    use_all(1);
    auto before = node.snapshot();
    EXPECT_EQ(open(1).reply.status, RMEM_BUSY);
    EXPECT_TRUE(before == node.snapshot());
    EXPECT_EQ(sessions_of(2), 2u) << "the modest tenant's idle sessions";
}

TEST_F(NodeShare, SpaceBeyondItsShareReplacesAnIdleSessionOfItsOwn) {
    open_all(1, 12);
    open_all(2, 2);
    node.now_ns += idle_ns;
    use_all(1, 1);
    EXPECT_EQ(open(1).reply.status, RMEM_OK);
    EXPECT_EQ(sessions_of(1), 12u);
    EXPECT_EQ(sessions_of(2), 2u) << "they are idle, too";
    EXPECT_EQ(open(1).reply.status, RMEM_BUSY);
    EXPECT_EQ(sessions_of(2), 2u);
}

TEST_F(NodeShare, IdleSessionsOfOthersGoIfThatLeavesEnough) {
    open_all(2, 6);
    open_all(1, 6);
    node.now_ns += idle_ns;
    use_all(1);
    for (unsigned left = 5; left; left--) {
        EXPECT_EQ(open(1).reply.status, RMEM_OK);
        EXPECT_EQ(sessions_of(2), left);
    }
}

TEST_F(NodeShare, SeveralIdleSessionsOfOthersGoForOneOpen) {
    open_all(2, 11);
    open_all(1, 2); // three are left, of four that are kept
    node.now_ns += idle_ns;
    use_all(1);
    use_all(2, 1);
    auto before = node.snapshot();
    EXPECT_EQ(open(1).reply.status, RMEM_BUSY) << "one isn't enough";
    EXPECT_TRUE(before == node.snapshot());
    node.now_ns += idle_ns;
    use_all(1);
    EXPECT_EQ(open(1).reply.status, RMEM_OK);
    EXPECT_EQ(sessions_of(2), 9u);
    EXPECT_EQ(sessions_of(1), 3u);
}

// A client that lost its session asks for another, without naming the one it had.
TEST_F(NodeShare, ClientBeginsAnewWhateverItsSpaceHas) {
    open_all(1, 12);
    open_all(2, 2);
    EXPECT_EQ(node.open(clients[0], 2).reply.status, RMEM_OK);
    EXPECT_EQ(sessions_of(1), 12u);
    EXPECT_EQ(sessions_of(2), 2u);
}

TEST_F(NodeTest, MalformedOpen) {
    Client other(2);
    rmem_head h = other.open_head(1);
    auto before = node.snapshot();
    other.open.integrity = RMEM_FULL; // the header says otherwise
    EXPECT_EQ(node.open_with(other, h).reply.status, RMEM_INVALID);
    other.open.integrity = RMEM_LINK;
    other.open.reserved2[3] = 1;
    EXPECT_EQ(node.open_with(other, h).reply.status, RMEM_INVALID);
    other.open.reserved2[3] = 0;
    h.len--;
    EXPECT_EQ(node.open_with(other, h).reply.status, RMEM_INVALID);
    h.len++;
    h.space = 3;
    rmem_answer answer = node.open_with(other, h);
    EXPECT_EQ(answer.action, RMEM_ACT_DROP);
    EXPECT_EQ(answer.reason, RMEM_NODE_NO_SESSION);
    EXPECT_TRUE(before == node.snapshot());
}

TEST_F(NodeTest, Close) {
    rmem_head late = client.head(RMEM_CLOSE, 0, 0);
    client.floor = client.next_id;
    node.read(client, addr, 1);
    EXPECT_EQ(node.close(client, late).reason, RMEM_NODE_STALE);
    rmem_head h = client.head(RMEM_CLOSE, 0, 0);
    EXPECT_EQ(node.close(client, h).reply.status, RMEM_OK);
    EXPECT_EQ(node.close(client, h).reply.status, RMEM_NO_SESSION);
    EXPECT_EQ(node.usage().sessions, 0u);
    EXPECT_EQ(node.usage().regions, 1u);
    refused(client.head(RMEM_READ, addr, 1), RMEM_NODE_NO_SESSION, RMEM_NO_SESSION);
}

// ---- regions ----------------------------------------------------------------------------------

TEST_F(NodeTest, AllocRoundsUpAndIsRepeatable) {
    rmem_head h = client.head(RMEM_ALLOC, 0, sizeof(rmem_alloc));
    rmem_answer answer = node.alloc(client, h, page + 1);
    EXPECT_EQ(answer.reply.status, RMEM_OK);
    EXPECT_EQ(answer.reply.len, sizeof(rmem_range));
    EXPECT_EQ(rmem_wire_payload_bytes(&answer.reply), sizeof(rmem_range));
    EXPECT_EQ(base_load_le64(&node.range.bytes), 2 * page);
    rmem_range first = node.range;
    node.range = {};
    answer = node.alloc(client, h, page + 1);
    EXPECT_EQ(answer.reason, RMEM_NODE_REPEATED);
    EXPECT_EQ(node.range.addr, first.addr);
    EXPECT_EQ(node.range.bytes, first.bytes);
    EXPECT_EQ(node.usage().pages_promised, 10u);
}

TEST_F(NodeTest, RefusedAllocStaysRefused) {
    rmem_head h = client.head(RMEM_ALLOC, 0, sizeof(rmem_alloc));
    EXPECT_EQ(node.alloc(client, h, 57 * page).reply.status, RMEM_NO_MEMORY);
    node.free(client, addr, 8 * page);
    EXPECT_EQ(node.alloc(client, h, 57 * page).reply.status, RMEM_NO_MEMORY);
    EXPECT_EQ(node.usage().regions, 0u);
    EXPECT_NE(node.alloc(client, 57 * page), 0u);
}

TEST_F(NodeTest, AllocOfNonsense) {
    auto try_alloc = [&](uint64_t bytes, uint64_t at, uint32_t perm) {
        return node.alloc(client, client.head(RMEM_ALLOC, 0, sizeof(rmem_alloc)), bytes, at, perm);
    };
    EXPECT_EQ(try_alloc(0, 0, 3).reply.status, RMEM_INVALID);
    EXPECT_EQ(try_alloc(page, 1, 3).reply.status, RMEM_INVALID);
    EXPECT_EQ(try_alloc(page, 0, RMEM_PERM_WRITE).reply.status, RMEM_INVALID);
    EXPECT_EQ(try_alloc(page, 0, 0).reply.status, RMEM_INVALID);
    EXPECT_EQ(try_alloc(page, 0, 7).reason, RMEM_NODE_LENGTH);
    EXPECT_EQ(try_alloc(~0ull, 0, 3).reply.status, RMEM_NO_MEMORY);
    EXPECT_EQ(try_alloc(~0ull, ~0ull << 16, 3).reason, RMEM_NODE_NO_MEMORY);
    rmem_head h = client.head(RMEM_ALLOC, 0, sizeof(rmem_alloc) - 1);
    EXPECT_EQ(node.alloc(client, h, page).reason, RMEM_NODE_LENGTH);
    EXPECT_EQ(node.usage().regions, 1u);
}

TEST_F(NodeTest, FreeGivesMemoryBack) {
    for (int n = 0; n < 8; n++)
        node.write(client, addr + n * page, filled(100, 1));
    rmem_head h = client.head(RMEM_FREE, 0, sizeof(rmem_range));
    EXPECT_EQ(node.free(client, h, addr, 8 * page).reply.status, RMEM_OK);
    struct rmem_node_usage u = node.usage();
    EXPECT_EQ(u.pages_promised, 0u);
    EXPECT_EQ(u.pages_backed, 0u);
    rmem_answer answer = node.free(client, h, addr, 8 * page);
    EXPECT_EQ(answer.reason, RMEM_NODE_REPEATED);
    EXPECT_EQ(answer.reply.status, RMEM_OK);
    EXPECT_NE(node.alloc(client, 64 * page), 0u);
}

TEST_F(NodeTest, FreeOfNonsense) {
    EXPECT_EQ(node.free(client, addr + page, 7 * page).reply.status, RMEM_FAULT);
    EXPECT_EQ(node.free(client, addr, 7 * page).reply.status, RMEM_FAULT);
    EXPECT_EQ(node.free(client, addr, 0).reply.status, RMEM_INVALID);
    EXPECT_EQ(node.free(client, addr + 1, 8 * page).reply.status, RMEM_INVALID);
    rmem_head h = client.head(RMEM_FREE, addr, sizeof(rmem_range));
    EXPECT_EQ(node.free(client, h, addr, 8 * page).reason, RMEM_NODE_LENGTH);
    EXPECT_EQ(node.usage().pages_promised, 8u);
}

TEST_F(NodeTest, SlowPathRefusals) {
    Client moved = client;
    moved.peer.port++;
    EXPECT_EQ(node.free(moved, addr, 8 * page).reason, RMEM_NODE_PEER);
    rmem_head h = client.head(RMEM_ALLOC, 0, sizeof(rmem_alloc));
    h.id = 1 + RMEM_WINDOW;
    EXPECT_EQ(node.alloc(client, h, page).reason, RMEM_NODE_WINDOW);
    rmem_head stale = client.head(RMEM_FREE, 0, sizeof(rmem_range));
    client.floor = client.next_id;
    node.read(client, addr, 1);
    EXPECT_EQ(node.free(client, stale, addr, 8 * page).reason, RMEM_NODE_STALE);
    EXPECT_EQ(node.usage().regions, 1u);
}

TEST_F(NodeTest, QuotaOfASpace) {
    EXPECT_EQ(rmem_node_space_add(&node.core, 2, rig::key_bytes, page - 1), RMEM_SPACE_QUOTA);
    ASSERT_TRUE(node.add_space(2, 3 * page));
    Client other(2, 2);
    node.open(other, 1);
    EXPECT_EQ(node.alloc(other, 4 * page), 0u);
    uint64_t at = node.alloc(other, 3 * page);
    EXPECT_NE(at, 0u);
    EXPECT_EQ(node.alloc(other, page), 0u);
    node.free(other, at, 3 * page);
    EXPECT_NE(node.alloc(other, page), 0u);
    EXPECT_EQ(node.usage().spaces, 2u);
}

// ---- a space deleted by force -----------------------------------------------------------------

TEST_F(NodeTest, ForcedDeletionTakesSessionsAndRegions) {
    ASSERT_TRUE(node.add_space(2));
    Client second(2), stranger(3, 2);
    node.open(second, 1);
    node.open(stranger, 1);
    uint64_t more = node.alloc(second, 4 * page);
    uint64_t kept = node.alloc(stranger, 2 * page);
    node.write(client, addr, filled(100, 1));
    node.write(second, more, filled(100, 1));
    node.write(stranger, kept, filled(100, 3));
    ASSERT_EQ(rmem_node_space_del(&node.core, 1), RMEM_SPACE_BUSY);
    rmem_head late = client.head(RMEM_WRITE, addr, 100);

    EXPECT_TRUE(node.remove_space(1));
    EXPECT_EQ(rmem_node_key(&node.core, 1), nullptr);
    EXPECT_EQ(node.usage().spaces, 1u);
    EXPECT_EQ(node.usage().sessions, 1u);
    EXPECT_EQ(node.usage().regions, 1u);
    EXPECT_EQ(node.usage().pages_promised, 2u);
    EXPECT_EQ(node.usage().pages_backed, 1u);
    refused(late, RMEM_NODE_NO_SESSION, RMEM_NO_SESSION);
    EXPECT_EQ(node.read(stranger, kept, 100), filled(100, 3));
    EXPECT_FALSE(node.remove_space(1));
    EXPECT_FALSE(node.remove_space(0));

    ASSERT_TRUE(node.add_space(1));
    Client next(4);
    node.open(next, 1);
    uint64_t all = node.alloc(next, 62 * page);
    ASSERT_NE(all, 0u);
    for (uint64_t n = 0; n < 62; n++) { // the old regions' memory, zeroed
        node.refill();
        ASSERT_EQ(node.write(next, all + n * page, filled(1, 1)).reason, RMEM_NODE_OK);
        EXPECT_EQ(node.read(next, all + n * page + 1, 100), filled(100, 0));
    }
    refused(late, RMEM_NODE_NO_SESSION, RMEM_NO_SESSION);
}

TEST_F(NodeTest, CopyOfCloseFromElsewhereIsNotAnswered) {
    rmem_head h = client.head(RMEM_CLOSE, 0, 0);
    Client moved = client;
    moved.peer.port++;
    EXPECT_EQ(node.close(moved, h).action, RMEM_ACT_DROP);
    EXPECT_EQ(node.write(client, addr, filled(1, 1)).reason, RMEM_NODE_OK);
}

// The answer was lost, and the session evicted before the client could use it.
TEST_F(NodeTest, RepeatedOpenOfAnEvictedUnusedSessionOpensAnother) {
    Client lonely(9);
    ASSERT_EQ(node.open(lonely, 7).action, RMEM_ACT_REPLY);
    uint64_t first = lonely.session;
    rmem_sessions_close(&node.core.sessions, rmem_node_slot(&node.core, first));
    ASSERT_EQ(node.open(lonely, 7).action, RMEM_ACT_REPLY);
    EXPECT_NE(lonely.session, first);
    ASSERT_EQ(node.request(lonely, lonely.head(RMEM_READ, addr, 1)).reason, RMEM_NODE_OK);
    rmem_sessions_close(&node.core.sessions, rmem_node_slot(&node.core, lonely.session));
    EXPECT_EQ(node.open(lonely, 7).action, RMEM_ACT_DROP) << "a late copy of a session's OPEN";
}

TEST_F(NodeTest, ForcedDeletionOfAnEmptySpace) {
    ASSERT_TRUE(node.add_space(2));
    EXPECT_TRUE(node.remove_space(2));
    EXPECT_EQ(node.read(client, addr, 1).size(), 1u);
}

// ---- ALLOCs that nobody was told of -----------------------------------------------------------

// The fixture's region is one, as no later request came; others may be made here.
class NodeUndo : public NodeTest {
protected:
    void acknowledge(Client& who) {
        who.floor = who.next_id;
        ASSERT_EQ(node.read(who, addr, 1).size(), 1u);
    }
    bool there(uint64_t at) {
        if (witness.session == 0)
            node.open(witness, 1);
        Bytes data;
        return node.request(witness, witness.head(RMEM_READ, at, 1), &data).reason == RMEM_NODE_OK;
    }
    Client witness{7};
};

TEST_F(NodeUndo, SupersededBeforeAcknowledged) {
    Client old = client;
    rmem_head again = old.head(RMEM_ALLOC, 0, sizeof(rmem_alloc));
    again.id = 1; // as the fixture sent it
    ASSERT_EQ(node.alloc(old, again, 8 * page).reason, RMEM_NODE_REPEATED);
    ASSERT_EQ(node.open(client, 101).reply.status, RMEM_OK);
    EXPECT_FALSE(there(addr));
    EXPECT_EQ(node.usage().regions, 0u);
    EXPECT_EQ(node.usage().pages_promised, 0u);
    EXPECT_EQ(node.usage().allocs_undone, 1u);
    EXPECT_EQ(node.alloc(old, again, 8 * page).reply.status, RMEM_NO_SESSION);
    client.next_id = 1;
    EXPECT_NE(node.alloc(client, 8 * page), 0u); // asked for again, under the same id as then
    ASSERT_EQ(node.open(client, 101).action, RMEM_ACT_DROP); // a late copy undoes nothing
    EXPECT_EQ(node.usage().regions, 1u);
    EXPECT_EQ(node.usage().allocs_undone, 1u);
}

TEST_F(NodeUndo, RenewedSessionStillOwes) {
    Client old = client;
    rmem_head again = old.head(RMEM_ALLOC, 0, sizeof(rmem_alloc));
    again.id = 1; // as the fixture sent it
    node.renew(client, 101);
    again.session = client.session;
    EXPECT_EQ(node.alloc(client, again, 8 * page).reason, RMEM_NODE_REPEATED);
    EXPECT_EQ(base_load_le64(&node.range.addr), addr);
    EXPECT_NE(node.alloc(client, page), 0u);
    EXPECT_EQ(node.usage().regions, 2u);
    node.renew(client, 102);
    ASSERT_EQ(node.open(client, 103).reply.status, RMEM_OK);
    EXPECT_FALSE(there(addr));
    EXPECT_EQ(node.usage().regions, 0u);
    EXPECT_EQ(node.usage().allocs_undone, 2u);
}

// An eavesdropper sends the OPEN again from elsewhere, before its client has used the session.
TEST_F(NodeUndo, RenewalRepeatedFromElsewhereEndsNothing) {
    Client moved = client;
    moved.peer.port++;
    node.renew(client, 101);
    EXPECT_EQ(node.renew(moved, 101).action, RMEM_ACT_DROP);
    EXPECT_TRUE(there(addr));
    EXPECT_EQ(node.usage().allocs_undone, 0u);
}

TEST_F(NodeUndo, AcknowledgedStays) {
    acknowledge(client);
    ASSERT_EQ(node.open(client, 101).reply.status, RMEM_OK);
    EXPECT_TRUE(there(addr));
    EXPECT_EQ(node.usage().allocs_undone, 0u);
}

TEST_F(NodeUndo, RefusedRequestAcknowledgesToo) {
    client.floor = client.next_id;
    node.write(client, 0, filled(1, 1));
    ASSERT_EQ(node.open(client, 101).reply.status, RMEM_OK);
    EXPECT_TRUE(there(addr));
}

TEST_F(NodeUndo, OnlyAllocsFromTheFloorUp) {
    acknowledge(client);
    uint64_t told = node.alloc(client, page);
    uint64_t lost = node.alloc(client, 2 * page);
    client.floor = client.next_id - 1; // the last one is not yet answered, for all we know
    node.read(client, addr, 1);
    uint64_t lost_too = node.alloc(client, 3 * page);
    ASSERT_EQ(node.usage().regions, 4u);
    ASSERT_EQ(node.open(client, 101).reply.status, RMEM_OK);
    EXPECT_TRUE(there(addr));
    EXPECT_TRUE(there(told));
    EXPECT_FALSE(there(lost));
    EXPECT_FALSE(there(lost_too));
    EXPECT_EQ(node.usage().pages_promised, 9u);
    EXPECT_EQ(node.usage().allocs_undone, 2u);
}

TEST_F(NodeUndo, Evicted) {
    Client kept(2), quiet(3);
    node.open(kept, 1);
    uint64_t keeps = node.alloc(kept, page);
    acknowledge(kept);
    node.open(quiet, 1);
    node.now_ns += 2000 * BASE_NSEC_PER_MSEC;
    for (uint8_t n = 10; n < 14; n++) {
        Client other(n);
        ASSERT_EQ(node.open(other, n).reply.status, RMEM_OK);
    }
    ASSERT_EQ(node.usage().sessions, 4u);
    EXPECT_EQ(node.usage().regions, 1u);
    EXPECT_EQ(node.usage().allocs_undone, 1u);
    ASSERT_EQ(node.open(kept, 2).reply.status, RMEM_BUSY);
    node.now_ns += 2000 * BASE_NSEC_PER_MSEC;
    ASSERT_EQ(node.open(kept, 2).reply.status, RMEM_OK);
    EXPECT_EQ(node.read(kept, keeps, 1).size(), 1u);
    EXPECT_TRUE(node.read(kept, addr, 1).empty());
}

TEST_F(NodeUndo, CloseAcknowledgesByItsFloor) {
    client.floor = client.next_id;
    rmem_head h = client.head(RMEM_CLOSE, 0, 0);
    EXPECT_EQ(node.close(client, h).reply.status, RMEM_OK);
    EXPECT_TRUE(there(addr));
    client.next_id = client.floor = 1;
    node.open(client, 101);
    uint64_t given_up = node.alloc(client, page);
    ASSERT_TRUE(there(given_up));
    EXPECT_EQ(node.close(client, client.head(RMEM_CLOSE, 0, 0)).reply.status, RMEM_OK);
    EXPECT_FALSE(there(given_up));
    EXPECT_EQ(node.usage().regions, 1u);
}

TEST_F(NodeUndo, PagesGoBackAndComeZeroed) {
    node.write(client, addr, filled(100, 9));
    ASSERT_EQ(node.usage().pages_backed, 1u);
    node.open(client, 101);
    EXPECT_EQ(node.usage().pages_backed, 0u);
    client.next_id = 1;
    uint64_t all = node.alloc(client, 64 * page);
    ASSERT_NE(all, 0u);
    for (uint64_t n = 0; n < 64; n++) {
        node.refill();
        ASSERT_EQ(node.write(client, all + n * page, filled(1, 1)).reason, RMEM_NODE_OK);
        EXPECT_EQ(node.read(client, all + n * page + 1, 200), filled(200, 0));
    }
}

TEST_F(NodeUndo, BeforeTheOpenIsAnswered) {
    ASSERT_TRUE(node.add_space(2, 8 * page));
    Client other(2, 2);
    node.open(other, 1);
    ASSERT_NE(node.alloc(other, 8 * page), 0u);
    node.open(other, 2);
    EXPECT_EQ(base_load_le64(&node.opened.free_bytes), 56 * page); // the fixture's is there
    other.next_id = 1;
    EXPECT_NE(node.alloc(other, 8 * page), 0u); // all of its quota
}

} // namespace
