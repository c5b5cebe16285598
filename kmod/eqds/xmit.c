// SPDX-License-Identifier: GPL-2.0
/*
 * The sending edge: a packet that was routed into the device waits in its tunnel's queue for
 * credit, and its copies leave until one is acknowledged.
 *
 *   eqds_xmit -> peer of the route's next hop -> class: drop or mark -> eqds_sender_enqueue
 *                                                                            |
 *   eqds_work_run <- copy, tunnel header <-  eqds_drr_send <- credit <-------+
 *
 * While it is queued, the packet stays charged to its socket, so that TCP neither overfills the
 * queue nor retransmits what has not left yet. From its first transmission on it is charged to
 * nobody, or TCP would wait for the acknowledgement of the tunnel before it sends more. Of a whole
 * packet, the first transmission is that of its first part.
 */
#include <linux/if_ether.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <net/dst_metadata.h>
#include <net/inet_ecn.h>
#include <net/ip6_route.h>
#include <net/ip_tunnels.h>
#include <net/ipv6.h>
#include <net/route.h>
#include <net/udp_tunnel.h>

#include "compat/compat.h"
#include "eqds/device.h"
#include "eqds/trace.h"

static struct eqds_node *xmit_node(struct eqds_packet *packet)
{
	return container_of(packet - packet->nth, struct eqds_node, core);
}

static __be16 xmit_port(u32 path)
{
	return htons(EQDS_PATH_PORT | (path & (EQDS_PATHS - 1)));
}

