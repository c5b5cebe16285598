/* SPDX-License-Identifier: GPL-2.0 */
/*
 * edm.ko: declarations for its files. A file calls only files below it.
 *
 *   main.c        the module
 *   netlink.c     family edm
 *   service.c     the scheduler     member.c    this machine as a scheduler's host
 *   way.c         UDP datagrams of the scheduler
 *
 * Both can run on one machine: one scheduler, and a membership in each network namespace. Each has
 * a spinlock, under which it calls its core and sends.
 */
#ifndef REMORA_EDM_EDM_H
#define REMORA_EDM_EDM_H

#include <linux/in6.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>

#include "core/edm/sched.h"
#include "edm_ops.h"

struct netlink_ext_ack;
struct sock;

/* The longest datagram that is read, with its UDP header. */
#define EDM_DATAGRAM_BYTES_MAX                                                                     \
	(sizeof(struct udphdr) + EDM_HEAD_BYTES + EDM_REQUEST_BYTES + EDM_OPAQUE_BYTES_MAX)

/* ---- way.c ---- */

/* A host, as its datagrams have it. IPv4 is mapped into IPv6. */
struct edm_way {
	struct in6_addr peer, local;
	__be16 port;
	int ifindex; /* of a link-local peer, else 0 */
};

struct edm_sockets {
	struct net *net;
	struct sock *sk4, *sk6; /* sk6 NULL: no IPv6 here */
	__be16 number;
};

/* receive runs in softirq, under rcu_read_lock(), with user_data in sk_user_data. */
int edm_way_open(struct edm_sockets *s, int (*receive)(struct sock *sk, struct sk_buff *skb),
		 void *user_data);
/* No receive is under way afterwards. */
void edm_way_close(struct edm_sockets *s);

void edm_way_read(const struct sk_buff *skb, struct edm_way *way);
/* BH disabled. Consumes skb, a datagram of edm_way_alloc(). */
void edm_way_send(const struct edm_sockets *s, const struct edm_way *way, struct sk_buff *skb);
struct sk_buff *edm_way_alloc(u32 bytes);

/*
 * Makes the datagram of encap_rcv linear, and reads it. *data: behind the UDP header. A verdict
 * other than GOOD: it is to be dropped.
 */
enum edm_wire_verdict edm_way_parse(struct sk_buff *skb, struct edm_message *message,
				    const void **data, u32 *bytes);

/* ---- counters, for netlink.c ---- */

typedef int (*edm_count_fn)(void *arg, const char *name, u64 value);

/* ---- service.c: process context, under the control mutex of netlink.c ---- */

struct edm_service_config {
	struct base_siphash_key key;
	u32 chunk_bytes, lease_us;
	u16 ports, udp_port;
};

int edm_service_start(struct net *net, const struct edm_service_config *config,
		      struct netlink_ext_ack *extack);
void edm_service_stop(void);
/* NULL: none runs. *members: hosts whose leases run. */
const struct edm_service_config *edm_service_status(u16 *members);
int edm_service_counts(edm_count_fn put, void *arg);

/* ---- member.c: the same; the membership is that of the caller's network namespace ---- */

struct edm_member_config {
	struct base_siphash_key key;
	char scheduler[64], standby[64]; /* standby empty: none */
	u32 rate_mbps;
	u16 port;
};

int edm_member_join(const struct edm_member_config *config, struct netlink_ext_ack *extack);
int edm_member_leave(struct netlink_ext_ack *extack);
/* The module goes: nothing uses it. */
void edm_member_leave_all(void);
/* NULL: this machine is no member. */
const struct edm_member_config *edm_member_status(const char **state);
int edm_member_counts(edm_count_fn put, void *arg);

/* ---- netlink.c ---- */

int edm_netlink_register(void);
void edm_netlink_unregister(void);

#endif
