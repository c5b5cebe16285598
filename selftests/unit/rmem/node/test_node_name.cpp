// SPDX-License-Identifier: GPL-2.0
// PUBLISH, LOOKUP and LIST: names of regions (core/rmem/node/name.h), and the regions themselves.
#include <string>

#include "node_test.hpp"

namespace {

using rig::Client;
using rig::page;

class NameTest : public rig::NodeTest {
protected:
    rmem_head head(Client& who, uint8_t type) { return who.head(type, 0, sizeof(rmem_named)); }

    rmem_node_reason ask(Client& who, const rmem_head& h, const rmem_named& named) {
        rmem_node_call call = node.begin(who, h, &named);
        rmem_answer answer = node.run(call);
        found = call.out.range;
        listed = call.out.listed;
        EXPECT_EQ(answer.action, RMEM_ACT_REPLY);
        return answer.reason;
    }

    rmem_node_reason publish(Client& who, std::string_view name, uint64_t at) {
        return ask(who, head(who, RMEM_PUBLISH), wire::named_of(name, at));
    }
    rmem_node_reason withdraw(Client& who, std::string_view name) { return publish(who, name, 0); }

    rmem_node_reason lookup(Client& who, std::string_view name) {
        return ask(who, head(who, RMEM_LOOKUP), wire::named_of(name));
    }

    void open(Client& who, uint64_t nonce) {
        ASSERT_EQ(node.open(who, nonce).reply.status, RMEM_OK);
    }

    // The region at from or behind, or 0.
    uint64_t list(Client& who, uint64_t from) {
        EXPECT_EQ(ask(who, head(who, RMEM_LIST), wire::named_of("", from)), RMEM_NODE_OK);
        return base_load_le64(&listed.addr);
    }

