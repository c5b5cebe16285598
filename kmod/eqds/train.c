// SPDX-License-Identifier: GPL-2.0
/*
 * Trains: packets of consecutive numbers that arrive together are one packet for the stack.
 *
 *   wire     [IP UDP n   IP TCP ...][IP UDP n+1 IP TCP ...][IP UDP n+2 IP TCP ...]
 *            | GRO of the link: eqds_train_join(), then GRO of inner TCP
 *   eqds_recv, core      [IP UDP n, and 2 more, IP TCP .........]
 *
 * The paper has a NIC copy a tunnel's header to all segments of a packet, and the receiver add the
 * IP ID to the header's number. Here each packet has a header of its own, so the wire is the same
 * with trains and without, a train works over any path, and a lost packet of it is as any other.
 * The sender only has to choose one path for all of them: the port is a part of the flow.
 *
 * Only packets of inner TCP are joined, by the rules of Linux for TCP: so a train has one inner
 * header, and segments of one length but for the last. The number of packets in it follows from
 * the first one's length, which its header tells, and is not what a sender says.
 *
 * GRO also sees packets that this host forwards. A train of them would leave with one number for
 * all. So packets are joined only if their outer destination is an address of this host.
 */
#include "eqds/train.h"

#include <net/gro.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/route.h>
#include <net/udp.h>

/* GRO marks a train by one of each. */
#define TRAIN_TUNNEL (SKB_GSO_UDP_TUNNEL | SKB_GSO_UDP_TUNNEL_CSUM)
#define TRAIN_TCP    (SKB_GSO_TCPV4 | SKB_GSO_TCPV6)

/* IP's header, which GRO takes without options alone, and UDP's. */
#define TRAIN_OUTER_BYTES (sizeof(struct iphdr) + sizeof(struct udphdr))

static __be16 train_protocol(const struct eqds_data *data)
{
	return htons(data->next_proto == EQDS_PROTO_IPV6 ? ETH_P_IPV6 : ETH_P_IP);
}

/* Has the payload TCP's header where GRO looks for it? */
static bool train_has_tcp(const struct eqds_data *data)
{
	const struct iphdr *v4 = (const struct iphdr *)(data + 1);
	const struct ipv6hdr *v6 = (const struct ipv6hdr *)(data + 1);

	if (data->next_proto == EQDS_PROTO_IPV4)
		return v4->version == 4 && v4->ihl == 5 && v4->protocol == IPPROTO_TCP;
	return data->next_proto == EQDS_PROTO_IPV6 && v6->version == 6 &&
	       v6->nexthdr == IPPROTO_TCP;
}

static bool train_is_counted(const struct eqds_data *data)
{
	return data->kind == (EQDS_KIND_DATA | EQDS_KIND_COUNTED);
}

/* An untagged packet that is sent for the first time. bytes: from its header on. */
static bool train_may_join(const struct eqds_data *data, const struct iphdr *ip, u32 bytes)
{
	if (data->flags & ~EQDS_SYN || !train_has_tcp(data))
		return false;
	if (train_is_counted(data))
		return (u16)(ntohs(ip->id) - ntohl(data->seq)) <= data->attempt;
	return data->kind == EQDS_KIND_DATA && !data->attempt &&
	       ntohs(data->bytes) == bytes + EQDS_OUTER_BYTES;
}

/*
 * Does next follow the train of count packets that begins with first? With counted numbers, both
 * have a copy of one header, and IP IDs tell.
 */
static bool train_goes_on(const struct eqds_data *first, const struct iphdr *first_ip,
			  const struct eqds_data *next, const struct iphdr *next_ip, u16 count)
{
	if (train_is_counted(next))
		return !memcmp(first, next, sizeof(*first)) &&
		       (u16)(ntohs(next_ip->id) - ntohs(first_ip->id)) == count;
	return first->kind == next->kind && first->next_proto == next->next_proto &&
	       first->flags == next->flags &&
	       first->epoch == next->epoch && first->path == next->path &&
	       first->sender == next->sender &&
	       !memcmp(&first->cookie, &next->cookie, sizeof(first->cookie)) &&
	       ntohl(next->seq) - ntohl(first->seq) == count;
}

/* One look-up of a jiffy answers for the packets to an address. */
static bool train_is_for_this_host(struct eqds_dev *ed, __be32 to)
{
	const u64 known = (u64)lower_32_bits(jiffies) << 32 | be32_to_cpu(to);

	if (READ_ONCE(ed->train_to) == known)
		return true;
	if (inet_addr_type(ed->net, to) != RTN_LOCAL)
		return false;
	WRITE_ONCE(ed->train_to, known);
	return true;
}

