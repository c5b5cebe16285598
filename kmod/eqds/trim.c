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
 * as overlimits. Knows the extended profile, over IPv4 and IPv6.
 *
 * Which packet loses its payload when the data queue is full: the arriving one, the one at the
 * queue's tail, for which the arriving one is queued, or one of them by chance.
 *
 * `tc` knows no options of trim; `remora eqds trim` has them (uapi/remora_trim.h).
 *
 * Below a qdisc that shapes (tbf) it is the queue of a link with that rate.
 *
 * A packet that a sender's stack left in one piece (GSO) is segmented: each segment is queued,
 * trimmed or dropped alone. They come at once, where a wire would let the queue drain meanwhile. So
 * those that the data queue has no room for lose their payload, even if the link was idle.
 */
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/udp.h>
#include <net/checksum.h>
#include <net/ip.h>
#include <net/ip6_checksum.h>
#include <net/netlink.h>
#include <net/pkt_sched.h>

#include "compat/compat.h"
#include "remora/eqds.h"
#include "uapi/remora_trim.h"

/* As in the paper: with pulls at the rate of the link, a longer queue adds delay alone. */
#define TRIM_DATA_PACKETS 15U
/* A window of 64 packets from each of some 100 senders at once. */
#define TRIM_HEADER_PACKETS 8192U
/* Of either queue: a bound on memory that a mistaken option takes. */
#define TRIM_PACKETS_MAX 16384

struct trim_sched {
	struct sk_buff_head data; /* its tail may have to leave */
	struct qdisc_skb_head headers;
	u32 data_packets, header_packets; /* bounds */
	u8 which;			  /* EQDS_TRIM_* */
};

enum trim_kind {
	TRIM_OTHER,
	TRIM_HEADER,
	TRIM_DATA,
};

/* Offset of the UDP header from skb->data; 0: it is another packet, or a fragment. */
static u32 trim_udp_offset(struct sk_buff *skb)
{
	const u32 offset = skb_network_offset(skb);
	const struct iphdr *ip;

	if (skb->protocol == htons(ETH_P_IPV6)) {
		/* A tunnel's packet has no extension headers but those of a fragment. */
		if (!pskb_may_pull(skb, offset + sizeof(struct ipv6hdr)) ||
		    ipv6_hdr(skb)->nexthdr != IPPROTO_UDP)
			return 0;
		return offset + sizeof(struct ipv6hdr);
	}
	if (skb->protocol != htons(ETH_P_IP) || !pskb_may_pull(skb, offset + sizeof(*ip)))
		return 0;
	ip = ip_hdr(skb);
	if (ip->protocol != IPPROTO_UDP || ip_is_fragment(ip) || ip->ihl < 5)
		return 0;
	return offset + ip->ihl * 4;
}

/*
 * bytes: up to the end of the tunnel's header. Headers leave first, so a packet that only says that
 * it is one is refused the place: any sender can say so.
 */
static bool trim_is_short(const struct sk_buff *skb, u32 bytes)
{
	return skb->len <= bytes + EQDS_TAG_BYTES;
}

/* bytes: up to the end of the tunnel's header and tag, from skb->data on. */
static enum trim_kind trim_classify(struct sk_buff *skb, u32 *bytes)
{
	const u32 offset = trim_udp_offset(skb);
	const struct eqds_data *eqds;
	const struct udphdr *udp;

	if (!offset)
		return TRIM_OTHER;
	*bytes = offset + sizeof(*udp) + EQDS_DATA_BYTES;
	if (!pskb_may_pull(skb, *bytes))
		return TRIM_OTHER;
	udp = (const struct udphdr *)(skb->data + offset);
	if (udp->dest != htons(EQDS_PORT))
		return TRIM_OTHER;
	eqds = (const struct eqds_data *)(udp + 1);
	if ((eqds->kind & ~EQDS_KIND_TAGGED) == EQDS_KIND_CONTROL)
		return trim_is_short(skb, *bytes) ? TRIM_HEADER : TRIM_OTHER;
	if (eqds->kind == EQDS_KIND_UNNUMBERED)
		return trim_is_short(skb, *bytes + EQDS_UNNUMBERED_MAX) ? TRIM_HEADER : TRIM_OTHER;
	if ((eqds->kind & ~(EQDS_KIND_TAGGED | EQDS_KIND_COUNTED)) != EQDS_KIND_DATA)
		return TRIM_OTHER;
	if (eqds->kind & EQDS_KIND_TAGGED) {
		*bytes += EQDS_TAG_BYTES;
		if (!pskb_may_pull(skb, *bytes))
			return TRIM_OTHER;
		eqds = (const struct eqds_data *)(skb->data + offset + sizeof(*udp));
	}
	if (!(eqds->flags & (EQDS_EMPTY | EQDS_TRIM)))
		return TRIM_DATA;
	return trim_is_short(skb, *bytes) ? TRIM_HEADER : TRIM_OTHER;
}

