// SPDX-License-Identifier: GPL-2.0
/*
 * The way of an answer. It leaves from the address its request came to. Answers to EDM's clients
 * have their DSCP, so they go first both ways. Its route is looked up once and kept with the
 * session's slot for as long as it is valid and the slot's requests come from the same peer.
 */
#include <linux/export.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/skbuff.h>
#include <net/dst.h>
#include <net/flow.h>
#include <net/ip.h>
#include <net/ip6_checksum.h>
#include <net/ip6_fib.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/ipv6_stubs.h>
#include <net/route.h>
#include <net/udp.h>

#include "rmem/transport/udp/port.h"

static __be32 route_ipv4_of(const u8 mapped[16])
{
	__be32 addr;

	memcpy(&addr, mapped + 12, sizeof(addr));
	return addr;
}

static struct dst_entry *route_look_up_ipv4(struct udp_port *port,
					    const struct rmem_port_path *path)
{
	struct flowi4 flow = {
		.daddr = route_ipv4_of(path->peer.addr),
		.saddr = route_ipv4_of(udp_way_of(path)->local.s6_addr),
		.fl4_dport = htons(path->peer.port),
		.fl4_sport = port->number,
		.flowi4_proto = IPPROTO_UDP,
	};
	struct rtable *route;

	security_sk_classify_flow(port->sk4, flowi4_to_flowi_common(&flow));
	route = ip_route_output_flow(port->net, &flow, port->sk4);
	return IS_ERR(route) ? NULL : &route->dst;
}

static struct dst_entry *route_look_up_ipv6(struct udp_port *port,
					    const struct rmem_port_path *path, u32 *cookie)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct flowi6 flow = {
		.saddr = udp_way_of(path)->local,
		.fl6_dport = htons(path->peer.port),
		.fl6_sport = port->number,
		.flowi6_oif = udp_way_of(path)->ifindex,
		.flowi6_proto = IPPROTO_UDP,
	};
	struct dst_entry *dst;

	memcpy(&flow.daddr, path->peer.addr, sizeof(flow.daddr));
	security_sk_classify_flow(port->sk6, flowi6_to_flowi_common(&flow));
	dst = ipv6_stub->ipv6_dst_lookup_flow(port->net, port->sk6, &flow, NULL);
	if (IS_ERR(dst))
		return NULL;
	*cookie = rt6_get_cookie(container_of(dst, struct rt6_info, dst));
	return dst;
#else
	return NULL;
#endif
}

/* The ports but one are the same for all, and the peer's belongs to its address. */
bool udp_path_equal(const struct rmem_port_path *a, const struct rmem_port_path *b)
{
	const struct udp_way *one = udp_way_of(a), *two = udp_way_of(b);

	return rmem_peer_equal(&a->peer, &b->peer) && ipv6_addr_equal(&one->local, &two->local) &&
	       one->ifindex == two->ifindex && one->ipv4 == two->ipv4;
}

struct dst_entry *udp_route_get(struct udp_port *port, struct udp_route *route,
				const struct rmem_port_path *path)
{
	if (likely(route->dst && udp_path_equal(&route->path, path) &&
		   dst_check(route->dst, route->cookie)))
		return route->dst;

	udp_route_forget(route);
	route->cookie = 0;
	route->dst = udp_way_of(path)->ipv4 ? route_look_up_ipv4(port, path)
					    : route_look_up_ipv6(port, path, &route->cookie);
	if (!route->dst)
		rmem_port_count(RMEM_PORT_NO_ROUTE);
	route->path = *path;
	return route->dst;
}

/* Senders that use it still are under rcu_read_lock(), which the release waits for. */
void udp_route_forget(struct udp_route *route)
{
	dst_release(route->dst);
	route->dst = NULL;
}

/* ---- transmission ---- */

static void route_push_udp(const struct udp_port *port, const struct rmem_port_path *path,
			   struct sk_buff *skb)
{
	struct udphdr *udp = skb_push(skb, sizeof(*udp));

