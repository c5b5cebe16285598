// SPDX-License-Identifier: GPL-2.0
/*
 * Whole packets: TCP's packet of many segments leaves as one, as with TSO (the paper, section 5).
 *
 *   queue    [IP TCP .........]                       one node, its segments numbered by the core
 *   sent     [IP UDP n IP TCP .........]              a part for which there is credit
 *   wire     [IP id UDP n IP TCP ...][IP id+1 UDP n IP TCP ...][IP id+2 UDP n IP TCP ...]
 *
 * Segmentation, by the NIC or by the link's GSO, copies the headers to each segment and increments
 * the outer IP ID. The first ID is the low 16 bits of the number n, so the receiver can tell each
 * segment's number (remora/eqds.h, "Counted numbers"). Without segmentation on the path, the packet
 * arrives as a train. A retransmitted segment is cut from the kept packet and has its own header.
 *
 * A path may change IP IDs. The core asks for proof that it does not: until then a packet leaves
 * segment by segment, and so does one whose tunnel has credit for one segment alone (sender.h).
 */
#include "eqds/whole.h"

#include <linux/mm.h>
#include <linux/tcp.h>
#include <net/ip.h>
#include <net/ip6_checksum.h>
#include <net/ipv6.h>
#include <net/tcp.h>

/* Outer headers over IPv4, with the tunnel's. */
#define WHOLE_OUTER_BYTES (sizeof(struct iphdr) + sizeof(struct udphdr) + EQDS_DATA_BYTES)

/* Segments of a packet that fits; it has GSO. */
u32 eqds_whole_segments(const struct sk_buff *skb)
{
	return DIV_ROUND_UP(skb->len - skb_headlen(skb), skb_shinfo(skb)->gso_size);
}

/*
 * Can the packet, which has its IP header in front, stay whole? It must be TCP's, and its linear
 * part must consist of headers.
 */
bool eqds_whole_fits(const struct sk_buff *skb)
{
	const struct skb_shared_info *info = skb_shinfo(skb);
	const bool v6 = skb->protocol == htons(ETH_P_IPV6);

	if ((info->gso_type & ~SKB_GSO_TCP_ECN) != (v6 ? SKB_GSO_TCPV6 : SKB_GSO_TCPV4) ||
	    !info->gso_size || skb->ip_summed != CHECKSUM_PARTIAL || skb_has_frag_list(skb) ||
	    skb->len + WHOLE_OUTER_BYTES > EQDS_WHOLE_BYTES_MAX)
		return false;
	/* No options of IP's, and no headers between IP and TCP. */
	if (skb_transport_offset(skb) != (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) ||
	    (v6 ? ipv6_hdr(skb)->nexthdr : ip_hdr(skb)->protocol) != IPPROTO_TCP)
		return false;
	if (skb_headlen(skb) < skb_transport_offset(skb) + sizeof(struct tcphdr) ||
	    skb_headlen(skb) != skb_tcp_all_headers(skb))
		return false;
	return eqds_whole_segments(skb) > 1 && eqds_whole_segments(skb) <= EQDS_COUNTED_MAX;
}

/* Credit that a full segment costs. */
u32 eqds_whole_each_bytes(const struct sk_buff *skb)
{
	return skb_headlen(skb) + skb_shinfo(skb)->gso_size + EQDS_OVERHEAD_BYTES;
}

/* Adds bytes of the payload of from, starting at offset, to skb. */
static void whole_share(struct sk_buff *skb, const struct sk_buff *from, u32 offset, u32 bytes)
{
	const struct skb_shared_info *given = skb_shinfo(from);
	struct skb_shared_info *info = skb_shinfo(skb);

	skb->len += bytes;
	skb->data_len = bytes;
	skb->truesize += bytes;
	info->flags |= given->flags & SKBFL_SHARED_FRAG;
	for (u32 i = 0; bytes && i < given->nr_frags; i++) {
		const u32 size = skb_frag_size(&given->frags[i]);
		skb_frag_t *frag = &info->frags[info->nr_frags];

		if (offset >= size) {
			offset -= size;
			continue;
		}
		*frag = given->frags[i];
		get_page(skb_frag_page(frag));
		skb_frag_off_add(frag, offset);
		skb_frag_size_set(frag, min(size - offset, bytes));
		bytes -= skb_frag_size(frag);
		offset = 0;
		info->nr_frags++;
	}
}