/* A header without payload, from port to port. Returns its control block; NULL: no memory. */
static struct eqds_cb *xmit_head(struct eqds_dev *ed, const struct in6_addr *peer,
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
	cb->sport = sent.claims ? htons(EQDS_PORT) : xmit_port(get_random_u32());
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
void eqds_xmit_head(struct eqds_dev *ed, const struct in6_addr *peer, const struct in6_addr *local,
		    const struct eqds_head *head, struct eqds_work *work)
{
	xmit_head(ed, peer, local, head, work);
}

/*
 * To a SYN that came by a translator of addresses, which passes this answer to the sender of the
 * SYN. A cookie in it would let a program behind the translator open tunnels in its name.
 */
void eqds_xmit_translated(struct eqds_dev *ed, const struct eqds_cb *to,
			  const struct eqds_head *head, struct eqds_work *work)
{
	struct eqds_head told = *head;
	struct eqds_cb *cb;

	told.marks |= EQDS_MARK_TRANSLATED;
	told.cookie = 0;
	cb = xmit_head(ed, &to->peer, &to->local, &told, work);
	if (!cb)
		return;
	cb->sport = htons(EQDS_PORT);
	cb->dport = to->sport;
}

/*
 * The traffic class of the outer packet. It is ECN-capable where the peer says that it heeds marks
 * on any packet, since the tunnel itself answers congestion of the network.
 */
static u8 xmit_outer_tos(const struct eqds_dev *ed, const struct eqds_tx *tx, u8 inner_tos)
{
	const u8 tos = ed->tos == EQDS_TOS_INHERIT ? inner_tos : ed->tos;
	const u8 outer_tos = INET_ECN_encapsulate(tos, inner_tos);

	return tx->core.ecn && INET_ECN_is_not_ect(outer_tos) ? outer_tos | INET_ECN_ECT_0
							      : outer_tos;
}

/* A program's packet has no IP header, and no protocol. */
static u8 xmit_inner_tos(const struct sk_buff *skb)
{
	if (!skb->protocol)
		return 0;
	return skb->protocol == htons(ETH_P_IPV6) ? ipv6_get_dsfield(ipv6_hdr(skb))
						  : ip_hdr(skb)->tos;
}

/* Not a clone: GRO at a receiver of this kernel would take its fragments. NULL: no memory. */
static struct sk_buff *xmit_duplicate(const struct sk_buff *from, u32 headroom)
{
	struct sk_buff *skb =
		__pskb_copy((struct sk_buff *)from, headroom, GFP_ATOMIC | __GFP_NOWARN);

	/* The copy has the headers' offsets, and the checksum's start, from the old head. */
	if (skb)
		skb_headers_offset_update(skb, skb_headroom(skb) - skb_headroom(from));
	return skb;
}

/*
 * A copy of the packet, or of a part of a whole one, under a tunnel header. Lost if memory is
 * short, as in the network.
 */
static void xmit_copy(struct eqds_dev *ed, struct eqds_tx *tx, struct eqds_packet *packet,
		      const struct eqds_head *head, struct eqds_work *work)
{
	const u32 headroom = ed->dev->needed_headroom, count = packet->more + 1;
	struct eqds_node *node = xmit_node(packet);
	const u8 tos = xmit_inner_tos(node->skb);
	struct eqds_cb *cb;
	struct sk_buff *skb;

	skb_orphan(node->skb);
	skb = node->segments == 1 ? xmit_duplicate(node->skb, headroom) :
				    eqds_whole_cut(node->skb, headroom, packet->nth, count);
	if (!skb)
		goto no_memory;
	if (udp_tunnel_handle_offloads(skb, true))
		goto free;
	eqds_wire_encode(ed->config.profile, head, skb_push(skb, EQDS_DATA_BYTES + ed->tag_bytes));
	cb = EQDS_CB(skb);
	cb->peer = tx->tunnel.peer;
	cb->local = tx->tunnel.local;
	cb->sport = xmit_port(head->path);
	cb->dport = htons(EQDS_PORT);
	cb->claims = false;
	cb->tos = xmit_outer_tos(ed, tx, tos);
	cb->ttl = ed->ttl;
	cb->tagged = head->tagged;
	cb->counted = head->counted;
	cb->ip_id = (u16)head->seq;
	__skb_queue_tail(&work->emit, skb);
	trace_eqds_send(ed, &tx->tunnel.peer, head);
	ed->stats.tx_packets += count;
	ed->stats.tx_whole += head->counted != 0;
	ed->stats.tx_retransmits += head->attempt != 0;
	return;

free:
	kfree_skb(skb);
no_memory:
	ed->stats.tx_drop_memory++;
}

/* Send what has credit. */
void eqds_xmit_ready(struct eqds_dev *ed, u64 now_ns, struct eqds_work *work)
{
	struct eqds_packet *packet;
	struct eqds_sender *from;
	struct eqds_head head;
	struct eqds_tx *tx;

	lockdep_assert_held(&ed->lock);
	while ((packet = eqds_drr_send(&ed->drr, now_ns, &head, &from))) {
		tx = container_of(from, struct eqds_tx, core);
		head.tagged = ed->tag_bytes;
		xmit_copy(ed, tx, packet, &head, work);
		eqds_tunnel_due(ed, &tx->tunnel, eqds_sender_deadline_ns(&tx->core));
	}
}

/* Frees what the core gives back. A whole packet goes with its last segment. */
static void xmit_free(struct eqds_dev *ed, struct eqds_tx *tx, struct eqds_packet *packet,
		      bool delivered, struct eqds_work *work)
{
	while (packet) {
		struct eqds_node *node = xmit_node(packet);

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
void eqds_xmit_settle(struct eqds_dev *ed, struct eqds_tx *tx, const struct eqds_out *out,
		      struct eqds_work *work)
{
	lockdep_assert_held(&ed->lock);
	xmit_free(ed, tx, out->free, out->verdict != EQDS_CLOSED, work);
	xmit_free(ed, tx, out->lost, false, work);
	if (out->send)
		eqds_xmit_head(ed, &tx->tunnel.peer, &tx->tunnel.local, &out->head, work);
	ed->stats.sender[out->verdict]++;
	trace_eqds_outcome(ed, &tx->tunnel, out->verdict);
	eqds_drr_update(&ed->drr, &ed->eqif[tx->core.id], &tx->core);
	/* A tunnel that a peer's refusal has closed goes by the timer: the caller still has it. */
	eqds_tunnel_due(ed, &tx->tunnel,
			tx->core.state == EQDS_SENDER_CLOSED ? ktime_get_ns() + ed->config.idle_ns
							     : eqds_sender_deadline_ns(&tx->core));
}

/* Leaves the route's next hop in *peer, or without one the packet's destination. */
static void xmit_next_hop(const struct sk_buff *skb, struct in6_addr *peer)
{
	/* A packet that tc redirects can have a tunnel's metadata in place of a route. */
	const struct dst_entry *dst = skb_valid_dst(skb) ? skb_dst(skb) : NULL;
	const struct rtable *rt = dst ? skb_rtable(skb) : NULL;
	__be32 to;

	if (skb->protocol == htons(ETH_P_IPV6)) {
		const struct in6_addr *to6 = &ipv6_hdr(skb)->daddr;

		*peer = dst ? *rt6_nexthop(container_of(dst, struct rt6_info, dst), to6) : *to6;
		return;
	}
	to = ip_hdr(skb)->daddr;
	if (rt && rt->rt_gw_family == AF_INET6)
		*peer = rt->rt_gw6;
	else
		ipv6_addr_set_v4mapped(rt ? rt_nexthop(rt, to) : to, peer);
}

/* The other end of the tunnel: a map rule's for the destination, else the next hop. RCU. */
static void xmit_peer(struct eqds_dev *ed, const struct sk_buff *skb, struct in6_addr *peer)
{
	const struct eqds_rule *rule = eqds_rule_of_packet(ed, skb);

	if (rule)
		*peer = rule->peer;
	else
		xmit_next_hop(skb, peer);
}

/* Can there be a tunnel to it? */
bool eqds_xmit_peer_is_good(const struct in6_addr *peer)
{
	__be32 v4 = peer->s6_addr32[3];

	if (!ipv6_addr_v4mapped(peer))
		return !ipv6_addr_is_multicast(peer) && !ipv6_addr_any(peer) &&
		       !ipv6_addr_loopback(peer);
	return !ipv4_is_multicast(v4) && !ipv4_is_lbcast(v4) && !ipv4_is_zeronet(v4);
}

/* Returns the counter of the reason it is dropped for; NULL: the tunnel has it. */
static u64 *xmit_enqueue(struct eqds_dev *ed, u64 now_ns, struct eqds_tx *tx,
			 struct eqds_node *node, struct eqds_work *work)
{
	const bool ecn = INET_ECN_is_capable(xmit_inner_tos(node->skb));
	const bool whole = node->segments > 1;
	const u32 each_bytes = whole ? eqds_whole_each_bytes(node->skb) : node->core.bytes;
	struct eqds_class_verdict verdict;
	struct eqds_out out;

	lockdep_assert_held(&ed->lock);
	/* The device may have got a key since the packet was found to stay whole. */
	if (each_bytes > ed->config.mtu_bytes || (whole && ed->tag_bytes))
		return &ed->stats.tx_drop_size;
	verdict = eqds_class_arrive(&ed->class[tx->core.id], &tx->queue, now_ns,
				    tx->core.queue.count, tx->core.queue.bytes, ecn,
				    ecn || tx->core.id == EQDS_CLASS_RDMA ? get_random_u32() : 0);
	if (verdict.drop)
		return &ed->stats.tx_drop_class;
	if (verdict.mark) {
		INET_ECN_set_ce(node->skb);
		ed->stats.tx_mark++;
	}
	if (verdict.cnp)
		eqds_rdma_congested(ed, node->skb, work);
	if (tx->core.id == EQDS_CLASS_RDMA)
		eqds_rdma_sent(ed, node->skb);
	trace_eqds_enqueue(ed, tx, node, each_bytes);
	eqds_sender_enqueue_whole(&tx->core, now_ns, &node->core, node->segments - 1, each_bytes,
				  &out);
	eqds_xmit_settle(ed, tx, &out, work);
	return NULL;
}

static u8 xmit_next_proto(const struct sk_buff *skb)
{
	if (!skb->protocol)
		return EQDS_PROTO_NATIVE;
	return skb->protocol == htons(ETH_P_IPV6) ? EQDS_PROTO_IPV6 : EQDS_PROTO_IPV4;
}

/* A list of packets, or a whole one, to one peer. Returns the bytes that the tunnel took. */
static u64 xmit_list(struct eqds_dev *ed, const struct in6_addr *peer, u8 kind,
		     struct sk_buff *list, bool whole, struct eqds_work *work, u32 *packets)
{
	const u64 now_ns = ktime_get_ns();
	struct eqds_tx *tx = NULL;
	struct sk_buff *skb, *next;
	u64 *why, bytes = 0;

	lockdep_assert_held(&ed->lock);
	trace_eqds_turn(ed, EQDS_TURN_XMIT, now_ns);
	if (ed->up)
		tx = eqds_tunnel_tx_get(ed, peer, kind, work);
	skb_list_walk_safe(list, skb, next) {
		const u16 segments = whole ? eqds_whole_segments(skb) : 1;
		struct eqds_node *node = NULL;

		skb_mark_not_on_list(skb);
		why = ed->up ? &ed->stats.tx_drop_tunnels : &ed->stats.tx_drop_peer;
		if (tx && tx->core.queue.count && eqds_memory_is_full(ed, EQDS_POOL_TX)) {
			why = &ed->stats.tx_drop_held;
		} else if (tx) {
			why = &ed->stats.tx_drop_memory;
			node = eqds_node_get(ed, EQDS_POOL_TX, skb, segments);
		}
		if (node) {
			node->core.bytes =
				skb->len + segments * (EQDS_OVERHEAD_BYTES + ed->tag_bytes);
			/* Each segment has the packet's inner headers. */
			if (segments > 1)
				node->core.bytes += (segments - 1) * skb_headlen(skb);
			node->core.next_proto = xmit_next_proto(skb);
			why = xmit_enqueue(ed, now_ns, tx, node, work);
		}
		if (!why) {
			bytes += skb->len;
			*packets += segments;
			continue;
		}
		++*why;
		DEV_STATS_INC(ed->dev, tx_dropped);
		if (node)
			eqds_node_put(ed, node);
		__skb_queue_tail(&work->free, skb);
	}
	eqds_xmit_ready(ed, now_ns, work);
	return bytes;
}

/* Does the packet stay whole? Then the peer has a tunnel. */
static bool xmit_is_whole(struct eqds_dev *ed, const struct sk_buff *skb,
			  const struct in6_addr *peer, u8 kind)
{
	struct eqds_tx *tx;
	bool may;

	if (!READ_ONCE(ed->whole) || kind != EQDS_CLASS_TCP || !ipv6_addr_v4mapped(peer) ||
	    !eqds_whole_fits(skb))
		return false;
	spin_lock_bh(&ed->lock);
	tx = ed->up && !ed->tag_bytes ? eqds_tunnel_tx(ed, peer, kind) : NULL;
	/* A queue's first packet is exempt from the bound on memory: then only a segment of it. */
	may = tx && !eqds_memory_is_full(ed, EQDS_POOL_TX);
	spin_unlock_bh(&ed->lock);
	return may;
}

/* The segments of a packet; itself if it has one or stays whole. NULL: dropped for *why. */
static struct sk_buff *xmit_segments(struct eqds_dev *ed, struct sk_buff *skb, bool whole,
				     u64 **why)
{
	struct sk_buff *list;

	/*
	 * The packet may wait for long, so pages that a user lends by MSG_ZEROCOPY are not kept:
	 * the user learns at once that they were copied.
	 */
	if (skb_orphan_frags_rx(skb, GFP_ATOMIC))
		goto drop;
	/* Its route would keep devices and namespaces. */
	skb_scrub_packet(skb, eqds_is_away(ed));
	/*
	 * The outer checksum assumes a sum inside. A captured packet can await the link's SCTP
	 * CRC.
	 */
	if (!skb_is_gso(skb) && skb->ip_summed == CHECKSUM_PARTIAL &&
	    skb_csum_hwoffload_help(skb, NETIF_F_HW_CSUM))
		goto drop;
	if (whole || !skb_is_gso(skb))
		return skb;
	list = skb_gso_segment(skb,
			       NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_FRAGLIST | NETIF_F_HIGHDMA);
	if (IS_ERR_OR_NULL(list))
		goto drop;
	consume_skb(skb);
	return list;

drop:
	*why = &ed->stats.tx_drop_memory;
	return NULL;
}

/* The counters are a CPU's own, and a captured packet's sender can be preempted. */
static void xmit_count(struct eqds_dev *ed, u32 packets, u64 bytes)
{
	local_bh_disable();
	dev_sw_netstats_tx_add(ed->dev, packets, bytes);
	local_bh_enable();
}

/*
 * Consumes the packet, which has its IP header in front; peer: the other end of the tunnel.
 * captured: it left by the link, and so may be RDMA's, which the peer delivers at its link. A
 * packet that was routed into the device is not.
 */
void eqds_xmit_packet(struct eqds_dev *ed, struct sk_buff *skb, const struct in6_addr *peer,
		      bool captured)
{
	u64 *why = &ed->stats.tx_drop_peer, bytes;
	u8 kind = EQDS_CLASS_TCP;
	struct sk_buff *list = NULL;
	struct eqds_work work;
	bool whole = false;
	u32 packets = 0;

	/* Without a peer the packet may lack its IP header, too. */
	if (eqds_xmit_peer_is_good(peer)) {
		if (captured && eqds_rdma_is(skb))
			kind = EQDS_CLASS_RDMA;
		whole = xmit_is_whole(ed, skb, peer, kind);
		list = xmit_segments(ed, skb, whole, &why);
	}
	if (!list) {
		spin_lock_bh(&ed->lock);
		++*why;
		spin_unlock_bh(&ed->lock);
		DEV_STATS_INC(ed->dev, tx_dropped);
		kfree_skb(skb);
		return;
	}
	eqds_work_init(&work);
	spin_lock_bh(&ed->lock);
	bytes = xmit_list(ed, peer, kind, list, whole, &work, &packets);
	spin_unlock_bh(&ed->lock);
	eqds_work_run(ed, &work);
	xmit_count(ed, packets, bytes);
}

/* Consumes a program's packet, which begins with its native header. */
void eqds_xmit_native(struct eqds_dev *ed, struct sk_buff *skb, const struct in6_addr *peer)
{
	struct eqds_work work;
	u32 packets = 0;
	u64 bytes;

	eqds_work_init(&work);
	spin_lock_bh(&ed->lock);
	ed->stats.tx_native++;
	bytes = xmit_list(ed, peer, EQDS_CLASS_NATIVE, skb, false, &work, &packets);
	spin_unlock_bh(&ed->lock);
	eqds_work_run(ed, &work);
	xmit_count(ed, packets, bytes);
}

netdev_tx_t eqds_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct eqds_dev *ed = netdev_priv(dev);
	struct in6_addr peer = IN6ADDR_ANY_INIT;

	/* Without an IP header it has no peer, and is dropped as such. */
	if ((skb->protocol == htons(ETH_P_IP) || skb->protocol == htons(ETH_P_IPV6)) &&
	    pskb_inet_may_pull(skb))
		xmit_peer(ed, skb, &peer);
	eqds_xmit_packet(ed, skb, &peer, false);
	/* NET_XMIT_DROP would make TCP back off as it does for a full queue of its own machine. */
	return NETDEV_TX_OK;
}
