// SPDX-License-Identifier: GPL-2.0
/*
 * The second way into a tunnel: packets that the machine sends by the device's link, and whose
 * destination is in a `map` rule, are captured after routing (netfilter's post-routing), and no
 * route needs to change.
 *
 * The sender of such a packet knows the link's MTU, which is larger than the tunnel's: it is told
 * as by a router, or the packet is fragmented.
 *
 * Connections whose packets connection tracking rewrites on their way out stay on the link
 * (tx_uncaptured).
 */
#include "eqds/hook.h"

#include <linux/icmp.h>
#include <linux/icmpv6.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <net/dst_metadata.h>
#include <net/icmp.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/ipv6_stubs.h>
#include <net/ndisc.h>
#include <net/netfilter/nf_conntrack.h>
#include <net/netfilter/nf_conntrack_extend.h>
#include <net/route.h>

#include "compat/compat.h"
#include "eqds/recv.h"
#include "eqds/rule.h"
#include "eqds/xmit.h"

#if IS_ENABLED(CONFIG_NETFILTER)

/*
 * IPsec is to encrypt the packet, after this hook, or has done so. A packet that asynchronous
 * encryption gives back has lost its socket, so eqds_recv_is_tunnel_socket() doesn't know it.
 */
static bool hook_is_ipsecs(const struct sk_buff *skb, bool v6)
{
	if (skb_valid_dst(skb) && dst_xfrm(skb_dst(skb)))
		return true;
	return v6 ? IP6CB(skb)->flags & IP6SKB_XFRM_TRANSFORMED :
		    IPCB(skb)->flags & IPSKB_XFRM_TRANSFORMED;
}

/* Neighbour discovery: the tunnel's own packets need the neighbours of the link. */
static bool hook_is_discovery(const struct sk_buff *skb)
{
	struct icmp6hdr head, *icmp;

	if (ipv6_hdr(skb)->nexthdr != IPPROTO_ICMPV6)
		return false;
	icmp = skb_header_pointer(skb, skb_network_offset(skb) + sizeof(struct ipv6hdr),
				  sizeof(head), &head);
	return icmp && icmp->icmp6_type >= NDISC_ROUTER_SOLICITATION &&
	       icmp->icmp6_type <= NDISC_REDIRECT;
}

/* A packet that is for the link itself, whatever a rule says: for many hosts, or about the link. */
static bool hook_stays(const struct sk_buff *skb, bool v6)
{
	const struct rtable *rt = skb_rtable(skb);

	if (v6)
		return ipv6_addr_type(&ipv6_hdr(skb)->daddr) &
			       (IPV6_ADDR_MULTICAST | IPV6_ADDR_LINKLOCAL) ||
		       hook_is_discovery(skb);
	return ipv4_is_multicast(ip_hdr(skb)->daddr) || ipv4_is_lbcast(ip_hdr(skb)->daddr) ||
	       (rt && rt->rt_flags & RTCF_BROADCAST);
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

/* The rule that captures a packet for ed. RCU. */
static const struct eqds_rule *hook_rule(struct eqds_dev *ed, const struct sk_buff *skb)
{
	return netif_running(ed->dev) ? eqds_rule_of_packet(ed, skb) : NULL;
}

/* A packet of the device begins with the network's header, and GSO counts from there. */
static void hook_xmit(struct eqds_dev *ed, struct sk_buff *skb, const struct eqds_rule *rule)
{
	skb_reset_mac_header(skb);
	skb_reset_mac_len(skb);
	eqds_xmit_packet(ed, skb, &rule->peer, true);
}

/* A fragment has nothing of the whole but its link. */
static int hook_fragment(struct net *net, struct sock *sk, struct sk_buff *skb)
{
	const struct eqds_rule *rule;
	struct net_device *dev;

	for_each_netdev_rcu(net, dev) {
		struct eqds_dev *ed = netdev_priv(dev);

		if (!eqds_xmit_is_device(dev) || eqds_is_away(ed) ||
		    ed->link != skb->dev->ifindex)
			continue;
		rule = hook_rule(ed, skb);
		if (rule) {
			hook_xmit(ed, skb, rule);
			return 0;
		}
	}
	kfree_skb(skb); /* the rule has gone meanwhile */
	return 0;
}

/* Larger than the tunnel's MTU: fragments, or a word to the sender. */
static void hook_oversize(struct eqds_dev *ed, struct sk_buff *skb, bool v6,
			  const struct nf_hook_state *state)
{
	const bool may = v6 ? skb->ignore_df : !(ip_hdr(skb)->frag_off & htons(IP_DF));

	if (!may || skb_is_gso(skb)) {
		hook_tell_mtu(ed, skb);
		kfree_skb(skb);
		return;
	}
	skb->dev = state->out;
	if (v6) {
#if IS_ENABLED(CONFIG_IPV6)
		IP6CB(skb)->frag_max_size = ed->dev->mtu;
		ipv6_stub->ipv6_fragment(state->net, state->sk, skb, hook_fragment);
#endif
		return;
	}
	IPCB(skb)->frag_max_size = ed->dev->mtu;
	ip_do_fragment(state->net, state->sk, skb, hook_fragment);
}

/*
 * Connection tracking enters a connection into its table at this hook's priority, and of two hooks
 * of one priority the later registered runs first. A packet that is taken here would leave its
 * connection unknown, and its answers untracked. Returns false if the packet is to be dropped.
 */
static bool hook_confirm(struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_NF_CONNTRACK)
	const struct nf_ct_hook *tracking = rcu_dereference(nf_ct_hook);
	enum ip_conntrack_info info;
	const struct nf_conn *connection = nf_ct_get(skb, &info);

	if (tracking && connection && !nf_ct_is_confirmed(connection))
		return tracking->confirm(skb) == NF_ACCEPT;
#endif
	return true;
}

/*
 * Conntrack's own hook lets helpers (FTP, SIP) and NAT's shifted sequence numbers rewrite packets.
 * A captured packet would miss that.
 */
static bool hook_is_rewritten(const struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_NF_CONNTRACK)
	enum ip_conntrack_info info;
	const struct nf_conn *connection = nf_ct_get(skb, &info);

	return connection && (nf_ct_ext_exist(connection, NF_CT_EXT_HELPER) ||
			      test_bit(IPS_SEQ_ADJUST_BIT, &connection->status));
#else
	return false;
#endif
}

static unsigned int hook_capture(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	const bool v6 = state->pf == NFPROTO_IPV6;
	struct eqds_dev *ed = priv;
	const struct eqds_rule *rule;

	/* No tunnels in tunnels. */
	if (!state->out || state->out->ifindex != ed->link || eqds_recv_is_tunnel_socket(state->sk))
		return NF_ACCEPT;
	rule = hook_rule(ed, skb);
	if (!rule || hook_stays(skb, v6) || hook_is_ipsecs(skb, v6))
		return NF_ACCEPT;
	if (hook_is_rewritten(skb)) {
		spin_lock_bh(&ed->lock);
		ed->stats.tx_uncaptured++;
		spin_unlock_bh(&ed->lock);
		return NF_ACCEPT;
	}
	if (!hook_confirm(skb))
		return NF_DROP;
	if (hook_fits(ed, skb))
		hook_xmit(ed, skb, rule);
	else
		hook_oversize(ed, skb, v6, state);
	return NF_STOLEN;
}

/* After everything else that changes the packet: source addresses, say. See hook_confirm(). */
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

	/* Rules of another namespace are about packets that are routed into the device. */
	if (eqds_is_away(ed))
		return 0;
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
	return 0;
}

void eqds_hook_close(struct eqds_dev *ed)
{
}

#endif
