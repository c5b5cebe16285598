// SPDX-License-Identifier: GPL-2.0
// What the tests of the node begin with.
#pragma once

#include <gtest/gtest.h>

#include "node_rig.hpp"

namespace rig {

inline constexpr uint64_t page = 1ull << RMEM_PAGE_SHIFT_MIN;

inline Bytes filled(size_t bytes, uint8_t value) {
    return Bytes(bytes, value);
}

// Bytes that differ from their neighbours.
inline Bytes counted(size_t bytes, uint8_t first = 1) {
    Bytes data(bytes);
    for (auto& byte : data)
        byte = first++;
    return data;
}

// One space, one client with a session and a region.
class NodeTest : public testing::Test {
protected:
    NodeTest() : NodeTest(small_config()) { node.refill(); }
    explicit NodeTest(const rmem_node_config& config) : node(config) { setup(); }

    void setup() {
        ASSERT_TRUE(node.add_space(1));
        ASSERT_EQ(node.open(client, 100).reply.status, RMEM_OK);
        addr = node.alloc(client, 8 * page);
        ASSERT_NE(addr, 0u);
    }

    // A request that is refused: for that reason, told so, and nothing has changed.
    void refused(rmem_head h, rmem_node_reason reason, uint8_t status) {
        refused_from(client, h, reason, status);
    }
    void refused_from(Client& who, rmem_head h, rmem_node_reason reason, uint8_t status) {
        refused_with(who, h, reason, status, filled(h.len, 0xee));
    }
    void refused_with(Client& who, rmem_head h, rmem_node_reason reason, uint8_t status,
                      Bytes data) {
        auto before = node.snapshot();
        auto memory = node.memory;
        rmem_answer answer = node.request(who, h, &data);
        expect_refusal(answer, h, reason, status);
        if (reason == RMEM_NODE_FAULT && rmem_type_needs_mark(h.type))
            unmark(h.session, h.id);
        EXPECT_TRUE(before == node.snapshot());
        EXPECT_TRUE(memory == node.memory);
    }
    // A refusal is remembered; the one thing that may have changed.
    void unmark(uint64_t name, uint64_t id) {
        rmem_session* session = rmem_sessions_find(&node.core.sessions, name);
        uint32_t place = id % session->window_ids;
        EXPECT_EQ(rmem_session_check(session, id, session->floor), RMEM_SESSION_REFUSED);
        for (uint64_t* map : {session->executed, session->refused})
            map[place / 64] &= ~(1ull << place % 64);
        session->refused_id = 0;
    }
    void expect_refusal(const rmem_answer& answer, const rmem_head& h, rmem_node_reason reason,
                        uint8_t status) {
        EXPECT_EQ(answer.reason, reason);
        EXPECT_EQ(answer.action, RMEM_ACT_REPLY);
        EXPECT_EQ(answer.extents, 0u);
        EXPECT_EQ(answer.reply.status, status);
        EXPECT_EQ(answer.reply.type, h.type | RMEM_RESPONSE);
        EXPECT_EQ(answer.reply.id, h.id);
        EXPECT_EQ(answer.reply.boot, node.core.config.boot);
        EXPECT_EQ(rmem_wire_payload_bytes(&answer.reply), 0u);
    }

    rig::Node node;
    Client client;
    uint64_t addr = 0;
};

// A pool never has more than two pages ready; at first none.
struct SmallPool : NodeTest {
    SmallPool() : NodeTest(config()) {}

    static rmem_node_config config() {
        rmem_node_config config = small_config();
        config.pool_pages = 2;
        return config;
    }
};

} // namespace rig
