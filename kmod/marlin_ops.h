/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where transports of messages meet Marlin: a pair of rings with each peer for this machine as
 * client, and another for it as node (include/remora/marlin.h, "Messages").
 *
 *   rmem/transport/marlin/  a client's transport, a node's port
 *  reserve, send |      ^ receive, settle, room      struct marlin_message_ops
 *           ring |      |
 *                v      |
 *   marlin/messages.c   rings, sleep and wake
 *
 *   marlin_hrdma_start -> marlin/hrdma.c: bulk data between own pages and a peer's RAM
 *   marlin_loan_*      -> marlin/loan.c: own pages lent to a node, and copies of a client's
 *
 * Peers are named by their ports. Links can start and end at any time: a record that finds none is
 * lost, as are those on their way.
 */
#ifndef REMORA_MARLIN_OPS_H
#define REMORA_MARLIN_OPS_H

#include <linux/atomic.h>
#include <linux/bits.h>
#include <linux/list.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "core/marlin/scatter.h"

#define MARLIN_MESSAGE_BYTES_MAX 9272

enum marlin_end_kind {
	MARLIN_CLIENT, /* sends requests, receives responses */
	MARLIN_NODE,
	MARLIN_ENDS
};

enum marlin_verdict {
	MARLIN_TAKEN,
	MARLIN_TAKEN_LONG, /* and it took its time: the other peers have their turns */
	MARLIN_LATER, /* to be received again: with room, or after marlin_message_again() */
	MARLIN_BROKEN, /* no message: the peer's link starts again */
};

/* BH disabled, under rcu_read_lock(), and in one context at a time. */
struct marlin_message_ops {
	/*
	 * The peer can still write record: each byte is read once, or copied first. The end's
	 * receiving side is locked, against that of no other; all calls below are permitted.
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
 * write() returns its bytes, 0 if there is none after all. The memory can be slow to read.
 * -ENOTCONN: there is no link; -ENOSPC: *room has none; -EFAULT: write() returned 0.
 */
int marlin_message_send(enum marlin_end_kind kind, unsigned int port, struct marlin_room *room,
			u32 (*write)(void *arg, u8 *record), void *arg);
/* After records were sent: the peer is told of them, and woken if it sleeps. Releases *room. */
void marlin_message_ring(enum marlin_end_kind kind, unsigned int port, struct marlin_room *room);
void marlin_message_release(enum marlin_end_kind kind, unsigned int port, struct marlin_room *room);
/*
 * There was too little room: ops->room() is called, once, when there is some for so many, or when
 * the link has gone. Others can take it first. False: there is no link, so nobody calls. An end has
 * one wait, and the last call tells the room wanted.
 */
bool marlin_message_wait(enum marlin_end_kind kind, unsigned int port, u32 wanted);
/* Records that were left for later are received again. */
void marlin_message_again(void);

/* ---- bulk data ---- */

/* hrdma_request.flags */
#define HRDMA_WRITE BIT(0) /* into the peer's RAM; otherwise out of it */
/*
 * Up to SCATTER_ALIGN - 1 bytes before each part are the caller's on both sides, and of no value:
 * they can be copied along, so that a part begins at a multiple of SCATTER_ALIGN.
 */
#define HRDMA_HEADROOM BIT(1)
/* By an engine if there is one, be it ever so small. */
#define HRDMA_ENGINE BIT(2)
/* A work copies the parts that no engine takes, and not the caller: loads over a bus are slow. */
#define HRDMA_LATER BIT(3)

struct hrdma_window;
struct hrdma_channel;
struct marlin_peer;

/* A sub-transfer, while a DMA engine has it. hrdma.c fills it. */
struct hrdma_slot {
	struct hrdma_request *request;
	struct scatter_part body; /* the piece of the part that the engine moves */
	u64 mapped; /* the local address, as the engine knows it */
	int state;
};

/*
 * A transaction: up to SCATTER_PARTS sub-transfers between memory of this machine and a peer's RAM.
 * It is the caller's again when done() is called. It never fails: the CPU makes every copy that an
 * engine can't.
 */
struct hrdma_request {
	/* The caller's; constant until done(). */
	const struct scatter_part *parts; /* local: physical addresses of pages that are held */
	struct hrdma_slot *slots; /* as many as parts */
	u32 count;
	u32 flags;
	/*
	 * Any context, also before marlin_hrdma_start() returns. An engine's locks can be held, so
	 * the callback begins no transaction.
	 */
	void (*done)(struct hrdma_request *request);

