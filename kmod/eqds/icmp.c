// SPDX-License-Identifier: GPL-2.0
/*
 * ICMP errors about outer packets, and those that senders of inner packets get.
 *
 *   ICMP --> the stack --> eqds_icmp_lookup: is the quoted packet one that a tunnel has under way?
 *                            |no: refused
 *                            |too big: IPv6's stack notes the MTU, and makes fragments
 *                            |unreachable, and a second without any answer: the tunnel ends
 *                            '-else: counted, for a peer that answered may do so again
 *
 * An attacker off the path has to guess the epoch, the cookie and a number that is under way. One
 * on the path, who can quote a packet, ends no tunnel whose peer has answered, nor any with a key.
 * IPv6's stack believes anybody's word on the MTU, down to 1280 bytes; IPv4's is not asked: sock.c.
 */
#include "eqds/icmp.h"

#include <linux/icmp.h>
#include <linux/icmpv6.h>
#include <net/icmp.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/route.h>

#include "eqds/life.h"
#include "eqds/table.h"
#include "eqds/work.h"

/*
 * Grace period before an unreachable error ends a tunnel. Before that, another interface of the
 * peer might have had the packet, since both answer for its address.
 */
#define ICMP_PATIENCE_NS NSEC_PER_SEC

/* Has the tunnel this packet under way, or an RTS with its next number? */
static bool icmp_is_under_way(const struct eqds_sender *s, const struct eqds_head *head)
{
	return s->state != EQDS_SENDER_CLOSED && head->epoch == s->epoch &&
	       (head->claims ? 0 : head->cookie) == s->cookie &&
	       head->seq - s->una <= s->next - s->una;
}

/* The tunnel that sent the quoted packet; NULL: none. */
static struct eqds_tx *icmp_tunnel(struct eqds_dev *ed, const struct sk_buff *skb, bool v6)
{
	const u32 at = skb_transport_offset(skb) + sizeof(struct udphdr);
	u8 memory[EQDS_DATA_BYTES + EQDS_TAG_BYTES];
	const u32 bytes = skb->len > at ? min_t(u32, skb->len - at, sizeof(memory)) : 0;
	const u8 *header = skb_header_pointer(skb, at, bytes, memory);
	struct eqds_head head;
	struct in6_addr peer;
	struct eqds_tx *tx;

	lockdep_assert_held(&ed->lock);
	if (!ed->up || !header ||
	    eqds_wire_parse(&eqds_profile_extended, header, bytes, &head) != EQDS_WIRE_GOOD ||
	    head.control || head.tagged != !!ed->tag_bytes)
		return NULL;
	if (head.counted && (v6 || !eqds_wire_count(&head, ntohs(ip_hdr(skb)->id), 0)))
		return NULL;
	if (v6)
		peer = ipv6_hdr(skb)->daddr;
	else
		ipv6_addr_set_v4mapped(ip_hdr(skb)->daddr, &peer);
	tx = eqds_table_tx(ed, &peer, head.sender);
	return tx && icmp_is_under_way(&tx->core, &head) ? tx : NULL;
}

/*
 * The stack's question whether an error is about this socket's tunnels. It has set the offsets of
 * the headers to the quoted ones, which begin at the data, right behind ICMP's. Returns 0 if so.
 */
int eqds_icmp_lookup(struct sock *sk, struct sk_buff *skb)
{
	const struct icmphdr *icmp = (const struct icmphdr *)skb->data - 1; /* begins as icmp6hdr */
	const bool v6 = skb->protocol == htons(ETH_P_IPV6);
	const bool unreachable =
		v6 ? icmp->type == ICMPV6_DEST_UNREACH
		   : icmp->type == ICMP_DEST_UNREACH && icmp->code != ICMP_FRAG_NEEDED;
	struct eqds_dev *ed = rcu_dereference_sk_user_data(sk);
	struct eqds_work work;
	struct eqds_tx *tx;

	if (!ed)
		return -ENOENT;
	eqds_work_init(&work);
	spin_lock_bh(&ed->lock);
	tx = icmp_tunnel(ed, skb, v6);
	if (tx)
		ed->stats.icmp_heard++;
	else
		ed->stats.icmp_refused++;
	if (tx && unreachable && !tx->core.cookie && !ed->tag_bytes &&
	    ktime_get_ns() >= tx->core.heard_ns + ICMP_PATIENCE_NS) {
		ed->stats.tx_unreachable++;
		eqds_life_tx_lose(ed, tx, &work);
	}
	spin_unlock_bh(&ed->lock);
	eqds_work_run(ed, &work);
	return tx ? 0 : -ENOENT;
}

