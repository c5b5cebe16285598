// SPDX-License-Identifier: GPL-2.0
/*
 * The receiving edge: control packets give credit to senders, data packets are acknowledged, put
 * in order and delivered.
 *
 *   eqds_recv --> backlog --> eqds_recv_poll: a batch under one lock
 *                               header -> control: eqds_sender_receive
 *                                      -> data:    eqds_receiver_receive -> eqds_reply
 *                               eqds_send_ready, eqds_pull_run, eqds_reply_flush
 *   GRO <- eqds_deliver <- in order
 *
 * The checksum was verified by the stack, which calls eqds_recv() after it.
 */
#include "eqds/recv.h"

#include <net/inet_ecn.h>
#include <net/ipv6.h>
#include <net/udp.h>

#include "eqds/head.h"
#include "eqds/key.h"
#include "eqds/life.h"
#include "eqds/memory.h"
#include "eqds/pull.h"
#include "eqds/reply.h"
#include "eqds/rule.h"
#include "eqds/send.h"
#include "eqds/settle.h"
#include "eqds/table.h"
#include "eqds/trace.h"
#include "eqds/train.h"
#include "eqds/whole.h"
#include "eqds/work.h"

static void recv_control(struct eqds_dev *ed, u64 now_ns, const struct in6_addr *peer,
			 const struct eqds_head *head, struct eqds_work *work)
{
	struct eqds_tx *tx = eqds_table_tx(ed, peer, head->sender);
	struct eqds_out out;

	lockdep_assert_held(&ed->lock);
	ed->stats.rx_control++;
	if (!tx) {
		ed->stats.sender[EQDS_NO_TUNNEL]++;
		return;
	}
	eqds_sender_receive(&tx->core, now_ns, head, &out);
	eqds_settle_tx(ed, tx, &out, work);
}

/* The tunnel of a data packet. NULL: it has none and gets none; the peer is told why. */
static struct eqds_rx *recv_tunnel(struct eqds_dev *ed, const struct eqds_cb *cb,
				   const struct eqds_head *head, struct eqds_work *work)
{
	struct eqds_rx *rx = eqds_table_rx(ed, cb, head->sender);
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
		rx = eqds_life_rx_new(ed, cb, head->sender, cookie, work);
		if (!rx)
			ed->stats.rx_drop_memory++;
		return rx;
	}
	ed->stats.rx_refused++;
	if (head->claims && head->cookie != eqds_cookie_claim(peer, sizeof(*peer))) {
		ed->stats.rx_translated++;
		eqds_head_send_translated(ed, cb, &out.head, work);
		out.send = cb->sport == htons(EQDS_PORT);
	}
	if (out.send)
		eqds_head_send(ed, peer, &cb->local, &out.head, work);
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
	if (node && !head->unnumbered && head->seq != rx->core.expected &&
	    !eqds_memory_may_hold(ed, rx, node->held_bytes)) {
		ed->stats.rx_drop_held++;
		recv_refuse(head);
		node = NULL;
	}
	if (node)
		rx->held_bytes += node->held_bytes;
	ed->stats.rx_packets += head->more + 1;
	ed->stats.rx_trains += head->more != 0;
	ed->stats.rx_unnumbered += head->unnumbered;
	eqds_receiver_receive(&rx->core, now_ns, head, bytes, node ? &node->core : NULL, &out);
	eqds_settle_rx(ed, rx, &out, work);
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

/* Is the socket a tunnel's, of any device? */
bool eqds_recv_is_tunnel_socket(const struct sock *sk)
{
	return sk && sk_fullsock(sk) && sk->sk_protocol == IPPROTO_UDP &&
	       READ_ONCE(udp_sk(sk)->encap_rcv) == eqds_recv;
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
		eqds_send_ready(ed, now_ns, &work);
		eqds_pull_run(ed, now_ns, &work);
	}
	eqds_reply_flush(ed, &work);
	eqds_table_postpone(ed, now_ns);
	spin_unlock_bh(&ed->lock);
	eqds_work_run(ed, &work);
	if (done < budget && napi_complete_done(napi, done) && !skb_queue_empty(&ed->backlog))
		napi_schedule(napi);
	return done;
}
