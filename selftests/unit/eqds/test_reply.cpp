// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

extern "C" {
#include "core/eqds/reply.h"
}

namespace {

struct EqdsReply : testing::Test {
    eqds_reply reply{};
    eqds_head leaves[EQDS_REPLY_LEAVES];

    static eqds_head control(uint8_t flags, uint32_t ack = 0, uint32_t echo = 0) {
        eqds_head head{};
        head.control = true;
        head.flags = flags;
        head.epoch = 7;
        head.marks = EQDS_MARK_ECN;
        head.ack = ack;
        head.echo = echo;
        return head;
    }
    uint32_t add(const eqds_head& head) { return eqds_reply_add(&reply, &head, leaves); }
};

TEST_F(EqdsReply, LaterAckReplacesTheOneThatWaits) {
    EXPECT_EQ(add(control(EQDS_ACK | EQDS_SACK, 1, 0)), 0u);
    EXPECT_EQ(add(control(EQDS_ACK | EQDS_SACK, 2, 1)), 0u);
    EXPECT_TRUE(reply.waits);
    EXPECT_EQ(reply.head.ack, 2u);
    EXPECT_EQ(reply.head.echo, 1u);
}

TEST_F(EqdsReply, PullThatReplacesAnAckKeepsItsEcho) {
    eqds_head ack = control(EQDS_ACK | EQDS_SACK | EQDS_SYN, 5, 4);
    ack.attempt = 3;
    eqds_head pull = control(EQDS_ACK, 5);
    pull.pull = 9;
    add(ack);
    EXPECT_EQ(add(pull), 0u);
    EXPECT_EQ(reply.head.flags, EQDS_ACK | EQDS_SACK | EQDS_SYN);
    EXPECT_EQ(reply.head.pull, 9u);
    EXPECT_EQ(reply.head.echo, 4u);
    EXPECT_EQ(reply.head.attempt, 3u);
}

TEST_F(EqdsReply, EchoThatTheNextBitmapDoesNotCoverLeavesFirst) {
    eqds_head far = control(EQDS_ACK | EQDS_SACK, 1, 100);
    EXPECT_EQ(add(far), 0u);
    eqds_head next = control(EQDS_ACK | EQDS_SACK, 1, 3);
    next.sack = 1ULL << 1;
    ASSERT_EQ(add(next), 1u);
    EXPECT_EQ(leaves[0].echo, 100u);
    EXPECT_TRUE(reply.waits);
    EXPECT_EQ(reply.head.echo, 3u);
    EXPECT_EQ(reply.head.flags, EQDS_ACK | EQDS_SACK);

    // Within the bitmap it is covered.
    eqds_head covers = control(EQDS_ACK | EQDS_SACK, 1, 5);
    covers.sack = 1ULL << 1 | 1ULL << 3;
    EXPECT_EQ(add(covers), 0u);
    EXPECT_EQ(reply.head.echo, 5u);
}

TEST_F(EqdsReply, NackLeavesAtOnceBehindTheReplyThatWaited) {
    add(control(EQDS_ACK | EQDS_SACK, 3, 2));
    ASSERT_EQ(add(control(EQDS_ACK | EQDS_NACK, 3, 8)), 2u);
    EXPECT_EQ(leaves[0].echo, 2u);
    EXPECT_EQ(leaves[1].echo, 8u);
    EXPECT_FALSE(reply.waits);
    ASSERT_EQ(add(control(EQDS_ACK | EQDS_NACK, 3, 9)), 1u);
    EXPECT_EQ(leaves[0].echo, 9u);
}

TEST_F(EqdsReply, ReplyWithAMarkOfCongestionLeavesAtOnce) {
    eqds_head marked = control(EQDS_ACK | EQDS_SACK, 3, 2);
    marked.marks |= EQDS_MARK_CE;
    ASSERT_EQ(add(marked), 1u);
    EXPECT_EQ(leaves[0].marks, EQDS_MARK_ECN | EQDS_MARK_CE);
    EXPECT_FALSE(reply.waits);
}

TEST_F(EqdsReply, AckOfAnotherEpochLeavesFirst) {
    add(control(EQDS_ACK | EQDS_SACK, 3, 2));
    eqds_head later = control(EQDS_ACK | EQDS_SACK, 1, 0);
    later.epoch = 8;
    ASSERT_EQ(add(later), 1u);
    EXPECT_EQ(leaves[0].epoch, 7u);
    EXPECT_EQ(reply.head.epoch, 8u);
}

} // namespace
