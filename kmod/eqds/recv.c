// SPDX-License-Identifier: GPL-2.0
/*
 * The receiving edge: control packets give credit to senders, data packets are acknowledged, put
 * in order and delivered.
 *
 *   eqds_recv --> backlog --> eqds_recv_poll: a batch under one lock
 *                               header -> control: eqds_sender_receive
 *                                      -> data:    eqds_receiver_receive -> eqds_reply
 *                               eqds_xmit_ready, eqds_pull_run, eqds_reply_flush
 *   GRO <- eqds_recv_deliver <- in order
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
#include "eqds/device.h"
#include "eqds/trace.h"

/* ---- delivery ---- */

/*
 * Copies an outer CE mark to an ECN-capable inner packet (RFC 6040); for others the core alone
 * answers it (rate.h). False if the header can't be written.
 */
static bool recv_ecn(struct sk_buff *skb, u8 outer_tos, bool v6)
{
	const u8 inner_tos = v6 ? ipv6_get_dsfield(ipv6_hdr(skb)) : ip_hdr(skb)->tos;

	if (!INET_ECN_is_ce(outer_tos) || INET_ECN_is_not_ect(inner_tos))
		return true;
	/* The sender's copy may share the header, if both are of one kernel. */
	return !skb_ensure_writable(skb, v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) &&
	       INET_ECN_set_ce(skb);
}

/* A program's packet. */
static void recv_native(struct eqds_dev *ed, struct sk_buff *skb)
{
	const u32 bytes = skb->len;
	const u32 tag_bytes = EQDS_CB(skb)->tagged ? EQDS_TAG_BYTES : 0;
	const bool good = eqds_native_deliver(ed, skb, sizeof(struct udphdr) + EQDS_DATA_BYTES +
							       tag_bytes);

	spin_lock_bh(&ed->lock);
	if (good)
		ed->stats.rx_native++;
	else
		ed->stats.rx_drop_native++;
	spin_unlock_bh(&ed->lock);
	if (good)
		dev_sw_netstats_rx_add(ed->dev, bytes);
	consume_skb(skb);
}

/* A packet of the RDMA class, without outer headers, for a device that stands on the link. */
static void recv_rdma(struct eqds_dev *ed, struct sk_buff *skb, const struct in6_addr *peer)
{
	const u32 bytes = skb->len;
	const bool good = eqds_rdma_receive(ed, skb, peer);

	spin_lock_bh(&ed->lock);
	if (good)
		ed->stats.rx_rdma++;
	else
		ed->stats.rx_drop_rdma++;
	spin_unlock_bh(&ed->lock);
	if (!good) {
		kfree_skb(skb);
		return;
	}
	dev_sw_netstats_rx_add(ed->dev, bytes);
	netif_rx(skb);
}

/*
 * Strip the outer headers of a datagram whose turn it is, and hand it to the stack. A bad payload
 * is dropped here and not on arrival: the tunnel has to acknowledge it, or it would come again.
 */
void eqds_recv_deliver(struct eqds_dev *ed, struct sk_buff *skb, bool polling)
{
	const struct eqds_cb cb = *EQDS_CB(skb);
	const bool v6 = cb.next_proto == EQDS_PROTO_IPV6;
	const __be16 protocol = htons(v6 ? ETH_P_IPV6 : ETH_P_IP);
	const u32 head_bytes =
		sizeof(struct udphdr) + EQDS_DATA_BYTES + (cb.tagged ? EQDS_TAG_BYTES : 0);
	struct net_device *dev = ed->dev;
	u32 bytes;

	if (cb.next_proto == EQDS_PROTO_NATIVE) {
		recv_native(ed, skb);
		return;
	}
	if ((!v6 && cb.next_proto != EQDS_PROTO_IPV4) ||
	    iptunnel_pull_header(skb, head_bytes, protocol, eqds_is_away(ed)))
		goto bad;
	skb->dev = dev;
	skb_reset_network_header(skb);
	if (!pskb_inet_may_pull(skb) || ip_hdr(skb)->version != (v6 ? 6 : 4))
		goto bad;
	if (!recv_ecn(skb, cb.tos, v6))
		goto bad;
	if (cb.rdma) {
		recv_rdma(ed, skb, &cb.peer);
		return;
	}
	skb_reset_mac_header(skb);
	bytes = skb->len;
	dev_sw_netstats_rx_add(dev, bytes);
	/* GRO takes fragments out of a packet. A capture's clone must not have the same. */
	if (polling && !skb_unclone(skb, GFP_ATOMIC | __GFP_NOWARN))
		napi_gro_receive(&ed->napi, skb);
	else
		netif_rx(skb);
	return;

bad:
	DEV_STATS_INC(dev, rx_errors);
	kfree_skb(skb);
}

