// SPDX-License-Identifier: GPL-2.0
/*
 * sch_trim.ko: `tc qdisc add dev p1 root trim`, the queue of a switch that trims.
 *
 *   EQDS header without payload ---------------> [ headers ] --first--+
 *   EQDS data --data queue full--> cut payload ------^                +--> wire
 *             --else------> [ data, 15 packets ] ---------------------+
 *   others    --------------------^ (dropped if it is full)
 *
 * The short data queue bounds the delay, and the header of a trimmed packet tells the receiver at
 * once what to have sent again, so nobody waits for a timeout. `tc -s qdisc` counts trimmed packets
 * as overlimits. Knows the extended profile over IPv4.
 *
 * Below a qdisc that shapes (tbf) it is the queue of a link with that rate.
 */
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/module.h>
#include <linux/udp.h>
#include <net/checksum.h>
#include <net/ip.h>
#include <net/pkt_sched.h>

#include "remora/eqds.h"

/* As in the paper: with pulls at the rate of the link, a longer queue adds delay alone. */
#define TRIM_DATA_PACKETS 15U
/* A window of 64 packets from each of some 100 senders at once. */
#define TRIM_HEADER_PACKETS 8192U

struct trim_sched {
	struct qdisc_skb_head data, headers;
};

enum trim_kind {
	TRIM_OTHER,
	TRIM_HEADER,
	TRIM_DATA,
};

/* bytes: up to the end of the tunnel's header and tag, from skb->data on. */
static enum trim_kind trim_classify(struct sk_buff *skb, u32 *bytes)
{
	u32 offset = skb_network_offset(skb);
	const struct eqds_data *eqds;
	const struct udphdr *udp;
	const struct iphdr *ip;

	if (skb->protocol != htons(ETH_P_IP) || skb_is_gso(skb) ||
	    !pskb_may_pull(skb, offset + sizeof(*ip)))
		return TRIM_OTHER;
	ip = ip_hdr(skb);
	if (ip->protocol != IPPROTO_UDP || ip_is_fragment(ip) || ip->ihl < 5)
		return TRIM_OTHER;
	offset += ip->ihl * 4;
	*bytes = offset + sizeof(*udp) + EQDS_DATA_BYTES;
	if (!pskb_may_pull(skb, *bytes))
		return TRIM_OTHER;
	udp = (const struct udphdr *)(skb->data + offset);
	if (udp->dest != htons(EQDS_PORT))
		return TRIM_OTHER;
	eqds = (const struct eqds_data *)(udp + 1);
	if ((eqds->kind & ~EQDS_KIND_TAGGED) == EQDS_KIND_CONTROL)
		return TRIM_HEADER;
	if ((eqds->kind & ~EQDS_KIND_TAGGED) != EQDS_KIND_DATA)
		return TRIM_OTHER;
	if (eqds->kind & EQDS_KIND_TAGGED) {
		*bytes += EQDS_TAG_BYTES;
		if (!pskb_may_pull(skb, *bytes))
			return TRIM_OTHER;
		eqds = (const struct eqds_data *)(skb->data + offset + sizeof(*udp));
	}
	return eqds->flags & (EQDS_EMPTY | EQDS_TRIM) ? TRIM_HEADER : TRIM_DATA;
}

/* Cut the payload off behind bytes. Returns false without memory to write the header. */
static bool trim_cut(struct sk_buff *skb, u32 bytes)
{
	struct eqds_data *eqds;
	struct udphdr *udp;
	struct iphdr *ip;
	u32 udp_bytes;

	if (skb_ensure_writable(skb, bytes) || pskb_trim(skb, bytes))
		return false;
	ip = ip_hdr(skb);
	udp = (struct udphdr *)((u8 *)ip + ip->ihl * 4);
	udp_bytes = skb->data + bytes - (u8 *)udp;
	eqds = (struct eqds_data *)(udp + 1);
	eqds->flags |= EQDS_TRIM;
	ip->tot_len = htons(ip->ihl * 4 + udp_bytes);
	ip_send_check(ip);
	udp->len = htons(udp_bytes);
	/* The offload that was asked for is about the payload. */
	skb->ip_summed = CHECKSUM_NONE;
	skb->encapsulation = 0;
	if (!udp->check)
		return true;
	udp->check = 0;
	udp->check = csum_tcpudp_magic(ip->saddr, ip->daddr, udp_bytes, IPPROTO_UDP,
				       csum_partial(udp, udp_bytes, 0));
	if (!udp->check)
		udp->check = CSUM_MANGLED_0;
	return true;
}

static int trim_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct trim_sched *q = qdisc_priv(sch);
	enum trim_kind kind;
	u32 bytes = 0, was;

	kind = trim_classify(skb, &bytes);
	if (kind != TRIM_HEADER && q->data.qlen < TRIM_DATA_PACKETS) {
		__qdisc_enqueue_tail(skb, &q->data);
		goto queued;
	}
	if (kind == TRIM_OTHER || q->headers.qlen >= TRIM_HEADER_PACKETS)
		return qdisc_drop(skb, sch, to_free);
	if (kind == TRIM_DATA) {
		was = qdisc_pkt_len(skb);
		if (!trim_cut(skb, bytes))
			return qdisc_drop(skb, sch, to_free);
		qdisc_skb_cb(skb)->pkt_len = skb->len;
		qdisc_qstats_overlimit(sch);
		/* A parent counts the length that the packet came with. */
		qdisc_tree_reduce_backlog(sch, 0, was - qdisc_pkt_len(skb));
	}
	__qdisc_enqueue_tail(skb, &q->headers);
queued:
	sch->q.qlen++;
	qdisc_qstats_backlog_inc(sch, skb);
	return NET_XMIT_SUCCESS;
}

static struct sk_buff *trim_dequeue(struct Qdisc *sch)
{
	struct trim_sched *q = qdisc_priv(sch);
	struct sk_buff *skb = __qdisc_dequeue_head(&q->headers);

	if (!skb)
		skb = __qdisc_dequeue_head(&q->data);
	if (!skb)
		return NULL;
	sch->q.qlen--;
	qdisc_qstats_backlog_dec(sch, skb);
	qdisc_bstats_update(sch, skb);
	return skb;
}

static void trim_reset(struct Qdisc *sch)
{
	struct trim_sched *q = qdisc_priv(sch);

	__qdisc_reset_queue(&q->data);
	__qdisc_reset_queue(&q->headers);
}

static int trim_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct trim_sched *q = qdisc_priv(sch);

	if (opt) {
		NL_SET_ERR_MSG_MOD(extack, "trim has no options");
		return -EINVAL;
	}
	memset(q, 0, sizeof(*q));
	return 0;
}

static struct Qdisc_ops trim_qdisc_ops __read_mostly = {
	.id = "trim",
	.priv_size = sizeof(struct trim_sched),
	.enqueue = trim_enqueue,
	.dequeue = trim_dequeue,
	.peek = qdisc_peek_dequeued,
	.init = trim_init,
	.reset = trim_reset,
	.owner = THIS_MODULE,
};

static int __init trim_module_init(void)
{
	return register_qdisc(&trim_qdisc_ops);
}

static void __exit trim_module_exit(void)
{
	unregister_qdisc(&trim_qdisc_ops);
}

module_init(trim_module_init);
module_exit(trim_module_exit);

MODULE_DESCRIPTION("EQDS: queue of a switch that trims packets");
MODULE_LICENSE("GPL");
