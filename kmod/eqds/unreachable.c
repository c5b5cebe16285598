// SPDX-License-Identifier: GPL-2.0
/* Senders of inner packets are told that their host is unreachable. */
#include "eqds/unreachable.h"

#include <linux/icmpv6.h>
#include <net/icmp.h>
#include <net/ip.h>
#include <net/route.h>

/* icmp_send() wants the route of the packet it is about. */
static bool unreachable_set_route(struct eqds_dev *ed, struct sk_buff *skb)
{
	struct flowi4 fl4 = {.daddr = ip_hdr(skb)->daddr};
	struct rtable *rt = ip_route_output_key(dev_net(ed->dev), &fl4);

	if (IS_ERR(rt))
		return false;
	skb_dst_drop(skb);
	skb_dst_set(skb, &rt->dst);
	return true;
}

/* Consumes an inner packet that can't reach its host, and tells its sender. Not under the lock. */
void eqds_unreachable_tell(struct eqds_dev *ed, struct sk_buff *skb)
{
	skb->dev = ed->dev;
	memset(skb->cb, 0, sizeof(skb->cb)); /* IP options, to the stack */
	if (skb->protocol == htons(ETH_P_IPV6))
		icmpv6_send(skb, ICMPV6_DEST_UNREACH, ICMPV6_ADDR_UNREACH, 0);
	else if (skb->protocol == htons(ETH_P_IP) && unreachable_set_route(ed, skb))
		icmp_send(skb, ICMP_DEST_UNREACH, ICMP_HOST_UNREACH, 0);
	kfree_skb(skb);
}
