/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The client's half of the protocol (Clio, ASPLOS'22, sections 4.4 and 4.5):
 * one channel is one session with a node over one pair of addresses.
 *
 *   caller: rmem_client_submit(op) ----> [ waiting ] --rmem_client_next()--> packets to send
 *                                            |  windows: cwnd (per channel), iwnd (per machine)
 *   packets received --rmem_client_receive()-+-> copy data here, op is finished
 *   timer            --rmem_client_expire()--+-> lost ops wait again
 *
 * An op is one READ, WRITE, DISCARD, ZERO, ATOMIC, PUT, READV, WRITEV, COPY, FENCE, ALLOC, FREE,
 * PUBLISH, LOOKUP, LIST, QUERY or CALL.
 * Its memory is the caller's, embedded in the caller's request, and the channel's from submit
 * until it is reported finished. A WRITE takes one id per packet; the others one.
 * A retry sends the whole op again, but for the parts already answered.
 *
 * The session is opened, and opened again when the node forgot it, by the channel itself;
 * ops that were outstanding then get new ids. It is renewed (remora/rmem.h) when a change is
 * given up; they keep theirs then. A node that restarted
 * is told by its boot epoch: the channel is then LOST for good, and every op
 * finishes with RMEM_CLIENT_LOST. A caller that wants to go on calls
 * rmem_client_init() with another name, in the same memory once no op is left in it.
 *
 * Locking: one lock per channel, held by the caller around every call here but
 * those on the shared iwnd, which synchronises itself (incast.h). A caller that has dropped the
 * lock asks rmem_incast_next(), and calls rmem_client_next() of the channels it names.
 */
#ifndef REMORA_RMEM_CLIENT_H
#define REMORA_RMEM_CLIENT_H

#include "core/rmem/client/incast.h"
#include "core/rmem/client/loss.h"
#include "core/rmem/client/rtt.h"
#include "core/rmem/client/seq.h"
#include "core/rmem/client/window.h"
#include "core/rmem/seal.h"
#include "core/rmem/wire.h"

#define RMEM_OP_BYTES_MAX RMEM_READ_BYTES_MAX
#define RMEM_OP_PARTS_MAX (RMEM_OP_BYTES_MAX / RMEM_PIECE_BYTES_MIN)

/*
 * Most messages that one row of rmem_client_next() yields. It bounds the work in one hold of the
 * lock: some 200 us of a processor for pieces of 8 KiB.
 */
#define RMEM_ROW_MAX 64

/* How an op ended. */
enum rmem_client_result {
	RMEM_CLIENT_OK,
	RMEM_CLIENT_LOST,    /* the node restarted, its memory is gone */
	RMEM_CLIENT_REFUSED, /* the node said no; op->status has its word */
	RMEM_CLIENT_TIMEOUT, /* fail_after passed */
	RMEM_CLIENT_CANCELLED,
	RMEM_CLIENT_UNKNOWN, /* ATOMIC, PUT, PUBLISH, CALL: session ended; executed once or never */
};

/* ALLOC's and FREE's payloads, in the host's byte order. */
struct rmem_op_alloc {
	u64 bytes;
	u64 addr; /* wanted, or 0 */
	u32 perm; /* RMEM_PERM_* */
};

struct rmem_op_range {
	u64 addr;
	u64 bytes;
	bool undoes; /* FREE of an ALLOC's region that nobody knows of: if it's given up, */
		     /* the session ends, and the node undoes it */
};

/* ATOMIC's; 16 bytes are two of 8, the lower one first. */
struct rmem_op_atomic {
	u64 value[2];
	u64 compare[2];
	u64 found[2]; /* the answer */
	u8 op;	      /* enum rmem_atomic_op */
};

/* PUT's: the integer. */
struct rmem_op_put {
	u64 addr;
	u64 value;
	u64 found; /* the answer */
	u32 bytes; /* 4, 8 */
	u8 op;	   /* enum rmem_atomic_op */
};

