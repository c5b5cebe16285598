// SPDX-License-Identifier: GPL-2.0
/* A datagram whose turn it is, to the stack, a program, or a device that stands on the link. */
#include "eqds/deliver.h"

#include <linux/if_ether.h>
#include <net/inet_ecn.h>
#include <net/ip_tunnels.h>
#include <net/ipv6.h>

#include "compat/compat.h"
#include "eqds/native_rx.h"
#include "eqds/rdma.h"

/*
 * Copies an outer CE mark to an ECN-capable inner packet (RFC 6040); for others the core alone
 * answers it (rate.h). False if the header can't be written.
 */
static bool deliver_ecn(struct sk_buff *skb, u8 outer_tos, bool v6)
{
	const u8 inner_tos = v6 ? ipv6_get_dsfield(ipv6_hdr(skb)) : ip_hdr(skb)->tos;

	if (!INET_ECN_is_ce(outer_tos) || INET_ECN_is_not_ect(inner_tos))
		return true;
	/* The sender's copy may share the header, if both are of one kernel. */
	return !skb_ensure_writable(skb, v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) &&
	       INET_ECN_set_ce(skb);
}

/* A program's packet. */
static void deliver_native(struct eqds_dev *ed, struct sk_buff *skb)
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
static void deliver_rdma(struct eqds_dev *ed, struct sk_buff *skb, const struct in6_addr *peer)
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
void eqds_deliver(struct eqds_dev *ed, struct sk_buff *skb, bool polling)
{
	const struct eqds_cb cb = *EQDS_CB(skb);
	const bool v6 = cb.next_proto == EQDS_PROTO_IPV6;
	const __be16 protocol = htons(v6 ? ETH_P_IPV6 : ETH_P_IP);
	const u32 head_bytes =
		sizeof(struct udphdr) + EQDS_DATA_BYTES + (cb.tagged ? EQDS_TAG_BYTES : 0);
	struct net_device *dev = ed->dev;
	u32 bytes;

	if (cb.next_proto == EQDS_PROTO_NATIVE) {
		deliver_native(ed, skb);
		return;
	}
	if ((!v6 && cb.next_proto != EQDS_PROTO_IPV4) ||
	    iptunnel_pull_header(skb, head_bytes, protocol, eqds_is_away(ed)))
		goto bad;
	skb->dev = dev;
	skb_reset_network_header(skb);
	if (!pskb_inet_may_pull(skb) || ip_hdr(skb)->version != (v6 ? 6 : 4))
		goto bad;
	if (!deliver_ecn(skb, cb.tos, v6))
		goto bad;
	if (cb.rdma) {
		deliver_rdma(ed, skb, &cb.peer);
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
