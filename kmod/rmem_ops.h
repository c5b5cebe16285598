/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where the memory client meets the transports of its messages, and the owners of its data.
 *
 *   blk.c, chr_op.c    devices          op->ops: walk, end
 *        |      ^
 *   channel.c          core, lock, timer
 *        |      ^
 *    add |      | receive               struct rmem_path
 *  flush v      | settle, drop
 *   udp/               a transport      struct rmem_transport_ops
 *
 * The seam is cut at the message. A transport makes packets of messages, or records of a ring, and
 * messages of those; routes, sockets, buffers and the syntax of addresses are its own. It knows the
 * core's messages and nothing of devices or channels. Upwards go records (rmem_record.h).
 */
#ifndef REMORA_RMEM_OPS_H
#define REMORA_RMEM_OPS_H

#include <linux/percpu.h>
#include <linux/types.h>

#include "core/rmem/client/client.h"
#include "core/rmem/wire.h"
#include "rmem_record.h"

struct module;
struct netlink_ext_ack;
struct nlattr;
struct page;
struct rmem_channel;
struct sk_buff;

/* ---- operations ---- */

/* A stretch of data, within a page. False ends the walk. */
typedef bool (*rmem_walk_fn)(void *arg, struct page *page, u32 at, u32 bytes);

/* In each op, from the device that submits it. */
struct rmem_op_ops {
	/*
	 * Calls fn for each stretch of the op's data, from offset on. False: fn was, or there are
	 * fewer bytes. NULL where ops have no data.
	 */
	bool (*walk)(struct rmem_op *op, u32 offset, u32 bytes, rmem_walk_fn fn, void *arg);
	/*
	 * The op is the device's again. BH disabled; others can be submitted. No lock is held but,
	 * with a transport that receives under a lock, that one: sending never takes it.
	 */
	void (*end)(struct rmem_op *op, enum rmem_client_result result);
	/*
	 * True: the op is a write of swap, whose pages stay in memory if it fails. NULL: none is.
	 * Under the channel's lock.
	 */
	bool (*swaps_out)(struct rmem_op *op);
};

/* ---- upwards ---- */

/* Per device; names in client/count.c. */
enum rmem_path_count {
	RMEM_PATH_COPIED,    /* packets of WRITEs whose pages could not be lent */
	RMEM_PATH_SPARE,     /* packets that had to be in one piece and got the one kept */
	RMEM_PATH_NO_BUFFER, /* packets put off: no memory for them */
	RMEM_PATH_NO_ROUTE,
	RMEM_PATH_UNSCHEDULED, /* packets that had to be scheduled, and left without */
	RMEM_PATH_WAITING,     /* packets not sent again: the first copy still waits to leave */
	RMEM_PATH_DROP_WIRE, /* + enum rmem_wire_verdict */
	RMEM_PATH_DROP_STRANGER = RMEM_PATH_DROP_WIRE + RMEM_WIRE_VERDICTS,
	RMEM_PATH_DROP_NO_CHECKSUM, /* level link, and nothing checked the payload */
	RMEM_PATH_COUNTS
};

/* channel.c's. BH disabled, under rcu_read_lock(). */
struct rmem_receiver_ops {
	/* A record of the path's space and level. Ends ops, and sends. */
	void (*receive)(struct rmem_channel *channel, const struct rmem_record *record);
	/* After the records that came together. */
	void (*settle)(struct rmem_channel *channel);
	/* There is room again, after wait(). */
	void (*room)(struct rmem_channel *channel);
	/*
	 * RMEM_SEALED. Within add(): the key that seals datagrams of the session. Not under the
	 * channel's lock: the key that opens those of a session; false: it isn't the channel's.
	 */
	const struct rmem_seal_key *(*sealing_key)(struct rmem_channel *channel);
	bool (*opening_key)(struct rmem_channel *channel, u64 session, struct rmem_seal_key *key);
	/* reason: from RMEM_PATH_DROP_WIRE on. Counts it, too. */
	void (*drop)(struct rmem_channel *channel, enum rmem_path_count reason, u32 bytes);
};

/* ---- downwards ---- */

/* A device's session parameters; they don't change. */
struct rmem_session {
	u32 space;
	u32 fail_after_ms; /* not 0: an op can end while a copy of it is on its way */
	u8 integrity;	   /* enum rmem_integrity */
	struct base_siphash_key key;
};

/* The longest RMEM_A_ADDRESS. */
#define RMEM_ADDRESS_TEXT_MAX 63

/* A node, as a transport names it. Equal ones have equal bytes. */
struct rmem_address {
	u64 bytes[4];
	char text[56]; /* for people, without the scheme */
};

