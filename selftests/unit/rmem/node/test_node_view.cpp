// SPDX-License-Identifier: GPL-2.0
// Read-only views of a space at the node: what they show, what they refuse, and how they end.
#include <functional>

#include "node_test.hpp"

namespace {

using namespace rig;

// Space 2 shows space 1, and reader has a session in it.
struct Views : NodeTest {
    Views() { begin(); }
    void begin() {
        ASSERT_TRUE(node.add_view(2, 1));
        ASSERT_EQ(node.open(reader, 1).reply.status, RMEM_OK);
        ASSERT_EQ(node.read(reader, addr, 1).size(), 1u); // the session counts as used
    }

    static Bytes ranges(uint64_t at, uint64_t bytes, const Bytes& data = {}) {
        Bytes all(sizeof(rmem_range));
        base_store_le64(all.data(), at);
        base_store_le64(all.data() + 8, bytes);
        all.insert(all.end(), data.begin(), data.end());
        return all;
    }
    Bytes readv(Client& who, uint64_t at, uint32_t bytes) {
        Bytes all = ranges(at, bytes);
        EXPECT_EQ(node.request(who, who.head(RMEM_READV, 0, bytes), &all).reply.status, RMEM_OK);
        return all;
    }
    rmem_node_reason look(uint64_t at) {
        return node.request(reader, reader.head(RMEM_READ, at, 1)).reason;
    }
    // A request of the slow path: refused, and nothing has changed.
    void refused_call(const std::function<rmem_answer(const rmem_head&)>& ask, const rmem_head& h) {
        auto before = node.snapshot();
        expect_refusal(ask(h), h, RMEM_NODE_PERM, RMEM_PERM);
        EXPECT_TRUE(before == node.snapshot());
    }
    void refused_alloc(Client& who, uint64_t bytes) {
        refused_call([&](auto& h) { return node.alloc(who, h, bytes); },
                     who.head(RMEM_ALLOC, 0, sizeof(rmem_alloc)));
    }
    void refused_free(Client& who, uint64_t at, uint64_t bytes) {
        refused_call([&](auto& h) { return node.free(who, h, at, bytes); },
                     who.head(RMEM_FREE, 0, sizeof(rmem_range)));
    }

