// SPDX-License-Identifier: GPL-2.0
// OPEN, CLOSE and FENCE between the steps of another call (core/rmem/node/call.h).
#include <gtest/gtest.h>

#include "../../../common/null_cipher.hpp"
#include "node_test.hpp"

extern "C" {
#include "core/rmem/node/queue.h"
}

namespace {

using rig::Client;
using rig::filled;
using rig::page;

// Space 1 with client and its region of 8 pages, of which each step does one; space 2 with other.
class BriefCall : public rig::NodeTest {
protected:
    BriefCall() {
        node.core.config.step_pages = 1;
        EXPECT_TRUE(node.add_space(2));
        other.space = 2;
        EXPECT_EQ(node.open(other, 7).reply.status, RMEM_OK);
    }

    rmem_head free_head() { return client.head(RMEM_FREE, 0, sizeof(rmem_range)); }

    // The FREE of client's region, begun and divisible.
    rmem_node_call begin_free(const rmem_head& h) {
        const rmem_range range = wire::range_of(addr, 8 * page);
        rmem_node_call call = node.begin(client, h, &range);
        while (!call.divisible)
            EXPECT_TRUE(node.step(call));
        return call;
    }

    // The ALLOC of 8 more pages, begun and divisible.
    rmem_node_call begin_alloc(const rmem_head& h) {
        const rmem_alloc wanted = wire::alloc_of(8 * page, 0, RMEM_PERM_READ | RMEM_PERM_WRITE);
        rmem_node_call call = node.begin(client, h, &wanted);
        while (!call.divisible)
            EXPECT_TRUE(node.step(call));
        return call;
    }

    bool enter(const rmem_node_call& under_way, rmem_node_call& call, const Client& who,
               const rmem_head& h, const void* payload = nullptr) {
        return rmem_node_call_enter(&node.core, &under_way, &call, node.now_ns, &h, &who.peer,
                                    payload);
    }

    // client's OPEN with that nonce, run between the steps of the other call.
    rmem_node_call open_between(const rmem_node_call& under_way, uint64_t nonce,
                                uint64_t session = 0) {
        rmem_head h = client.open_head(nonce);
        h.session = session;
        client.open.integrity = client.integrity;
        rmem_node_call call;
        EXPECT_TRUE(enter(under_way, call, client, h, &client.open));
        node.run(call);
        return call;
    }

