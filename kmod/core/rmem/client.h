/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The client's half of the protocol (Clio, ASPLOS'22, sections 4.4 and 4.5):
 * one channel is one session with a node over one pair of addresses.
 *
 *   caller: rmem_client_submit(op) ----> [ waiting ] --rmem_client_next()--> packets to send
 *                                            |  windows: cwnd (per node), iwnd (per client)
 *   packets received --rmem_client_receive()-+-> copy data here, op is finished
 *   timer            --rmem_client_expire()--+-> what to send again is waiting again
 *
 * An op is one READ, WRITE, DISCARD, ZERO, ALLOC or FREE. Its memory is the
 * caller's, embedded in the caller's request, and the channel's from submit
 * until it is reported finished. A WRITE takes one id per packet; the others one.
 * A retry sends the whole op again, but for the parts already answered.
 *
 * The session is opened, and opened again when the node forgot it, by the channel itself;
 * ops that were outstanding then get new ids. A node that restarted
 * is told by its boot epoch: the channel is then LOST for good, and every op
 * finishes with RMEM_CLIENT_LOST.
 *
 * Locking: one lock per channel, held by the caller around every call here but
 * those on shared windows, which synchronise themselves (window.h).
 */
#ifndef REMORA_RMEM_CLIENT_H
#define REMORA_RMEM_CLIENT_H

#include "core/rmem/rtt.h"
#include "core/rmem/seq.h"
#include "core/rmem/window.h"
#include "core/rmem/wire.h"

#define RMEM_OP_BYTES_MAX RMEM_READ_BYTES_MAX
#define RMEM_OP_PARTS_MAX (RMEM_OP_BYTES_MAX / RMEM_PIECE_BYTES_MIN)

/* How an op ended. */
enum rmem_client_result {
	RMEM_CLIENT_OK,
	RMEM_CLIENT_LOST,    /* the node restarted, its memory is gone */
	RMEM_CLIENT_REFUSED, /* the node said no; op->status has its word */
	RMEM_CLIENT_TIMEOUT, /* fail_after passed */
	RMEM_CLIENT_CANCELLED,
};

struct rmem_op {
	struct rmem_op *next; /* of whatever list holds it */
	/* The caller sets these. */
	u8 type; /* enum rmem_type */
	u64 addr;
	u32 len;	/* READ, WRITE: 1 .. RMEM_OP_BYTES_MAX; DISCARD, ZERO: .. RMEM_ZERO_BYTES_MAX */
	union {		/* payload of ALLOC and FREE, and what ALLOC answered */
		struct rmem_alloc alloc;
		struct rmem_range range;
	};
	/* The channel's. */
	u8 status; /* enum rmem_status that ended it */
	u8 attempt;
	u8 state;
	bool damaged_only;  /* retried for NACK, not for silence: no back-off */
	u16 parts;	    /* packets: sent for a WRITE, received for a READ, else 1 */
	u16 parts_done;
	u16 parts_sent;	    /* in this attempt */
	u16 charged_packets; /* against cwnd */
	u32 charged_bytes;  /* against iwnd */
	u64 id;		    /* first of its ids */
	u64 submitted_ns;
	u64 sent_ns;	    /* start of the attempt */
	u64 deadline_ns;    /* of the attempt */
	u64 done[(RMEM_OP_PARTS_MAX + 63) / 64];
};

struct rmem_client_config {
	u8 client[16];	   /* names the client; the same for all channels that are never open at once */
	u32 space;
	u8 integrity;	   /* enum rmem_integrity */
	struct base_siphash_key key;
	u32 piece_bytes;   /* what the path carries; the node's limit lowers it */
	u64 fail_after_ns; /* 0: wait for ever (queue_if_down) */
	u64 seed;	   /* random: nonces and jitter */
};

enum rmem_client_state {
	RMEM_CHANNEL_CLOSED,
	RMEM_CHANNEL_OPENING, /* no session yet, or none any more */
	RMEM_CHANNEL_OPEN,
	RMEM_CHANNEL_LOST,
};

