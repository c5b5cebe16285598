// SPDX-License-Identifier: GPL-2.0
/*
 * The outer packet: UDP/IP around what the tunnels send.
 *
 * The outer route is looked up for the link that the device was made for. A packet can't come back
 * into the device by that, even where the same address is routed into it. Packets that a CPU sends
 * to one peer after another share the look-up, unless the namespace chooses among next hops by
 * ports: a path is a port. Where ip-rule or IPsec tells source ports apart, all paths go as the
 * port that was looked up did.
 *
 * A link that is a tunnel of another kind may send its own packets into the device. The stack
 * bounds how deep such a loop nests (XMIT_RECURSION_LIMIT), since the device has no queue, and
 * credit bounds how many packets it takes.
 */
#include "eqds/emit.h"

#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/ipv6_stubs.h>
#include <net/route.h>
#include <net/udp_tunnel.h>

#include "core/eqds/tag.h"
#include "eqds/key.h"

/*
 * The kernel calls a route obsolete when routes change, but not when a router dies or IPsec gets
 * keys. A new look-up finds those, so a CPU keeps a route for so long.
 */
#define EMIT_ROUTE_JIFFIES (HZ / 10)

struct emit_source {
	struct in6_addr v6;
	__be32 v4;
};

int eqds_emit_init(struct eqds_dev *ed)
{
	int err = dst_cache_init(&ed->route, GFP_KERNEL);

	if (err)
		return err;
	ed->route_of = alloc_percpu(struct eqds_route_of);
	if (ed->route_of)
		return 0;
	dst_cache_destroy(&ed->route);
	return -ENOMEM;
}

void eqds_emit_exit(struct eqds_dev *ed)
{
	free_percpu(ed->route_of);
	dst_cache_destroy(&ed->route);
}

static struct dst_entry *emit_look_up4(struct eqds_dev *ed, const struct eqds_cb *cb,
				       struct emit_source *source)
{
	struct flowi4 fl4 = {
		.flowi4_oif = ed->link,
		.daddr = cb->peer.s6_addr32[3],
		.saddr = cb->local.s6_addr32[3], /* 0 of any */
		.flowi4_proto = IPPROTO_UDP,
		.fl4_sport = cb->sport,
		.fl4_dport = cb->dport,
	};
	struct rtable *rt = ip_route_output_key(ed->net, &fl4);

	source->v4 = fl4.saddr;
	return IS_ERR(rt) ? NULL : &rt->dst;
}

static struct dst_entry *emit_look_up6(struct eqds_dev *ed, const struct eqds_cb *cb,
				       struct emit_source *source)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct flowi6 fl6 = {
		.flowi6_oif = ed->link,
		.daddr = cb->peer,
		.saddr = cb->local,
		.flowi6_proto = IPPROTO_UDP,
		.fl6_sport = cb->sport,
		.fl6_dport = cb->dport,
	};
	struct dst_entry *dst;

	if (!ed->sock6)
		return NULL;
	dst = ipv6_stub->ipv6_dst_lookup_flow(ed->net, ed->sock6->sk, &fl6, NULL);
	source->v6 = fl6.saddr;
	return IS_ERR(dst) ? NULL : dst;
#else
	return NULL;
#endif
}

static bool emit_ports_choose_route(const struct eqds_dev *ed, bool v4)
{
#ifdef CONFIG_IP_ROUTE_MULTIPATH
	if (v4)
		return READ_ONCE(ed->net->ipv4.sysctl_fib_multipath_hash_policy);
#endif
#if IS_ENABLED(CONFIG_IPV6)
	if (!v4)
		return READ_ONCE(ed->net->ipv6.sysctl.multipath_hash_policy);
#endif
	return false;
}

/*
 * The route of this CPU's last packet, if that went between the same ends, and the route stands and
 * isn't old.
 */
static struct dst_entry *emit_last_route(struct eqds_dev *ed, const struct eqds_cb *cb, bool v4,
					 struct emit_source *source)
{
	const struct eqds_route_of *last = this_cpu_ptr(ed->route_of);
	struct rtable *rt;

	if (!ipv6_addr_equal(&last->peer, &cb->peer) ||
	    !ipv6_addr_equal(&last->local, &cb->local) ||
	    time_after(jiffies, last->since + EMIT_ROUTE_JIFFIES))
		return NULL;
#if IS_ENABLED(CONFIG_IPV6)
	if (!v4)
		return dst_cache_get_ip6(&ed->route, &source->v6);
#endif
	rt = dst_cache_get_ip4(&ed->route, &source->v4);
	return rt ? &rt->dst : NULL;
}

static void emit_keep_route(struct eqds_dev *ed, const struct eqds_cb *cb, bool v4,
			    struct dst_entry *dst, const struct emit_source *source)
{
	struct eqds_route_of *last = this_cpu_ptr(ed->route_of);

	last->peer = cb->peer;
	last->local = cb->local;
	last->since = jiffies;
	if (v4)
		dst_cache_set_ip4(&ed->route, dst, source->v4);
#if IS_ENABLED(CONFIG_IPV6)
	else
		dst_cache_set_ip6(&ed->route, dst, &source->v6);
#endif
}

