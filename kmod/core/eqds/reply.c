// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/reply.h"

static bool reply_is_cumulative(const struct eqds_head *head)
{
	return !(head->flags & ~(EQDS_ACK | EQDS_SACK | EQDS_SYN)) && head->flags & EQDS_ACK &&
	       !(head->marks & ~(EQDS_MARK_ECN | EQDS_MARK_UNNUMBERED));
}

/* Does next tell that the packet echo of head has arrived? */
static bool reply_covers(const struct eqds_head *next, const struct eqds_head *head)
{
	const u32 beyond = head->echo - next->ack;

	if (!(head->flags & EQDS_SACK) || (s32)beyond < 0)
		return true;
	return beyond >= 1 && beyond <= 64 && next->sack >> (beyond - 1) & 1;
}

u32 eqds_reply_add(struct eqds_reply *reply, const struct eqds_head *head,
		   struct eqds_head leaves[EQDS_REPLY_LEAVES])
{
	const bool cumulative = reply_is_cumulative(head);
	const struct eqds_head before = reply->head;
	u32 count = 0;

	if (reply->waits &&
	    (!cumulative || before.epoch != head->epoch || !reply_covers(head, &before))) {
		leaves[count++] = before;
		reply->waits = false;
	}
	if (!cumulative) {
		leaves[count++] = *head;
		return count;
	}
	reply->head = *head;
	if (!reply->waits) {
		reply->waits = true;
		return count;
	}
	reply->head.flags |= before.flags;
	/* The sender takes the echo as a sample of the round trip; a PULL has none. */
	if (!(head->flags & EQDS_SACK)) {
		reply->head.echo = before.echo;
		reply->head.attempt = before.attempt;
	}
	return count;
}
