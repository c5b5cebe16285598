/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A UDP socket that is connected to another machine, and its route there: a path's to its node, and
 * that of EDM's host to its scheduler.
 *
 * Every path has a port of its own, so that its answers come to a receive queue (hence
 * a CPU) of their own. Packets are consumed in encap_rcv: never queued at the socket, and
 * never subject to the filter that refuses reserve-backed packets to others.
 */
#ifndef REMORA_RMEM_SOCKET_H
#define REMORA_RMEM_SOCKET_H

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/list.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/udp.h>
#include <net/dst.h>
#include <net/flow.h>
#include <net/ipv6.h>

#include "remora/rmem.h"
#include "rmem_ops.h"

union udp_address {
	struct sockaddr any;
	struct sockaddr_in in4;
	struct sockaddr_in6 in6;
};

struct rmem_socket {
	struct socket *sock;
	struct net *net; /* of the task that opened it; holds a reference */
	union udp_address to;
	struct list_head of_all; /* socket.c */
	bool moves;	     /* its addresses change: it neither sends nor receives */
	bool unproven;	     /* the socket moved, and heard nothing since */
	unsigned long moved; /* jiffies */
	struct dst_entry __rcu *dst; /* holds a reference; exchanged by whoever finds it stale */
	u32 cookie;
	struct flowi flow; /* addresses and ports */
	struct sk_buff *spare; /* memory of a packet; its clones leave */
	unsigned long spare_taken; /* bit 0 */
	bool heard; /* the node, since a packet last told the neighbour table so */
};

/* Room for all headers below a message. */
#define RMEM_SOCKET_HEADROOM                                                                       \
	ALIGN(LL_MAX_HEADER + sizeof(struct ipv6hdr) + sizeof(struct hop_jumbo_hdr) +              \
		      sizeof(struct udphdr),                                                       \
	      16)

/*
 * Follow the machine's addresses while remora_core.ko is there: each socket is connected anew when
 * it has lost its own.
 */
int rmem_socket_start(void);
void rmem_socket_stop(void);
/* Read IP, IP:PORT or [IP]:PORT. port: where none is written. */
int rmem_socket_parse(union udp_address *address, const char *text, u16 port);

/*
 * In the caller's network namespace. receive runs in softirq, under rcu_read_lock(), with user_data
 * in sk_user_data.
 */
int rmem_socket_open(struct rmem_socket *s, const union udp_address *to,
		     int (*receive)(struct sock *sk, struct sk_buff *skb), void *user_data);
/* The type of service and the priority of packets from now on. No packet leaves meanwhile. */
void rmem_socket_mark(struct rmem_socket *s, u8 tos, u32 priority);

/* No receive begins after this; those under way end with the next grace period. */
void rmem_socket_deafen(struct rmem_socket *s);
/* After that grace period; no transmit any more. */
void rmem_socket_close(struct rmem_socket *s);

/* Largest IP packet on the route, 0 without one. *offload: the interface does UDP checksums. */
u32 rmem_socket_mtu_bytes(struct rmem_socket *s, bool *offload);
unsigned int rmem_socket_header_bytes(const struct rmem_socket *s);

/*
 * The node has answered, so the next hop is there. Told of that, the kernel doesn't ask the
 * network for it, which takes memory that might be gone when the answer is needed.
 */
static inline void rmem_socket_heard(struct rmem_socket *s)
{
	if (!READ_ONCE(s->heard))
		WRITE_ONCE(s->heard, true);
	if (unlikely(READ_ONCE(s->unproven)))
		WRITE_ONCE(s->unproven, false);
}

/* BH disabled. Consumes skb. 1: it took the spare; -EHOSTUNREACH: there is no route; -ENOMEM. */
int rmem_socket_transmit(struct rmem_socket *s, struct sk_buff *skb);

#endif