/* The packet's route, with a reference, and its source address. NULL: there is none. */
static struct dst_entry *emit_route(struct eqds_dev *ed, const struct eqds_cb *cb,
				    struct emit_source *source)
{
	const bool v4 = ipv6_addr_v4mapped(&cb->peer), keep = !emit_ports_choose_route(ed, v4);
	struct dst_entry *dst = keep ? emit_last_route(ed, cb, v4, source) : NULL;

	if (dst)
		return dst;
	dst = v4 ? emit_look_up4(ed, cb, source) : emit_look_up6(ed, cb, source);
	if (!dst) {
		DEV_STATS_INC(ed->dev, tx_carrier_errors);
		return NULL;
	}
	if (unlikely(dst->dev == ed->dev)) {
		DEV_STATS_INC(ed->dev, collisions);
		dst_release(dst);
		return NULL;
	}
	if (keep)
		emit_keep_route(ed, cb, v4, dst, source);
	return dst;
}

/* Writes the tag. Returns false without a key, which may have gone since the lock was held. */
static bool emit_seal(struct eqds_dev *ed, struct sk_buff *skb, const struct eqds_cb *cb,
		      const struct emit_source *from)
{
	struct in6_addr source = from->v6;
	struct eqds_tag_ends ends;

	if (!cb->tagged)
		return true;
	if (ipv6_addr_v4mapped(&cb->peer))
		ipv6_addr_set_v4mapped(from->v4, &source);
	memcpy(ends.from, &source, sizeof(source));
	memcpy(ends.to, &cb->peer, sizeof(cb->peer));
	return eqds_key_seal(ed, skb, &ends);
}

/*
 * udp_tunnel_xmit_skb() for a packet whose IP ID has a meaning. DF stays clear: with DF,
 * segmentation may give all segments the same ID.
 */
static void emit_xmit_counted(struct eqds_dev *ed, struct dst_entry *dst, struct sk_buff *skb,
			      __be32 source, const struct eqds_cb *cb, u8 ttl)
{
	const __be32 to = cb->peer.s6_addr32[3];
	struct udphdr *udp = __skb_push(skb, sizeof(*udp));
	struct iphdr *ip;

	skb_reset_transport_header(skb);
	udp->source = cb->sport;
	udp->dest = cb->dport;
	udp->len = htons(skb->len);
	udp_set_csum(false, skb, source, to, skb->len);
	ip = __skb_push(skb, sizeof(*ip));
	skb_reset_network_header(skb);
	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tos = cb->tos;
	ip->id = htons(cb->ip_id);
	ip->frag_off = 0;
	ip->ttl = ttl;
	ip->protocol = IPPROTO_UDP;
	ip->saddr = source;
	ip->daddr = to;
	skb_dst_set(skb, dst);
	ip_local_out(ed->net, ed->sock4->sk, skb);
}

/* The RTS says which address it leaves from. */
static void emit_claim(struct sk_buff *skb, const struct eqds_cb *cb,
		       const struct emit_source *from)
{
	struct eqds_data *head = (struct eqds_data *)skb->data;
	struct in6_addr source = from->v6;

	if (!cb->claims)
		return;
	if (ipv6_addr_v4mapped(&cb->peer))
		ipv6_addr_set_v4mapped(from->v4, &source);
	head->cookie = cpu_to_be64(eqds_cookie_claim(&source, sizeof(source)));
}

/* Sends the packet under the outer headers of its control block. RCU, bh. */
void eqds_emit(struct eqds_dev *ed, struct sk_buff *skb)
{
	struct eqds_cb cb = *EQDS_CB(skb);
	struct emit_source source;
	struct dst_entry *dst = emit_route(ed, &cb, &source);
	u8 ttl = cb.ttl;

	if (!dst || !emit_seal(ed, skb, &cb, &source)) {
		dst_release(dst);
		kfree_skb(skb);
		return;
	}
	emit_claim(skb, &cb, &source);
	/* The IP layers take what is in there for theirs: a size to fragment to, say. */
	memset(skb->cb, 0, sizeof(skb->cb));
	/* The device counts packets of users, so the tunnel's are not counted for it. */
	skb->dev = NULL;
	/* The user's flow is not the path's: multipath and queues have to look at the ports. */
	skb_clear_hash(skb);
	/* A path with a smaller MTU than the link's gets fragments, not nothing. */
	skb->ignore_df = 1;
	if (cb.counted) {
		emit_xmit_counted(ed, dst, skb, source.v4, &cb, ttl ?: ip4_dst_hoplimit(dst));
		return;
	}
	if (ipv6_addr_v4mapped(&cb.peer)) {
		udp_tunnel_xmit_skb((struct rtable *)dst, ed->sock4->sk, skb, source.v4,
				    cb.peer.s6_addr32[3], cb.tos, ttl ?: ip4_dst_hoplimit(dst), 0,
				    cb.sport, cb.dport, false, false);
		return;
	}
#if IS_ENABLED(CONFIG_IPV6)
	udp_tunnel6_xmit_skb(dst, ed->sock6->sk, skb, NULL, &source.v6, &cb.peer, cb.tos,
			     ttl ?: ip6_dst_hoplimit(dst), 0, cb.sport, cb.dport, false);
#endif
}