static __sum16 trim_checksum(const struct sk_buff *skb, const struct udphdr *udp, u32 udp_bytes)
{
	const __wsum sum = csum_partial(udp, udp_bytes, 0);
	__sum16 check;

	if (skb->protocol == htons(ETH_P_IPV6))
		check = csum_ipv6_magic(&ipv6_hdr(skb)->saddr, &ipv6_hdr(skb)->daddr, udp_bytes,
					IPPROTO_UDP, sum);
	else
		check = csum_tcpudp_magic(ip_hdr(skb)->saddr, ip_hdr(skb)->daddr, udp_bytes,
					  IPPROTO_UDP, sum);
	return check ?: CSUM_MANGLED_0;
}

/* Cut the payload off behind bytes. Returns false without memory to write the header. */
static bool trim_cut(struct sk_buff *skb, u32 bytes)
{
	struct eqds_data *eqds;
	struct udphdr *udp;
	u32 udp_bytes;

	if (skb_ensure_writable(skb, bytes) || pskb_trim(skb, bytes))
		return false;
	udp = (struct udphdr *)(skb->data + trim_udp_offset(skb));
	udp_bytes = skb->data + bytes - (u8 *)udp;
	eqds = (struct eqds_data *)(udp + 1);
	eqds->flags |= EQDS_TRIM;
	if (skb->protocol == htons(ETH_P_IPV6)) {
		ipv6_hdr(skb)->payload_len = htons(udp_bytes);
	} else {
		ip_hdr(skb)->tot_len = htons(ip_hdrlen(skb) + udp_bytes);
		ip_send_check(ip_hdr(skb));
	}
	udp->len = htons(udp_bytes);
	/* The offload that was asked for is about the payload. */
	skb->ip_summed = CHECKSUM_NONE;
	skb->encapsulation = 0;
	if (!udp->check)
		return true;
	udp->check = 0;
	udp->check = trim_checksum(skb, udp, udp_bytes);
	return true;
}

/* The packet at the data queue's tail, if it may be trimmed in place of the one that arrives. */
static struct sk_buff *trim_tail(struct trim_sched *q, u32 *bytes)
{
	struct sk_buff *tail = skb_peek_tail(&q->data);

	if (q->which == EQDS_TRIM_ARRIVING || !tail ||
	    (q->which == EQDS_TRIM_EITHER && get_random_u32() & 1) ||
	    trim_classify(tail, bytes) != TRIM_DATA)
		return NULL;
	return tail;
}

/* Data that finds its queue full. Returns the packet that becomes a header; NULL: none can. */
static struct sk_buff *trim_overflow(struct Qdisc *sch, struct sk_buff *skb, u32 bytes)
{
	struct trim_sched *q = qdisc_priv(sch);
	u32 tail_bytes = 0, was;
	struct sk_buff *tail = trim_tail(q, &tail_bytes), *cut = tail ?: skb;

	was = qdisc_pkt_len(cut);
	if (!trim_cut(cut, tail ? tail_bytes : bytes))
		return NULL;
	qdisc_skb_cb(cut)->pkt_len = cut->len;
	qdisc_qstats_overlimit(sch);
	/* A parent counts the length that the packet came with. */
	qdisc_tree_reduce_backlog(sch, 0, was - qdisc_pkt_len(cut));
	if (tail) {
		sch->qstats.backlog -= was;
		sch->q.qlen--;
		__skb_unlink(tail, &q->data);
		__skb_queue_tail(&q->data, skb);
		qdisc_qstats_backlog_inc(sch, skb);
		sch->q.qlen++;
	}
	return cut;
}

static int trim_enqueue_one(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	struct trim_sched *q = qdisc_priv(sch);
	struct sk_buff *header = skb;
	enum trim_kind kind;
	u32 bytes = 0;

	kind = trim_classify(skb, &bytes);
	if (kind != TRIM_HEADER && skb_queue_len(&q->data) < q->data_packets) {
		__skb_queue_tail(&q->data, skb);
		goto queued;
	}
	if (kind == TRIM_OTHER || q->headers.qlen >= q->header_packets)
		return qdisc_drop(skb, sch, to_free);
	if (kind == TRIM_DATA) {
		header = trim_overflow(sch, skb, bytes);
		if (!header)
			return qdisc_drop(skb, sch, to_free);
	}
	__qdisc_enqueue_tail(header, &q->headers);
queued:
	sch->q.qlen++;
	qdisc_qstats_backlog_inc(sch, header);
	return NET_XMIT_SUCCESS;
}

