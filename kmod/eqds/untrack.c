// SPDX-License-Identifier: GPL-2.0
/*
 * Outer packets are not tracked, at either end. Their source ports name paths, and answers come
 * from other ports, so connection tracking would make an entry of each path and see none answered.
 */
#include "eqds/untrack.h"

#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/ipv6_stubs.h>
#include <net/netfilter/nf_conntrack.h>
#include <net/route.h>

#include "eqds/recv.h"

#if IS_ENABLED(CONFIG_NETFILTER) && IS_ENABLED(CONFIG_NF_CONNTRACK)

static void untrack_packet(struct sk_buff *skb)
{
	if (rcu_access_pointer(nf_ct_hook) && !skb_nfct(skb))
		nf_ct_set(skb, NULL, IP_CT_UNTRACKED);
}

static unsigned int untrack_leaves(void *priv, struct sk_buff *skb,
				   const struct nf_hook_state *state)
{
	if (eqds_recv_is_tunnel_socket(state->sk))
		untrack_packet(skb);
	return NF_ACCEPT;
}

/* Is it UDP to the tunnels' port of an address of this host, not a packet to be forwarded? */
static bool untrack_is_for_tunnels(const struct sk_buff *skb, const struct nf_hook_state *state)
{
	u32 at = skb_network_offset(skb);
	struct udphdr head, *udp;

	if (state->pf == NFPROTO_IPV6) {
		if (ipv6_hdr(skb)->nexthdr != IPPROTO_UDP)
			return false;
		at += sizeof(struct ipv6hdr);
	} else {
		if (ip_hdr(skb)->protocol != IPPROTO_UDP || ip_is_fragment(ip_hdr(skb)))
			return false;
		at += ip_hdrlen(skb);
	}
	udp = skb_header_pointer(skb, at, sizeof(head), &head);
	if (!udp || udp->dest != htons(EQDS_PORT))
		return false;
#if IS_ENABLED(CONFIG_IPV6)
	if (state->pf == NFPROTO_IPV6)
		return ipv6_stub->ipv6_dev_find(state->net, &ipv6_hdr(skb)->daddr, NULL);
#endif
	return inet_addr_type_dev_table(state->net, state->in, ip_hdr(skb)->daddr) == RTN_LOCAL;
}

static unsigned int untrack_arrives(void *priv, struct sk_buff *skb,
				    const struct nf_hook_state *state)
{
	const struct eqds_dev *ed = priv;

	if (rcu_access_pointer(nf_ct_hook) && state->in->ifindex == ed->link &&
	    untrack_is_for_tunnels(skb, state))
		untrack_packet(skb);
	return NF_ACCEPT;
}

/* Before connection tracking, and after it has put fragments together. */
static const struct nf_hook_ops untrack_ops[] = {
	{.hook = untrack_leaves,
	 .pf = NFPROTO_IPV4,
	 .hooknum = NF_INET_LOCAL_OUT,
	 .priority = NF_IP_PRI_RAW},
	{.hook = untrack_leaves,
	 .pf = NFPROTO_IPV6,
	 .hooknum = NF_INET_LOCAL_OUT,
	 .priority = NF_IP6_PRI_RAW},
	{.hook = untrack_arrives,
	 .pf = NFPROTO_IPV4,
	 .hooknum = NF_INET_PRE_ROUTING,
	 .priority = NF_IP_PRI_RAW},
	{.hook = untrack_arrives,
	 .pf = NFPROTO_IPV6,
	 .hooknum = NF_INET_PRE_ROUTING,
	 .priority = NF_IP6_PRI_RAW},
};

/* RTNL. */
int eqds_untrack_open(struct eqds_dev *ed)
{
	BUILD_BUG_ON(ARRAY_SIZE(untrack_ops) != ARRAY_SIZE(ed->untrack));
	memcpy(ed->untrack, untrack_ops, sizeof(untrack_ops));
	for (u32 i = 0; i < ARRAY_SIZE(ed->untrack); i++)
		ed->untrack[i].priv = ed;
	return nf_register_net_hooks(ed->net, ed->untrack, ARRAY_SIZE(ed->untrack));
}

/* RTNL. Waits for packets that are in the hooks. */
void eqds_untrack_close(struct eqds_dev *ed)
{
	nf_unregister_net_hooks(ed->net, ed->untrack, ARRAY_SIZE(ed->untrack));
}

#else

int eqds_untrack_open(struct eqds_dev *ed)
{
	return 0;
}

void eqds_untrack_close(struct eqds_dev *ed)
{
}

#endif
