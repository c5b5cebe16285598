// SPDX-License-Identifier: GPL-2.0
/*
 * The sending edge: a packet that was routed into the device waits in its tunnel's queue for
 * credit, and its copies leave until one is acknowledged.
 *
 *   eqds_xmit -> peer of the route's next hop -> class: drop or mark -> eqds_sender_enqueue
 *                                                                            |
 *   eqds_work_run <- clone, tunnel header <- eqds_drr_send <- credit <-------+
 *
 * While it is queued, the packet stays charged to its socket, so that TCP neither overfills the
 * queue nor retransmits what has not left yet. From its first transmission on it is charged to
 * nobody, or TCP would wait for the acknowledgement of the tunnel before it sends more.
 */
#include <linux/if_ether.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <net/inet_ecn.h>
#include <net/ip_tunnels.h>
#include <net/ipv6.h>
#include <net/route.h>
#include <net/udp_tunnel.h>

#include "eqds/eqds.h"
#include "eqds/trace.h"

static struct eqds_node *xmit_node(struct eqds_packet *packet)
{
	return container_of(packet, struct eqds_node, core);
}

static __be16 xmit_port(u32 path)
{
	return htons(EQDS_PATH_PORT | (path & (EQDS_PATHS - 1)));
}

/* A header without payload: control, RTS or FIN. Lock. */
void eqds_xmit_head(struct eqds_dev *ed, const struct in6_addr *peer, const struct eqds_head *head,
		    struct eqds_work *work)
{
	u32 bytes = eqds_wire_bytes(ed->config.profile, head);
	u32 headroom = ed->dev->needed_headroom;
	struct sk_buff *skb = alloc_skb(headroom + bytes, GFP_ATOMIC | __GFP_NOWARN);
	struct eqds_cb *cb;

	if (!skb) {
		ed->stats.tx_drop_memory++;
		return;
	}
	skb_reserve(skb, headroom);
	eqds_wire_encode(ed->config.profile, head, skb_put(skb, bytes));
	skb->priority = TC_PRIO_CONTROL;
	cb = EQDS_CB(skb);
	cb->peer = *peer;
	cb->sport = xmit_port(get_random_u32());
	cb->tos = 0;
	__skb_queue_tail(&work->emit, skb);
	trace_eqds_send(ed, peer, head);
	ed->stats.tx_control++;
}

/* A copy of the packet under a tunnel header. Lost if memory is short, as in the network. */
static void xmit_copy(struct eqds_dev *ed, struct eqds_tx *tx, struct eqds_node *node,
		      const struct eqds_head *head, struct eqds_work *work)
{
	const u8 tos = ip_hdr(node->skb)->tos;
	struct sk_buff *skb = skb_clone(node->skb, GFP_ATOMIC | __GFP_NOWARN);
	struct eqds_cb *cb;

	skb_orphan(node->skb);
	if (!skb)
		goto no_memory;
	if (skb_cow_head(skb, ed->dev->needed_headroom) || udp_tunnel_handle_offloads(skb, true))
		goto free;
	eqds_wire_encode(ed->config.profile, head, skb_push(skb, EQDS_DATA_BYTES));
	cb = EQDS_CB(skb);
	cb->peer = tx->tunnel.peer;
	cb->sport = xmit_port(head->path);
	cb->tos = INET_ECN_encapsulate(tos, tos);
	__skb_queue_tail(&work->emit, skb);
	trace_eqds_send(ed, &tx->tunnel.peer, head);
	ed->stats.tx_packets++;
	ed->stats.tx_retransmits += head->attempt != 0;
	return;

free:
	kfree_skb(skb);
no_memory:
	ed->stats.tx_drop_memory++;
}

/* Send what has credit. Lock. */
void eqds_xmit_ready(struct eqds_dev *ed, u64 now_ns, struct eqds_work *work)
{
	struct eqds_packet *packet;
	struct eqds_sender *from;
	struct eqds_head head;
	struct eqds_tx *tx;

	while ((packet = eqds_drr_send(&ed->drr, now_ns, &head, &from))) {
		tx = container_of(from, struct eqds_tx, core);
		xmit_copy(ed, tx, xmit_node(packet), &head, work);
		eqds_tunnel_due(ed, &tx->tunnel, eqds_sender_deadline_ns(&tx->core));
	}
}

/* Do what the core says after an event of a sender. Lock. */
void eqds_xmit_settle(struct eqds_dev *ed, struct eqds_tx *tx, const struct eqds_out *out,
		      struct eqds_work *work)
{
	struct eqds_packet *packet = out->free;