/* GRO of a datagram for the tunnels' port. RCU. */
struct sk_buff *eqds_train_join(struct sock *sk, struct list_head *head, struct sk_buff *skb)
{
	struct eqds_dev *ed = rcu_dereference_sk_user_data(sk);
	const u32 at = skb_gro_offset(skb);
	const struct packet_offload *inner;
	struct sk_buff *pp = NULL, *p;
	struct eqds_data *data, last;
	const struct iphdr *ip;
	int flush = 1;

	/* A list keeps its segments' headers. An IPv6 address doesn't fit into ed->train_to. */
	if (!ed || !READ_ONCE(ed->trains) || skb_is_gso(skb) || NAPI_GRO_CB(skb)->is_ipv6 ||
	    skb->dev->features & NETIF_F_GRO_FRAGLIST)
		goto out;
	/* Every TCP packet is as long as a header of IPv6. */
	data = skb_gro_header(skb, at + sizeof(*data) + sizeof(struct ipv6hdr), at);
	/* GRO's own offset of it is unset inside a tunnel, and its header may have been moved. */
	ip = (const struct iphdr *)((const u8 *)data - TRAIN_OUTER_BYTES);
	if (!data || !train_may_join(data, ip, skb_gro_len(skb)) ||
	    !train_is_for_this_host(ed, ip->daddr))
		goto out;
	inner = gro_find_receive_by_type(train_protocol(data));
	if (!inner)
		goto out;
	list_for_each_entry(p, head, list)
		if (NAPI_GRO_CB(p)->same_flow &&
		    !train_goes_on((struct eqds_data *)(p->data + at),
				   (struct iphdr *)(p->data + at - TRAIN_OUTER_BYTES), data, ip,
				   NAPI_GRO_CB(p)->count))
			NAPI_GRO_CB(p)->same_flow = 0;
	last = *data;
	skb_gro_pull(skb, sizeof(*data));
	skb_gro_postpull_rcsum(skb, data, sizeof(*data));
	pp = call_gro_receive(inner->callbacks.gro_receive, head, skb);
	flush = 0;
	if (!NAPI_GRO_CB(skb)->same_flow)
		goto out;
	/* Joined, with the first packet of the same flow. The last word on demand counts. */
	list_for_each_entry(p, head, list) {
		if (!NAPI_GRO_CB(p)->same_flow)
			continue;
		data = (struct eqds_data *)(p->data + at);
		data->pull_target = last.pull_target;
		data->backlog = last.backlog;
		break;
	}
out:
	skb_gro_flush_final(skb, pp, flush);
	return pp;
}

/* nhoff: where the tunnel's header is. */
int eqds_train_complete(struct sock *sk, struct sk_buff *skb, int nhoff)
{
	const struct eqds_data *data = (const struct eqds_data *)(skb->data + nhoff);
	const struct packet_offload *inner = gro_find_complete_by_type(train_protocol(data));
	int err = -ENOENT;

	nhoff += sizeof(*data);
	if (inner)
		err = inner->callbacks.gro_complete(skb, nhoff);
	skb_set_inner_mac_header(skb, nhoff);
	return err;
}

/*
 * Leaves in *head how many numbers a GSO packet has, and what they cost. bytes: of its UDP payload.
 * Returns false for one that is no train of this module, as another namespace may send.
 */
bool eqds_train_count(const struct sk_buff *skb, u32 bytes, struct eqds_head *head)
{
	const struct skb_shared_info *info = skb_shinfo(skb);
	/* Of the first packet: the whole, less what the others have of it behind the headers. */
	const u32 first = head->bytes - EQDS_OUTER_BYTES, segment = info->gso_size;
	u32 rest, more;

	if (!(info->gso_type & TRAIN_TUNNEL) || !(info->gso_type & TRAIN_TCP) || !segment ||
	    head->control || head->tagged || head->flags & ~EQDS_SYN ||
	    head->bytes <= EQDS_OVERHEAD_BYTES + segment || first > bytes)
		return false;
	rest = bytes - first;
	more = DIV_ROUND_UP(rest, segment);
	if (more > U16_MAX || more + 1 != info->gso_segs)
		return false;
	head->more = more;
	head->bytes = head->bytes * (more + 1) - (more * segment - rest);
	return true;
}