	/* hrdma.c's. */
	struct hrdma_window *window;
	struct hrdma_channel *channel; /* NULL: the CPU moves it */
	struct list_head link; /* of channel->running or ->failed */
	atomic_t left; /* sub-transfers that the engine has, and one while they are handed over */
	unsigned long deadline; /* jiffies */
	u64 bytes;
	s32 cookie; /* of the last descriptor */
	bool quiet; /* the last descriptor has no interrupt, so the driver is polled */
	bool entered; /* the window is left when it ends */
	bool swept; /* the engine was stopped, and its sub-transfers are accounted for */
};

/*
 * Begins a transaction with the peer at a port. Process context or softirq; the CPU can copy all of
 * it before this returns. -ENOTCONN: no link, or no such peer, or no window shows its RAM; -EINVAL:
 * too many parts, or one is outside of that RAM. Then done() is not called. A link that goes down
 * waits for the transactions under way.
 */
int marlin_hrdma_start(unsigned int port, struct hrdma_request *request);
/* scatter_cut() of up to SCATTER_PARTS parts. */
u32 marlin_hrdma_cut(struct scatter_part *parts, struct scatter_pages *local,
		     struct scatter_pages *remote, u64 bytes, u64 *cut);

/* ---- loans (include/remora/marlin.h), of a client: BH disabled ---- */

/* Lends to the node at a port. Returns the loan's number; -1: no link yet, or all are lent. */
int marlin_loan_lend(unsigned int port, u32 *epoch);
/* Is there such a loan? number: any. */
bool marlin_loan_has(unsigned int port, u32 number, u32 epoch);
/*
 * Takes a loan back. True: no copy touches the memory any more, and the loan is free. False: one is
 * under way; call again.
 */
bool marlin_loan_end(unsigned int port, u32 number);

/* ---- loans, of a node: BH disabled ---- */

/* The bytes that copies reach of the RAM of the client at a port; 0: there can be none. */
u64 marlin_loan_ram(unsigned int port);
/*
 * Can copies be from its loans? The CPU makes them if loads from there are fast, as between
 * virtual machines. Over a bus each takes a microsecond or so, and it takes an engine.
 */
bool marlin_loan_fetches(unsigned int port);
/* scatter_holds() of that RAM. */
bool marlin_loan_holds(unsigned int port, const struct scatter_pieces *remote, u64 bytes);
/* scatter_add() of up to SCATTER_PARTS parts. */
bool marlin_loan_add(struct scatter_part *parts, u32 *count, struct scatter_pieces *remote,
		     u64 local, u64 bytes);

/* A copy to a loan, or from one. */
struct marlin_loan_copy {
	struct hrdma_request request; /* parts, slots and count are the caller's */
	/* The caller's. */
	unsigned int port;
	u32 number, epoch; /* of the loan: any */
	bool fetches;	   /* from the loan; done() learns: */
	bool whole;	   /* the link stood all the time. Else bytes might be lost, or no data */
	/* BH disabled, also before marlin_loan_copy() returns: it is over, and the caller's. */
	void (*done)(struct marlin_loan_copy *copy);

	/* loan.c's. */
	struct marlin_peer *peer;
	atomic_t state;
	struct work_struct work;
};

/*
 * Begins a copy; its parts and their pages stay until done(). Else done() is not called: -ENOTCONN:
 * as marlin_hrdma_start(); -EINVAL: likewise, or there is no such number; -EACCES: the management
 * host keeps a page closed; -EALREADY: the loan has a copy under way; -ESTALE: it is lent no more.
 */
int marlin_loan_copy(struct marlin_loan_copy *copy);

#endif
