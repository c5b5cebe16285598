// SPDX-License-Identifier: GPL-2.0
/*
 * The receiving edge: control packets give credit to senders, data packets are acknowledged, put
 * in order and delivered.
 *
 *   eqds_recv -> header -> control: eqds_sender_receive -> eqds_xmit_ready
 *                       -> data:    eqds_receiver_receive -> ACK, eqds_pull_run
 *                                          |
 *   gro_cells <- eqds_recv_deliver <- in order
 *
 * The checksum was verified by the stack, which calls eqds_recv() after it.
 */
#include <linux/if_ether.h>
#include <linux/slab.h>
#include <net/inet_ecn.h>
#include <net/ip_tunnels.h>
#include <net/ipv6.h>
#include <net/udp.h>

#include "compat/compat.h"
#include "eqds/eqds.h"
#include "eqds/trace.h"

/*
 * Strip the outer headers of a datagram whose turn it is, and hand it to the stack. A bad payload
 * is dropped here and not on arrival: the tunnel has to acknowledge it, or it would come again.
 */
void eqds_recv_deliver(struct eqds_dev *ed, struct sk_buff *skb)
{
	const struct eqds_cb cb = *EQDS_CB(skb);
	struct iphdr outer = { .tos = cb.tos };
	struct net_device *dev = ed->dev;
	u32 bytes;

	if (cb.next_proto != EQDS_PROTO_IPV4 ||
	    iptunnel_pull_header(skb, sizeof(struct udphdr) + EQDS_DATA_BYTES, htons(ETH_P_IP),
				 false))
		goto bad;
	skb->dev = dev;
	skb_reset_mac_header(skb);
	skb_reset_network_header(skb);
	if (!pskb_inet_may_pull(skb) || ip_hdr(skb)->version != 4)
		goto bad;
	if (IP_ECN_decapsulate(&outer, skb) > 1) {
		DEV_STATS_INC(dev, rx_frame_errors);
		goto bad;
	}
	bytes = skb->len;
	if (gro_cells_receive(&ed->gro, skb) == NET_RX_SUCCESS)
		dev_sw_netstats_rx_add(dev, bytes);
	return;

bad:
	DEV_STATS_INC(dev, rx_errors);
	kfree_skb(skb);
}

static void recv_chain(struct eqds_packet *packet, struct sk_buff_head *to)
{
	while (packet) {
		struct eqds_node *node = container_of(packet, struct eqds_node, core);

		packet = packet->next;
		__skb_queue_tail(to, node->skb);
		kmem_cache_free(eqds_node_cache, node);
	}
}

/* Do what the core says after an event of a receiver; frees rx if the core has closed it. Lock. */
void eqds_recv_settle(struct eqds_dev *ed, struct eqds_rx *rx, const struct eqds_out *out,
		      struct eqds_work *work)
{
	recv_chain(out->deliver, &work->deliver);
	recv_chain(out->free, &work->free);
	if (out->send)
		eqds_xmit_head(ed, &rx->tunnel.peer, &out->head, work);
	ed->stats.receiver[out->verdict]++;
	trace_eqds_outcome(ed, &rx->tunnel, out->verdict);
	if (rx->core.held > ed->stats.rx_held_max)
		ed->stats.rx_held_max = rx->core.held;
	/* Without an epoch it was never established, for its first packet was refused. */
	if (!rx->core.established)
		eqds_tunnel_rx_free(ed, rx);
	else
		eqds_tunnel_due(ed, &rx->tunnel, eqds_receiver_deadline_ns(&rx->core));
}

/* Lock. */
static void recv_control(struct eqds_dev *ed, const struct in6_addr *peer,
			 const struct eqds_head *head, struct eqds_work *work)
{
	struct eqds_tx *tx = eqds_tunnel_tx(ed, peer);
	const u64 now_ns = ktime_get_ns();
	struct eqds_out out;

	ed->stats.rx_control++;
	if (!tx || tx->core.id != head->sender) {
		ed->stats.sender[EQDS_NO_TUNNEL]++;
		return;
	}
	tx->heard_ns = now_ns;
	eqds_sender_receive(&tx->core, now_ns, head, &out);
	eqds_xmit_settle(ed, tx, &out, work);
	eqds_xmit_ready(ed, now_ns, work);
}

