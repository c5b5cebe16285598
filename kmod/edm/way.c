// SPDX-License-Identifier: GPL-2.0
/* The scheduler's sockets, and datagrams in and out of socket buffers. */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/ipv6_stubs.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/udp_tunnel.h>

#include "edm/edm.h"

#define WAY_HEADROOM (LL_MAX_HEADER + sizeof(struct ipv6hdr) + sizeof(struct udphdr))

/* ---- sockets ---- */

static struct sock *way_listen(struct edm_sockets *s, struct udp_port_cfg *at,
			       struct udp_tunnel_sock_cfg *tunnel, int *err)
{
	struct socket *sock;

	*err = udp_sock_create(s->net, at, &sock);
	if (*err)
		return NULL;
	setup_udp_tunnel_sock(s->net, sock, tunnel);
	return sock->sk;
}

int edm_way_open(struct edm_sockets *s, int (*receive)(struct sock *sk, struct sk_buff *skb),
		 void *user_data)
{
	struct udp_tunnel_sock_cfg tunnel = {
		.sk_user_data = user_data,
		.encap_type = 1, /* anything but 0: no kind the stack treats by itself */
		.encap_rcv = receive,
	};
	struct udp_port_cfg at = {
		.family = AF_INET,
		.local_udp_port = s->number,
		.use_udp_checksums = true,
		.use_udp6_tx_checksums = true,
		.use_udp6_rx_checksums = true,
		.ipv6_v6only = true,
	};
	int err;

	s->sk4 = way_listen(s, &at, &tunnel, &err);
	if (err)
		return err;
	at.family = AF_INET6;
	s->sk6 = way_listen(s, &at, &tunnel, &err);
	/* A kernel without IPv6, or with IPv6 off. */
	if (!err || err == -EAFNOSUPPORT || err == -EPFNOSUPPORT)
		return 0;
	udp_tunnel_sock_release(s->sk4->sk_socket);
	return err;
}

void edm_way_close(struct edm_sockets *s)
{
	if (s->sk6)
		udp_tunnel_sock_release(s->sk6->sk_socket);
	udp_tunnel_sock_release(s->sk4->sk_socket);
	synchronize_net();
}

/* ---- in ---- */

void edm_way_read(const struct sk_buff *skb, struct edm_way *way)
{
	way->port = udp_hdr(skb)->source;
	way->ifindex = 0;
	if (skb->protocol == htons(ETH_P_IP)) {
		ipv6_addr_set_v4mapped(ip_hdr(skb)->saddr, &way->peer);
		ipv6_addr_set_v4mapped(ip_hdr(skb)->daddr, &way->local);
		return;
	}
	way->peer = ipv6_hdr(skb)->saddr;
	way->local = ipv6_hdr(skb)->daddr;
	way->ifindex = ipv6_iface_scope_id(&way->peer, inet6_iif(skb));
}

enum edm_wire_verdict edm_way_parse(struct sk_buff *skb, struct edm_message *message,
				    const void **data, u32 *bytes)
{
	if (skb->len <= sizeof(struct udphdr) || skb->len > EDM_DATAGRAM_BYTES_MAX ||
	    skb->pkt_type != PACKET_HOST || skb_linearize(skb))
		return EDM_WIRE_SHORT;
	*data = skb->data + sizeof(struct udphdr);
	*bytes = skb->len - sizeof(struct udphdr);
	return edm_wire_parse(message, *data, *bytes);
}

/* ---- out ---- */

struct sk_buff *edm_way_alloc(u32 bytes)
{
	struct sk_buff *skb = alloc_skb(WAY_HEADROOM + bytes, GFP_ATOMIC | __GFP_NOWARN);

	if (skb)
		skb_reserve(skb, WAY_HEADROOM);
	return skb;
}

static void way_send4(const struct edm_sockets *s, const struct edm_way *way, struct sk_buff *skb)
{
	struct flowi4 flow = {
		.daddr = way->peer.s6_addr32[3],
		.saddr = way->local.s6_addr32[3],
		.fl4_sport = s->number,
		.fl4_dport = way->port,
		.flowi4_proto = IPPROTO_UDP,
	};
	struct rtable *route = ip_route_output_key(s->net, &flow);

	if (IS_ERR(route)) {
		kfree_skb(skb);
		return;
	}
	udp_tunnel_xmit_skb(route, s->sk4, skb, flow.saddr, flow.daddr, EDM_TOS,
			    ip4_dst_hoplimit(&route->dst), 0, s->number, way->port, false, false);
}

static void way_send6(const struct edm_sockets *s, const struct edm_way *way, struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct flowi6 flow = {
		.daddr = way->peer,
		.saddr = way->local,
		.fl6_sport = s->number,
		.fl6_dport = way->port,
		.flowi6_oif = way->ifindex,
		.flowi6_proto = IPPROTO_UDP,
	};
	struct in6_addr from = way->local, to = way->peer;
	struct dst_entry *dst;

	dst = s->sk6 ? ipv6_stub->ipv6_dst_lookup_flow(s->net, s->sk6, &flow, NULL) : NULL;
	if (!IS_ERR_OR_NULL(dst)) {
		udp_tunnel6_xmit_skb(dst, s->sk6, skb, NULL, &from, &to, EDM_TOS,
				     ip6_dst_hoplimit(dst), 0, s->number, way->port, false);
		return;
	}
#endif
	kfree_skb(skb);
}

void edm_way_send(const struct edm_sockets *s, const struct edm_way *way, struct sk_buff *skb)
{
	skb->ignore_df = 1;
	skb->priority = EDM_PRIORITY;
	if (ipv6_addr_v4mapped(&way->peer))
		way_send4(s, way, skb);
	else
		way_send6(s, way, skb);
}