static void recv_chain(struct eqds_dev *ed, struct eqds_rx *rx, struct eqds_packet *packet,
		       struct sk_buff_head *to)
{
	while (packet) {
		struct eqds_node *node = container_of(packet, struct eqds_node, core);

		packet = packet->next;
		rx->held_bytes -= node->held_bytes;
		__skb_queue_tail(to, eqds_node_put(ed, node));
	}
}

/* Do what the core says after an event of a receiver; frees rx if the core has closed it. */
void eqds_recv_settle(struct eqds_dev *ed, struct eqds_rx *rx, const struct eqds_out *out,
		      struct eqds_work *work)
{
	lockdep_assert_held(&ed->lock);
	recv_chain(ed, rx, out->deliver, &work->deliver);
	recv_chain(ed, rx, out->free, &work->free);
	if (out->send)
		eqds_reply(ed, rx, &out->head, work);
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

static void recv_control(struct eqds_dev *ed, u64 now_ns, const struct in6_addr *peer,
			 const struct eqds_head *head, struct eqds_work *work)
{
	struct eqds_tx *tx = eqds_tunnel_tx(ed, peer, head->sender);
	struct eqds_out out;

	lockdep_assert_held(&ed->lock);
	ed->stats.rx_control++;
	if (!tx) {
		ed->stats.sender[EQDS_NO_TUNNEL]++;
		return;
	}
	eqds_sender_receive(&tx->core, now_ns, head, &out);
	eqds_xmit_settle(ed, tx, &out, work);
}

/* The tunnel of a data packet. NULL: it has none and gets none; the peer is told why. */
static struct eqds_rx *recv_tunnel(struct eqds_dev *ed, const struct eqds_cb *cb,
				   const struct eqds_head *head, struct eqds_work *work)
{
	struct eqds_rx *rx = eqds_tunnel_rx(ed, cb, head->sender);
	const struct in6_addr *peer = &cb->peer;
	struct eqds_out out;
	u64 cookie;

	lockdep_assert_held(&ed->lock);
	/* To end the tunnel that is there, a peer has to show that it isn't somebody else. */
	if (rx && !eqds_receiver_restarts(&rx->core, head))
		return rx;
	/* No answer: an outsider learns nothing, and nobody can make this machine send. */
	if (READ_ONCE(ed->rules[EQDS_RULE_ALLOW].count) &&
	    !eqds_rule_find(&ed->rules[EQDS_RULE_ALLOW], peer)) {
		ed->stats.rx_drop_stranger++;
		return NULL;
	}
	cookie = eqds_key_cookie(ed, peer, head->cookie);
	if (eqds_receiver_admit(head, cookie, &out)) {
		if (rx) {
			eqds_key_cookie_used(ed, peer);
			rx->core.cookie = eqds_key_cookie(ed, peer, 0);
			return rx;
		}
		rx = eqds_tunnel_rx_new(ed, cb, head->sender, cookie, work);
		if (!rx)
			ed->stats.rx_drop_memory++;
		return rx;
	}
	ed->stats.rx_refused++;
	if (head->claims && head->cookie != eqds_cookie_claim(peer, sizeof(*peer))) {
		ed->stats.rx_translated++;
		eqds_xmit_translated(ed, cb, &out.head, work);
		out.send = cb->sport == htons(EQDS_PORT);
	}
	if (out.send)
		eqds_xmit_head(ed, peer, &cb->local, &out.head, work);
	return NULL;
}

/* Without an answer, a packet that finds no memory would pass for one that can't arrive. */
static void recv_refuse(struct eqds_head *head)
{
	head->no_room = true;
	head->more = 0;
}

/*
 * node: NULL, or what holds the payload. Returns whether the core has taken it: a packet that would
 * only wait for others, while the device holds as many as it may, is refused, so that its sender
 * sends it again.
 */
static bool recv_data(struct eqds_dev *ed, u64 now_ns, const struct eqds_cb *cb,
		      struct eqds_head *head, u32 bytes, struct eqds_node *node,
		      struct eqds_work *work)
{
	struct eqds_rx *rx = recv_tunnel(ed, cb, head, work);
	struct eqds_out out;

