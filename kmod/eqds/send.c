// SPDX-License-Identifier: GPL-2.0
/*
 * Copies of packets that have credit, under tunnel headers.
 *
 * While it is queued, a packet stays charged to its socket, so that TCP neither overfills the
 * queue nor retransmits what has not left yet. From its first transmission on it is charged to
 * nobody, or TCP would wait for the acknowledgement of the tunnel before it sends more. Of a whole
 * packet, the first transmission is that of its first part.
 */
#include "eqds/send.h"

#include <net/inet_ecn.h>
#include <net/ipv6.h>
#include <net/udp_tunnel.h>

#include "eqds/memory.h"
#include "eqds/table.h"
#include "eqds/trace.h"
#include "eqds/whole.h"

/*
 * The traffic class of the outer packet. It is ECN-capable where the peer says that it heeds marks
 * on any packet, since the tunnel itself answers congestion of the network.
 */
static u8 send_outer_tos(const struct eqds_dev *ed, const struct eqds_tx *tx, u8 inner_tos)
{
	const u8 tos = ed->tos == EQDS_TOS_INHERIT ? inner_tos : ed->tos;
	const u8 outer_tos = INET_ECN_encapsulate(tos, inner_tos);

	return tx->core.ecn && INET_ECN_is_not_ect(outer_tos) ? outer_tos | INET_ECN_ECT_0
							      : outer_tos;
}

/* A program's packet has no IP header, and no protocol. */
u8 eqds_send_inner_tos(const struct sk_buff *skb)
{
	if (!skb->protocol)
		return 0;
	return skb->protocol == htons(ETH_P_IPV6) ? ipv6_get_dsfield(ipv6_hdr(skb))
						  : ip_hdr(skb)->tos;
}

/* Not a clone: GRO at a receiver of this kernel would take its fragments. NULL: no memory. */
static struct sk_buff *send_duplicate(const struct sk_buff *from, u32 headroom)
{
	struct sk_buff *skb =
		__pskb_copy((struct sk_buff *)from, headroom, GFP_ATOMIC | __GFP_NOWARN);

	/* The copy has the headers' offsets, and the checksum's start, from the old head. */
	if (skb)
		skb_headers_offset_update(skb, skb_headroom(skb) - skb_headroom(from));
	return skb;
}

/* A packet, of which skb is the caller's own copy, leaves under a tunnel header. */
static void send_with_header(struct eqds_dev *ed, struct eqds_tx *tx, const struct eqds_head *head,
			     u8 inner_tos, struct sk_buff *skb, struct eqds_work *work)
{
	struct eqds_cb *cb = EQDS_CB(skb);

	eqds_wire_encode(ed->config.profile, head, skb_push(skb, EQDS_DATA_BYTES + ed->tag_bytes));
	cb->peer = tx->tunnel.peer;
	cb->local = tx->tunnel.local;
	cb->sport = eqds_path_port(head->path);
	cb->dport = htons(EQDS_PORT);
	cb->claims = false;
	cb->tos = send_outer_tos(ed, tx, inner_tos);
	cb->ttl = ed->ttl;
	cb->tagged = head->tagged;
	cb->counted = head->counted;
	cb->ip_id = (u16)head->seq;
	__skb_queue_tail(&work->emit, skb);
	trace_eqds_send(ed, &tx->tunnel.peer, head);
}

/*
 * A copy of the packet, or of a part of a whole one, under a tunnel header. Lost if memory is
 * short, as in the network.
 */
static void send_copy(struct eqds_dev *ed, struct eqds_tx *tx, struct eqds_packet *packet,
		      const struct eqds_head *head, struct eqds_work *work)
{
	const u32 headroom = ed->dev->needed_headroom, count = packet->more + 1;
	struct eqds_node *node = eqds_node_of(packet);
	const u8 tos = eqds_send_inner_tos(node->skb);
	struct sk_buff *skb;

	skb_orphan(node->skb);
	skb = node->segments == 1 ? send_duplicate(node->skb, headroom) :
				    eqds_whole_cut(node->skb, headroom, packet->nth, count);
	if (!skb)
		goto no_memory;
	if (udp_tunnel_handle_offloads(skb, true))
		goto free;
	send_with_header(ed, tx, head, tos, skb, work);
	ed->stats.tx_packets += count;
	ed->stats.tx_whole += head->counted != 0;
	ed->stats.tx_retransmits += head->attempt != 0;
	return;

free:
	kfree_skb(skb);
no_memory:
	ed->stats.tx_drop_memory++;
}

bool eqds_send_unnumbered(struct eqds_dev *ed, struct eqds_tx *tx, u64 now_ns, struct sk_buff *skb,
			  u8 next_proto, struct eqds_work *work)
{
	const u32 bytes = skb->len + EQDS_OVERHEAD_BYTES;
	const u8 tos = eqds_send_inner_tos(skb);
	struct eqds_head head;

	lockdep_assert_held(&ed->lock);
	/* A tag alone doesn't tell an old packet: its number would. */
	if (ed->tag_bytes || !tx->core.unnumbered ||
	    skb_cow_head(skb, ed->dev->needed_headroom) ||
	    !eqds_sender_unnumbered(&tx->core, now_ns, bytes, next_proto, &head))
		return false;
	trace_eqds_pass(ed, tx, bytes, next_proto);
	skb_orphan(skb);
	if (udp_tunnel_handle_offloads(skb, true)) {
		ed->stats.tx_drop_memory++;
		__skb_queue_tail(&work->free, skb);
		return true;
	}
	send_with_header(ed, tx, &head, tos, skb, work);
	ed->stats.tx_packets++;
	ed->stats.tx_unnumbered++;
	return true;
}

/* Send what has credit. */
void eqds_send_ready(struct eqds_dev *ed, u64 now_ns, struct eqds_work *work)
{
	struct eqds_packet *packet;
	struct eqds_sender *from;
	struct eqds_head head;
	struct eqds_tx *tx;

	lockdep_assert_held(&ed->lock);
	while ((packet = eqds_drr_send(&ed->drr, now_ns, &head, &from))) {
		tx = container_of(from, struct eqds_tx, core);
		head.tagged = ed->tag_bytes;
		send_copy(ed, tx, packet, &head, work);
		eqds_table_due(ed, &tx->tunnel, eqds_sender_deadline_ns(&tx->core));
	}
}