struct rmem_client_counters {
	u64 sent, received, retries, timeouts, damaged, busy, reopened, ignored, bad;
};

struct rmem_client {
	struct rmem_client_config config;
	enum rmem_client_state state;
	struct rmem_seq seq;
	struct rmem_rtt rtt;
	struct rmem_window *window; /* cwnd of the node; shared */
	struct rmem_incast *incast; /* iwnd of this client machine; shared */
	struct rmem_opened node;    /* as the node said at OPEN, host byte order via client.c */
	/* private to client.c */
	u64 session, boot, nonce;
	u64 open_deadline_ns, heard_ns, silent_since_ns;
	u32 open_attempt, backoff;
	bool open_due, close_due;
	struct rmem_op *head, *tail; /* waiting, oldest first */
	struct rmem_op *busy_head;   /* told BUSY, waiting for their deadline */
	u32 outstanding_ops;
	struct rmem_client_counters count;
};

/*
 * incast and window are shared: one window per node, one incast per machine.
 * boot: 0, or the epoch another channel to the same node has learnt (a region is
 * lost when the node's epoch isn't the one it was allocated under).
 */
void rmem_client_init(struct rmem_client *c, const struct rmem_client_config *config,
		      struct rmem_window *window, struct rmem_incast *incast, u64 boot);

/* Start opening. OPEN goes out by rmem_client_next(). */
void rmem_client_open(struct rmem_client *c, u64 now_ns);

/* Never refuses; ops wait while windows are closed or the session isn't open. */
void rmem_client_submit(struct rmem_client *c, struct rmem_op *op, u64 now_ns);

/* A packet to send: header, then len bytes of op's data from offset, or payload. */
struct rmem_client_tx {
	struct rmem_head head; /* digest not filled in */
	struct rmem_op *op;    /* NULL: the channel's own (OPEN, CLOSE) */
	u32 data_offset;       /* WRITE: into the op's data */
	u32 data_bytes;	       /* WRITE: 0 otherwise */
	u32 payload_bytes;     /* OPEN, ALLOC, FREE: wire form is in payload */
	u8 payload[sizeof(struct rmem_open)];
};

/*
 * The next packet, if there is one that may go now. Call until false: after
 * submit, receive, expire, and when a window opened (rmem_window_waiting()).
 */
bool rmem_client_next(struct rmem_client *c, u64 now_ns, struct rmem_client_tx *tx);

/* The packet couldn't be sent (no memory): its part will go again soon. */
void rmem_client_unsent(struct rmem_client *c, const struct rmem_client_tx *tx, u64 now_ns);

/* What a received message means. */
struct rmem_client_rx {
	bool accepted;	    /* else: not for us any more; ignore */
	struct rmem_op *op; /* READ data to be copied: data_bytes of payload to data_offset; */
	u32 data_offset;
	u32 data_bytes;
	struct rmem_op *finished; /* ops that ended, linked by next; result below */
	enum rmem_client_result result;
};

/*
 * head has parsed as a response and its tag has verified; damaged: its payload
 * didn't. payload: of OPEN and ALLOC responses (NULL else). If rx->op is set the
 * caller copies the data before it looks at finished.
 */
void rmem_client_receive(struct rmem_client *c, u64 now_ns, const struct rmem_head *head,
			 const void *payload, bool damaged, struct rmem_client_rx *rx);

/* Deadlines passed? Ops to retry wait again; those too old finish, linked, all with *result. */
struct rmem_op *rmem_client_expire(struct rmem_client *c, u64 now_ns,
				   enum rmem_client_result *result);

/* When expire() or next() wants to be called, or 0: only when something happens. */
u64 rmem_client_deadline(const struct rmem_client *c);

/* Take every op back, linked; they count as cancelled and late answers are ignored. */
struct rmem_op *rmem_client_cancel_all(struct rmem_client *c);

/* Begin CLOSE; ops must be gone. State becomes CLOSED at its answer. */
void rmem_client_close(struct rmem_client *c, u64 now_ns);

#endif