/* The tunnel of a data packet. NULL: it has none and gets none; the peer is told why. Lock. */
static struct eqds_rx *recv_tunnel(struct eqds_dev *ed, const struct in6_addr *peer,
				   const struct eqds_head *head, struct eqds_work *work)
{
	struct eqds_rx *rx = eqds_tunnel_rx(ed, peer, head->sender);
	struct eqds_out out;
	u64 cookie;

	if (rx)
		return rx;
	cookie = eqds_cookie(&ed->cookie_key, peer, sizeof(*peer));
	if (eqds_receiver_admit(head, cookie, ed->rx.count >= EQDS_TUNNELS_MAX, &out)) {
		rx = eqds_tunnel_rx_new(ed, peer, head->sender, cookie, work);
		if (!rx)
			ed->stats.rx_drop_memory++;
		return rx;
	}
	if (out.send)
		eqds_xmit_head(ed, peer, &out.head, work);
	ed->stats.rx_refused++;
	return NULL;
}

/* node: NULL, or what holds the payload. Returns whether the core has taken it. Lock. */
static bool recv_data(struct eqds_dev *ed, const struct in6_addr *peer,
		      const struct eqds_head *head, u32 bytes, struct eqds_node *node,
		      struct eqds_work *work)
{
	struct eqds_rx *rx = recv_tunnel(ed, peer, head, work);
	const u64 now_ns = ktime_get_ns();
	struct eqds_out out;

	if (!rx)
		return false;
	ed->stats.rx_packets++;
	eqds_receiver_receive(&rx->core, now_ns, head, bytes, node ? &node->core : NULL, &out);
	eqds_recv_settle(ed, rx, &out, work);
	eqds_pull_run(ed, now_ns, work);
	return true;
}

/* May it be held: a node for its payload. NULL: it has none, or there is no memory. */
static struct eqds_node *recv_hold(struct sk_buff *skb, const struct eqds_head *head)
{
	struct eqds_node *node;

	if (head->control || head->flags & (EQDS_EMPTY | EQDS_TRIM))
		return NULL;
	node = kmem_cache_alloc(eqds_node_cache, GFP_ATOMIC | __GFP_NOWARN);
	if (!node)
		return NULL;
	/* A packet may wait in the reorder queue, so it keeps neither its route nor a socket. */
	skb_orphan(skb);
	skb_dst_drop(skb);
	EQDS_CB(skb)->tos = ip_hdr(skb)->tos;
	EQDS_CB(skb)->next_proto = head->next_proto;
	node->skb = skb;
	return node;
}

/* RCU; returns 0 since the packet is consumed in any case. */
int eqds_recv(struct sock *sk, struct sk_buff *skb)
{
	struct eqds_dev *ed = rcu_dereference_sk_user_data(sk);
	struct eqds_node *node = NULL;
	struct eqds_head head;
	struct in6_addr peer;
	struct eqds_work work;
	bool good, taken = false;
	u32 bytes;

	if (!ed || skb->pkt_type != PACKET_HOST) {
		kfree_skb(skb);
		return 0;
	}
	eqds_work_init(&work);
	bytes = skb->len - sizeof(struct udphdr);
	/* Both kinds of headers have the same length. */
	good = pskb_may_pull(skb, sizeof(struct udphdr) + EQDS_CONTROL_BYTES) &&
	       eqds_wire_parse(&eqds_profile_extended, skb->data + sizeof(struct udphdr), bytes,
			       &head) == EQDS_WIRE_GOOD;
	if (good) {
		ipv6_addr_set_v4mapped(ip_hdr(skb)->saddr, &peer);
		head.ce = INET_ECN_is_ce(ip_hdr(skb)->tos);
		trace_eqds_receive(ed, &peer, &head);
		node = recv_hold(skb, &head);
	}

	spin_lock_bh(&ed->lock);
	if (!ed->up || !good)
		ed->stats.rx_drop_wire++;
	else if (bytes + EQDS_OUTER_BYTES > ed->config.mtu_bytes)
		ed->stats.rx_drop_size++;
	else if (head.control)
		recv_control(ed, &peer, &head, &work);
	else if (!node && !(head.flags & (EQDS_EMPTY | EQDS_TRIM)))
		ed->stats.rx_drop_memory++;
	else
		taken = recv_data(ed, &peer, &head, bytes, node, &work) && node;
	spin_unlock_bh(&ed->lock);

	if (!taken) {
		if (node)
			kmem_cache_free(eqds_node_cache, node);
		if (good)
			consume_skb(skb);
		else
			kfree_skb(skb);
	}
	eqds_work_run(ed, &work);
	return 0;
}
