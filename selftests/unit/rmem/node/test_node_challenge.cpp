// SPDX-License-Identifier: GPL-2.0
// OPENs that were recorded and are sent again; sessions whose client has gone with an ALLOC under
// way.
#include <gtest/gtest.h>

#include <vector>

#include "node_test.hpp"

namespace {

using rig::Client;
using rig::NodeTest;
using rig::page;

constexpr uint64_t second_ns = 1'000'000'000;

class Challenge : public testing::Test {
protected:
    Challenge() {
        node.core.config.challenges = true;
        EXPECT_TRUE(node.add_space(1));
    }

    // An OPEN as it is on the wire.
    struct Datagram {
        rmem_head head;
        Client sender;
    };

    rmem_answer send(Datagram& open) { return node.open_with(open.sender, open.head); }

    // Asks without a challenge, then with the one it got: the second OPEN.
    Datagram opened(uint8_t name, uint64_t nonce) {
        Datagram open{{}, Client(name)};
        open.head = open.sender.open_head(nonce);
        EXPECT_EQ(send(open).reason, RMEM_NODE_CHALLENGE);
        open.head.addr = send(open).reply.addr;
        EXPECT_EQ(send(open).reason, RMEM_NODE_OK);
        return open;
    }

    void close(Datagram& open) {
        EXPECT_EQ(node.close(open.sender, open.sender.head(RMEM_CLOSE, 0, 0)).reason, RMEM_NODE_OK);
    }

    // The node changes nothing, and answers another challenge.
    void refused(Datagram open) {
        auto before = node.snapshot();
        rmem_answer answer = send(open);
        EXPECT_EQ(answer.action, RMEM_ACT_REPLY);
        EXPECT_EQ(answer.reason, RMEM_NODE_CHALLENGE);
        EXPECT_EQ(answer.reply.status, RMEM_CHALLENGE);
        EXPECT_EQ(answer.reply.session, open.head.session);
        EXPECT_NE(answer.reply.addr, 0u);
        EXPECT_NE(answer.reply.addr, open.head.addr);
        EXPECT_EQ(rmem_wire_payload_bytes(&answer.reply), 0u);
        EXPECT_TRUE(before == node.snapshot());
    }

    rig::Node node;
};

TEST_F(Challenge, RecordedOpensTakeNoSlot) {
    std::vector<Datagram> recorded;
    for (uint8_t name = 1; name <= 2 * node.core.config.sessions_max; name++) {
        recorded.push_back(opened(name, name));
        close(recorded.back());
    }
    node.now_ns += 10 * second_ns;
    for (Datagram& each : recorded)
        refused(each);
    EXPECT_EQ(node.usage().sessions, 0u);
}

// Their challenges are still valid.
TEST_F(Challenge, OpensOfClosedSessionsAreLate) {
    std::vector<Datagram> recorded;
    for (uint8_t name = 1; name <= node.core.config.sessions_max; name++) {
        recorded.push_back(opened(name, name));
        close(recorded.back());
    }
    node.now_ns += second_ns;
    for (Datagram& each : recorded)
        EXPECT_EQ(send(each).reason, RMEM_NODE_STALE);
    EXPECT_EQ(node.usage().sessions, 0u);
    Datagram next = recorded.back();
    next.head.id++; // the same client, later
    EXPECT_EQ(send(next).reason, RMEM_NODE_OK);
}

TEST_F(Challenge, HoldsForSecondsAndForOneSender) {
    Datagram open = opened(1, 1);
    close(open);
    Datagram elsewhere = open;
    elsewhere.sender.peer.port++;
    refused(elsewhere);
    elsewhere = open;
    elsewhere.sender.peer.addr[7]++;
    refused(elsewhere);
    elsewhere.sender.peer.addr[7]--;
    elsewhere.sender.peer.addr[15]++;
    refused(elsewhere);
    ASSERT_TRUE(node.add_space(2));
    elsewhere = open;
    elsewhere.head.space = 2;
    refused(elsewhere);

    node.now_ns += 4 * second_ns;
    open.head.id++; // the same challenge serves again
    EXPECT_EQ(send(open).reason, RMEM_NODE_OK);
    close(open);
    node.now_ns += 5 * second_ns;
    open.head.id++;
    refused(open);
}

TEST_F(Challenge, HoldsForOneBoot) {
    Datagram open = opened(1, 1);
    close(open);
    rmem_node_reboot(&node.core, node.core.config.boot + 1);
    refused(open);
}

TEST_F(Challenge, RecordedOpenEndsNoSession) {
    Datagram recorded = opened(1, 5);
    Datagram open = recorded;
    open.head.id = 3; // as a client that began anew
    close(recorded);
    // The slots forget it.
    for (uint8_t name = 2; name <= node.core.config.sessions_max + 1; name++) {
        node.now_ns += second_ns / 100;
        Datagram other = opened(name, 1);
        close(other);
    }
    EXPECT_EQ(send(open).reason, RMEM_NODE_OK);
    node.now_ns += 10 * second_ns;
    refused(recorded);
    EXPECT_EQ(node.usage().sessions, 1u);
}

TEST_F(Challenge, RenewalNeedsNone) {
    Datagram open = opened(1, 1);
    uint64_t name = open.sender.session;
    node.now_ns += 10 * second_ns;
    EXPECT_EQ(node.renew(open.sender, 2).reason, RMEM_NODE_OK);
    EXPECT_TRUE(node.opened.renewed);
    EXPECT_NE(open.sender.session, name);
}

// The client's address changed, or somebody sends a copy of its OPEN from elsewhere.
TEST_F(Challenge, RenewalFromElsewhereMovesTheSessionAndKeepsItsIds) {
    Datagram open = opened(1, 1);
    Client home = open.sender;
    rmem_head write = home.head(RMEM_READ, 0, 1);
    node.request(home, write);
    Datagram away = open;
    away.sender.peer.port++;
    away.head.id++;
    away.head.session = home.session;
    refused(away);
    away.head.addr = send(away).reply.addr;
    EXPECT_EQ(send(away).reason, RMEM_NODE_OK);
    EXPECT_TRUE(node.opened.renewed);
    EXPECT_EQ(node.usage().sessions, 1u);

    home.session = away.sender.session;
    EXPECT_EQ(node.request(home, home.head(RMEM_READ, 0, 1)).reply.status, RMEM_NO_SESSION);
    node.now_ns += second_ns;
    Datagram back{home.open_head(away.head.id + 1), home};
    back.head.session = home.session;
    refused(back);
    back.head.addr = send(back).reply.addr;
    EXPECT_EQ(send(back).reason, RMEM_NODE_OK);
    EXPECT_TRUE(node.opened.renewed);
    rmem_session* session = rmem_sessions_find(&node.core.sessions, back.sender.session);
    ASSERT_NE(session, nullptr);
    EXPECT_TRUE(rmem_peer_equal(&session->peer, &home.peer));
}

// ---- sessions that owe memory expire ----

class Expiry : public NodeTest {
protected:
    void expire_after(uint64_t idle_ns) {
        node.now_ns += idle_ns;
        rmem_node_call call;
        rmem_node_call_expire(&call, node.now_ns);
        node.run(call);
    }