	while (packet) {
		struct eqds_node *node = xmit_node(packet);

		packet = packet->next;
		__skb_queue_tail(&work->free, node->skb);
		kmem_cache_free(eqds_node_cache, node);
	}
	if (out->send)
		eqds_xmit_head(ed, &tx->tunnel.peer, &out->head, work);
	ed->stats.sender[out->verdict]++;
	trace_eqds_outcome(ed, &tx->tunnel, out->verdict);
	eqds_drr_update(&ed->drr, &ed->eqif, &tx->core);
	/* A tunnel that a peer's refusal has closed goes by the timer: the caller still has it. */
	eqds_tunnel_due(ed, &tx->tunnel,
			tx->core.state == EQDS_SENDER_CLOSED ?
				ktime_get_ns() + ed->config.idle_ns :
				eqds_sender_deadline_ns(&tx->core));
}

/* The other end of the tunnel: the route's next hop, or without one the packet's destination. */
static bool xmit_peer(const struct sk_buff *skb, struct in6_addr *peer)
{
	const struct rtable *rt = skb_rtable(skb);
	__be32 to = ip_hdr(skb)->daddr;

	if (rt)
		to = rt_nexthop(rt, to);
	if (ipv4_is_multicast(to) || ipv4_is_lbcast(to) || ipv4_is_zeronet(to))
		return false;
	ipv6_addr_set_v4mapped(to, peer);
	return true;
}

/* Returns the counter of the reason it is dropped for; NULL: the tunnel has it. Lock. */
static u64 *xmit_enqueue(struct eqds_dev *ed, const struct in6_addr *peer, struct eqds_node *node,
			 struct eqds_work *work)
{
	const bool ecn = INET_ECN_is_capable(ip_hdr(node->skb)->tos);
	const u64 now_ns = ktime_get_ns();
	struct eqds_class_verdict verdict;
	struct eqds_out out;
	struct eqds_tx *tx;

	if (!ed->up)
		return &ed->stats.tx_drop_peer;
	if (node->core.bytes > ed->config.mtu_bytes)
		return &ed->stats.tx_drop_size;
	tx = eqds_tunnel_tx_get(ed, peer, work);
	if (!tx)
		return &ed->stats.tx_drop_tunnels;
	verdict = eqds_class_arrive(&ed->class, &tx->queue, now_ns, tx->core.queue.count,
				    tx->core.queue.bytes, ecn, get_random_u32());
	if (verdict.drop)
		return &ed->stats.tx_drop_class;
	if (verdict.mark) {
		INET_ECN_set_ce(node->skb);
		ed->stats.tx_mark++;
	}
	if (tx->core.resting)
		tx->heard_ns = now_ns;
	eqds_sender_enqueue(&tx->core, now_ns, &node->core, &out);
	eqds_xmit_settle(ed, tx, &out, work);
	eqds_xmit_ready(ed, now_ns, work);
	return NULL;
}

netdev_tx_t eqds_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct eqds_dev *ed = netdev_priv(dev);
	struct eqds_node *node = NULL;
	u64 *why = &ed->stats.tx_drop_peer;
	const u32 bytes = skb->len;
	struct in6_addr peer;
	struct eqds_work work;

	eqds_work_init(&work);
	if (skb->protocol != htons(ETH_P_IP) || !pskb_inet_may_pull(skb) ||
	    !xmit_peer(skb, &peer))
		goto drop;
	why = &ed->stats.tx_drop_memory;
	node = kmem_cache_alloc(eqds_node_cache, GFP_ATOMIC | __GFP_NOWARN);
	/* The packet may wait for long, so pages that a user lends by zero copy are not kept. */
	if (!node || skb_orphan_frags(skb, GFP_ATOMIC))
		goto drop;
	/* Its route would keep devices and namespaces. */
	skb_scrub_packet(skb, false);
	node->skb = skb;
	node->core.bytes = skb->len + EQDS_OVERHEAD_BYTES;
	node->core.next_proto = EQDS_PROTO_IPV4;
	spin_lock_bh(&ed->lock);
	why = xmit_enqueue(ed, &peer, node, &work);
	spin_unlock_bh(&ed->lock);
	eqds_work_run(ed, &work);
	if (why)
		goto drop;
	dev_sw_netstats_tx_add(dev, 1, bytes);
	return NETDEV_TX_OK;

drop:
	spin_lock_bh(&ed->lock);
	(*why)++;
	spin_unlock_bh(&ed->lock);
	if (node)
		kmem_cache_free(eqds_node_cache, node);
	DEV_STATS_INC(dev, tx_dropped);
	kfree_skb(skb);
	/* NET_XMIT_DROP would make TCP back off as it does for a full queue of its own machine. */
	return NETDEV_TX_OK;
}
