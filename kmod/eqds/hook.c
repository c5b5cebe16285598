// SPDX-License-Identifier: GPL-2.0
/*
 * The second way into a tunnel: packets that the machine sends by the device's link, and whose
 * destination is in a `map` rule, are captured after routing (netfilter's post-routing), and no
 * route needs to change.
 *
 * The sender of such a packet knows the link's MTU, which is larger than the tunnel's: it is told
 * as by a router, or the packet is fragmented.
 */
#include <linux/icmp.h>
#include <linux/icmpv6.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <net/icmp.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/udp.h>

#include "eqds/eqds.h"

#if IS_ENABLED(CONFIG_NETFILTER)

/* A tunnel's own packet, of this device or of another one: no tunnels in tunnels. */
static bool hook_is_tunnels(const struct sock *sk)
{
	return sk && sk_fullsock(sk) && sk->sk_protocol == IPPROTO_UDP &&
	       READ_ONCE(udp_sk(sk)->encap_rcv) == eqds_recv;
}

static bool hook_fits(const struct eqds_dev *ed, const struct sk_buff *skb)
{
	if (skb_is_gso(skb))
		return skb_gso_validate_network_len(skb, ed->dev->mtu);
	return skb->len <= ed->dev->mtu;
}

/* The sender has to make smaller packets. */
static void hook_tell_mtu(const struct eqds_dev *ed, struct sk_buff *skb)
{
	const u32 mtu = ed->dev->mtu;

	if (skb_dst(skb) && skb_dst(skb)->ops->update_pmtu)
		skb_dst_update_pmtu_no_confirm(skb, mtu);
	if (skb->protocol == htons(ETH_P_IPV6))
		icmpv6_ndo_send(skb, ICMPV6_PKT_TOOBIG, 0, mtu);
	else
		icmp_ndo_send(skb, ICMP_DEST_UNREACH, ICMP_FRAG_NEEDED, htonl(mtu));
}

struct hook_cb {
	struct inet_skb_parm ip; /* ip_do_fragment()'s */
	struct eqds_dev *ed;
	struct in6_addr peer;
};

static int hook_fragment(struct net *net, struct sock *sk, struct sk_buff *skb)
{
	const struct hook_cb cb = *(struct hook_cb *)skb->cb;

	eqds_xmit_packet(cb.ed, skb, &cb.peer);
	return 0;
}

static unsigned int hook_capture(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	const bool v6 = state->pf == NFPROTO_IPV6;
	struct eqds_dev *ed = priv;
	const struct eqds_rule *rule;
	struct in6_addr to, peer;

	if (!state->out || state->out->ifindex != ed->link || hook_is_tunnels(state->sk) ||
	    !READ_ONCE(ed->rules[EQDS_RULE_MAP].count))
		return NF_ACCEPT;
	if (v6)
		to = ipv6_hdr(skb)->daddr;
	else
		ipv6_addr_set_v4mapped(ip_hdr(skb)->daddr, &to);
	rule = eqds_rule_find(&ed->rules[EQDS_RULE_MAP], &to);
	if (!rule || !netif_running(ed->dev))
		return NF_ACCEPT;
	peer = rule->peer;
	BUILD_BUG_ON(sizeof(struct hook_cb) > sizeof(skb->cb));
	if (hook_fits(ed, skb)) {
		eqds_xmit_packet(ed, skb, &peer);
	} else if (v6 || ip_hdr(skb)->frag_off & htons(IP_DF) || skb_is_gso(skb)) {
		hook_tell_mtu(ed, skb);
		kfree_skb(skb);
	} else {
		IPCB(skb)->frag_max_size = ed->dev->mtu;
		((struct hook_cb *)skb->cb)->ed = ed;
		((struct hook_cb *)skb->cb)->peer = peer;
		ip_do_fragment(state->net, state->sk, skb, hook_fragment);
	}
	return NF_STOLEN;
}

/* After everything else that changes the packet: source addresses, say. */
static const struct nf_hook_ops hook_ops[] = {
	{.hook = hook_capture,
	 .pf = NFPROTO_IPV4,
	 .hooknum = NF_INET_POST_ROUTING,
	 .priority = NF_IP_PRI_LAST},
	{.hook = hook_capture,
	 .pf = NFPROTO_IPV6,
	 .hooknum = NF_INET_POST_ROUTING,
	 .priority = NF_IP6_PRI_LAST},
};

/* RTNL. */
int eqds_hook_open(struct eqds_dev *ed)
{
	int err;

	BUILD_BUG_ON(ARRAY_SIZE(hook_ops) != ARRAY_SIZE(ed->hook));
	memcpy(ed->hook, hook_ops, sizeof(hook_ops));
	for (u32 i = 0; i < ARRAY_SIZE(ed->hook); i++)
		ed->hook[i].priv = ed;
	err = nf_register_net_hooks(ed->net, ed->hook, ARRAY_SIZE(ed->hook));
	ed->hooked = !err;
	return err;
}

/* RTNL. Waits for packets that are in the hook. */
void eqds_hook_close(struct eqds_dev *ed)
{
	if (ed->hooked)
		nf_unregister_net_hooks(ed->net, ed->hook, ARRAY_SIZE(ed->hook));
	ed->hooked = false;
}

#else

int eqds_hook_open(struct eqds_dev *ed)
{
	return -EOPNOTSUPP;
}

void eqds_hook_close(struct eqds_dev *ed)
{
}

#endif