/* Headers of the part that begins with the nth segment. last: it ends with the last one. */
static void whole_head(struct sk_buff *skb, u32 nth, u32 each, bool last)
{
	const u32 tcp_bytes = skb->len - skb_transport_offset(skb);
	struct tcphdr *tcp = tcp_hdr(skb);

	tcp->seq = htonl(ntohl(tcp->seq) + nth * each);
	if (!last) {
		tcp->fin = 0;
		tcp->psh = 0;
	}
	if (nth)
		tcp->cwr = 0;
	if (skb->protocol == htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = ipv6_hdr(skb);

		ip->payload_len = htons(tcp_bytes);
		tcp->check = ~tcp_v6_check(tcp_bytes, &ip->saddr, &ip->daddr, 0);
	} else {
		struct iphdr *ip = ip_hdr(skb);

		ip->tot_len = htons(skb->len);
		ip->id = htons(ntohs(ip->id) + nth);
		ip_send_check(ip);
		tcp->check = ~tcp_v4_check(tcp_bytes, ip->saddr, ip->daddr, 0);
	}
	skb->ip_summed = CHECKSUM_PARTIAL;
	skb->csum_start = skb_transport_header(skb) - skb->head;
	skb->csum_offset = offsetof(struct tcphdr, check);
}

/*
 * A packet of count segments of whole, from the nth on, that shares its pages. headroom: bytes for
 * the outer headers. NULL: no memory.
 */
struct sk_buff *eqds_whole_cut(const struct sk_buff *whole, u32 headroom, u32 nth, u32 count)
{
	const u32 head_bytes = skb_headlen(whole), each = skb_shinfo(whole)->gso_size;
	const u32 offset = nth * each, rest = whole->len - head_bytes - offset;
	struct sk_buff *skb = alloc_skb(headroom + head_bytes, GFP_ATOMIC | __GFP_NOWARN);

	if (!skb)
		return NULL;
	skb_reserve(skb, headroom);
	skb_put_data(skb, whole->data, head_bytes);
	skb_reset_mac_header(skb);
	skb_reset_network_header(skb);
	skb_set_transport_header(skb, skb_transport_offset(whole));
	skb->protocol = whole->protocol;
	skb->priority = whole->priority;
	skb->mark = whole->mark;
	whole_share(skb, whole, offset, min(count * each, rest));
	whole_head(skb, nth, each, count * each >= rest);
	if (count == 1)
		return skb;
	skb_shinfo(skb)->gso_size = each;
	skb_shinfo(skb)->gso_segs = count;
	skb_shinfo(skb)->gso_type = skb_shinfo(whole)->gso_type;
	/* There is no Ethernet inside: the inner packet begins with its IP header. */
	skb_set_inner_protocol(skb, skb->protocol);
	return skb;
}

/*
 * Leaves in *head the number and the credit of a packet that has a counted header. bytes: of its
 * UDP payload. Returns false if the header does not cover its IP ID or its length.
 */
bool eqds_whole_count(const struct sk_buff *skb, u32 bytes, struct eqds_head *head)
{
	if (skb->protocol != htons(ETH_P_IP))
		return false;
	if (!head->more && !(head->flags & EQDS_TRIM)) {
		if (bytes + EQDS_OUTER_BYTES > head->bytes)
			return false;
		head->bytes = bytes + EQDS_OUTER_BYTES;
	}
	return eqds_wire_count(head, ntohs(ip_hdr(skb)->id), head->more);
}