/* READV's and WRITEV's: as they are on the wire, the caller's for as long as the op is out. */
struct rmem_op_vector {
	const struct rmem_range *range;
	u8 ranges; /* 1 .. RMEM_RANGES_MAX */
};

/* COPY's. */
struct rmem_op_copy {
	u64 from; /* first byte of the source */
};

/*
 * PUBLISH's, LOOKUP's and LIST's: named is as it is on the wire, the caller's for as long as the op
 * is out.
 */
struct rmem_op_name {
	const struct rmem_named *named;
	u64 addr, bytes;	    /* LOOKUP, LIST: the answer; bytes 0: LIST found none */
	struct rmem_listed *listed; /* LIST: the same, for the answer as it is on the wire */
};

/* QUERY's and CALL's; the op's addr is the offload's id, its data the arguments. */
struct rmem_op_call {
	u32 room_bytes;	  /* QUERY: for the result, up to rmem_client_vector_bytes() */
	u32 result_bytes; /* the answer: QUERY's data, CALL's found */
	u64 found[2];
	u32 part;    /* refused as FAILED: the errno; OVER_BUDGET: us used */
	u8 function; /* below RMEM_FUNCTIONS_MAX */
};

struct rmem_op_ops;

struct rmem_op {
	struct rmem_op *next, *prev; /* of the list that holds it; finished: next only */
	const struct rmem_op_ops *ops; /* the caller's own, not looked at here */
	/* The caller sets these; the rest needs no clearing. */
	u64 addr;
	/*
	 * READ, WRITE: 1 .. RMEM_OP_BYTES_MAX; DISCARD, ZERO: .. RMEM_ZERO_BYTES_MAX;
	 * ATOMIC: 4, 8, 16; PUT: .. rmem_client_put_bytes(); FENCE: 0;
	 * READV, WRITEV: of all ranges, rmem_client_vector_bytes() says how many;
	 * COPY: .. RMEM_COPY_BYTES_MAX, to addr; QUERY, CALL: 0 .. RMEM_ARGS_BYTES_MAX
	 */
	u32 len;
	u8 type; /* enum rmem_type */
	/* The channel's. */
	u8 status;	     /* enum rmem_status that ended it */
	u8 attempt;	     /* 0 only the first time */
	u8 state;	     /* which list, enum in op.h */
	bool held;	     /* the caller's own, too */
	bool may_be_done;    /* a copy was handed out in this session */
	bool sent_before;    /* a copy was handed out in a session that the node has ended */
	bool lent;	     /* WRITE: sent for the node to fetch its data, */
	bool single;	     /* which wasn't done: a message for each part */
	u8 trouble;	     /* answers late, busy or damaged since the last good one */
	u16 parts;	     /* packets: sent for a WRITE, received for a READ, else 1 */
	u16 parts_done;
	u16 flying_parts;    /* bits in flying; each holds one packet of cwnd */
	u16 sent_part;	     /* first part in the last packet sent, */
	u16 first_sent_part; /* the same of attempt 0 */
	u16 ahead_part;	     /* the last part answered of those sent in this attempt */
	u16 recalled_parts;  /* parts below it were taken for lost, and sent again; 0: none */
	u32 piece;	     /* payload bytes of a part, but the last */
	u32 iwnd_bytes;	     /* its share of iwnd, for parts that fly */
	u64 own;	     /* the transport's: kmod/rmem_ops.h */
	u64 sent_ns;	     /* when the last packet left, and its departure */
	u64 departure;
	u64 begun_ns;	     /* the same of the attempt's first packet */
	u64 begun_departure;
	u64 overtaken_ns;    /* since when an unanswered part is overtaken by a later one, or 0 */
	u64 first_sent_ns;   /* when attempt 0's last packet left */
	u64 id;		     /* first of its ids; 0: has none in this session */
	u64 submitted_ns;
	u64 deadline_ns;     /* if the list it's in goes by deadlines */
	u64 done[RMEM_OP_PARTS_MAX / 64];
	u64 flying[RMEM_OP_PARTS_MAX / 64]; /* sent, neither answered nor given up */
	union {
		struct rmem_op_alloc alloc; /* ALLOC: the caller's */
		struct rmem_op_range range; /* FREE: the caller's; ALLOC finished OK: the answer */
		struct rmem_op_atomic atomic; /* ATOMIC: the caller's, but for the answer */
		struct rmem_op_put put;	      /* PUT: the same */
		struct rmem_op_vector vector; /* READV, WRITEV: the caller's */
		struct rmem_op_copy copy;     /* COPY: the caller's */
		struct rmem_op_call call;     /* QUERY, CALL: the caller's, but for the answer */
		struct rmem_op_name name;     /* PUBLISH, LOOKUP, LIST: the same, but for */
					      /* the answer */
	};
};