    Client reader{1, 2}; // of the same name as the other, which is no matter
};

TEST_F(Views, ShowTheBasesData) {
    node.write(client, addr + 5, filled(100, 7));
    EXPECT_EQ(node.read(reader, addr + 5, 100), filled(100, 7));
    EXPECT_EQ(readv(reader, addr + 5, 100), filled(100, 7));
    EXPECT_EQ(node.read(reader, addr + page, 10), filled(10, 0)) << "never written";
    node.write(client, addr + 5, filled(1, 8));
    EXPECT_EQ(readv(reader, addr + 4, 3), (Bytes{0, 8, 7}));
    uint64_t later = node.alloc(client, page, 0, RMEM_PERM_READ);
    EXPECT_EQ(look(later), RMEM_NODE_OK);
    node.free(client, later, page);
    EXPECT_EQ(look(later), RMEM_NODE_FAULT);
    EXPECT_EQ(look(addr + 8 * page), RMEM_NODE_FAULT);
}

TEST_F(Views, FenceAndClose) {
    rmem_node_call fence = node.begin(reader, reader.head(RMEM_FENCE, 0, 0));
    EXPECT_EQ(node.run(fence).reply.status, RMEM_OK);
    EXPECT_EQ(node.close(reader, reader.head(RMEM_CLOSE, 0, 0)).reply.status, RMEM_OK);
    EXPECT_EQ(look(addr), RMEM_NODE_NO_SESSION);
    EXPECT_EQ(node.read(client, addr, 1).size(), 1u);
}

TEST_F(Views, RefuseEveryChange) {
    node.write(client, addr, filled(4096, 7));
    unsigned int changing = 0;
    for (uint8_t type = RMEM_OPEN; type < RMEM_TYPE_END; type++)
        changing += rmem_type_changes(type);
    EXPECT_EQ(changing, 11u)
        << "a new type wants a test here; PUBLISH has it in test_node_name.cpp";
    for (uint64_t at : {addr, addr + page, addr + 8 * page, uint64_t{0}}) {
        for (uint8_t type : {RMEM_WRITE, RMEM_DISCARD, RMEM_ZERO, RMEM_CALL})
            refused_from(reader, reader.head(type, at, 100), RMEM_NODE_PERM, RMEM_PERM);
        refused_with(reader, reader.head(RMEM_ATOMIC, at, 8), RMEM_NODE_PERM, RMEM_PERM,
                     filled(sizeof(rmem_operands), 1));
        refused_with(reader, reader.head(RMEM_PUT, at, 8), RMEM_NODE_PERM, RMEM_PERM,
                     filled(sizeof(rmem_put) + 8, 0));
        refused_with(reader, reader.head(RMEM_COPY, at, 8), RMEM_NODE_PERM, RMEM_PERM,
                     wire::bytes_of(wire::copy_of(at + 8)));
        refused_with(reader, reader.head(RMEM_WRITEV, 0, 8), RMEM_NODE_PERM, RMEM_PERM,
                     ranges(at, 8, filled(8, 1)));
        refused_free(reader, at, 8 * page);
    }
    refused_alloc(reader, page);
    refused_alloc(reader, 1000 * page);
    refused_alloc(reader, 0);
    EXPECT_EQ(node.read(client, addr, 4096), filled(4096, 7));
}

// No copy finds more than the first did, and none is answered when its sender has gone on.
TEST_F(Views, RefuseCopiesAlike) {
    rmem_head write = reader.head(RMEM_WRITE, addr + 9 * page, 100);
    rmem_head alloc = reader.head(RMEM_ALLOC, 0, sizeof(rmem_alloc));
    refused_from(reader, write, RMEM_NODE_PERM, RMEM_PERM);
    refused_call([&](auto& h) { return node.alloc(reader, h, page); }, alloc);
    ASSERT_EQ(node.alloc(client, page), addr + 9 * page);
    refused_from(reader, write, RMEM_NODE_PERM, RMEM_PERM);
    refused_call([&](auto& h) { return node.alloc(reader, h, page); }, alloc);
    reader.floor = reader.next_id;
    node.read(reader, addr, 1);
    EXPECT_EQ(node.write(reader, addr, {1}).reason, RMEM_NODE_PERM);
    refused_from(reader, write, RMEM_NODE_STALE, RMEM_STALE);
    EXPECT_EQ(node.alloc(reader, alloc, page).reason, RMEM_NODE_STALE);
}

// A reader that names the base, or a writer that names the view, is of neither.
TEST_F(Views, SessionsAreOfOneOfTheTwo) {
    Client pretender = reader;
    pretender.space = 1;
    refused_from(pretender, pretender.head(RMEM_WRITE, addr, 1), RMEM_NODE_LEVEL, RMEM_INVALID);
    pretender = client;
    pretender.space = 2;
    refused_from(pretender, pretender.head(RMEM_WRITE, addr, 1), RMEM_NODE_LEVEL, RMEM_INVALID);
    // The same client's, in each.
    ASSERT_EQ(node.open(reader, 2).reply.status, RMEM_OK);
    EXPECT_EQ(node.write(client, addr, {1}).reply.status, RMEM_OK);
}

TEST_F(Views, BaseIsntDeletedFromUnderThem) {
    node.write(client, addr, filled(1, 7));
    EXPECT_EQ(rmem_node_space_del(&node.core, 1), RMEM_SPACE_VIEWED);
    auto before = node.snapshot();
    EXPECT_FALSE(node.remove_space(1)) << "nor by force";
    EXPECT_TRUE(before == node.snapshot());
    EXPECT_EQ(node.read(reader, addr, 1), filled(1, 7));
}

TEST_F(Views, DeletedOnesLeaveTheirBase) {
    node.write(client, addr, filled(1, 7));
    EXPECT_EQ(rmem_node_space_del(&node.core, 2), RMEM_SPACE_OK);
    EXPECT_EQ(rmem_node_key(&node.core, 2), nullptr);
    EXPECT_EQ(look(addr), RMEM_NODE_NO_SESSION);
    EXPECT_EQ(node.usage().regions, 1u);
    EXPECT_EQ(node.read(client, addr, 1), filled(1, 7));
    EXPECT_TRUE(node.remove_space(1));
}

TEST_F(Views, GoByForceWithTheirSessions) {
    ASSERT_TRUE(node.add_view(3, 1));
    Client other(1, 3);
    node.open(other, 1);
    node.write(client, addr, filled(1, 7));
    ASSERT_EQ(node.usage().sessions, 3u);
    EXPECT_TRUE(node.remove_space(2));
    EXPECT_EQ(node.usage().sessions, 2u);
    EXPECT_EQ(node.usage().regions, 1u);
    EXPECT_EQ(node.read(client, addr, 1), filled(1, 7));
    EXPECT_EQ(node.read(other, addr, 1), filled(1, 7));
    EXPECT_FALSE(node.remove_space(1));
    EXPECT_TRUE(node.remove_space(3));
    EXPECT_TRUE(node.remove_space(1));
    EXPECT_EQ(node.usage().sessions, 0u);
    EXPECT_EQ(node.usage().regions, 0u);
}

// The new key's holders don't get the old one's sessions, and what they see is the new base's.
TEST_F(Views, AddedAgainIsAnother) {
    uint64_t before = rmem_node_incarnation(&node.core, 2);
    ASSERT_TRUE(node.add_space(3));
    Client tenant(5, 3);
    node.open(tenant, 1);
    uint64_t theirs = node.alloc(tenant, page, 1000 * page);
    ASSERT_NE(theirs, 0u);
    ASSERT_EQ(rmem_node_space_del(&node.core, 2), RMEM_SPACE_OK);
    ASSERT_TRUE(node.add_view(2, 3, 77));
    EXPECT_NE(rmem_node_incarnation(&node.core, 2), before);
    EXPECT_EQ(rmem_node_key(&node.core, 2)->k[0], 77u);
    refused_from(reader, reader.head(RMEM_READ, addr, 1), RMEM_NODE_NO_SESSION, RMEM_NO_SESSION);
    ASSERT_EQ(node.open(reader, 1).reply.status, RMEM_OK) << "the same nonce, another session";
    EXPECT_EQ(look(addr), RMEM_NODE_FAULT);
    EXPECT_EQ(look(theirs), RMEM_NODE_OK);
    EXPECT_TRUE(node.remove_space(1)) << "it has none any more";
}

// Their slots taken by spaces that are none: what these clients write is their own.
TEST_F(Views, DeletedOnesLeaveNothingToTheNextSpace) {
    EXPECT_TRUE(node.remove_space(2));
    EXPECT_TRUE(node.remove_space(1));
    ASSERT_TRUE(node.add_space(8));
    ASSERT_TRUE(node.add_space(9));
    Client one(1, 8), two(1, 9);
    node.open(one, 1);
    node.open(two, 1);
    node.refill();
    uint64_t a = node.alloc(one, page), b = node.alloc(two, page);
    ASSERT_EQ(a, b);
    EXPECT_EQ(node.write(one, a, filled(1, 1)).reply.status, RMEM_OK);
    EXPECT_EQ(node.write(two, b, filled(1, 2)).reply.status, RMEM_OK);
    EXPECT_EQ(node.read(one, a, 1), filled(1, 1));
    EXPECT_EQ(node.read(two, b, 1), filled(1, 2));
}

TEST_F(Views, HaveNeitherQuotaNorRegions) {
    EXPECT_EQ(node.usage().spaces, 2u);
    const rmem_space* view = rmem_spaces_find(&node.core.spaces, 2);
    EXPECT_EQ(view->regions, 0u);
    EXPECT_EQ(view->quota_pages, 0u);
    EXPECT_EQ(view->pages_promised, 0u);
    EXPECT_EQ(node.usage().pages_promised, 8u);
}

} // namespace