    rmem_range found{};
    rmem_listed listed{};
};

TEST_F(NameTest, PublishedRegionIsFoundByEveryClientOfTheSpace) {
    Client second(2);
    open(second, 7);
    EXPECT_EQ(publish(client, "table", addr), RMEM_NODE_OK);
    for (Client* who : {&client, &second}) {
        ASSERT_EQ(lookup(*who, "table"), RMEM_NODE_OK);
        EXPECT_EQ(base_load_le64(&found.addr), addr);
        EXPECT_EQ(base_load_le64(&found.bytes), 8 * page);
    }
    EXPECT_EQ(lookup(second, "tab"), RMEM_NODE_NO_NAME);
    EXPECT_EQ(lookup(second, "table2"), RMEM_NODE_NO_NAME);
}

TEST_F(NameTest, OtherSpaceHasNamesOfItsOwn) {
    ASSERT_TRUE(node.add_space(2));
    Client other(2, 2);
    open(other, 7);
    ASSERT_EQ(publish(client, "table", addr), RMEM_NODE_OK);
    EXPECT_EQ(lookup(other, "table"), RMEM_NODE_NO_NAME);
    EXPECT_EQ(withdraw(other, "table"), RMEM_NODE_NO_NAME);
    uint64_t mine = node.alloc(other, page);
    EXPECT_EQ(publish(other, "table", mine), RMEM_NODE_OK);
    EXPECT_EQ(withdraw(other, "table"), RMEM_NODE_OK);
    EXPECT_EQ(lookup(client, "table"), RMEM_NODE_OK);
}

TEST_F(NameTest, ViewLooksNamesUpAndPublishesNone) {
    ASSERT_TRUE(node.add_view(2, 1));
    Client reader(2, 2);
    open(reader, 7);
    ASSERT_EQ(publish(client, "table", addr), RMEM_NODE_OK);
    EXPECT_EQ(lookup(reader, "table"), RMEM_NODE_OK);
    EXPECT_EQ(base_load_le64(&found.addr), addr);
    EXPECT_EQ(publish(reader, "mine", addr), RMEM_NODE_PERM);
    EXPECT_EQ(withdraw(reader, "table"), RMEM_NODE_PERM);
}

TEST_F(NameTest, ExistingNameIsRefusedUntilWithdrawn) {
    uint64_t second = node.alloc(client, page);
    ASSERT_EQ(publish(client, "a", addr), RMEM_NODE_OK);
    EXPECT_EQ(publish(client, "a", addr), RMEM_NODE_EXISTS);
    EXPECT_EQ(publish(client, "a", second), RMEM_NODE_EXISTS);
    EXPECT_EQ(withdraw(client, "a"), RMEM_NODE_OK);
    EXPECT_EQ(withdraw(client, "a"), RMEM_NODE_NO_NAME);
    EXPECT_EQ(lookup(client, "a"), RMEM_NODE_NO_NAME);
    EXPECT_EQ(publish(client, "a", second), RMEM_NODE_OK);
    ASSERT_EQ(lookup(client, "a"), RMEM_NODE_OK);
    EXPECT_EQ(base_load_le64(&found.bytes), page);
}

TEST_F(NameTest, OnlyTheBeginOfARegionIsNamed) {
    EXPECT_EQ(publish(client, "a", addr + page), RMEM_NODE_FAULT);
    EXPECT_EQ(publish(client, "a", addr + 100 * page), RMEM_NODE_FAULT);
    EXPECT_EQ(publish(client, "a", addr + 1), RMEM_NODE_LENGTH);
    EXPECT_EQ(lookup(client, "a"), RMEM_NODE_NO_NAME);
}

TEST_F(NameTest, FreeWithdrawsAllNamesOfTheRegionAndNoOthers) {
    uint64_t second = node.alloc(client, page);
    ASSERT_EQ(publish(client, "a", addr), RMEM_NODE_OK);
    ASSERT_EQ(publish(client, "b", addr), RMEM_NODE_OK);
    ASSERT_EQ(publish(client, "c", second), RMEM_NODE_OK);
    ASSERT_EQ(node.free(client, addr, 8 * page).reason, RMEM_NODE_OK);
    EXPECT_EQ(lookup(client, "a"), RMEM_NODE_NO_NAME);
    EXPECT_EQ(lookup(client, "b"), RMEM_NODE_NO_NAME);
    EXPECT_EQ(lookup(client, "c"), RMEM_NODE_OK);
}

TEST_F(NameTest, NameOutlivesItsSession) {
    client.floor = client.next_id; // acknowledges the ALLOC
    ASSERT_EQ(publish(client, "a", addr), RMEM_NODE_OK);
    ASSERT_EQ(node.close(client, client.head(RMEM_CLOSE, 0, 0)).reason, RMEM_NODE_OK);
    Client second(2);
    open(second, 7);
    ASSERT_EQ(lookup(second, "a"), RMEM_NODE_OK);
    EXPECT_EQ(base_load_le64(&found.addr), addr);
}

TEST_F(NameTest, UndoneAllocTakesItsNameAlong) {
    Client second(2);
    open(second, 7);
    second.floor = 1;
    uint64_t lost = node.alloc(second, page);
    ASSERT_EQ(publish(second, "a", lost), RMEM_NODE_OK);
    rmem_head close = second.head(RMEM_CLOSE, 0, 0);
    ASSERT_EQ(node.close(second, close).reason, RMEM_NODE_OK);
    EXPECT_EQ(lookup(client, "a"), RMEM_NODE_NO_NAME);
}

TEST_F(NameTest, DeletedSpaceLeavesNoNames) {
    ASSERT_TRUE(node.add_space(2));
    Client other(2, 2);
    open(other, 7);
    ASSERT_EQ(publish(other, "a", node.alloc(other, page)), RMEM_NODE_OK);
    ASSERT_TRUE(node.remove_space(2));
    ASSERT_TRUE(node.add_space(2));
    open(other, 8);
    other.next_id = 1;
    EXPECT_EQ(lookup(other, "a"), RMEM_NODE_NO_NAME);
}

TEST_F(NameTest, NamesAtTheirLimitsAreDistinct) {
    const std::string longest(RMEM_NAME_BYTES, 'x');
    const std::string shorter(RMEM_NAME_BYTES - 1, 'x');
    ASSERT_EQ(publish(client, longest, addr), RMEM_NODE_OK);
    EXPECT_EQ(lookup(client, shorter), RMEM_NODE_NO_NAME);
    ASSERT_EQ(publish(client, shorter, addr), RMEM_NODE_OK);
    ASSERT_EQ(withdraw(client, longest), RMEM_NODE_OK);
    EXPECT_EQ(lookup(client, shorter), RMEM_NODE_OK);
    EXPECT_EQ(publish(client, "\xff\x01/", addr), RMEM_NODE_OK) << "any bytes but 0";
}

TEST_F(NameTest, MalformedNamesAreRefused) {
    rmem_named gap = wire::named_of("a", addr);
    gap.name[RMEM_NAME_BYTES - 1] = 'b';
    rmem_named begins = wire::named_of("", addr);
    begins.name[1] = 'b';
    for (const rmem_named& named : {wire::named_of("", addr), gap, begins})
        EXPECT_EQ(ask(client, head(client, RMEM_PUBLISH), named), RMEM_NODE_LENGTH);
    gap.addr = begins.addr = 0;
    for (const rmem_named& named : {wire::named_of(""), gap, begins, wire::named_of("a", addr)})
        EXPECT_EQ(ask(client, head(client, RMEM_LOOKUP), named), RMEM_NODE_LENGTH);
    for (uint8_t type : {RMEM_PUBLISH, RMEM_LOOKUP}) {
        for (uint32_t len : {0u, uint32_t{sizeof(rmem_named)} - 1, ~0u}) {
            rmem_head h = client.head(type, 0, len);
            EXPECT_EQ(ask(client, h, wire::named_of("a")), RMEM_NODE_LENGTH);
        }
        rmem_head h = client.head(type, addr, sizeof(rmem_named));
        EXPECT_EQ(ask(client, h, wire::named_of("a")), RMEM_NODE_LENGTH);
    }
}

TEST_F(NameTest, GreedySpaceTakesNoNamesFromAnother) {
    ASSERT_TRUE(node.add_space(2));
    Client other(2, 2);
    open(other, 7);
    for (uint32_t n = 0; n < RMEM_NAMES_MAX; n++) {
        client.floor = client.next_id;
        ASSERT_EQ(publish(client, std::to_string(n), addr), RMEM_NODE_OK);
    }
    client.floor = client.next_id;
    EXPECT_EQ(publish(client, "more", addr), RMEM_NODE_NO_MEMORY);
    EXPECT_EQ(publish(client, "0", addr), RMEM_NODE_EXISTS);
    EXPECT_EQ(publish(other, "more", node.alloc(other, page)), RMEM_NODE_OK);
    ASSERT_EQ(withdraw(client, "77"), RMEM_NODE_OK);
    EXPECT_EQ(publish(client, "more", addr), RMEM_NODE_OK);
}

TEST_F(NameTest, DuplicateIsAnsweredAsTheFirstWas) {
    rmem_head first = head(client, RMEM_PUBLISH);
    rmem_head refused = head(client, RMEM_PUBLISH);
    const rmem_named named = wire::named_of("a", addr);
    ASSERT_EQ(ask(client, first, named), RMEM_NODE_OK);
    ASSERT_EQ(ask(client, refused, named), RMEM_NODE_EXISTS);
    rmem_head gone = head(client, RMEM_PUBLISH);
    ASSERT_EQ(withdraw(client, "a"), RMEM_NODE_OK);
    EXPECT_EQ(ask(client, first, named), RMEM_NODE_REPEATED);
    EXPECT_EQ(ask(client, refused, named), RMEM_NODE_EXISTS);
    EXPECT_EQ(lookup(client, "a"), RMEM_NODE_NO_NAME) << "neither was executed again";
    ASSERT_EQ(ask(client, gone, wire::named_of("a")), RMEM_NODE_NO_NAME);
    ASSERT_EQ(publish(client, "a", addr), RMEM_NODE_OK);
    EXPECT_EQ(ask(client, gone, wire::named_of("a")), RMEM_NODE_NO_NAME);
    EXPECT_EQ(lookup(client, "a"), RMEM_NODE_OK);
    client.floor = client.next_id;
    ASSERT_EQ(lookup(client, "a"), RMEM_NODE_OK);
    EXPECT_EQ(ask(client, first, named), RMEM_NODE_STALE);
}

TEST_F(NameTest, ResultWithoutAPlaceIsAskedForLater) {
    rmem_head h = head(client, RMEM_PUBLISH);
    h.id = client.floor + RMEM_REPLAY;
    EXPECT_EQ(ask(client, h, wire::named_of("a", addr)), RMEM_NODE_BUSY);
    h.floor++;
    EXPECT_EQ(ask(client, h, wire::named_of("a", addr)), RMEM_NODE_OK);
}

// A client that breaks the protocol gets nonsense, and harms nobody.
TEST_F(NameTest, IdOfAnotherTypesResultIsAnsweredWithinBounds) {
    rmem_head add = client.head(RMEM_ATOMIC, addr, 8);
    rig::Bytes ones(sizeof(rmem_operands));
    std::memset(ones.data(), 0xff, 8);
    ASSERT_EQ(node.request(client, add, &ones).reason, RMEM_NODE_OK);
    rmem_head again = client.head(RMEM_ATOMIC, addr, 8);
    ASSERT_EQ(node.request(client, again, &ones).reason, RMEM_NODE_OK); // finds all ones
    rmem_head h = head(client, RMEM_PUBLISH);
    h.id = again.id;
    EXPECT_EQ(ask(client, h, wire::named_of("a", addr)), RMEM_NODE_LENGTH);
    EXPECT_EQ(lookup(client, "a"), RMEM_NODE_NO_NAME);
}

// While a region goes in steps, its space's names wait for the end; another's don't.
TEST_F(NameTest, NamesOfAnotherSpaceAreServedBetweenAFreesSteps) {
    node.core.config.step_pages = 1;
    ASSERT_TRUE(node.add_space(2));
    Client other(2, 2);
    open(other, 7);
    uint64_t mine = node.alloc(other, page);
    ASSERT_EQ(publish(client, "a", addr), RMEM_NODE_OK);
    rmem_head free_head = client.head(RMEM_FREE, 0, sizeof(rmem_range));
    const rmem_range range = wire::range_of(addr, 8 * page);
    rmem_node_call freeing = node.begin(client, free_head, &range);
    while (!freeing.divisible)
        ASSERT_TRUE(node.step(freeing));
    auto enter = [&](Client& who, uint8_t type, const rmem_named& named, rmem_node_call& call) {
        rmem_head h = head(who, type);
        EXPECT_TRUE(rmem_node_call_is_brief(&h));
        return rmem_node_call_enter(&node.core, &freeing, &call, node.now_ns, &h, &who.peer,
                                    &named);
    };
    rmem_node_call call;
    EXPECT_FALSE(enter(client, RMEM_LOOKUP, wire::named_of("a"), call));
    ASSERT_TRUE(enter(other, RMEM_PUBLISH, wire::named_of("a", mine), call));
    EXPECT_EQ(node.run(call).reason, RMEM_NODE_OK);
    ASSERT_TRUE(enter(other, RMEM_LOOKUP, wire::named_of("a"), call));
    EXPECT_EQ(node.run(call).reason, RMEM_NODE_OK);
    EXPECT_EQ(node.run(freeing).reason, RMEM_NODE_OK);
    EXPECT_EQ(lookup(client, "a"), RMEM_NODE_NO_NAME);
}

TEST_F(NameTest, ListFindsTheFirstRegionAtAnAddressOrBehind) {
    for (uint32_t step_pages : {1u, 1u << 20}) {
        node.core.config.step_pages = step_pages;
        const uint64_t second = node.alloc(client, page);
        ASSERT_GT(second, addr);
        EXPECT_EQ(list(client, 0), addr);
        EXPECT_EQ(base_load_le64(&listed.bytes), 8 * page);
        EXPECT_EQ(base_load_le32(&listed.perm), uint32_t{RMEM_PERM_READ | RMEM_PERM_WRITE});
        EXPECT_EQ(base_load_le32(&listed.names), 0u);
        EXPECT_EQ(list(client, addr), addr);
        EXPECT_EQ(list(client, addr + 1), second);
        EXPECT_EQ(list(client, second + 1), 0u);
        EXPECT_EQ(base_load_le64(&listed.bytes), 0u);
        EXPECT_EQ(list(client, ~uint64_t{0}), 0u);
        const rmem_range range = wire::range_of(second, page);
        rmem_node_call call =
            node.begin(client, client.head(RMEM_FREE, 0, sizeof(rmem_range)), &range);
        EXPECT_EQ(node.run(call).reason, RMEM_NODE_OK);
        EXPECT_EQ(list(client, addr + 1), 0u);
    }
}

TEST_F(NameTest, ListTellsTheLastNameOfARegion) {
    auto expect_listed = [&](std::string_view name, uint32_t names) {
        EXPECT_EQ(list(client, 0), addr);
        EXPECT_EQ(base_load_le32(&listed.names), names);
        EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(listed.name)), name);
    };
    for (const char* name : {"a", "b@1", "b"})
        ASSERT_EQ(publish(client, name, addr), RMEM_NODE_OK);
    expect_listed("b@1", 3);
    ASSERT_EQ(withdraw(client, "b@1"), RMEM_NODE_OK);
    expect_listed("b", 2);
    ASSERT_EQ(withdraw(client, "b"), RMEM_NODE_OK);
    expect_listed("a", 1);
}

TEST_F(NameTest, ListTellsNothingOfAnotherSpace) {
    ASSERT_TRUE(node.add_space(2));
    Client other(2, 2);
    open(other, 7);
    EXPECT_EQ(list(other, 0), 0u);
    const uint64_t mine = node.alloc(other, page);
    EXPECT_EQ(list(other, 0), mine);
    EXPECT_EQ(list(other, mine + 1), 0u);
}

TEST_F(NameTest, ListWithANameIsRefused) {
    EXPECT_EQ(ask(client, head(client, RMEM_LIST), wire::named_of("a")), RMEM_NODE_LENGTH);
}

} // namespace
