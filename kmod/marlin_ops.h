/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where transports of messages meet Marlin: a pair of rings with each peer for this machine as
 * client, and another for it as node (include/remora/marlin.h, "Messages").
 *
 *   rmem/marlin/      a client's transport, a node's port
 *  reserve, send |      ^ receive, settle, room      struct marlin_message_ops
 *           ring |      |
 *                v      |
 *   marlin/messages.c   rings, sleep and wake
 *
 * Peers are named by their ports. Links may start and end at any time: a record that finds none is
 * lost, as are those on their way.
 */
#ifndef REMORA_MARLIN_OPS_H
#define REMORA_MARLIN_OPS_H

#include <linux/types.h>

#define MARLIN_MESSAGE_BYTES_MAX 9272

enum marlin_end_kind {
	MARLIN_CLIENT, /* sends requests, receives responses */
	MARLIN_NODE,
	MARLIN_ENDS
};

enum marlin_verdict {
	MARLIN_TAKEN,
	MARLIN_LATER, /* there is no room to answer it; it will be received again */
	MARLIN_BROKEN, /* no message: the peer's link starts again */
};

/* BH disabled, under rcu_read_lock(), and in one context at a time. */
struct marlin_message_ops {
	/*
	 * The peer may write record still: each byte is read once, or copied first. The end's
	 * receiving side is locked, against that of no other; all calls below may be made.
	 */
	enum marlin_verdict (*receive)(unsigned int port, const u8 *record, u32 bytes);
	/* After records that came together. */
	void (*settle)(unsigned int port);
	/* The wait is over: there is room, or no link any more. May be NULL. */
	void (*room)(unsigned int port);
};

/*
 * Process context. -EBUSY: another has the end. After unregister no call of ops is under way, nor
 * begins.
 */
int marlin_messages_register(enum marlin_end_kind kind, const struct marlin_message_ops *ops);
void marlin_messages_unregister(enum marlin_end_kind kind);

/* Is there such a peer? -ENODEV: no NTB device; -ENXIO: no such port; -EINVAL: it is our own. */
int marlin_message_peer(unsigned int port);

/* ---- BH disabled ---- */

/* Room in an end's ring that is kept for its holder. Zero at first. */
struct marlin_room {
	u32 records;
	u32 session; /* of the link: room of an earlier one is void */
};

/*
 * Reserves room, as far as there is some, so that *room has it for as many records as wanted. keep:
 * records that others are to have room for after that. Returns how many *room has; U32_MAX without
 * a link, where they are lost.
 */
u32 marlin_message_reserve(enum marlin_end_kind kind, unsigned int port, u32 wanted, u32 keep,
			   struct marlin_room *room);
/*
 * Writes a record, MARLIN_MESSAGE_BYTES_MAX at most, into the peer's memory, and uses room for one:
 * write() returns its bytes, 0 if there is none after all. The memory may be slow to read.
 * -ENOTCONN: there is no link; -ENOSPC: *room has none; -EFAULT: write() returned 0.
 */
int marlin_message_send(enum marlin_end_kind kind, unsigned int port, struct marlin_room *room,
			u32 (*write)(void *arg, u8 *record), void *arg);
/* After records were sent: the peer is told of them, and woken if it sleeps. Releases *room. */
void marlin_message_ring(enum marlin_end_kind kind, unsigned int port, struct marlin_room *room);
void marlin_message_release(enum marlin_end_kind kind, unsigned int port, struct marlin_room *room);
/*
 * There was too little room: ops->room() is called, once, when there is some for so many, or when
 * the link has gone. Others may take it first. False: there is no link, so nobody calls. An end
 * has one wait, and the last call tells what is wanted.
 */
bool marlin_message_wait(enum marlin_end_kind kind, unsigned int port, u32 wanted);

#endif
