// SPDX-License-Identifier: GPL-2.0
// Sealed sessions: their keys' life, and what a node does for strangers.
#include <gtest/gtest.h>

#include <cstring>

#include "client_rig.hpp"

extern "C" {
#include "core/rmem/client/session.h"
}

namespace {

using net::Bytes;
using net::ms;
using net::noise;
using net::Op;
using net::World;

struct SealedClient : net::ClientTest {
    void SetUp() override {
        world.sealed = true;
        ClientTest::SetUp();
    }
    Bytes key() const { return wire::bytes_of(world.channels[0]->client.keys.from_client); }
    bool is_none(const rmem_seal_keys& keys) { return wire::bytes_of(keys) == Bytes(sizeof(keys)); }
    wire::NullCipher& cipher() { return world.seals.cipher; }
};

TEST_F(SealedClient, ReadAfterWriteReturnsItsData) {
    for (uint32_t len : {1u, 1400u, 1401u, 65536u}) {
        Bytes data = noise(world.random, len);
        ASSERT_EQ(write(len, data), RMEM_CLIENT_OK);
        EXPECT_EQ(read(len, len), data) << len;
    }
    EXPECT_EQ(client().count.timeouts, 0u);
}

TEST_F(SealedClient, RenewalGivesOtherKeys) {
    Bytes before = key();
    uint64_t session = client().session;
    rmem_client_renew(&client(), world.now_ns);
    world.pump(0);
    ASSERT_TRUE(world.run([&] { return client().state == RMEM_CHANNEL_OPEN; }));
    EXPECT_NE(client().session, session);
    EXPECT_TRUE(client().was_renewed);
    EXPECT_NE(key(), before);
    EXPECT_EQ(write(0, Bytes(100, 1)), RMEM_CLIENT_OK);
}

TEST_F(SealedClient, KeysAreRenewedOnceAnHour) {
    Bytes before = key();
    uint64_t deadline_ns = rmem_client_deadline(&client());
    EXPECT_EQ(deadline_ns, client().opened_ns + RMEM_REKEY_NS);
    ASSERT_TRUE(world.run([&] { return key() != before && client().session; }, 2 * RMEM_REKEY_NS));
    EXPECT_TRUE(client().was_renewed);
    EXPECT_EQ(write(0, Bytes(100, 1)), RMEM_CLIENT_OK);
}

TEST_F(SealedClient, KeysOfTheNameBeforeAreForgottenWhenTheRenewalIsAnswered) {
    const uint64_t before = client().session;
    rmem_client_renew(&client(), world.now_ns);
    world.pump(0);
    EXPECT_FALSE(is_none(client().keys_before));
    EXPECT_NE(rmem_client_opening_key(&client(), before), nullptr);
    ASSERT_TRUE(world.run([&] { return client().state == RMEM_CHANNEL_OPEN; }));
    EXPECT_TRUE(is_none(client().keys_before));
    EXPECT_EQ(rmem_client_opening_key(&client(), before), nullptr);
}

// The client gives up before it has met a challenge.
TEST_F(SealedClient, KeysAreForgottenByACloseDuringARenewal) {
    rmem_client_renew(&client(), world.now_ns);
    client().challenge = 0;
    rmem_client_close(&client(), world.now_ns);
    ASSERT_EQ(client().state, RMEM_CHANNEL_CLOSED);
    EXPECT_TRUE(is_none(client().keys));
    EXPECT_TRUE(is_none(client().keys_before));
}

TEST_F(SealedClient, AnswerUnderTheNameBeforeIsTakenDuringARenewal) {
    Op op;
    net::make_write(op, base, Bytes(100, 3));
    // The write comes to the node before the OPEN, and so does its answer to the client.
    world.weather.jitter_ns = 0;
    world.submit(op, 0);
    rmem_client_renew(&client(), world.now_ns);
    world.pump(0);
    EXPECT_EQ(client().state, RMEM_CHANNEL_OPENING);
    ASSERT_TRUE(world.run([&] { return !op.flying; }));
    EXPECT_EQ(op.result, RMEM_CLIENT_OK);
    EXPECT_EQ(client().state, RMEM_CHANNEL_OPENING);
}

TEST_F(SealedClient, EvictedSessionIsReopenedByANotice) {
    world.host->evict_all();
    Bytes before = key();
    Bytes data = noise(world.random, 5000);
    EXPECT_EQ(write(0, data), RMEM_CLIENT_OK);
    EXPECT_GT(world.host->notices, 0u);
    EXPECT_EQ(client().count.timeouts, 0u); // told rather than waited for
    EXPECT_NE(key(), before);
    EXPECT_EQ(read(0, 5000), data);
}

TEST_F(SealedClient, RestartedNodeIsNoticed) {
    world.boot_node();
    EXPECT_EQ(write(0, Bytes(100, 1)), RMEM_CLIENT_LOST);
    EXPECT_EQ(client().state, RMEM_CHANNEL_LOST);
    EXPECT_EQ(client().count.timeouts, 0u);
    EXPECT_TRUE(is_none(client().keys));
}

TEST_F(SealedClient, KeysAreForgottenByBothEndsWhenTheSessionIsClosed) {
    uint32_t slot = rmem_node_slot(&world.host->core, client().session);
    EXPECT_FALSE(is_none(world.host->core.sessions.slot[slot].keys));
    rmem_client_close(&client(), world.now_ns);
    world.pump(0);
    ASSERT_TRUE(world.run([&] { return client().state == RMEM_CHANNEL_CLOSED; }));
    EXPECT_TRUE(is_none(client().keys));
    EXPECT_TRUE(is_none(client().keys_before));
    EXPECT_TRUE(is_none(world.host->core.sessions.slot[slot].keys));
}

TEST_F(SealedClient, SecretIsForgottenOnceTheKeysAreMade) {
    EXPECT_EQ(Bytes(client().secret, client().secret + RMEM_X25519_BYTES),
              Bytes(RMEM_X25519_BYTES));
}

// ---- what a stranger costs ----

// An OPEN by somebody who has the key, but not the challenge, from any address.
TEST_F(SealedClient, OpenWithoutAChallengeCostsNoCurveOperation) {
    uint64_t generated = cipher().generated, agreed = cipher().agreed;
    for (unsigned round = 0; round < 100; round++) {
        rmem_head head{};
        head.type = RMEM_OPEN;
        head.integrity = RMEM_SEALED;
        head.clear = true;
        head.space = net::space;
        head.id = 1 + round;
        head.addr = round % 2 ? 0 : 0x1234 + round;
        rmem_open_sealed open{};
        std::memset(open.open.client, 77, sizeof(open.open.client));
        open.open.integrity = RMEM_SEALED;
        open.key[31] = 1;
        head.len = sizeof(open);
        rmem_peer peer{};
        peer.port = static_cast<u16>(1 + round);
        auto answers = world.host->handle(
            world.now_ns, wire::sealed(head, net::space_key(), wire::bytes_of(open)), peer);
        ASSERT_EQ(answers.size(), 1u);
        auto answer = wire::answer_head(answers[0]);
        ASSERT_TRUE(answer);
        EXPECT_EQ(answer->status, RMEM_CHALLENGE);
    }
    EXPECT_EQ(cipher().generated, generated);
    EXPECT_EQ(cipher().agreed, agreed);
}

// A recording of the OPEN that made the session, and its copies on the network.
TEST_F(SealedClient, OpenPlayedAgainCostsNoCurveOperation) {
    World other(2);
    other.sealed = true;
    std::vector<net::Packet> opens;
    other.on_sent = [&](const net::Packet& packet) {
        if (packet.to_node && !wire::is_sealed(packet.bytes))
            opens.push_back(packet);
    };
    other.add_channel(other.config(1));
    net::allocate(other, 65536);
    ASSERT_EQ(opens.size(), 2u); // the second with the challenge
    uint64_t agreed = other.seals.cipher.agreed;
    for (unsigned round = 0; round < 100; round++)
        for (const net::Packet& each : opens)
            other.host->handle(other.now_ns, each.bytes, other.channels[0]->peer);
    EXPECT_EQ(other.seals.cipher.agreed, agreed);
    EXPECT_EQ(agreed, 2u); // one by each end
}

// A curve operation takes as long as a thousand requests.
TEST_F(SealedClient, CurveOperationsOfTheNodeHoldNoLockThatRequestsWaitFor) {
    unsigned locked = 0;
    uint64_t agreed = cipher().agreed;
    cipher().on_agree = [&] { locked += world.host->locked; };
    rmem_client_renew(&client(), world.now_ns);
    world.pump(0);
    ASSERT_TRUE(world.run([&] { return client().state == RMEM_CHANNEL_OPEN; }));
    EXPECT_EQ(cipher().agreed, agreed + 2);
    EXPECT_EQ(locked, 0u);
}

// An attacker gets a notice for each recorded request that it sends from elsewhere, and passes it
// on.
TEST_F(SealedClient, NoticesThatFindNothingEndedRenewSeldom) {
    const uint64_t begin_ns = world.now_ns, reopened = client().count.reopened;
    while (world.now_ns < begin_ns + 500 * ms) {
        rmem_head notice{};
        notice.type = RMEM_CLOSE | RMEM_RESPONSE;
        notice.status = RMEM_NO_SESSION;
        notice.integrity = RMEM_SEALED;
        notice.clear = true;
        notice.space = net::space;
        notice.session = client().session;
        notice.boot = client().boot;
        rmem_client_rx rx{};
        rmem_client_receive(&client(), world.now_ns, &notice, nullptr, false, &rx);
        world.pump(0);
        ASSERT_TRUE(world.run([&] { return client().state == RMEM_CHANNEL_OPEN; }));
        world.now_ns += 1 * ms;
    }
    EXPECT_GE(client().count.reopened, reopened + 2);
    EXPECT_LE(client().count.reopened, reopened + 11);
    // One that tells of an end is taken all the same, a little later.
    world.host->evict_all();
    EXPECT_EQ(write(0, Bytes(100, 1)), RMEM_CLIENT_OK);
}

TEST_F(SealedClient, KeysAreForgottenWithTheirSpace) {
    World other(4);
    other.sealed = true;
    other.add_channel(other.config(1));
    rmem_client& opened = other.channels[0]->client;
    ASSERT_TRUE(other.run([&] { return opened.state == RMEM_CHANNEL_OPEN; }));
    rmem_node& core = other.host->core;
    const rmem_session& session = core.sessions.slot[rmem_node_slot(&core, opened.session)];
    EXPECT_FALSE(is_none(session.keys));
    ASSERT_EQ(rmem_node_space_del(&core, net::space), RMEM_SPACE_OK);
    rmem_node_space_wipe(&core);
    EXPECT_TRUE(is_none(session.keys));
    // Nor does a key of zeros open anything in another space of that id.
    ASSERT_EQ(rmem_node_space_add(&core, net::space, net::key_bytes, 0), RMEM_SPACE_OK);
    rmem_head head{};
    head.space = net::space;
    head.session = opened.session;
    rmem_seal_keys keys;
    EXPECT_FALSE(rmem_node_keys(&core, &head, &keys));
}

TEST_F(SealedClient, RevokedKeyEndsItsSessionsKeys) {
    rmem_node& core = world.host->core;
    const rmem_session& session = core.sessions.slot[rmem_node_slot(&core, client().session)];
    EXPECT_FALSE(is_none(session.keys));
    rmem_node_call call;
    ASSERT_TRUE(rmem_node_call_revoke(&core, &call, net::space));
    world.host->run(call);
    ASSERT_EQ(rmem_node_space_revoke(&core, net::space), RMEM_SPACE_OK);
    rmem_node_space_wipe(&core);
    EXPECT_TRUE(is_none(session.keys));
    EXPECT_EQ(rmem_node_key(&core, net::space), nullptr);
}

TEST_F(SealedClient, NodeWithoutACipherRefusesTheLevel) {
    World other(3);
    other.sealed = true;
    other.host->core.config.cipher = nullptr;
    other.add_channel(other.config(1));
    EXPECT_FALSE(
        other.run([&] { return other.channels[0]->client.state == RMEM_CHANNEL_OPEN; }, 100 * ms));
    EXPECT_EQ(other.channels[0]->client.open_status, RMEM_INVALID);
    EXPECT_EQ(other.seals.cipher.agreed, 0u);
}

TEST_F(SealedClient, SpaceThatRequiresItRefusesOtherLevels) {
    rmem_node_space_require(&world.host->core, net::space, RMEM_SEALED);
    World& same = world;
    same.sealed = false;
    same.add_channel(same.config(2));
    EXPECT_FALSE(
        same.run([&] { return same.channels[1]->client.state == RMEM_CHANNEL_OPEN; }, 100 * ms));
    EXPECT_EQ(same.channels[1]->client.open_status, RMEM_PERM);
    EXPECT_EQ(write(0, Bytes(100, 1)), RMEM_CLIENT_OK);
}

} // namespace