struct rmem_client_config {
	u8 client[16];	   /* names it; no other channel ever has the same */
	u32 space;
	u8 integrity;	   /* enum rmem_integrity */
	struct base_siphash_key key;
	u32 piece_bytes;   /* payload bytes of a packet on the path; the node's limit lowers it */
	u32 datagram_bytes; /* the path's largest, for several messages; 0: one in each */
	/*
	 * 0: wait for ever (queue_if_down). Else an op older than that ends, once nothing
	 * has got on for that long on the channel: no op ended or advanced, no session opened.
	 */
	u64 fail_after_ns;
	u64 seed;	   /* random: first nonce, and jitter */
	u8 waiter;	   /* of this channel in iwnd; below RMEM_WAITERS */
	bool lossless;	   /* the path has credit of its own (room below): neither cwnd nor iwnd */
	const struct rmem_cipher *cipher; /* RMEM_SEALED; used under the channel's lock */
};

/*
 * How long a sealed session has the same keys. As a datagram takes a hundred nanoseconds at least,
 * fewer than 2^36 of them are sealed with one.
 */
#define RMEM_REKEY_NS (3600 * BASE_NSEC_PER_SEC)

enum rmem_client_state {
	RMEM_CHANNEL_CLOSED,
	RMEM_CHANNEL_OPENING, /* no session yet, or none any more */
	RMEM_CHANNEL_OPEN,
	RMEM_CHANNEL_LOST,
};

struct rmem_client_counters {
	u64 sent, received, retries, timeouts, lost, damaged, busy, reopened, ignored, bad;
};

struct rmem_op_list {
	struct rmem_op *head, *tail;
	u32 ops;
};

/* Properties of the node, from the answer to OPEN. */
struct rmem_client_node {
	u64 memory_bytes, free_bytes;
	u32 page_bytes, piece_bytes;
};

/*
 * A message to send: header, then a payload of payload_bytes from rmem_client_tx_payload() and
 * data_bytes of op's data from data_offset; of PUT and WRITEV both, in that order, else one of them
 * or none. A WRITE with head.piece is one of several parts (rmem_client_set_lending()).
 */
struct rmem_client_tx {
	struct rmem_head head; /* digest not filled in */
	struct rmem_op *op;    /* NULL: the channel's own (OPEN, CLOSE) */
	u32 data_offset;       /* WRITE: into the op's data */
	u32 data_bytes;	       /* WRITE, PUT, WRITEV, QUERY, CALL; 0 otherwise */
	u32 payload_bytes;     /* OPEN, ALLOC, FREE, ATOMIC, PUT, COPY: their wire form, payload; */
			       /* READV, WRITEV: their ranges, PUBLISH, LOOKUP, LIST: */
			       /* their name, which are the op's */
	union {
		struct rmem_open open;
		struct rmem_open_sealed open_sealed;
		struct rmem_alloc alloc;
		struct rmem_range range;
		struct rmem_operands operands;
		struct rmem_put put;
		struct rmem_copy copy;
		u8 payload[sizeof(struct rmem_open_sealed)];
	};
};

