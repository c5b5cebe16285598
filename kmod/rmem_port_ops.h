/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where the memory node meets the transports of its requests and answers.
 *
 *   node/host.c       start, stop
 *   node/request.c    the core decides; data moves between payloads, pages and answers
 *   node/slow.c       requests that take long
 *          |      ^
 *   answer |      | request             struct rmem_port_batch
 *    reply v      | settle, drop
 *   udp/port.c        a port            struct rmem_port_ops
 *
 * The seam is cut at the message, as the client's is (rmem_ops.h). A port reads
 * addresses, packs and verifies messages, and has the memory of answers on their way. It knows
 * nothing of sessions, pages and the meaning of messages; the node knows nothing of sockets, routes
 * and buffers.
 */
#ifndef REMORA_RMEM_PORT_OPS_H
#define REMORA_RMEM_PORT_OPS_H

#include <linux/types.h>

#include "core/base/siphash.h"
#include "core/rmem/node/session.h"
#include "core/rmem/wire.h"
#include "rmem_record.h"

struct module;
struct net;
struct netlink_ext_ack;
struct node_host;
struct page;
struct rmem_port_ops;

/* A way into the node. A port's own is behind it. */
struct rmem_port {
	const struct rmem_port_ops *ops;
	struct node_host *node;
};

/* A request comes from here, and its answer goes back. */
struct rmem_port_path {
	struct rmem_peer peer; /* the core tells clients apart by it */
	u64 own[4];	       /* the port's */
};

/* Messages that came together, from one client, of one space, session and level. */
struct rmem_port_batch {
	struct rmem_port *port;
	const struct base_siphash_key *key; /* the space's; NULL: they are plain */
	const struct rmem_seal_key *seal;   /* for their answers; NULL: they aren't sealed */
	bool seals;			    /* the carrier takes sealed sessions */
	struct rmem_port_path path;
};

/* ---- upwards: BH disabled, under rcu_read_lock() ---- */

/* A port counts these; node/count.c has their names, node/request.c counts. */
enum rmem_port_count {
	RMEM_PORT_WIRE = 0, /* + enum rmem_wire_verdict */
	RMEM_PORT_ANSWERS = RMEM_PORT_WIRE + RMEM_WIRE_VERDICTS, /* packets that left */
	RMEM_PORT_NO_CHECKSUM, /* level link, and nothing checked the payload */
	RMEM_PORT_NOT_UNICAST,
	RMEM_PORT_RESERVE,   /* in a buffer meant for swap */
	RMEM_PORT_NO_BUFFER, /* for the answer */
	RMEM_PORT_NO_ROUTE,  /* for the answer */
	RMEM_PORT_XMIT,	     /* answer refused on its way out */
	RMEM_PORT_COUNTS
};

/* node/request.c */
void rmem_port_count(enum rmem_port_count which);
/* Counts and traces `bytes` of input that is dropped. Always returns false. */
bool rmem_port_drop(enum rmem_port_count reason, u32 bytes);

/* The key of a space; or NULL: the input of `bytes` bytes is dropped, counted and traced. */
const struct base_siphash_key *rmem_port_key(const struct rmem_port *port, u32 space, u32 bytes);
/*
 * A sealed datagram, whose header's tag has verified: its session's keys. False: there are none,
 * and the port replies with the notice.
 */
bool rmem_port_seal_keys(const struct rmem_port *port, const struct rmem_head *head,
			 struct rmem_seal_keys *keys, struct rmem_head *notice);
/* The same for plain messages, which name no space: false where NULL would be returned. */
bool rmem_port_takes(const struct rmem_port *port, u32 bytes);
/*
 * Executes one message of a batch, which the space's key verified. False: it was dropped, counted
 * and traced.
 */
bool rmem_port_request(struct rmem_port_batch *batch, const struct rmem_record *record);
/* After a batch, with no lock of the node held. */
void rmem_port_settle(struct rmem_port *port);

/* ---- downwards ---- */

/* As START asked for it. */
struct rmem_port_config {
	struct net *net; /* held for as long as the port is open */
	u32 slots;	 /* of sessions */
	u16 number; /* START's PORT */
};

/*
 * A stretch of an answer's data, in the kernel's linear map. page: of the pages the data is in, the
 * one that counts their references, so that nobody has to look for it; NULL if it can't be held.
 */
typedef void (*rmem_stretch_fn)(void *arg, struct page *page, const void *data, u32 bytes);

/* The data of an answer: rmem_wire_payload_bytes() of its head. */
struct rmem_port_data {
	/*
	 * Calls fn for each stretch, in their order. False: some of the data is gone, and fn got
	 * a part of it.
	 */
	bool (*walk)(const struct rmem_port_data *data, rmem_stretch_fn fn, void *arg);
	/*
	 * Not 0: so many stretches are pages of the node, which stay as they are for as long as
	 * somebody holds a reference to them. 0: the data is to be copied at once.
	 */
	u32 pages;
};

#define RMEM_PORT_NO_SLOT (~0U)

struct rmem_port_ops {
	const char *name;
	struct module *owner;

	/*
	 * Process context. open() can call upwards at once; an ERR_PTR is explained in extack.
	 * When close() is over, nobody is inside of an upward call any more.
	 */
	struct rmem_port *(*open)(struct node_host *node, const struct rmem_port_config *config,
				  struct netlink_ext_ack *extack);
	void (*close)(struct rmem_port *port);

	/*
	 * Within rmem_port_request(), with the lock of the session's slot if there is one.
	 * answer: adds one; data can be NULL. room_bytes: most bytes that the client takes in a
	 * piece, with other answers; 0: this one travels alone. -ENOMEM, counted: the client asks
	 * again. -EFAULT: walk() returned false, and nothing was added. answered: all answers to a
	 * message were added; slot: that of its session, or RMEM_PORT_NO_SLOT if its sender isn't
	 * the session's client.
	 */
	int (*answer)(struct rmem_port_batch *batch, struct rmem_head *head,
		      const struct rmem_port_data *data, u32 room_bytes);
	void (*answered)(struct rmem_port_batch *batch, u32 slot);
	/* Within rmem_port_request(), without that lock: answers leave before the next request. */
	void (*flush)(struct rmem_port_batch *batch);

	/*
	 * BH disabled, under rcu_read_lock(): an answer by itself, with its payload or NULL. seal:
	 * the session's key; NULL: the answer isn't sealed.
	 */
	void (*reply)(struct rmem_port *port, const struct rmem_port_path *path,
		      const struct base_siphash_key *key, const struct rmem_seal_key *seal,
		      struct rmem_head *head, const void *payload);
};

/* ---- node/ports.c: process context ---- */

/* A port of another kind than UDP, for the node that is started, or will be. */
int rmem_port_register(const struct rmem_port_ops *ops);
/* Its module goes, so no node has such a port any more. */
void rmem_port_unregister(const struct rmem_port_ops *ops);

/* ---- udp/port.c, the port that is always there ---- */

extern const struct rmem_port_ops rmem_udp_port_ops;

#endif