    Client other{2};
};

TEST_F(BriefCall, AnotherTenantOpensWhileARegionIsFreed) {
    rmem_node_call freed = begin_free(free_head());
    Client third(3);
    third.space = 2;
    third.open.integrity = third.integrity;
    rmem_node_call open;
    ASSERT_TRUE(enter(freed, open, third, third.open_head(1), &third.open));
    EXPECT_EQ(node.run(open).reply.status, RMEM_OK);
    EXPECT_EQ(node.run(freed).reply.status, RMEM_OK);
    EXPECT_EQ(node.usage().pages_promised, 0u);
}

TEST_F(BriefCall, NoneEntersBeforeTheFirstStepOrAfterTheLast) {
    const rmem_range range = wire::range_of(addr, 8 * page);
    rmem_node_call freed = node.begin(client, free_head(), &range);
    rmem_node_call fence;
    rmem_head h = other.head(RMEM_FENCE, 0, 0);
    EXPECT_FALSE(enter(freed, fence, other, h));
    node.run(freed);
    EXPECT_FALSE(enter(freed, fence, other, h));
}

TEST_F(BriefCall, FenceWaitsForWorkOnItsOwnMemory) {
    ASSERT_TRUE(node.add_view(3, 1));
    Client reader(4);
    reader.space = 3;
    ASSERT_EQ(node.open(reader, 1).reply.status, RMEM_OK);
    rmem_node_call freed = begin_free(free_head());
    rmem_node_call fence;
    EXPECT_FALSE(enter(freed, fence, client, client.head(RMEM_FENCE, 0, 0)));
    EXPECT_FALSE(enter(freed, fence, reader, reader.head(RMEM_FENCE, 0, 0)));
    ASSERT_TRUE(enter(freed, fence, other, other.head(RMEM_FENCE, 0, 0)));
    EXPECT_EQ(node.run(fence).reply.status, RMEM_OK);
}

TEST_F(BriefCall, RenewalInTheMiddleOfAnAllocKeepsItsResult) {
    rmem_head h = client.head(RMEM_ALLOC, 0, sizeof(rmem_alloc));
    client.floor = client.next_id; // acknowledges the first ALLOC
    rmem_node_call made = begin_alloc(h);
    rmem_node_call renewal = open_between(made, 101, client.session);
    ASSERT_EQ(renewal.answer.reply.status, RMEM_OK);
    ASSERT_TRUE(renewal.out.opened.renewed);
    EXPECT_EQ(node.run(made).reason, RMEM_NODE_OK);
    // The client doesn't take the answer, which names the old session, and asks again.
    h.session = renewal.answer.reply.session;
    rmem_answer again = node.alloc(client, h, 8 * page);
    EXPECT_EQ(again.reason, RMEM_NODE_REPEATED);
    EXPECT_EQ(node.range.addr, made.out.range.addr);
    EXPECT_EQ(node.usage().pages_promised, 16u);
}

TEST_F(BriefCall, RenewalWaitsForTheFreeOfItsSession) {
    rmem_head h = free_head();
    rmem_node_call freed = begin_free(h);
    rmem_node_call renewal;
    client.open.integrity = client.integrity;
    rmem_head open = client.open_head(101);
    open.session = client.session;
    EXPECT_FALSE(enter(freed, renewal, client, open, &client.open));
    EXPECT_EQ(node.run(freed).reason, RMEM_NODE_OK);
    renewal = node.begin(client, open, &client.open);
    ASSERT_EQ(node.run(renewal).reply.status, RMEM_OK);
    ASSERT_TRUE(renewal.out.opened.renewed);
    h.session = renewal.answer.reply.session;
    const rmem_range range = wire::range_of(addr, 8 * page);
    rmem_node_call again = node.begin(client, h, &range);
    EXPECT_EQ(node.run(again).reason, RMEM_NODE_REPEATED);
}

TEST_F(BriefCall, NextSessionOfTheClientWaitsForTheFreeItGaveUp) {
    client.floor = client.next_id; // acknowledges the ALLOC
    rmem_node_call freed = begin_free(free_head());
    client.open.integrity = client.integrity;
    rmem_head open = client.open_head(101); // names no session
    rmem_node_call next;
    ASSERT_TRUE(enter(freed, next, client, open, &client.open));
    EXPECT_EQ(node.run(next).action, RMEM_ACT_DROP);
    EXPECT_TRUE(next.put_off);
    EXPECT_EQ(node.run(freed).reason, RMEM_NODE_OK);
    EXPECT_EQ(node.usage().pages_promised, 0u);
    next = node.begin(client, open, &client.open);
    EXPECT_EQ(node.run(next).reply.status, RMEM_OK);
    EXPECT_FALSE(next.out.opened.renewed);
}

TEST_F(BriefCall, SessionThatEndsDuringAnAllocGetsNoRegion) {
    client.floor = client.next_id; // acknowledges the first ALLOC
    rmem_node_call made = begin_alloc(client.head(RMEM_ALLOC, 0, sizeof(rmem_alloc)));
    rmem_node_call closed;
    ASSERT_TRUE(enter(made, closed, client, client.head(RMEM_CLOSE, 0, 0)));
    EXPECT_EQ(node.run(closed).reply.status, RMEM_OK);
    node.run(made);
    EXPECT_EQ(node.usage().pages_promised, 8u);
    EXPECT_EQ(node.usage().allocs_undone, 1u);
}

TEST_F(BriefCall, SessionThatEndsDuringAFreeHasItsRegionFreed) {
    rmem_node_call freed = begin_free(free_head());
    rmem_sessions_close(&node.core.sessions, rmem_node_slot(&node.core, client.session));
    EXPECT_EQ(node.run(freed).reason, RMEM_NODE_NO_SESSION);
    EXPECT_EQ(node.usage().pages_promised, 0u);
}

TEST_F(BriefCall, SessionThatEndsDuringAZeroHasNoMoreCleared) {
    node.write(client, addr, filled(64, 0x11));
    rmem_node_call zeroed = node.begin(client, client.head(RMEM_ZERO, addr + 1, page));
    while (!zeroed.divisible)
        ASSERT_TRUE(node.step(zeroed));
    rmem_sessions_close(&node.core.sessions, rmem_node_slot(&node.core, client.session));
    auto memory = node.memory;
    EXPECT_EQ(node.run(zeroed).reason, RMEM_NODE_NO_SESSION);
    EXPECT_TRUE(memory == node.memory);
}

// An older operation still holds the floor, so only the session's new name tells.
TEST_F(BriefCall, RenewalEndsTheZeroThatItsClientGaveUp) {
    rmem_head h = client.head(RMEM_ZERO, addr + 1, page);
    rmem_node_call zeroed = node.begin(client, h);
    while (!zeroed.divisible)
        ASSERT_TRUE(node.step(zeroed));
    rmem_node_call renewal = open_between(zeroed, 101, client.session);
    ASSERT_TRUE(renewal.out.opened.renewed);
    client.session = renewal.answer.reply.session;
    node.write(client, addr, filled(64, 0x22));
    auto memory = node.memory;
    EXPECT_EQ(node.run(zeroed).reason, RMEM_NODE_NO_SESSION);
    EXPECT_TRUE(memory == node.memory);
}

// The slot may be somebody else's by then.
TEST_F(BriefCall, CallDoesNotTakeTheNextSessionOfItsSlotForItsOwn) {
    rmem_head h = free_head();
    uint32_t slot = rmem_node_slot(&node.core, client.session);
    rmem_node_call freed = begin_free(h);
    rmem_sessions_close(&node.core.sessions, slot);
    Client next;
    uint8_t name = 9;
    do { // The slot that was free for longest comes first.
        node.now_ns += 1000;
        next = Client(name++, 2);
        next.space = node.core.sessions.in_use < 3 ? 2 : 1; // the last slot is kept for space 1
        ASSERT_EQ(node.open(next, 1).reply.status, RMEM_OK);
    } while (rmem_node_slot(&node.core, next.session) != slot);
    EXPECT_EQ(node.run(freed).reason, RMEM_NODE_NO_SESSION);
    rmem_session* session = rmem_sessions_find(&node.core.sessions, next.session);
    EXPECT_EQ(rmem_session_check(session, h.id, 1), RMEM_SESSION_FRESH);
}

// Its region would have to be given back, and another call works on regions: nothing changes.
TEST_F(BriefCall, OneThatWouldEndASessionWithRegionsIsPutOff) {
    Client second(5);
    second.space = 2;
    ASSERT_EQ(node.open(second, 1).reply.status, RMEM_OK);
    ASSERT_NE(node.alloc(second, page), 0u); // not acknowledged
    rmem_node_call freed = begin_free(free_head());
    second.open.integrity = second.integrity;
    rmem_head h = second.open_head(2); // a program that began anew
    rmem_node_call open;
    ASSERT_TRUE(enter(freed, open, second, h, &second.open));
    auto before = node.snapshot();
    node.run(open);
    EXPECT_TRUE(open.put_off);
    EXPECT_EQ(open.answer.action, RMEM_ACT_DROP);
    EXPECT_TRUE(before == node.snapshot());
    node.run(freed);
    EXPECT_EQ(node.open_with(second, h).reason, RMEM_NODE_OK);
    EXPECT_EQ(node.usage().allocs_undone, 1u);
    EXPECT_EQ(node.usage().pages_promised, 0u);
}

// No session of the new boot may see memory of the old one.
TEST_F(BriefCall, NoSessionBeginsInASpaceThatIsCleared) {
    rmem_node_call clear;
    ASSERT_TRUE(rmem_node_call_clear(&node.core, &clear, 1));
    while (!clear.divisible)
        ASSERT_TRUE(node.step(clear));
    rmem_node_call open;
    EXPECT_FALSE(enter(clear, open, client, client.open_head(8), &client.open));
    EXPECT_TRUE(enter(clear, open, other, other.open_head(8), &other.open)) << "another space's";
    node.run(open);
    node.run(clear);
    EXPECT_EQ(node.usage().sessions, 1u);
}

TEST_F(BriefCall, NoneEntersWhileARebootForgets) {
    rmem_node_reboot(&node.core, 0);
    rmem_node_reboot(&node.core, 4711);
    rmem_node_call forget;
    rmem_node_call_forget(&forget);
    int steps = 0;
    do {
        EXPECT_FALSE(forget.divisible);
        steps++;
    } while (node.step(forget));
    EXPECT_GT(steps, 8);
}

TEST_F(BriefCall, OpenWithoutASessionForgetsItsSecret) {
    wire::NullCipher cipher;
    node.core.config.cipher = &cipher.core();
    rmem_head h = other.open_head(100);
    h.integrity = RMEM_SEALED;
    h.clear = true;
    h.len = sizeof(rmem_open_sealed);
    rmem_open_sealed open{other.open, {}};
    open.open.integrity = RMEM_SEALED;
    open.key[31] = 1;
    rmem_node_call call = node.begin(other, h, &open);
    while (!call.agreed)
        ASSERT_TRUE(node.step(call));
    rmem_node_reboot(&node.core, 4711);
    EXPECT_EQ(node.run(call).reason, RMEM_NODE_REBOOTED);
    const rmem_keying none{};
    EXPECT_EQ(std::memcmp(&call.seal.keying, &none, sizeof(none)), 0);
}

// A curve operation takes as long as many requests, and other tenants' work waits for its end.
TEST_F(BriefCall, ATenantsStepWaitsForOneCurveOperationAtMost) {
    wire::NullCipher cipher;
    node.core.config.cipher = &cipher.core();
    std::vector<uint8_t> lanes(rmem_queue_bytes(node.core.config.spaces_max));
    std::vector<rmem_job> jobs(RMEM_QUEUE_JOBS);
    rmem_queue queue;
    rmem_queue_init(&queue, lanes.data(), node.core.config.spaces_max);
    for (rmem_job& job : jobs)
        rmem_queue_give(&queue, &job);
    // The greedy tenant opens again and again, and each OPEN supersedes the last one.
    constexpr unsigned opens = 5;
    for (unsigned n = 0; n < opens; n++) {
        rmem_head h = other.open_head(100 + n);
        h.integrity = RMEM_SEALED;
        h.clear = true;
        h.len = sizeof(rmem_open_sealed);
        bool dropped;
        rmem_job* job = rmem_queue_add(&queue, &node.core, &h, &dropped);
        ASSERT_NE(job, nullptr);
        rmem_open_sealed open{other.open, {}};
        open.open.integrity = RMEM_SEALED;
        open.key[31] = 1;
        std::memcpy(&job->payload, &open, sizeof(open));
    }
    rmem_node_call freed = begin_free(free_head());
    do { // as the node's thread does
        const uint64_t agreed = cipher.agreed;
        rmem_job* job;
        for (uint32_t spent = 0; freed.divisible && spent < RMEM_QUEUE_BRIEF &&
                                 (job = rmem_queue_take_brief(&queue));) {
            ASSERT_TRUE(enter(freed, job->call, other, job->head, &job->payload));
            EXPECT_EQ(node.run(job->call).reply.status, RMEM_OK);
            spent += rmem_queue_cost(job);
            rmem_queue_give(&queue, job);
        }
        EXPECT_LE(cipher.agreed, agreed + 1);
    } while (node.step(freed));
    EXPECT_EQ(cipher.agreed, opens);
}

} // namespace