static inline const void *rmem_client_tx_payload(const struct rmem_client_tx *tx)
{
	if (rmem_type_has_ranges(tx->head.type))
		return tx->op->vector.range;
	return rmem_type_has_name(tx->head.type) ? (const void *)tx->op->name.named : tx->payload;
}

struct rmem_client {
	struct rmem_client_config config;
	enum rmem_client_state state;
	struct rmem_seq seq;
	struct rmem_rtt rtt;
	struct rmem_loss loss;
	struct rmem_window window;
	struct rmem_base *base;	    /* of the path to the node; shared by channels to it */
	struct rmem_incast *incast; /* iwnd of this client machine; shared */
	struct rmem_incast_share *share; /* of the channel's device, or NULL */
	struct rmem_incast_place place;
	struct rmem_client_node node;
	u8 open_status; /* enum rmem_status of the last OPEN's answer */
	/* The rest is client.c's; callers MAY read boot, session and count. */
	u64 session, boot;
	u64 own_id; /* of OPEN (a nonce) or CLOSE */
	u64 nonce;  /* of the last OPEN */
	u64 challenge; /* the node's last one, or 0 */
	u64 challenged_ns; /* when the OPEN that carried it first was due */
	u64 own_deadline_ns;
	u64 own_sent_ns; /* 0: not yet */
	u8 own_attempt;
	bool own_due, closing;
	bool closes; /* as soon as the OPEN under way is answered */
	bool abandons; /* the session has to end: an ALLOC, or its undoing FREE, was given up */
	bool was_renewed; /* by the last OPEN, so that its end needs no pause */
	bool has_pair; /* RMEM_SEALED: the two below are those of the OPEN under way */
	u8 secret[RMEM_X25519_BYTES], public_key[RMEM_X25519_BYTES];
	struct rmem_seal_keys keys;	   /* of session, */
	struct rmem_seal_keys keys_before; /* and of renews, until OPEN is answered */
	u64 renews;    /* the session that OPEN names, or named: answers in it still count; or 0 */
	u32 piece; /* payload bytes per packet: of the path and the node, the lesser */
	u32 silent; /* timeouts in a row without any sign of the node */
	u64 rto_ns, rng;
	u64 opened_ns, heard_ns, progress_ns, fail_ns, pace_ns;
	u64 unknown_ns; /* when the node last said so and the session was renewed; 0: never */
	struct rmem_op_list waiting; /* never sent, oldest first */
	struct rmem_op_list again;   /* to be sent again, before those */
	struct rmem_op_list partly;  /* the same, but with parts that fly; before all others */
	struct rmem_op_list held;    /* ATOMICs and PUTs too far above the floor; before again */
	struct rmem_op_list flying;  /* sent whole, in the order of sent_ns, so of timeouts */
	struct rmem_op_list timed;   /* sorted by deadline: told BUSY, or slow at the node */
	struct rmem_op *sending;     /* sent in part */
	struct rmem_op abandoned;    /* owns the ids of ALLOCs given up; of no type */
	struct rmem_client_tx ahead; /* the next message, */
	bool has_ahead;		     /* if there is one */
	bool answered;		     /* since an op last left, or was found waiting */
	bool starved;		     /* iwnd was closed in this row of rmem_client_next() */
	u32 row;		     /* messages of the row so far */
	u32 room; /* most messages of ops in a row; U32_MAX unless the caller sets it */
	u32 lends_bytes_min; /* a message can have several parts of such a WRITE; 0: of none */
	u64 yield_ns;		     /* when a row ended though messages might be left, or 0 */
	u64 departures;		     /* packets sent; numbers their datagrams, too */
	u64 held_until;		     /* others get ids while the floor is below this */
	u32 burst_ops;		     /* of waiting and again: can go, though few wait */
	u32 outstanding_ops;
	struct rmem_client_counters count;
	void *owner[RMEM_WINDOW]; /* seq's */
};

