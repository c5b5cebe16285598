/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The node's port at UDP/IP (../../rmem_port_ops.h): declarations for its files.
 *
 *   port.c     sockets; a datagram's checks and its messages: softirq
 *   answer.c   answers: datagrams that refer to page memory
 *   outbox.c   answers that wait for others to share their datagram
 *   route.c    routes, IP and UDP headers
 *
 * Locks, outermost first:
 *   outbox->lock    spinlock: a CPU's answers that wait
 *   (node's slot)   spinlock: guards the slot's route, too
 */
#ifndef REMORA_RMEM_UDP_PORT_H
#define REMORA_RMEM_UDP_PORT_H

#include <linux/in6.h>
#include <linux/percpu.h>
#include <linux/skbuff.h>

#include "core/rmem/datagram.h"
#include "rmem_port_ops.h"

struct dst_entry;
struct sock;
struct udp_outbox;

/* Beside the peer, in rmem_port_path.own. IPv4 is mapped into IPv6. */
struct udp_way {
	struct in6_addr local; /* the request's destination, hence the answer's source */
	int ifindex;	       /* of a link-local peer, else 0 */
	bool ipv4;
	u8 tos;	  /* of the answer, without ECN: EDM_TOS as its request, else 0 */
	u64 flow; /* not 0: the answers are the gate's, which knows them by this */
};

static_assert(sizeof(struct udp_way) <= sizeof_field(struct rmem_port_path, own));

static inline const struct udp_way *udp_way_of(const struct rmem_port_path *path)
{
	return (const struct udp_way *)path->own;
}

/* Decides when answers to requests that came by it leave. BH disabled, under rcu_read_lock(). */
struct udp_port_gate {
	/* A packet, complete with its IP header and route, for rmem_udp_out(). Consumes skb. */
	void (*hold)(u64 flow, struct sk_buff *skb);
	/* The port closes: packets that were held are dropped. */
	void (*close)(void);
};

/*
 * ---- port.c, for a gate's module ----
 *
 * unregister: no call is under way afterwards. request: executes a request that came another way
 * than by the port, if a node is started; skb is as encap_rcv gets it. Consumes skb. BH disabled,
 * under rcu_read_lock().
 */
int rmem_udp_gate_register(const struct udp_port_gate *gate);
void rmem_udp_gate_unregister(void);
void rmem_udp_request(struct sk_buff *skb, const struct rmem_port_path *path);
/* Is the started node that of a network namespace? Under rcu_read_lock(). */
bool rmem_udp_serves(const struct net *net);

extern const struct udp_port_gate __rcu *udp_port_gate;

/* The route to a peer. */
struct udp_route {
	struct rmem_port_path path;
	struct dst_entry *dst; /* holds a reference; NULL: none looked up */
	u32 cookie;
};

struct udp_port {
	struct rmem_port port; /* first */
	struct net *net;
	struct sock *sk4, *sk6; /* sk6 NULL: no IPv6 here */
	__be16 number;
	bool closing; /* the sockets go: only receivers still send */
	struct udp_outbox __percpu *outbox;
	u32 slots;
	struct udp_route *route; /* by slot: to the peer whose requests the slot saw last */
};

static inline struct udp_port *udp_port_of(struct rmem_port *port)
{
	return container_of(port, struct udp_port, port);
}

/* ---- answer.c: BH disabled, under rcu_read_lock() ---- */

/* Built with messages only, and chained by skb->next. When there is no buffer, that is counted. */
struct udp_answers {
	struct sk_buff *full, *full_last; /* complete packets */
	struct sk_buff *open;		  /* can take more */
	struct rmem_bundle bundle;	  /* in open */
	struct base_siphash hash;	  /* for open's tag, so far */
	struct base_siphash_key key;	  /* of open's space */
	u64 boot;			  /* in open's header */
};

static inline bool udp_answers_any(const struct udp_answers *answers)
{
	return answers->full || answers->open;
}

/* Complete the waiting packets' headers and hand them to the caller, which sends them. */
struct sk_buff *udp_answers_take_full(struct udp_answers *answers);
struct sk_buff *udp_answers_take_open(struct udp_answers *answers);
/* As in struct rmem_port_ops. */
int udp_answers_add(struct udp_answers *answers, const struct base_siphash_key *key,
		    struct rmem_head *head, const struct rmem_port_data *data, u32 room_bytes);
/* An answer of its own, sealed unless seal is NULL. NULL: no buffer. */
struct sk_buff *udp_answer_alone(const struct base_siphash_key *key,
				 const struct rmem_seal_key *seal, struct rmem_head *head,
				 const void *payload);
/* Seal each packet. Frees and counts packets that it has no memory for; returns the others. */
struct sk_buff *udp_answers_seal(struct sk_buff *packets, const struct rmem_seal_key *key);

/* ---- outbox.c: BH disabled, under rcu_read_lock() ---- */

int udp_outbox_open(struct udp_port *port);
void udp_outbox_close(struct udp_port *port);
/*
 * get: this CPU's outbox, locked until put, without answers that can't travel with those to head.
 * seal: the key that seals its answers, or NULL.
 * route: the way its answers go is looked up; slot lock of their session. put: they leave, but for
 * one packet that can wait for more.
 */
struct udp_outbox *udp_outbox_get(struct udp_port *port, const struct rmem_head *head,
				  const struct rmem_port_path *path,
				  const struct rmem_seal_key *seal)
	__acquires(outbox);
struct udp_answers *udp_outbox_answers(struct udp_outbox *out);
void udp_outbox_route(struct udp_outbox *out, struct udp_route *route);
void udp_outbox_put(struct udp_outbox *out, bool more) __releases(outbox);
void udp_outbox_flush(struct udp_outbox *out);

/* ---- route.c ---- */

bool udp_path_equal(const struct rmem_port_path *a, const struct rmem_port_path *b);
/*
 * Keeps route up to date; NULL and counted when there is none. The caller holds rcu_read_lock() for
 * as long as it uses the result.
 */
struct dst_entry *udp_route_get(struct udp_port *port, struct udp_route *route,
				const struct rmem_port_path *path);
void udp_route_forget(struct udp_route *route);
/* Frees packets if dst is NULL. check: UDP checksum wanted. BH disabled, under rcu_read_lock(). */
void udp_route_send(struct udp_port *port, struct dst_entry *dst,
		    const struct rmem_port_path *path, bool check, struct sk_buff *packets);
/* Sends a packet that has its IP header and route. BH disabled, under rcu_read_lock(). */
int rmem_udp_out(struct net *net, struct sock *sk, struct sk_buff *skb);

#endif
