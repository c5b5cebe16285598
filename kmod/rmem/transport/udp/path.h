/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The client's path over UDP/IP, for transports whose datagrams are UDP's: udp.c's own, and those
 * that decide when a datagram leaves.
 *
 *   add:      rmem_packet_takes(), rmem_packet_add()          under the channel's lock
 *   flush:    [ gate: later ]  rmem_udp_transmit()            after it
 *   receive:  encap_rcv -> udp_receive(), a record each       softirq
 */
#ifndef REMORA_RMEM_UDP_PATH_H
#define REMORA_RMEM_UDP_PATH_H

#include "rmem/carrier/socket.h"

struct udp_path;

/* Decides when datagrams of a path leave. BH disabled. */
struct udp_gate {
	/*
	 * The path has built datagrams, linked by next. They are the gate's, which sends each by
	 * rmem_udp_transmit(). The messages of one either all read or all don't.
	 */
	void (*pass)(struct udp_path *path, struct sk_buff *datagrams);
	/* An answer to a message that reads (rmem_type_answers_data()) has come. */
	void (*answered)(struct udp_path *path, const struct rmem_head *head);
};

struct udp_path {
	struct rmem_path path; /* first */
	struct rmem_socket socket;
	const struct udp_gate *gate; /* NULL: datagrams leave at once */
};

static inline struct udp_path *udp_path_of(struct rmem_path *path)
{
	return container_of(path, struct udp_path, path);
}

/*
 * As in struct rmem_transport_ops. The path's gate is set before open. close: the gate has no
 * datagrams of the path.
 */
int rmem_udp_open(struct rmem_path *path, const union udp_address *to);
void rmem_udp_quiesce(struct rmem_path *path);
void rmem_udp_close(struct rmem_path *path);
int rmem_udp_limits(struct rmem_path *path, struct rmem_limits *limits,
		    struct netlink_ext_ack *extack);
bool rmem_udp_add(struct rmem_path *path, struct rmem_batch *batch, struct rmem_client_tx *tx,
		  u32 row);
void rmem_udp_flush(struct rmem_path *path, struct rmem_batch *batch);

/* BH disabled. Consumes the datagram, and counts when it doesn't leave. */
void rmem_udp_transmit(struct udp_path *path, struct sk_buff *skb);

/* ---- address.c ---- */

static inline const union udp_address *udp_address_of(const struct rmem_address *address)
{
	return (const union udp_address *)address->bytes;
}

/* As in struct rmem_transport_ops. */
int udp_address_get(struct rmem_address *to, struct nlattr **attrs,
		    struct netlink_ext_ack *extack);
int udp_address_put(const struct rmem_address *from, struct sk_buff *reply);

#endif