/*
 * base and incast are shared: one base per node, one incast per machine.
 * boot: 0, or the epoch another channel to the same node has learnt (a region is
 * lost when the node's epoch isn't the one it was allocated under).
 */
void rmem_client_init(struct rmem_client *c, const struct rmem_client_config *config,
		      struct rmem_base *base, struct rmem_incast *incast, u64 boot);

/* After init: the channel has one turn for iwnd with the other channels of its device. */
static inline void rmem_client_set_share(struct rmem_client *c, struct rmem_incast_share *share)
{
	c->share = share;
}

/* Start opening. OPEN goes out by rmem_client_next(). */
void rmem_client_open(struct rmem_client *c, u64 now_ns);

/*
 * Never refuses; ops wait while windows are closed or the session isn't open. Once LOST,
 * rmem_client_expire() gives them back.
 */
void rmem_client_submit(struct rmem_client *c, struct rmem_op *op, u64 now_ns);

/*
 * The next message, if there is one that can go now. Call until false, in one hold of the lock:
 * after open, close, submit, receive, expire, cancel, and when iwnd opened (rmem_incast_next()).
 * After RMEM_ROW_MAX messages it is false once; then rmem_client_deadline() is now.
 * Messages of one such row of calls can share datagrams (rmem_bundle_joins()) if their op has
 * op->parts: READ, WRITE, ATOMIC, PUT, READV, WRITEV, COPY, QUERY, CALL.
 */
bool rmem_client_next(struct rmem_client *c, u64 now_ns, struct rmem_client_tx *tx);
/* Before a row: limit it to `messages` messages of ops. OPEN and CLOSE need no room. */
static inline void rmem_client_set_room(struct rmem_client *c, u32 messages)
{
	c->room = messages;
}

/* Most parts of a message. */
#define RMEM_LENT_PARTS_MAX 32U

/*
 * Before a row: the node fetches the data of WRITEs of bytes_min bytes or more by itself; 0: of
 * none. Then a message can have several parts, without their data: its id is the first part's,
 * those of the others follow, and so do their addresses, by head.piece. Each part is answered by
 * itself. DAMAGED for any says that the node won't fetch. Then, and after rmem_client_unsent(), the
 * client sends the parts one by one.
 */
static inline void rmem_client_set_lending(struct rmem_client *c, u32 bytes_min)
{
	c->lends_bytes_min = bytes_min;
}

static inline bool rmem_client_lends(const struct rmem_client *c, const struct rmem_op *op)
{
	return op->type == RMEM_WRITE && !op->single && c->lends_bytes_min &&
	       op->len >= c->lends_bytes_min;
}

/* Ends the row: the caller has to ask for the other messages anew, and the deadline is now. */
static inline void rmem_client_yield(struct rmem_client *c, u64 now_ns)
{
	c->yield_ns = now_ns;
}

/* Bytes of data that a PUT takes at most; 0 until the session was open for the first time. */
u32 rmem_client_put_bytes(const struct rmem_client *c);

/*
 * Most bytes that the ranges and data of a WRITEV have together; of a READV each of the two. 0
 * until the session was open for the first time.
 */
u32 rmem_client_vector_bytes(const struct rmem_client *c);

/* How many messages, tx included, can come in a row now and share its datagram; 1 or more. */
u32 rmem_client_row(const struct rmem_client *c, const struct rmem_client_tx *tx);

/* The message couldn't be sent (no memory): its part will go again soon. */
void rmem_client_unsent(struct rmem_client *c, const struct rmem_client_tx *tx, u64 now_ns);

/*
 * The key that opens a sealed datagram of that session (seal.h), or NULL: it isn't the channel's.
 * keys.from_client seals the channel's own; an OPEN is sent in the clear (head.clear).
 */
