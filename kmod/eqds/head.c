// SPDX-License-Identifier: GPL-2.0
/* Headers without payload: control, RTS and FIN. */
#include "eqds/head.h"

#include <linux/pkt_sched.h>
#include <linux/random.h>

#include "eqds/trace.h"

/* A header without payload, from port to port. Returns its control block; NULL: no memory. */
static struct eqds_cb *head_make(struct eqds_dev *ed, const struct in6_addr *peer,
				 const struct in6_addr *local, const struct eqds_head *head,
				 struct eqds_work *work)
{
	struct eqds_head sent = *head;
	u32 bytes, headroom = ed->dev->needed_headroom;
	struct sk_buff *skb;
	struct eqds_cb *cb;

	lockdep_assert_held(&ed->lock);
	sent.tagged = ed->tag_bytes;
	/* Other RTSs leave from ports of paths, since the path of this one may be dead. */
	sent.claims = head->flags == (EQDS_SYN | EQDS_EMPTY) && !head->control && !head->cookie &&
		      !sent.tagged && get_random_u32() & 1;
	bytes = eqds_wire_bytes(ed->config.profile, &sent);
	skb = alloc_skb(headroom + bytes, GFP_ATOMIC | __GFP_NOWARN);

	if (!skb) {
		ed->stats.tx_drop_memory++;
		return NULL;
	}
	skb_reserve(skb, headroom);
	eqds_wire_encode(ed->config.profile, &sent, skb_put(skb, bytes));
	skb->priority = TC_PRIO_CONTROL;
	cb = EQDS_CB(skb);
	cb->peer = *peer;
	cb->local = *local;
	cb->sport = sent.claims ? htons(EQDS_PORT) : eqds_path_port(get_random_u32());
	cb->dport = htons(EQDS_PORT);
	cb->tos = 0;
	cb->ttl = ed->ttl;
	cb->tagged = sent.tagged;
	cb->claims = sent.claims;
	cb->counted = false;
	__skb_queue_tail(&work->emit, skb);
	trace_eqds_send(ed, peer, head);
	ed->stats.tx_control++;
	return cb;
}

/* Control, RTS or FIN. local: its source, or any. */
void eqds_head_send(struct eqds_dev *ed, const struct in6_addr *peer, const struct in6_addr *local,
		    const struct eqds_head *head, struct eqds_work *work)
{
	head_make(ed, peer, local, head, work);
}

/*
 * To a SYN that came by a translator of addresses, which passes this answer to the sender of the
 * SYN. A cookie in it would let a program behind the translator open tunnels in its name.
 */
void eqds_head_send_translated(struct eqds_dev *ed, const struct eqds_cb *to,
			       const struct eqds_head *head, struct eqds_work *work)
{
	struct eqds_head told = *head;
	struct eqds_cb *cb;

	told.marks |= EQDS_MARK_TRANSLATED;
	told.cookie = 0;
	cb = head_make(ed, &to->peer, &to->local, &told, work);
	if (!cb)
		return;
	cb->sport = htons(EQDS_PORT);
	cb->dport = to->sport;
}
