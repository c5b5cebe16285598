// SPDX-License-Identifier: GPL-2.0
/*
 * Replies to a batch of packets. An ACK says all that an earlier one said, and a PULL carries an
 * ACK, so a batch leaves one control packet for each peer:
 *
 *   packet --> ACK, SACK --+
 *   packet --> ACK, SACK --+--> eqds_rx.reply --end of the batch--> one packet
 *   pull timer --> PULL ---+
 *
 * NACK, RST, and marks of congestion are about one packet, and leave at once. So does a reply whose
 * echo the next one would not cover: its bitmap reaches 64 numbers beyond the ack.
 */
#include "eqds/device.h"

static bool reply_is_cumulative(const struct eqds_head *head)
{
	return !(head->flags & ~(EQDS_ACK | EQDS_SACK | EQDS_SYN)) && head->flags & EQDS_ACK &&
	       !head->marks;
}

/* Does next tell that the packet echo of head has arrived? */
static bool reply_covers(const struct eqds_head *next, const struct eqds_head *head)
{
	const u32 beyond = head->echo - next->ack;

	if (!(head->flags & EQDS_SACK) || (s32)beyond < 0)
		return true;
	return beyond >= 1 && beyond <= 64 && next->sack >> (beyond - 1) & 1;
}

static void reply_emit(struct eqds_dev *ed, struct eqds_rx *rx, struct eqds_work *work)
{
	list_del_init(&rx->replying);
	eqds_xmit_head(ed, &rx->tunnel.peer, &rx->reply, work);
}

/* Lock. The caller calls eqds_reply_flush() before the unlock. */
void eqds_reply(struct eqds_dev *ed, struct eqds_rx *rx, const struct eqds_head *head,
		struct eqds_work *work)
{
	const bool waits = !list_empty(&rx->replying);
	struct eqds_head *reply = &rx->reply;
	struct eqds_head before;

	if (!reply_is_cumulative(head)) {
		if (waits)
			reply_emit(ed, rx, work);
		eqds_xmit_head(ed, &rx->tunnel.peer, head, work);
		return;
	}
	if (waits && (reply->epoch != head->epoch || !reply_covers(head, reply)))
		reply_emit(ed, rx, work);
	if (list_empty(&rx->replying)) {
		*reply = *head;
		list_add_tail(&rx->replying, &ed->replies);
		return;
	}
	ed->stats.rx_replies_merged++;
	before = *reply;
	*reply = *head;
	reply->flags |= before.flags;
	/* The sender takes the echo as a sample of the round trip; a PULL has none. */
	if (!(head->flags & EQDS_SACK)) {
		reply->echo = before.echo;
		reply->attempt = before.attempt;
	}
}

/* Lock. */
void eqds_reply_flush(struct eqds_dev *ed, struct eqds_work *work)
{
	struct eqds_rx *rx, *next;

	list_for_each_entry_safe(rx, next, &ed->replies, replying) reply_emit(ed, rx, work);
}