static inline const struct rmem_seal_key *rmem_client_opening_key(const struct rmem_client *c,
								  u64 session)
{
	if (session && session == c->session)
		return &c->keys.from_node;
	return c->state == RMEM_CHANNEL_OPENING && session && session == c->renews ?
		       &c->keys_before.from_node : NULL;
}

/* The meaning of a received message. */
struct rmem_client_rx {
	bool accepted;	    /* else: not for us any more; ignore */
	/* Data of a READ, READV or QUERY to be copied: data_bytes of payload to data_offset. */
	struct rmem_op *op;
	u32 data_offset;
	u32 data_bytes;
	struct rmem_op *finished; /* ops that ended, linked by next; result below */
	enum rmem_client_result result;
};

/*
 * head has parsed as a response and its tag has verified, or it is plain (plain.h) and came from
 * where the session's OPEN was answered; space is this session's then. damaged: its payload
 * didn't verify. payload: of OPEN, ALLOC, LOOKUP, LIST, ATOMIC, PUT and CALL responses that are OK,
 * at any alignment; not looked at else. If rx->op is set the caller copies the data before it looks
 * at finished.
 */
void rmem_client_receive(struct rmem_client *c, u64 now_ns, const struct rmem_head *head,
			 const void *payload, bool damaged, struct rmem_client_rx *rx);

/*
 * This machine's memory was rolled back, and with it the client's knowledge of its ids: the channel
 * is LOST. Returns all ops, linked, which end so.
 */
struct rmem_op *rmem_client_rolled_back(struct rmem_client *c);

/*
 * Deadlines passed? Ops to retry wait again; those too old (or the channel is LOST) finish,
 * linked, all with *result.
 *
 * A change that ended with TIMEOUT can have a copy on its way. Then the state is OPENING: the
 * session, renewed, makes the node refuse the copy. Until that is OPEN, the caller sends nothing to
 * the same addresses in other channels, or the copy might come after it.
 */
struct rmem_op *rmem_client_expire(struct rmem_client *c, u64 now_ns,
				   enum rmem_client_result *result);

/* Open, and without ops: neither expire() nor next() has anything to do until an event. */
static inline bool rmem_client_is_idle(const struct rmem_client *c)
{
	return c->state == RMEM_CHANNEL_OPEN && !c->closing && !c->outstanding_ops;
}

/*
 * When expire() and then next() want to be called, or 0: only when something happens. It can be in
 * the past. After expire(now_ns), and next() until it is false, the deadline is 0 or later than
 * now_ns, unless next() yielded a message: so a timer that is started for each deadline fires at
 * one time at most once for each message.
 */
u64 rmem_client_deadline(const struct rmem_client *c);

/*
 * Take one op back, which has been submitted and hasn't ended; late answers to it are ignored. It
 * was executed once, in part, or never. If it is a change, a copy of it might be on its way: then
 * the state is OPENING, as after a TIMEOUT, and the same holds for other channels. Ops submitted to
 * this one from now on are safe, because they are sent after that.
 */
void rmem_client_cancel(struct rmem_client *c, struct rmem_op *op, u64 now_ns);

/*
 * The oldest op that was never sent, or NULL; its next is the one after. If it's cancelled, no copy
 * of it comes late.
 */
static inline struct rmem_op *rmem_client_never_sent(const struct rmem_client *c)
{
	return c->waiting.head;
}

/*
 * Take every op back, linked; they count as cancelled and late answers are ignored. Copies of
 * changes can still arrive at the node until the session is closed or another one open. That end
 * also undoes an ALLOC taken back.
 */
struct rmem_op *rmem_client_cancel_all(struct rmem_client *c);

/*
 * Begin CLOSE; ops must be gone. State becomes CLOSED at its answer. It stays OPENING before, if an
 * OPEN is under way that might have opened a session: that is closed once the answer has named it.
 */
void rmem_client_close(struct rmem_client *c, u64 now_ns);

#endif
