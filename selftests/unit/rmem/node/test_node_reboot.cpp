// SPDX-License-Identifier: GPL-2.0
// The node's memory was rolled back: nothing of before is served.
#include <gtest/gtest.h>

#include <algorithm>

#include "node_test.hpp"

namespace {

using rig::Bytes;
using rig::Client;
using rig::filled;
using rig::NodeTest;
using rig::page;

constexpr uint64_t next_boot = 0x99aabbccddeeff00;

class NodeReboot : public NodeTest {
protected:
    void forget() {
        rmem_node_call call;
        rmem_node_call_forget(&call);
        node.run(call);
    }
};

TEST_F(NodeReboot, RequestsOfTheOldBootAreRefusedAtOnce) {
    ASSERT_EQ(node.write(client, addr, filled(16, 0x5c)).reason, RMEM_NODE_OK);
    rmem_node_reboot(&node.core, next_boot);
    Bytes data = filled(16, 0x77);
    for (uint8_t type : {RMEM_READ, RMEM_WRITE, RMEM_DISCARD}) {
        rmem_answer answer = node.request(client, client.head(type, addr, 16), &data);
        EXPECT_EQ(answer.reply.status, RMEM_REBOOTED) << unsigned(type);
        EXPECT_EQ(answer.reply.boot, next_boot) << "so the client learns the current one";
    }
    rmem_head free = client.head(RMEM_FREE, 0, sizeof(rmem_range));
    EXPECT_EQ(node.free(client, free, addr, 8 * page).reply.status, RMEM_REBOOTED);
    rmem_answer alloc = node.alloc(client, client.head(RMEM_ALLOC, 0, sizeof(rmem_alloc)), page);
    EXPECT_EQ(alloc.reply.status, RMEM_REBOOTED);
}

TEST_F(NodeReboot, MemoryOfTheOldBootIsForgottenAndZeroed) {
    ASSERT_TRUE(node.add_space(2));
    Client other(2, 2);
    ASSERT_EQ(node.open(other, 7).reply.status, RMEM_OK);
    uint64_t elsewhere = node.alloc(other, page);
    ASSERT_NE(elsewhere, 0u);
    ASSERT_EQ(node.write(client, addr, filled(4096, 0x5c)).reason, RMEM_NODE_OK);
    ASSERT_EQ(node.write(other, elsewhere, filled(4096, 0x5c)).reason, RMEM_NODE_OK);

    rmem_node_reboot(&node.core, next_boot);
    forget();
    EXPECT_EQ(node.usage().sessions, 0u);
    EXPECT_EQ(node.usage().regions, 0u);
    EXPECT_EQ(node.usage().pages_promised, 0u);
    EXPECT_EQ(node.usage().pages_backed, 0u);

    ASSERT_EQ(node.open(client, 101).reply.status, RMEM_OK);
    EXPECT_EQ(client.boot, next_boot);
    client.next_id = 1;
    Bytes none;
    EXPECT_EQ(node.request(client, client.head(RMEM_READ, addr, 16), &none).reply.status,
              RMEM_FAULT);
    // Each page in turn is lent again; none of them shows what it held.
    uint64_t all = node.alloc(client, node.core.config.pages * page);
    ASSERT_NE(all, 0u) << "quota and memory are free again";
    for (uint64_t n = 0; n < node.core.config.pages; n++) {
        node.refill();
        ASSERT_EQ(node.write(client, all + n * page, filled(1, 1)).reason, RMEM_NODE_OK);
        Bytes rest = node.read(client, all + n * page + 1, 4095);
        ASSERT_EQ(std::count(rest.begin(), rest.end(), 0), 4095) << n;
    }
}

TEST_F(NodeReboot, OpenUnderWayBeginsNoSessionOfTheNewBoot) {
    Client other(2);
    other.open.integrity = other.integrity;
    for (Client* opener : {&other, &client}) {
        rmem_head h = opener->open_head(200);
        h.session = opener->session;
        rmem_node_call call = node.begin(*opener, h, &opener->open);
        ASSERT_TRUE(node.step(call));
        rmem_node_reboot(&node.core, node.core.config.boot + 1);
        EXPECT_EQ(node.run(call).action, RMEM_ACT_DROP);
        EXPECT_EQ(call.answer.reason, RMEM_NODE_REBOOTED);
        EXPECT_EQ(node.usage().sessions, 1u);
    }
}

TEST_F(NodeReboot, SessionOpenedBeforeTheForgetIsAnsweredWithoutABootAndEnds) {
    Client other(2);
    rmem_node_reboot(&node.core, 0);
    EXPECT_EQ(node.open(other, 7).reply.boot, 0u) << "which no client takes for an answer";
    EXPECT_EQ(node.usage().sessions, 2u);
    rmem_node_reboot(&node.core, next_boot);
    forget();
    EXPECT_EQ(node.usage().sessions, 0u);
}

TEST_F(NodeReboot, AllocUnderWayIsForgotten) {
    rmem_head h = client.head(RMEM_ALLOC, 0, sizeof(rmem_alloc));
    rmem_alloc wanted = wire::alloc_of(8 * page, 0, RMEM_PERM_READ | RMEM_PERM_WRITE);
    rmem_node_call call = node.begin(client, h, &wanted);
    ASSERT_TRUE(node.step(call));
    rmem_node_reboot(&node.core, next_boot);
    node.run(call);
    forget();
    EXPECT_EQ(node.usage().regions, 0u);
    EXPECT_EQ(node.usage().pages_promised, 0u);
}

} // namespace