static int trim_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	const u32 was = qdisc_pkt_len(skb);
	struct sk_buff *list, *next;
	u32 count = 0, bytes = 0;

	if (!skb_is_gso(skb))
		return trim_enqueue_one(skb, sch, to_free);
	list = skb_gso_segment(skb, netif_skb_features(skb) & ~NETIF_F_GSO_MASK);
	if (IS_ERR_OR_NULL(list))
		return qdisc_drop(skb, sch, to_free);
	consume_skb(skb);
	skb_list_walk_safe(list, skb, next) {
		const u32 each = skb->len;

		skb_mark_not_on_list(skb);
		qdisc_skb_cb(skb)->pkt_len = each;
		if (trim_enqueue_one(skb, sch, to_free) != NET_XMIT_SUCCESS)
			continue;
		count++;
		bytes += each;
	}
	if (!count)
		return NET_XMIT_DROP;
	/* A parent counts one packet, of the length that it came with. */
	qdisc_tree_reduce_backlog(sch, 1 - (int)count, was - bytes);
	return NET_XMIT_SUCCESS;
}

static struct sk_buff *trim_dequeue(struct Qdisc *sch)
{
	struct trim_sched *q = qdisc_priv(sch);
	struct sk_buff *skb = __qdisc_dequeue_head(&q->headers);

	if (!skb)
		skb = __skb_dequeue(&q->data);
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

	__skb_queue_purge(&q->data);
	__qdisc_reset_queue(&q->headers);
}

static const struct nla_policy trim_policy[EQDS_TRIM_A_MAX + 1] = {
	[EQDS_TRIM_A_DATA] = NLA_POLICY_RANGE(NLA_U32, 1, TRIM_PACKETS_MAX),
	[EQDS_TRIM_A_HEADERS] = NLA_POLICY_RANGE(NLA_U32, 1, TRIM_PACKETS_MAX),
	[EQDS_TRIM_A_WHICH] = NLA_POLICY_MAX(NLA_U8, EQDS_TRIM_EITHER),
};

/* An option that is not named stays. A queue longer than its new bound drains to it. */
static int trim_change(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct trim_sched *q = qdisc_priv(sch);
	struct nlattr *tb[EQDS_TRIM_A_MAX + 1];
	int err;

	if (!opt)
		return 0;
	err = nla_parse_nested(tb, EQDS_TRIM_A_MAX, opt, trim_policy, extack);
	if (err)
		return err;
	sch_tree_lock(sch);
	if (tb[EQDS_TRIM_A_DATA])
		q->data_packets = nla_get_u32(tb[EQDS_TRIM_A_DATA]);
	if (tb[EQDS_TRIM_A_HEADERS])
		q->header_packets = nla_get_u32(tb[EQDS_TRIM_A_HEADERS]);
	if (tb[EQDS_TRIM_A_WHICH])
		q->which = nla_get_u8(tb[EQDS_TRIM_A_WHICH]);
	sch_tree_unlock(sch);
	return 0;
}

static int trim_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct trim_sched *q = qdisc_priv(sch);

	memset(q, 0, sizeof(*q));
	__skb_queue_head_init(&q->data);
	q->data_packets = TRIM_DATA_PACKETS;
	q->header_packets = TRIM_HEADER_PACKETS;
	q->which = EQDS_TRIM_ARRIVING;
	return trim_change(sch, opt, extack);
}

static int trim_dump(struct Qdisc *sch, struct sk_buff *msg)
{
	const struct trim_sched *q = qdisc_priv(sch);
	struct nlattr *nest = nla_nest_start_noflag(msg, TCA_OPTIONS);

	if (!nest || nla_put_u32(msg, EQDS_TRIM_A_DATA, READ_ONCE(q->data_packets)) ||
	    nla_put_u32(msg, EQDS_TRIM_A_HEADERS, READ_ONCE(q->header_packets)) ||
	    nla_put_u8(msg, EQDS_TRIM_A_WHICH, READ_ONCE(q->which))) {
		nla_nest_cancel(msg, nest);
		return -EMSGSIZE;
	}
	return nla_nest_end(msg, nest);
}

static struct Qdisc_ops trim_qdisc_ops __read_mostly = {
	.id = "trim",
	.priv_size = sizeof(struct trim_sched),
	.enqueue = trim_enqueue,
	.dequeue = trim_dequeue,
	.peek = qdisc_peek_dequeued,
	.init = trim_init,
	.change = trim_change,
	.dump = trim_dump,
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
MODULE_VERSION(REMORA_VERSION);
