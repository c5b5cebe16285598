// SPDX-License-Identifier: GPL-2.0
/*
 * The outer packet: the device's socket, and UDP/IP around what the tunnels send.
 *
 * The outer route is looked up for the link that the device was made for. A packet can't come back
 * into the device by that, even where the same address is routed into it.
 */
#include <net/ip.h>
#include <net/route.h>
#include <net/udp_tunnel.h>

#include "eqds/eqds.h"

int eqds_udp_open(struct eqds_dev *ed)
{
	struct udp_port_cfg port = {
		.family = AF_INET,
		.local_ip.s_addr = htonl(INADDR_ANY),
		.local_udp_port = htons(EQDS_PORT),
		.use_udp_checksums = true,
		.bind_ifindex = ed->link,
	};
	struct udp_tunnel_sock_cfg tunnel = {
		.sk_user_data = ed,
		.encap_type = 1, /* anything but 0: no kind the stack treats by itself */
		.encap_rcv = eqds_recv,
	};
	int err;

	err = udp_sock_create(ed->net, &port, &ed->sock);
	if (err)
		return err;
	setup_udp_tunnel_sock(ed->net, ed->sock, &tunnel);
	return 0;
}

/* With the device marked down. Afterwards no packet is on its way through the module. */
void eqds_udp_close(struct eqds_dev *ed)
{
	/* For those that left the lock while the device was up and now send by the socket. */
	synchronize_net();
	udp_tunnel_sock_release(ed->sock);
	ed->sock = NULL;
}

static void udp_emit(struct eqds_dev *ed, struct sk_buff *skb)
{
	const struct eqds_cb cb = *EQDS_CB(skb);
	struct flowi4 fl4 = {
		.flowi4_oif = ed->link,
		.daddr = cb.peer.s6_addr32[3],
		.flowi4_proto = IPPROTO_UDP,
		.fl4_sport = cb.sport,
		.fl4_dport = htons(EQDS_PORT),
	};
	struct rtable *rt = ip_route_output_key(ed->net, &fl4);

	if (IS_ERR(rt)) {
		DEV_STATS_INC(ed->dev, tx_carrier_errors);
		kfree_skb(skb);
		return;
	}
	if (unlikely(rt->dst.dev == ed->dev)) {
		ip_rt_put(rt);
		DEV_STATS_INC(ed->dev, collisions);
		kfree_skb(skb);
		return;
	}
	/* The device counts packets of users, so the tunnel's are not counted for it. */
	skb->dev = NULL;
	/* A path with a smaller MTU than the link's gets fragments, not nothing. */
	skb->ignore_df = 1;
	udp_tunnel_xmit_skb(rt, ed->sock->sk, skb, fl4.saddr, fl4.daddr, cb.tos,
			    ip4_dst_hoplimit(&rt->dst), 0, cb.sport, htons(EQDS_PORT), false,
			    false);
}

void eqds_work_init(struct eqds_work *work)
{
	__skb_queue_head_init(&work->emit);
	__skb_queue_head_init(&work->deliver);
	__skb_queue_head_init(&work->free);
}

/* Not under the lock. The caller is in softirq, under RCU, or has marked the device down. */
void eqds_work_run(struct eqds_dev *ed, struct eqds_work *work)
{
	struct sk_buff *skb;

	rcu_read_lock_bh();
	while ((skb = __skb_dequeue(&work->emit)))
		udp_emit(ed, skb);
	while ((skb = __skb_dequeue(&work->deliver)))
		eqds_recv_deliver(ed, skb);
	rcu_read_unlock_bh();
	while ((skb = __skb_dequeue(&work->free)))
		consume_skb(skb);
}