	lockdep_assert_held(&ed->lock);
	if (!rx)
		return false;
	if (node && head->seq != rx->core.expected &&
	    !eqds_memory_may_hold(ed, rx, node->held_bytes)) {
		ed->stats.rx_drop_held++;
		recv_refuse(head);
		node = NULL;
	}
	if (node)
		rx->held_bytes += node->held_bytes;
	ed->stats.rx_packets += head->more + 1;
	ed->stats.rx_trains += head->more != 0;
	eqds_receiver_receive(&rx->core, now_ns, head, bytes, node ? &node->core : NULL, &out);
	eqds_recv_settle(ed, rx, &out, work);
	return node;
}

/* Reads the outer headers. bytes: of the UDP payload. Returns false if they are no tunnel's. */
static bool recv_parse(struct sk_buff *skb, struct in6_addr *peer, u32 *bytes,
		       struct eqds_head *head)
{
	u8 tos;

	*bytes = skb->len - sizeof(struct udphdr);
	/* Both kinds of headers have the same length. */
	if (!pskb_may_pull(skb, sizeof(struct udphdr) + EQDS_CONTROL_BYTES) ||
	    eqds_wire_parse(&eqds_profile_extended, skb->data + sizeof(struct udphdr), *bytes,
			    head) != EQDS_WIRE_GOOD)
		return false;
	if (skb->protocol == htons(ETH_P_IPV6)) {
		*peer = ipv6_hdr(skb)->saddr;
		EQDS_CB(skb)->local = ipv6_hdr(skb)->daddr;
		tos = ipv6_get_dsfield(ipv6_hdr(skb));
		/* A mapped address outside would pass for the IPv4 peer of that name. */
		if (ipv6_addr_v4mapped(peer))
			return false;
	} else {
		ipv6_addr_set_v4mapped(ip_hdr(skb)->saddr, peer);
		ipv6_addr_set_v4mapped(ip_hdr(skb)->daddr, &EQDS_CB(skb)->local);
		tos = ip_hdr(skb)->tos;
	}
	head->ce = INET_ECN_is_ce(tos);
	EQDS_CB(skb)->peer = *peer;
	EQDS_CB(skb)->sport = ((const struct udphdr *)skb->data)->source;
	EQDS_CB(skb)->tos = tos;
	EQDS_CB(skb)->next_proto = head->next_proto;
	EQDS_CB(skb)->tagged = head->tagged;
	EQDS_CB(skb)->rdma = head->sender == EQDS_CLASS_RDMA;
	return true;
}

/* Returns whether the core has taken the datagram. */
static bool recv_datagram(struct eqds_dev *ed, u64 now_ns, struct sk_buff *skb,
			  struct eqds_work *work)
{
	struct eqds_node *node = NULL;
	struct eqds_head head;
	struct in6_addr peer;
	bool train;
	u32 bytes;

