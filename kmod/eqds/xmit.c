// SPDX-License-Identifier: GPL-2.0
/*
 * The sending edge: a packet that was routed into the device, or captured, waits in its tunnel's
 * queue for credit, and its copies leave until one is acknowledged.
 *
 *   eqds_xmit -> peer of the route's next hop -> class: drop or mark -> eqds_sender_enqueue
 *                                                                            |
 *   eqds_work_run <- eqds_send_ready: copy, tunnel header <- credit <--------+
 */
#include "eqds/xmit.h"

#include <linux/if_ether.h>
#include <linux/random.h>
#include <net/dst_metadata.h>
#include <net/inet_ecn.h>
#include <net/ip6_route.h>
#include <net/ip_tunnels.h>
#include <net/ipv6.h>
#include <net/route.h>
#include <net/tcp.h>

#include "compat/compat.h"
#include "eqds/life.h"
#include "eqds/memory.h"
#include "eqds/rdma.h"
#include "eqds/rule.h"
#include "eqds/send.h"
#include "eqds/settle.h"
#include "eqds/table.h"
#include "eqds/trace.h"
#include "eqds/whole.h"
#include "eqds/work.h"

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
	const bool ecn = INET_ECN_is_capable(eqds_send_inner_tos(node->skb));
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
	eqds_settle_tx(ed, tx, &out, work);
	return NULL;
}

static u8 xmit_next_proto(const struct sk_buff *skb)
{
	if (!skb->protocol)
		return EQDS_PROTO_NATIVE;
	return skb->protocol == htons(ETH_P_IPV6) ? EQDS_PROTO_IPV6 : EQDS_PROTO_IPV4;
}

/* Is it an acknowledgement of TCP without data? TCP expects that the network loses some. */
static bool xmit_is_pure_ack(const struct sk_buff *skb)
{
	u32 offset = skb_network_offset(skb);
	struct tcphdr head, *tcp;

	if (skb->len > EQDS_UNNUMBERED_MAX)
		return false;
	if (skb->protocol == htons(ETH_P_IPV6)) {
		if (ipv6_hdr(skb)->nexthdr != IPPROTO_TCP)
			return false;
		offset += sizeof(struct ipv6hdr);
	} else if (skb->protocol == htons(ETH_P_IP)) {
		if (ip_hdr(skb)->protocol != IPPROTO_TCP || ip_is_fragment(ip_hdr(skb)))
			return false;
		offset += ip_hdrlen(skb);
	} else {
		return false;
	}
	tcp = skb_header_pointer(skb, offset, sizeof(head), &head);
	return tcp && skb->len == offset + tcp->doff * 4U &&
	       (tcp_flag_byte(tcp) & ~TCPHDR_ECE) == TCPHDR_ACK;
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
		tx = eqds_life_tx_get(ed, peer, kind, work);
	skb_list_walk_safe(list, skb, next) {
		const u16 segments = whole ? eqds_whole_segments(skb) : 1;
		const u32 skb_bytes = skb->len;
		struct eqds_node *node = NULL;

		skb_mark_not_on_list(skb);
		if (tx && kind == EQDS_CLASS_TCP && xmit_is_pure_ack(skb) &&
		    eqds_send_unnumbered(ed, tx, now_ns, skb, xmit_next_proto(skb), work)) {
			bytes += skb_bytes;
			++*packets;
			continue;
		}
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
			bytes += skb_bytes;
			*packets += segments;
			continue;
		}
		++*why;
		DEV_STATS_INC(ed->dev, tx_dropped);
		if (node)
			eqds_node_put(ed, node);
		__skb_queue_tail(&work->free, skb);
	}
	eqds_send_ready(ed, now_ns, work);
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
	tx = ed->up && !ed->tag_bytes ? eqds_table_tx(ed, peer, kind) : NULL;
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