/* A channel's way to its node. A transport's own is behind it. */
struct rmem_path {
	const struct rmem_transport_ops *transport;
	const struct rmem_receiver_ops *to;
	const struct rmem_session *session;
	struct rmem_channel *channel;
	u64 __percpu *counts; /* enum rmem_path_count */
	u32 batch_bytes;      /* as limits() said; 0: a message each */
};

static inline void rmem_path_count(const struct rmem_path *path, enum rmem_path_count which)
{
	this_cpu_inc(path->counts[which]);
}

struct rmem_limits {
	u32 payload_bytes;   /* of a message; RMEM_PIECE_BYTES_MIN or more */
	u32 batch_bytes;     /* of messages that travel as one, with their headers */
	bool checks_payload; /* so that RMEM_LINK can trust it */
	bool reads_early;    /* payload is read before it leaves, too: it must hold still */
	bool may_lose;	 /* silence is loss first, and only later a node that is away */
	bool has_credit; /* the path bounds the data under way: no congestion window; see room() */
};

/* Messages added under the channel's lock, to leave after it. Zero at first; on the stack. */
struct rmem_batch {
	u64 own[20]; /* the transport's */
};

/* Where a path has credit of its own. Under the channel's lock. */
struct rmem_credit_ops {
	/*
	 * Reserves room, and returns how many messages can be added now. Call it again after they
	 * are added: there might be more by then. A path that is down loses its messages, so it has
	 * room. flush() releases the rest.
	 */
	u32 (*room)(struct rmem_path *path, struct rmem_batch *batch);
	/*
	 * There was too little room; the receiver's room() is called when there is some, or when
	 * the path is down. False: it is down now, and nobody calls.
	 */
	bool (*wait)(struct rmem_path *path);
};

/* Where the node reaches an op's data by itself. */
struct rmem_loan_ops {
	/*
	 * Under the channel's lock. Returns a size: a WRITE as long or longer can come with several
	 * parts in a message, for the node fetches its data (rmem_client_set_lending()). 0: none.
	 */
	u32 (*lends)(struct rmem_path *path);
	/*
	 * BH disabled, no channel's lock: an op whose op->own the transport has set has ended so.
	 * True: the node can still copy to or from the op's data, and the transport calls
	 * op->ops->end() when it can't any more, even if the path is closed.
	 */
	bool (*keeps)(struct rmem_op *op, enum rmem_client_result result);
};

struct rmem_transport_ops {
	const char *name; /* scheme of its addresses */
	struct module *owner;
	size_t path_bytes; /* of its path, struct rmem_path included */
	bool seals;	   /* RMEM_SEALED */
	const char *no_answer; /* attach tells its user so, with the remedy */

	/* Addresses, from ATTACH's attributes and into STATUS's beside RMEM_A_ADDRESS. */
	int (*address_get)(struct rmem_address *address, struct nlattr **attrs,
			   struct netlink_ext_ack *extack);
	int (*address_put)(const struct rmem_address *address, struct sk_buff *reply);

	/*
	 * Process context. open() can receive at once. No receive begins after quiesce(), those
	 * that have begun end with the next grace period of synchronize_net(), and close() comes
	 * after that.
	 */
	int (*open)(struct rmem_path *path, const struct rmem_address *to);
	void (*quiesce)(struct rmem_path *path);
	void (*close)(struct rmem_path *path);
	int (*limits)(struct rmem_path *path, struct rmem_limits *limits,
		      struct netlink_ext_ack *extack);

	/*
	 * Under the channel's lock: tx joins the batch. row: most messages that come in a row, tx
	 * included. False: no memory, and the batch is as before. The channel tries again after a
	 * deadline of the core's.
	 */
	bool (*add)(struct rmem_path *path, struct rmem_batch *batch, struct rmem_client_tx *tx,
		    u32 row);
	/* BH disabled, the lock dropped: the batch leaves. A message that can't counts as lost. */
	void (*flush)(struct rmem_path *path, struct rmem_batch *batch);

	const struct rmem_credit_ops *credit; /* NULL: there is always room */
	const struct rmem_loan_ops *loans;    /* NULL: there are none, and op->own is never set */
};

/* ---- client/transport.c ---- */

int rmem_transport_register(const struct rmem_transport_ops *ops);
/* Its module goes, so no device uses it any more. */
void rmem_transport_unregister(const struct rmem_transport_ops *ops);

/* ---- udp/udp.c, the transport that is always there ---- */

int rmem_udp_register(void);
void rmem_udp_unregister(void);

#endif