	lockdep_assert_held(&ed->lock);
	if (!recv_parse(skb, &peer, &bytes, &head)) {
		ed->stats.rx_drop_wire++;
		return false;
	}
	trace_eqds_receive(ed, &peer, &head);
	/* Verified before the key came or went. */
	if (head.tagged != !!ed->tag_bytes) {
		if (head.tagged)
			ed->stats.rx_drop_tagged++;
		else
			ed->stats.rx_drop_untagged++;
		return false;
	}
	train = skb_is_gso(skb) && (ed->trains || head.counted);
	/* Of a train, the first packet is the longest. */
	if ((train ? head.bytes : bytes + EQDS_OUTER_BYTES) > ed->config.mtu_bytes) {
		ed->stats.rx_drop_size++;
		return false;
	}
	if ((train && !eqds_train_count(skb, bytes, &head)) ||
	    (head.counted && !eqds_whole_count(skb, bytes, &head))) {
		ed->stats.rx_drop_wire++;
		return false;
	}
	if (head.counted)
		ed->stats.rx_counted += head.more + 1;
	if (head.control) {
		recv_control(ed, now_ns, &peer, &head, work);
		return false;
	}
	/* An address has a tunnel for each class, and so no larger share of credit than others. */
	if (head.sender >= EQDS_CLASSES) {
		ed->stats.rx_drop_class++;
		return false;
	}
	if (!(head.flags & (EQDS_EMPTY | EQDS_TRIM))) {
		node = eqds_node_get(ed, EQDS_POOL_RX, skb, 1);
		if (!node) {
			ed->stats.rx_drop_memory++;
			recv_refuse(&head);
		}
	}
	if (recv_data(ed, now_ns, EQDS_CB(skb), &head, bytes, node, work))
		return true;
	if (node)
		eqds_node_put(ed, node);
	return false;
}

/* A datagram for the tunnels' port. RCU; returns 0 since it is consumed in any case. */
int eqds_recv(struct sock *sk, struct sk_buff *skb)
{
	struct eqds_dev *ed = rcu_dereference_sk_user_data(sk);
	const u32 most = skb_is_gso(skb) ? EQDS_BACKLOG_TRAINS_MAX : EQDS_BACKLOG_MAX;

	if (!ed || skb->pkt_type != PACKET_HOST || !eqds_key_verify(ed, skb))
		goto drop;
	if (skb_queue_len_lockless(&ed->backlog) >= most) {
		spin_lock_bh(&ed->lock);
		ed->stats.rx_drop_backlog++;
		spin_unlock_bh(&ed->lock);
		goto drop;
	}
	/* A packet may wait in the reorder queue, so it keeps neither its route nor a socket. */
	skb_orphan(skb);
	skb_dst_drop(skb);
	spin_lock(&ed->backlog.lock);
	__skb_queue_tail(&ed->backlog, skb);
	spin_unlock(&ed->backlog.lock);
	napi_schedule(&ed->napi);
	return 0;

drop:
	kfree_skb(skb);
	return 0;
}

/*
 * Moves at most count datagrams from the backlog, whose lock no interrupt takes. The caller holds
 * ed->lock until they are handled: tunnels of a new key must not get what an old one verified.
 */
static int recv_take(struct eqds_dev *ed, int count, struct sk_buff_head *to)
{
	struct sk_buff *skb;
	int taken = 0;

	spin_lock(&ed->backlog.lock);
	for (; taken < count && (skb = __skb_dequeue(&ed->backlog)); taken++)
		__skb_queue_tail(to, skb);
	spin_unlock(&ed->backlog.lock);
	return taken;
}

int eqds_recv_poll(struct napi_struct *napi, int budget)
{
	struct eqds_dev *ed = container_of(napi, struct eqds_dev, napi);
	struct sk_buff_head batch;
	struct sk_buff *skb;
	struct eqds_work work;
	u64 now_ns;
	int done;

	__skb_queue_head_init(&batch);
	eqds_work_init(&work);
	work.polling = true;
	spin_lock_bh(&ed->lock);
	done = recv_take(ed, budget, &batch);
	now_ns = ktime_get_ns();
	trace_eqds_turn(ed, EQDS_TURN_POLL, now_ns);
	while ((skb = __skb_dequeue(&batch))) {
		if (!ed->up || !recv_datagram(ed, now_ns, skb, &work))
			__skb_queue_tail(&work.free, skb);
	}
	ed->stats.rx_polls++;
	if (ed->up) {
		eqds_xmit_ready(ed, now_ns, &work);
		eqds_pull_run(ed, now_ns, &work);
	}
	eqds_reply_flush(ed, &work);
	eqds_tunnel_postpone(ed, now_ns);
	spin_unlock_bh(&ed->lock);
	eqds_work_run(ed, &work);
	if (done < budget && napi_complete_done(napi, done) && !skb_queue_empty(&ed->backlog))
		napi_schedule(napi);
	return done;
}
