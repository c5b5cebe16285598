// SPDX-License-Identifier: GPL-2.0
/* Replies wait for the end of a batch of packets: core/eqds/reply.h. */
#include "eqds/reply.h"

#include "eqds/head.h"

/* The caller calls eqds_reply_flush() before the unlock. */
void eqds_reply(struct eqds_dev *ed, struct eqds_rx *rx, const struct eqds_head *head,
		struct eqds_work *work)
{
	const bool waited = rx->reply.waits;
	struct eqds_head leaves[EQDS_REPLY_LEAVES];
	const u32 count = eqds_reply_add(&rx->reply, head, leaves);

	lockdep_assert_held(&ed->lock);
	for (u32 i = 0; i < count; i++)
		eqds_head_send(ed, &rx->tunnel.peer, &rx->tunnel.local, &leaves[i], work);
	if (!rx->reply.waits)
		list_del_init(&rx->replying);
	else if (!waited)
		list_add_tail(&rx->replying, &ed->replies);
	else if (!count)
		ed->stats.rx_replies_merged++;
}

void eqds_reply_flush(struct eqds_dev *ed, struct eqds_work *work)
{
	struct eqds_rx *rx, *next;

	lockdep_assert_held(&ed->lock);
	list_for_each_entry_safe(rx, next, &ed->replies, replying) {
		list_del_init(&rx->replying);
		rx->reply.waits = false;
		eqds_head_send(ed, &rx->tunnel.peer, &rx->tunnel.local, &rx->reply.head, work);
	}
}
