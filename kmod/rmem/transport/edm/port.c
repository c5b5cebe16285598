// SPDX-License-Identifier: GPL-2.0
/*
 * rmem_node_edm.ko: the node's half of the transport by EDM. Requests that ask for much data come
 * by the scheduler; they are executed as if they had come by UDP, and the answers are UDP's. A gate
 * holds these until they are granted (udp/port.h).
 *
 *   port_request():  prefix off --> rmem_udp_request() --> port_hold(): a packet of the answer each
 *                    edm_member_answer(): the answer's packets are there
 *   port_granted():  packets whose last byte is granted leave
 *
 * All other requests, and all their answers, take UDP's way.
 */
#include <linux/ip.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/udp.h>
#include <net/dsfield.h>
#include <net/dst.h>
#include <net/inet_ecn.h>
#include <net/ipv6.h>

#include "edm_ops.h"
#include "rmem/transport/udp/port.h"

/*
 * Bound on all answers together, with the packets' memory. More are dropped: their clients ask
 * again.
 */
#define PORT_HELD_BYTES_MAX (32U << 20)

/* An answer to a peer's message of a slot. */
struct port_answer {
	struct sk_buff_head packets;
	u32 id;
	u32 announced_bytes, held_bytes; /* held: of all packets that came, on the link */
};

/* Guards the answers, their bytes and their member. No other lock is taken under it. */
static DEFINE_SPINLOCK(port_lock);
static struct port_answer *port_answers; /* [ports][slots] */
static u32 port_held_bytes;
static struct edm_membership *port_member; /* of the answers; NULL: there are none */

/* A flow names an answer, and is never 0. */
static u64 port_flow(u16 peer, u32 id)
{
	return BIT_ULL(48) | (u64)peer << 32 | id;
}

static struct port_answer *port_answer(u16 peer, u32 id)
{
	return &port_answers[peer * EDM_MEMBER_SLOTS + id % EDM_MEMBER_SLOTS];
}

/* A packet's end in its answer, in its cb while it is held. */
static u32 *port_end_of(struct sk_buff *skb)
{
	return (u32 *)skb->cb;
}

static struct sk_buff *port_take(struct port_answer *answer)
{
	struct sk_buff *skb = __skb_dequeue(&answer->packets);

	if (skb)
		port_held_bytes -= skb->truesize;
	return skb;
}

static void port_drop(struct port_answer *answer)
{
	struct sk_buff *skb;

	while ((skb = port_take(answer)))
		kfree_skb(skb);
}

static void port_leave(struct sk_buff *skb)
{
	memset(skb->cb, 0, sizeof(skb->cb));
	rmem_udp_out(dev_net(skb_dst(skb)->dev), NULL, skb);
}

/* ---- answers ---- */

/* Granted packets go first. Each has its IP header, whose checksum is made when it leaves. */
static void port_mark(struct sk_buff *skb)
{
	skb->priority = EDM_PRIORITY;
	if (ip_hdr(skb)->version == 4)
		ip_hdr(skb)->tos = EDM_TOS;
	else
		ipv6_change_dsfield(ipv6_hdr(skb), INET_ECN_MASK, EDM_TOS);
}

static void port_hold(u64 flow, struct sk_buff *skb)
{
	struct port_answer *answer = port_answer(flow >> 32, flow);

	if (!skb_dst_force(skb)) {
		kfree_skb(skb);
		return;
	}
	spin_lock(&port_lock);
	if (port_member && answer->id == (u32)flow &&
	    port_held_bytes + skb->truesize <= PORT_HELD_BYTES_MAX) {
		answer->held_bytes += skb->len + EDM_FRAME_BYTES;
		*port_end_of(skb) = answer->held_bytes;
		port_held_bytes += skb->truesize;
		__skb_queue_tail(&answer->packets, skb);
	} else {
		kfree_skb(skb);
	}
	spin_unlock(&port_lock);
}

static void port_granted(struct edm_membership *member, u16 peer, u32 id, u32 end,
			 bool unscheduled)
{
	struct port_answer *answer = port_answer(peer, id);
	struct sk_buff_head leave;
	struct sk_buff *skb;

	__skb_queue_head_init(&leave);
	spin_lock(&port_lock);
	/* The client might have announced less than the answer takes. */
	while (member == port_member && answer->id == id && (skb = skb_peek(&answer->packets)) &&
	       (*port_end_of(skb) <= end || end == answer->announced_bytes)) {
		port_take(answer);
		__skb_queue_tail(&leave, skb);
	}
	spin_unlock(&port_lock);
	while ((skb = __skb_dequeue(&leave))) {
		if (likely(!unscheduled))
			port_mark(skb);
		port_leave(skb);
	}
}

