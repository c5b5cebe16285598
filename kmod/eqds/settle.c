// SPDX-License-Identifier: GPL-2.0
/* Carries out the core's result (struct eqds_out): frees, delivers and answers packets. */
#include "eqds/settle.h"

#include <linux/slab.h>

#include "eqds/head.h"
#include "eqds/key.h"
#include "eqds/memory.h"
#include "eqds/native_report.h"
#include "eqds/reply.h"
#include "eqds/table.h"
#include "eqds/trace.h"

/* Frees what the core gives back. A whole packet goes with its last segment. */
static void settle_free(struct eqds_dev *ed, struct eqds_tx *tx, struct eqds_packet *packet,
			bool delivered, struct eqds_work *work)
{
	while (packet) {
		struct eqds_node *node = eqds_node_of(packet);

		ed->stats.tx_undelivered += delivered ? 0 : packet->more + 1;
		node->left -= packet->more + 1;
		packet = packet->next;
		if (node->left)
			continue;
		if (node->core.next_proto == EQDS_PROTO_NATIVE)
			eqds_native_settle(tx, &node->core, node->skb, delivered);
		__skb_queue_tail(&work->free, eqds_node_put(ed, node));
	}
}

/* Do what the core says after an event of a sender. */
void eqds_settle_tx(struct eqds_dev *ed, struct eqds_tx *tx, const struct eqds_out *out,
		    struct eqds_work *work)
{
	lockdep_assert_held(&ed->lock);
	settle_free(ed, tx, out->free, out->verdict != EQDS_CLOSED, work);
	settle_free(ed, tx, out->lost, false, work);
	if (out->send)
		eqds_head_send(ed, &tx->tunnel.peer, &tx->tunnel.local, &out->head, work);
	ed->stats.sender[out->verdict]++;
	trace_eqds_outcome(ed, &tx->tunnel, out->verdict);
	eqds_drr_update(&ed->drr, &ed->eqif[tx->core.id], &tx->core);
	/* A tunnel that a peer's refusal has closed goes by the timer: the caller still has it. */
	eqds_table_due(ed, &tx->tunnel,
		       tx->core.state == EQDS_SENDER_CLOSED ? ktime_get_ns() + ed->config.idle_ns
							    : eqds_sender_deadline_ns(&tx->core));
}

static void settle_chain(struct eqds_dev *ed, struct eqds_rx *rx, struct eqds_packet *packet,
			 struct sk_buff_head *to)
{
	while (packet) {
		struct eqds_node *node = container_of(packet, struct eqds_node, core);

		packet = packet->next;
		rx->held_bytes -= node->held_bytes;
		__skb_queue_tail(to, eqds_node_put(ed, node));
	}
}

/* The core has closed it, so it holds no packet and is in no list of the core's. */
static void settle_rx_free(struct eqds_dev *ed, struct eqds_rx *rx)
{
	lockdep_assert_held(&ed->lock);
	list_del(&rx->replying);
	eqds_key_cookie_used(ed, &rx->tunnel.peer);
	eqds_table_unlink(ed, &rx->tunnel);
	kfree(rx);
}

/* Do what the core says after an event of a receiver; frees rx if the core has closed it. */
void eqds_settle_rx(struct eqds_dev *ed, struct eqds_rx *rx, const struct eqds_out *out,
		    struct eqds_work *work)
{
	lockdep_assert_held(&ed->lock);
	settle_chain(ed, rx, out->deliver, &work->deliver);
	settle_chain(ed, rx, out->free, &work->free);
	if (out->send)
		eqds_reply(ed, rx, &out->head, work);
	ed->stats.receiver[out->verdict]++;
	trace_eqds_outcome(ed, &rx->tunnel, out->verdict);
	if (rx->core.held > ed->stats.rx_held_max)
		ed->stats.rx_held_max = rx->core.held;
	/* Without an epoch it was never established, for its first packet was refused. */
	if (!rx->core.established)
		settle_rx_free(ed, rx);
	else
		eqds_table_due(ed, &rx->tunnel, eqds_receiver_deadline_ns(&rx->core));
}