    uint64_t idle_ns() const { return node.core.config.session_idle_ms * 1'000'000ull; }
};

TEST_F(Expiry, UnacknowledgedAllocIsUndoneOnceItsSessionIsIdle) {
    expire_after(idle_ns() - 1);
    EXPECT_EQ(node.usage().regions, 1u);
    expire_after(1);
    EXPECT_EQ(node.usage().regions, 0u);
    EXPECT_EQ(node.usage().sessions, 0u);
    EXPECT_EQ(node.usage().pages_promised, 0u);
}

TEST_F(Expiry, SessionThatOwesNothingStays) {
    client.floor = client.next_id;
    node.read(client, addr, 1);
    Client other(2);
    node.open(other, 1);
    expire_after(10 * idle_ns());
    EXPECT_EQ(node.usage().regions, 1u);
    EXPECT_EQ(node.usage().sessions, 2u);
}

TEST_F(Expiry, EveryOneOfThemEnds) {
    for (uint8_t name = 2; name <= 4; name++) {
        Client other(name);
        node.open(other, 1);
        EXPECT_NE(node.alloc(other, page), 0u);
    }
    node.core.config.step_pages = 1;
    expire_after(idle_ns());
    EXPECT_EQ(node.usage().regions, 0u);
    EXPECT_EQ(node.usage().sessions, 0u);
}

TEST_F(Expiry, CopiesOfOldRequestsKeepNoSession) {
    rmem_head recorded = client.head(RMEM_READ, addr, 1);
    for (int n = 0; n < 4; n++) {
        EXPECT_EQ(node.request(client, recorded).reason,
                  n < 2 ? RMEM_NODE_OK : RMEM_NODE_NO_SESSION);
        expire_after(idle_ns() / 2);
    }
    EXPECT_EQ(node.usage().regions, 0u);
    EXPECT_EQ(node.usage().sessions, 0u);
}

TEST(ExpiryOfMany, TakesAFewStepsForEachSession) {
    constexpr uint8_t sessions = 96;
    constexpr uint8_t owing = 32; // the last ones
    rmem_node_config config = rig::small_config();
    config.sessions_max = sessions;
    config.regions_max = owing;
    rig::Node node(config);
    ASSERT_TRUE(node.add_space(1));
    for (uint8_t name = 1; name <= sessions; name++) {
        Client client(name);
        ASSERT_EQ(node.open(client, 1).reply.status, RMEM_OK);
        if (name > sessions - owing) {
            ASSERT_NE(node.alloc(client, page), 0u);
        }
    }
    node.now_ns += node.core.config.session_idle_ms * 1'000'000ull;
    rmem_node_call call;
    rmem_node_call_expire(&call, node.now_ns);
    unsigned steps = 1;
    while (node.step(call))
        steps++;
    EXPECT_EQ(node.usage().regions, 0u);
    EXPECT_EQ(node.usage().sessions, sessions - owing + 0u);
    EXPECT_LE(steps, 8u * sessions);
}

// Between finding an idle session and ending it, its client may have come back.
TEST_F(Expiry, SessionThatIsUsedMeanwhileStays) {
    node.now_ns += idle_ns();
    rmem_node_call call;
    rmem_node_call_expire(&call, node.now_ns);
    ASSERT_TRUE(node.step(call));
    node.read(client, addr, 1);
    node.run(call);
    EXPECT_EQ(node.usage().regions, 1u);
}

} // namespace