static void port_drop_all(void)
{
	u32 n;

	lockdep_assert_held(&port_lock);
	for (n = 0; n < EDM_PORTS_MAX * EDM_MEMBER_SLOTS; n++)
		port_drop(&port_answers[n]);
	port_member = NULL;
}

static void port_close(void)
{
	spin_lock_bh(&port_lock);
	port_drop_all();
	spin_unlock_bh(&port_lock);
}

static void port_gone(struct edm_membership *member)
{
	spin_lock(&port_lock);
	if (member == port_member)
		port_drop_all();
	spin_unlock(&port_lock);
}

static const struct udp_port_gate port_gate = {
	.hold = port_hold,
	.close = port_close,
};

/* ---- requests ---- */

/* Puts the UDP header before the datagram, as the port has it. False: no memory, or it is short. */
static bool port_strip(struct sk_buff *skb, struct rmem_edm_prefix *prefix)
{
	struct udphdr udp = *udp_hdr(skb);

	if (skb->len <= sizeof(*prefix) || skb_ensure_writable(skb, sizeof(*prefix)))
		return false;
	memcpy(prefix, skb->data, sizeof(*prefix));
	skb_pull(skb, sizeof(*prefix) - sizeof(udp));
	memcpy(skb->data, &udp, sizeof(udp));
	skb_reset_transport_header(skb);
	return true;
}

static void port_path(const struct rmem_edm_prefix *prefix, u64 flow, struct rmem_port_path *path)
{
	struct udp_way *way = (struct udp_way *)path->own;
	struct in6_addr client;

	memcpy(&client, prefix->client, sizeof(client));
	memset(path, 0, sizeof(*path));
	memcpy(path->peer.addr, &client, sizeof(path->peer.addr));
	path->peer.port = ntohs(prefix->port);
	memcpy(&way->local, prefix->node, sizeof(way->local));
	way->ipv4 = ipv6_addr_v4mapped(&client) && ipv6_addr_v4mapped(&way->local);
	way->flow = flow;
}

/* The membership is that of the node's namespace, so there is one at a time. */
static void port_begin(struct edm_membership *member, u16 peer, u32 id, u32 bytes)
{
	struct port_answer *answer = port_answer(peer, id);

	spin_lock(&port_lock);
	if (unlikely(member != port_member))
		port_drop_all();
	port_member = member;
	port_drop(answer);
	answer->id = id;
	answer->announced_bytes = bytes;
	answer->held_bytes = 0;
	spin_unlock(&port_lock);
}

static void port_request(struct edm_membership *member, u16 peer, u32 id, u32 bytes,
			 struct sk_buff *skb)
{
	struct rmem_edm_prefix prefix;
	struct rmem_port_path path;

	if (!rmem_udp_serves(dev_net(skb->dev)) || !port_strip(skb, &prefix)) {
		kfree_skb(skb);
		return;
	}
	port_begin(member, peer, id, bytes);
	port_path(&prefix, port_flow(peer, id), &path);
	rmem_udp_request(skb, &path);
	if (likely(edm_member_begin(member)))
		edm_member_answer(member, peer, id);
	else
		port_gone(member); /* the membership has ended, and will call nothing more */
	edm_member_end(member);
}

static const struct edm_node_ops port_ops = {
	.request = port_request,
	.granted = port_granted,
	.gone = port_gone,
};

/* ---- life ---- */

static int __init port_init(void)
{
	u32 n;
	int err;

	port_answers = kvcalloc(EDM_PORTS_MAX * EDM_MEMBER_SLOTS, sizeof(*port_answers),
				GFP_KERNEL);
	if (!port_answers)
		return -ENOMEM;
	for (n = 0; n < EDM_PORTS_MAX * EDM_MEMBER_SLOTS; n++)
		__skb_queue_head_init(&port_answers[n].packets);
	err = rmem_udp_gate_register(&port_gate);
	if (err)
		goto free;
	err = edm_node_register(&port_ops);
	if (!err)
		return 0;
	rmem_udp_gate_unregister();
free:
	kvfree(port_answers);
	return err;
}

static void __exit port_exit(void)
{
	edm_node_unregister();
	rmem_udp_gate_unregister();
	port_close();
	kvfree(port_answers);
}

module_init(port_init);
module_exit(port_exit);

MODULE_ALIAS("rmem-port-edm");
MODULE_DESCRIPTION("Remora remote memory: the node's answers by EDM");
MODULE_LICENSE("GPL");
MODULE_VERSION(REMORA_VERSION);
