// SPDX-License-Identifier: GPL-2.0
/*
 * The RDMA class: RoCEv2's packets of a device that stands on the link, soft-RoCE say. A map rule
 * captures them after routing (hook.c); they have a tunnel of their own to each peer.
 *
 *   queue pair -> hook -> [ queue, without credit ] -> tunnel -> eqds_rdma_receive -> the link's
 *       ^                    |                                                        RDMA device
 *       +--- pause, or CNP --+
 *
 * Pause: a packet stays charged to its queue pair while it waits, and soft-RoCE lets no queue pair
 * have more than 64 packets waiting. So the queue is bounded by its users, and none is dropped
 * below the class's own bound.
 *
 * CNP, if the operator wants them: above the class's thresholds the queue pair that sends a packet
 * is told to slow down by a packet that seems to come from the peer. A NIC that implements DCQCN
 * heeds it; soft-RoCE ignores it.
 */
#include "eqds/rdma.h"

#include <linux/etherdevice.h>
#include <linux/if_arp.h>
#include <linux/if_ether.h>
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/rtnetlink.h>
#include <net/ip.h>
#include <net/ipv6.h>

#include "eqds/ends.h"
#include "eqds/rule.h"

/* Offset of the base transport header; 0: it is another kind of packet. */
static u32 rdma_offset(const struct sk_buff *skb)
{
	const u32 network = skb_network_offset(skb);
	struct udphdr head, *udp;
	u32 offset;

	if (skb->protocol == htons(ETH_P_IPV6)) {
		if (ipv6_hdr(skb)->nexthdr != IPPROTO_UDP)
			return 0;
		offset = network + sizeof(struct ipv6hdr);
	} else if (skb->protocol == htons(ETH_P_IP)) {
		if (ip_hdr(skb)->protocol != IPPROTO_UDP || ip_is_fragment(ip_hdr(skb)))
			return 0;
		offset = network + ip_hdrlen(skb);
	} else {
		return 0;
	}
	udp = skb_header_pointer(skb, offset, sizeof(head), &head);
	if (!udp || udp->dest != htons(EQDS_ROCE_PORT))
		return 0;
	return offset + sizeof(*udp);
}

/* The caller has seen that the network's header is in the packet's head. */
bool eqds_rdma_is(const struct sk_buff *skb)
{
	return rdma_offset(skb);
}

/* Copies what is read of a packet, at most EQDS_ROCE_CM_BYTES; returns how many bytes. */
static u32 rdma_bth(const struct sk_buff *skb, u8 *bth)
{
	const u32 offset = rdma_offset(skb);
	u32 bytes;

	if (!offset || skb->len <= offset)
		return 0;
	bytes = min_t(u32, skb->len - offset, EQDS_ROCE_CM_BYTES);
	return skb_copy_bits(skb, offset, bth, bytes) ? 0 : bytes;
}

static void rdma_track(struct eqds_dev *ed, const struct sk_buff *skb, bool outgoing)
{
	struct eqds_roce *roce = rcu_dereference_bh(ed->roce);
	struct eqds_roce_ends ends;
	u8 bth[EQDS_ROCE_CM_BYTES];
	u32 bytes;

	if (!roce)
		return;
	bytes = rdma_bth(skb, bth);
	eqds_ends(skb, ends.from, ends.to);
	eqds_roce_track(roce, &ends, bth, bytes, outgoing);
}

/* A packet goes into its tunnel's queue. Lock, RCU. */
void eqds_rdma_sent(struct eqds_dev *ed, const struct sk_buff *skb)
{
	ed->stats.tx_rdma++;
	rdma_track(ed, skb, true);
}

/* A CNP for the queue pair at the other end of ends, as if it came by the link. RCU. */
static struct sk_buff *rdma_cnp(struct eqds_dev *ed, const struct eqds_roce_ends *sent, u32 qpn)
{
	struct net_device *link = dev_get_by_index_rcu(ed->net, ed->link);
	struct eqds_roce_ends ends;
	struct sk_buff *skb;

	if (!link)
		return NULL;
	skb = alloc_skb(NET_SKB_PAD + ETH_HLEN + EQDS_ROCE_CNP_MAX, GFP_ATOMIC | __GFP_NOWARN);
	if (!skb)
		return NULL;
	memcpy(ends.from, sent->to, sizeof(ends.from));
	memcpy(ends.to, sent->from, sizeof(ends.to));
	skb_reserve(skb, NET_SKB_PAD);
	skb_reset_mac_header(skb);
	skb->dev = link;
	if (link->type == ARPHRD_ETHER) {
		ether_addr_copy(eth_hdr(skb)->h_dest, link->dev_addr);
		ether_addr_copy(eth_hdr(skb)->h_source, link->dev_addr);
		skb_reserve(skb, ETH_HLEN);
	}
	skb_reset_network_header(skb);
	skb_put(skb, eqds_roce_cnp(skb->data, &ends, qpn));
	skb->protocol = ip_hdr(skb)->version == 4 ? htons(ETH_P_IP) : htons(ETH_P_IPV6);
	if (link->type == ARPHRD_ETHER)
		eth_hdr(skb)->h_proto = skb->protocol;
	return skb;
}