	skb_reset_transport_header(skb);
	udp->source = port->number;
	udp->dest = htons(path->peer.port);
	udp->len = htons(skb->len);
	udp->check = 0;
}

int rmem_udp_out(struct net *net, struct sock *sk, struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (ip_hdr(skb)->version == 6)
		return ip6_local_out(net, sk, skb);
#endif
	return ip_local_out(net, sk, skb);
}
EXPORT_SYMBOL_GPL(rmem_udp_out);

/* A gate that has gone since the request came holds nothing. */
static int route_out(struct udp_port *port, const struct rmem_port_path *path, struct sock *sk,
		     struct sk_buff *skb)
{
	u64 flow = udp_way_of(path)->flow;
	const struct udp_port_gate *gate = flow ? rcu_dereference(udp_port_gate) : NULL;

	if (likely(!gate))
		return rmem_udp_out(port->net, sk, skb);
	gate->hold(flow, skb);
	return 0;
}

/* A packet that the path's MTU turns out to be too small for is fragmented, not lost. */
static int route_send_ipv4(struct udp_port *port, struct dst_entry *dst,
			   const struct rmem_port_path *path, bool check, struct sk_buff *skb)
{
	__be32 source = route_ipv4_of(udp_way_of(path)->local.s6_addr);
	__be32 dest = route_ipv4_of(path->peer.addr);
	struct iphdr *ip;

	route_push_udp(port, path, skb);
	udp_set_csum(!check, skb, source, dest, skb->len);

	ip = skb_push(skb, sizeof(*ip));
	skb_reset_network_header(skb);
	memset(IPCB(skb), 0, sizeof(*IPCB(skb)));
	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tos = udp_way_of(path)->tos;
	ip->ttl = ip4_dst_hoplimit(dst);
	ip->protocol = IPPROTO_UDP;
	ip->saddr = source;
	ip->daddr = dest;
	ip->id = 0;
	ip->frag_off = htons(IP_DF);
	if (unlikely(skb->len > dst_mtu(dst))) {
		ip->frag_off = 0;
		__ip_select_ident(port->net, ip, 1);
	}
	return route_out(port, path, port->sk4, skb);
}

/* The UDP checksum is there at every level: without it, IPv6 protects no address. */
static int route_send_ipv6(struct udp_port *port, struct dst_entry *dst,
			   const struct rmem_port_path *path, struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct ipv6hdr *ip;
	struct in6_addr dest;

	memcpy(&dest, path->peer.addr, sizeof(dest));
	route_push_udp(port, path, skb);
	udp6_set_csum(false, skb, &udp_way_of(path)->local, &dest, skb->len);

	ip = skb_push(skb, sizeof(*ip));
	skb_reset_network_header(skb);
	memset(IP6CB(skb), 0, sizeof(*IP6CB(skb)));
	ip6_flow_hdr(ip, udp_way_of(path)->tos, 0);
	ip->nexthdr = IPPROTO_UDP;
	ip->hop_limit = ip6_dst_hoplimit(dst);
	ip->saddr = udp_way_of(path)->local;
	ip->daddr = dest;
	skb->ignore_df = 1;
	return route_out(port, path, port->sk6, skb);
#else
	kfree_skb(skb);
	return -EAFNOSUPPORT;
#endif
}

void udp_route_send(struct udp_port *port, struct dst_entry *dst,
		    const struct rmem_port_path *path, bool check, struct sk_buff *packets)
{
	struct sk_buff *skb, *next;
	int err;

	skb_list_walk_safe(packets, skb, next) {
		skb_mark_not_on_list(skb);
		if (unlikely(!dst)) {
			kfree_skb(skb);
			continue;
		}
		skb_dst_set_noref(skb, dst);
		skb->priority = rt_tos2priority(udp_way_of(path)->tos);
		if (udp_way_of(path)->ipv4)
			err = route_send_ipv4(port, dst, path, check, skb);
		else
			err = route_send_ipv6(port, dst, path, skb);
		rmem_port_count(net_xmit_eval(err) ? RMEM_PORT_XMIT : RMEM_PORT_ANSWERS);
	}
}