/* A packet's queue is long, and its sender ought to know. Lock, RCU. */
void eqds_rdma_congested(struct eqds_dev *ed, const struct sk_buff *skb, struct eqds_work *work)
{
	struct eqds_roce *roce = rcu_dereference_bh(ed->roce);
	struct eqds_roce_ends ends;
	u8 bth[EQDS_ROCE_CM_BYTES];
	struct sk_buff *cnp;
	u32 qpn;

	if (!roce)
		return;
	eqds_ends(skb, ends.from, ends.to);
	if (!eqds_roce_source(roce, &ends, bth, rdma_bth(skb, bth), &qpn)) {
		ed->stats.tx_cnp_unknown++;
		return;
	}
	cnp = rdma_cnp(ed, &ends, qpn);
	if (!cnp) {
		ed->stats.tx_drop_memory++;
		return;
	}
	ed->stats.tx_cnp++;
	__skb_queue_tail(&work->local, cnp);
}

/*
 * May a packet of the peer's enter by the link, past the rules about the eqds device? The operator
 * has allowed the peer, or has mapped the packet's source to it. RCU.
 */
static bool rdma_may_enter(struct eqds_dev *ed, const struct sk_buff *skb,
			   const struct in6_addr *peer)
{
	const struct eqds_rule *rule;
	struct in6_addr from, to;

	if (eqds_rule_find(&ed->rules[EQDS_RULE_ALLOW], peer))
		return true;
	eqds_ends(skb, from.s6_addr, to.s6_addr);
	rule = eqds_rule_find(&ed->rules[EQDS_RULE_MAP], &from);
	return rule && ipv6_addr_equal(&rule->peer, peer);
}

/*
 * Delivers a packet of the peer's RDMA tunnel, which begins with its IP header, as if it had
 * arrived on the link, since RDMA devices are bound to the link. Returns false if it isn't RDMA's,
 * or if no rule names the peer: rules about the eqds device don't hold for packets of this class.
 * RCU.
 */
bool eqds_rdma_receive(struct eqds_dev *ed, struct sk_buff *skb, const struct in6_addr *peer)
{
	struct net_device *link = dev_get_by_index_rcu(ed->net, ed->link);
	struct ethhdr eth;

	if (!link || eqds_is_away(ed) || !eqds_rdma_is(skb) || !rdma_may_enter(ed, skb, peer))
		return false;
	if (rcu_access_pointer(ed->roce)) {
		spin_lock_bh(&ed->lock);
		rdma_track(ed, skb, false);
		spin_unlock_bh(&ed->lock);
	}
	skb->dev = link;
	if (link->type != ARPHRD_ETHER) {
		skb_reset_mac_header(skb);
		return true;
	}
	/* The outer packet's, which lies before the headers that have been stripped. */
	if (!skb_mac_header_was_set(skb) || skb_network_offset(skb) ||
	    skb->data - skb_mac_header(skb) < ETH_HLEN)
		return false;
	memcpy(&eth, eth_hdr(skb), sizeof(eth));
	if (skb_cow_head(skb, ETH_HLEN))
		return false;
	eth.h_proto = skb->protocol;
	memcpy(skb_push(skb, ETH_HLEN), &eth, sizeof(eth));
	skb_reset_mac_header(skb);
	__skb_pull(skb, ETH_HLEN);
	return true;
}

/* RTNL. Connections that exist by then stay unknown. */
int eqds_rdma_set_cnp(struct eqds_dev *ed, bool on)
{
	struct eqds_roce *fresh = NULL, *old = rtnl_dereference(ed->roce);
	struct base_siphash_key key;

	if (on == !!old)
		return 0;
	if (on) {
		fresh = kvzalloc(sizeof(*fresh), GFP_KERNEL);
		if (!fresh)
			return -ENOMEM;
		get_random_bytes(&key, sizeof(key));
		eqds_roce_init(fresh, &key);
	}
	rcu_assign_pointer(ed->roce, fresh);
	spin_lock_bh(&ed->lock);
	ed->class[EQDS_CLASS_RDMA].cnp = on;
	spin_unlock_bh(&ed->lock);
	if (old) {
		synchronize_net();
		kvfree(old);
	}
	return 0;
}
