/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The memory node: the execution of requests (Clio, ASPLOS'22, sections 4.2 to 4.5).
 *
 *   datagram -> rmem_datagram_open -> rmem_node_key -> tag checked by the caller
 *      |
 *      |-- types of path FAST (types.h):     fast path, any CPU, softirq
 *      |     lock slot(head) { rmem_node_request -> answer; rmem_execute (execute.h) }
 *      |       '-- QUERY, CALL:              into the run table (offload/run.h)
 *      |
 *      `-- rmem_node_is_slow():        slow path: call.h
 *          the others, and ZERO if it would take long
 *
 * All state has a bound set by the configuration and lies in one block that
 * the caller hands in at init; nothing is allocated afterwards. Page memory is
 * the caller's: the node speaks of pages by index, 0 up to pages - 1.
 *
 * Locking, the caller's business:
 *   - slot lock, one per session slot: around rmem_node_request() up to
 *     rmem_node_done(), the copying of data included, and where stated below.
 *     A second copy of a write can so never be acknowledged while the first is
 *     still being copied.
 *   - call lock: one call of the slow path, or change of the spaces, at a time, from its begin
 *     to its end; brief calls can run between a long one's steps (call.h). Outermost, and held
 *     for long.
 *   - slow lock: around each step of a call, and where stated below. Never held for long.
 *     Taken before a slot lock.
 *   - translations are read without a lock. A request on another CPU can still read a page that
 *     DISCARD, ZERO or FREE took out of the table: rmem_node_scrub_next() hands it out, and the
 *     caller lets such requests end (a grace period), and references to it go (packets not sent
 *     yet), before it zeroes the page and gives it back by rmem_node_scrub_done().
 */
#ifndef REMORA_RMEM_NODE_H
#define REMORA_RMEM_NODE_H

#include "core/rmem/node/alloc.h"
#include "core/rmem/node/atomic.h"
#include "core/rmem/node/name.h"
#include "core/rmem/node/pool.h"
#include "core/rmem/node/running.h"
#include "core/rmem/node/session.h"
#include "core/rmem/node/space.h"
#include "core/rmem/node/table.h"
#include "core/rmem/wire.h"

#define RMEM_NODE_PAGES_MAX RMEM_TABLE_PAGES_MAX
#define RMEM_NODE_STEP_PAGES 1024U

struct rmem_store;

struct rmem_node_config {
	u64 boot; /* random; another one at each start, and after rmem_node_reboot() */
	u64 seed[4]; /* random: two of the hashes of pages and regions, two of names of sessions */
	u64 pages;	     /* 1 up to RMEM_NODE_PAGES_MAX */
	u32 page_shift;	     /* RMEM_PAGE_SHIFT_MIN .. _MAX */
	u32 pool_pages;	     /* zeroed pages kept ready; a power of two, 2 or more */
	u32 piece_bytes;     /* largest payload of a packet; RMEM_PIECE_BYTES_* */
	u32 spaces_max;	     /* 1 .. RMEM_SPACES_MAX */
	u32 sessions_max;    /* 1 .. RMEM_SESSIONS_MAX */
	u32 regions_max;     /* 1 .. RMEM_REGIONS_MAX */
	u32 session_idle_ms; /* a session unused for that long can be evicted for a new one, and */
			     /* is ended if it owes memory: rmem_node_call_expire() */
	u32 window_ids;	     /* 0: RMEM_WINDOW, the protocol's; less is for the model checker */
	u32 step_pages;	     /* of a region entered or removed at once; 0: RMEM_NODE_STEP_PAGES */
	/* The last ones of `pages` belong to one space for good (rmem_node_add_persistent()). */
	u64 persistent_pages;
	bool challenges;     /* of OPENs; false: for models, and a process that asks itself */
	/* For OPENs of RMEM_SEALED; used in the call lock. NULL: the node refuses the level. */
	const struct rmem_cipher *cipher;
};

/* NULL if the configuration is sound, else its fault, as one line. */
const char *rmem_node_config_error(const struct rmem_node_config *config);

/* Bytes of state for a sound configuration; 64-byte aligned memory wanted. */
size_t rmem_node_state_bytes(const struct rmem_node_config *config);

/* 64-byte aligned, as its type says: mind it where the compiler doesn't. */
struct rmem_node {
	struct rmem_node_config config;
	struct rmem_table table;
	struct rmem_alloc_state alloc;
	struct rmem_pool pool;
	struct rmem_spaces spaces;
	struct rmem_names names;
	struct rmem_sessions sessions;
	struct rmem_store *store;     /* store.h; NULL: the state ends with the process */
	struct rmem_running *running; /* calls of offloads; NULL: none was ever loaded; atomic */
	bool has_16; /* rmem_atomic_has_16() */
	bool persistent;       /* rmem_node_add_persistent() made a region */
	u32 persistent_memory; /* index of its space */
};

static inline struct rmem_running *rmem_node_running(const struct rmem_node *node)
{
	/* Pairs with rmem_run_init(). */
	return __atomic_load_n(&node->running, __ATOMIC_ACQUIRE);
}

/* state: rmem_node_state_bytes() of memory, not cleared. All pages count as not yet zeroed. */
void rmem_node_init(struct rmem_node *node, const struct rmem_node_config *config, void *state);

/* Where the state of the node's configuration lies; its content stays. */
void rmem_node_locate(struct rmem_node *node, void *state);

/*
 * The node's memory was rolled back (a hibernated machine or a virtual machine's snapshot was
 * restored), so none of it may be served. From now on each request that names the old boot is
 * answered RMEM_REBOOTED. No lock. The caller does three things in this order:
 *   - rmem_node_reboot() with boot 0: no client takes an answer of boot 0, so no session that opens
 *     now is used;
 *   - under the call lock rmem_node_reboot() with a random boot, not 0;
 *   - still under it, rmem_node_call_forget(), which ends the sessions opened until then.
 */
void rmem_node_reboot(struct rmem_node *node, u64 boot);

/*
 * Spaces. Call lock and slow lock. After a deletion or revocation let a grace period pass before
 * the call lock is released: the next addition can use the slot, and so the key in it, again.
 * Sessions of a deleted space are refused from then on. Quotas are rounded down to pages. A view
 * shows the space with the id base to readers, and a member is another key for it (space.h). Before
 * a revocation all sessions are ended by rmem_node_call_revoke().
 */
enum rmem_space_error rmem_node_space_add(struct rmem_node *node, u32 space,
					  const u8 key[BASE_SIPHASH_KEY_BYTES],
					  u64 quota_bytes /* 0: none */);
enum rmem_space_error rmem_node_space_add_view(struct rmem_node *node, u32 space,
					       const u8 key[BASE_SIPHASH_KEY_BYTES], u32 base);
enum rmem_space_error rmem_node_space_add_member(struct rmem_node *node, u32 space,
						 const u8 key[BASE_SIPHASH_KEY_BYTES], u32 base);
enum rmem_space_error rmem_node_space_del(struct rmem_node *node, u32 space);
/* A view or a member: its memory is another space's. */
bool rmem_node_space_is_view(const struct rmem_node *node, u32 space);
enum rmem_space_error rmem_node_space_revoke(struct rmem_node *node, u32 space);
static inline bool rmem_node_seals(const struct rmem_node *node)
{
	return node->config.cipher;
}

/*
 * Sessions of the space, which is there, have to be of this level (RMEM_*); 0: of any. Not
 * RMEM_SEALED unless rmem_node_seals(): no client could open a session.
 */
void rmem_node_space_require(struct rmem_node *node, u32 space, u8 integrity);

/*
 * Gives the space a region of the node's persistent pages, at addr, which no region has. Their
 * content stays, and clients can neither change nor free it. Once, before the first request. The
 * space can't be cleared or deleted from then on. False: no such space, or no quota. Slow lock.
 */
bool rmem_node_add_persistent(struct rmem_node *node, u32 space, u64 addr);

/*
 * Forget the keys of spaces deleted or revoked, and of their sessions, after the grace period. Call
 * lock.
 */
void rmem_node_space_wipe(struct rmem_node *node);

/*
 * Which of the spaces that ever had that id is there; 0: none. No lock. A carrier that
 * delays a verified request compares: the next space of that id has another key.
 */
u64 rmem_node_incarnation(const struct rmem_node *node, u32 space);

/* The lane of a space in a queue (lanes.h), below spaces_max; 0 if the space is gone. No lock. */
u32 rmem_node_lane(const struct rmem_node *node, u32 space);

/* The key of a space, or NULL. No lock: valid till the grace period after its deletion. */
const struct base_siphash_key *rmem_node_key(const struct rmem_node *node, u32 space);

/*
 * Sealed datagrams, whose header's tag has verified; head: of the header. No lock.
 * rmem_node_keys(): the session's keys, which open them and seal the answers. Where it is false,
 * the request is answered by the notice.
 */
bool rmem_node_keys(const struct rmem_node *node, const struct rmem_head *head,
		    struct rmem_seal_keys *keys);
void rmem_node_notice(const struct rmem_node *node, const struct rmem_head *head,
		      struct rmem_head *notice);

/* Index of the session slot whose lock a request needs, below sessions_max. */
u32 rmem_node_slot(const struct rmem_node *node, u64 session);

enum rmem_node_action {
	RMEM_ACT_DROP,	   /* no answer; reason says why */
	RMEM_ACT_REPLY,	   /* send reply; with found, if it's an ATOMIC's or PUT's and RMEM_OK */
	RMEM_ACT_COPY_IN,  /* copy payload into the extents, rmem_node_done(), send reply */
	RMEM_ACT_FILL,	   /* zero the extents (0 to 2), rmem_node_done(), send reply */
	RMEM_ACT_ATOMIC,   /* rmem_node_atomic() on the extent, send reply and found */
	RMEM_ACT_SEND_OUT, /* send the data: rmem_node_read_part() until it says 0 */
	RMEM_ACT_PUT,	   /* copy the data into the extents, rmem_node_put(), as ATOMIC */
	RMEM_ACT_GATHER,   /* send reply, with the data of each rmem_node_range() */
	RMEM_ACT_SCATTER,  /* copy data to each rmem_node_range(), rmem_node_done(), send reply */
	RMEM_ACT_COPY,	   /* copy each rmem_node_stretch(), rmem_node_done(), send reply */
	RMEM_ACT_RUN,	   /* rmem_run_admit(); a QUERY or CALL is answered when it has ended */
};

/* Their names, as __print_symbolic() takes them. */
#define RMEM_NODE_ACTION_SYMBOLS                                                                   \
	{ RMEM_ACT_DROP, "drop" }, { RMEM_ACT_REPLY, "reply" }, { RMEM_ACT_COPY_IN, "copy-in" },   \
	{ RMEM_ACT_FILL, "fill" }, { RMEM_ACT_ATOMIC, "atomic" },                                  \
	{ RMEM_ACT_SEND_OUT, "send-out" }, { RMEM_ACT_PUT, "put" },                                \
	{ RMEM_ACT_GATHER, "gather" }, { RMEM_ACT_SCATTER, "scatter" }, { RMEM_ACT_COPY, "copy" }, \
	{ RMEM_ACT_RUN, "run" }

/* Why a request was refused or not executed; one counter each. Stable order: they are in uapi. */
enum rmem_node_reason {
	RMEM_NODE_OK,
	RMEM_NODE_REPEATED,   /* executed before: answered again only */
	RMEM_NODE_NO_SESSION, /* unknown, evicted, closed or superseded session */
	RMEM_NODE_PEER,	      /* session belongs to another address */
	RMEM_NODE_LEVEL,      /* another integrity level, or space, than the session's */
	RMEM_NODE_REBOOTED,   /* names another boot */
	RMEM_NODE_STALE,      /* below the floor */
	RMEM_NODE_WINDOW,     /* beyond the window */
	RMEM_NODE_LENGTH,     /* 0, too large, misaligned, or a field or an op that can't be */
	RMEM_NODE_FAULT,      /* not allocated */
	RMEM_NODE_PERM,
	RMEM_NODE_BUSY,	      /* pool empty; no session slot; no place for a result */
	RMEM_NODE_NO_MEMORY,  /* nor a free name */
	RMEM_NODE_CHALLENGE,  /* OPEN without a valid challenge */
	RMEM_NODE_EXISTS,     /* PUBLISH of a name that the space has */
	RMEM_NODE_NO_NAME,    /* the space has no such name */
	RMEM_NODE_RUNNING,    /* a copy of a call that runs */
	RMEM_NODE_NO_OFFLOAD, /* none of that id for the caller */
	RMEM_NODE_FAILED,     /* the function ended with an error */
	RMEM_NODE_OVER_BUDGET, /* the call was stopped */
	RMEM_NODE_REASONS
};

/*
 * Each reason, the status in the answer, and the counter's name. A client sees no difference
 * between OK and REPEATED.
 */
/* clang-format off */
#define RMEM_NODE_REASON_ROWS(ROW) \
	ROW(OK,         OK,         "executed") \
	ROW(REPEATED,   OK,         "repeated") \
	ROW(NO_SESSION, NO_SESSION, "no-session") \
	ROW(PEER,       NO_SESSION, "peer") \
	ROW(LEVEL,      INVALID,    "level") \
	ROW(REBOOTED,   REBOOTED,   "rebooted") \
	ROW(STALE,      STALE,      "stale") \
	ROW(WINDOW,     INVALID,    "window") \
	ROW(LENGTH,     INVALID,    "length") \
	ROW(FAULT,      FAULT,      "fault") \
	ROW(PERM,       PERM,       "perm") \
	ROW(BUSY,       BUSY,       "busy") \
	ROW(NO_MEMORY,  NO_MEMORY,  "no-memory") \
	ROW(CHALLENGE,  CHALLENGE,  "challenge") \
	ROW(EXISTS,     EXISTS,     "name-exists") \
	ROW(NO_NAME,    NO_NAME,    "no-name") \
	ROW(RUNNING,    BUSY,       "running") \
	ROW(NO_OFFLOAD, NO_OFFLOAD, "no-offload") \
	ROW(FAILED,     FAILED,     "failed") \
	ROW(OVER_BUDGET, OVER_BUDGET, "over-budget")
/* clang-format on */

#define RMEM_EXTENTS_MAX 2
#define RMEM_PAGE_NONE 0xffffffffU /* never written: read it as zeros */

struct rmem_extent {
	u32 page; /* index, or RMEM_PAGE_NONE (reads; of a WRITEV: freed just now, write nothing) */
	u32 offset;
	u32 bytes;
};

struct rmem_redo;

struct rmem_answer {
	enum rmem_node_action action;
	enum rmem_node_reason reason;
	struct rmem_session *session; /* of a fast request; NULL: the sender isn't its client */
	struct rmem_head reply; /* digest not filled in; type, ids, boot, status are */
	unsigned int extents;
	struct rmem_extent extent[RMEM_EXTENTS_MAX];
	struct rmem_extent integer; /* of ACT_PUT */
	struct rmem_extent source[RMEM_EXTENTS_MAX]; /* of ACT_COPY: rmem_node_stretch()'s */
	struct rmem_found found; /* rmem_wire_payload_bytes(&reply) of it are the reply's payload */
	struct rmem_redo *redo; /* of a fast request to a node with a store; else NULL */
};

/*
 * Largest datagram that can hold the answer with others to its session (rmem_bundle_joins()); 0:
 * the answer travels alone. Slot lock.
 */
static inline u32 rmem_node_datagram_bytes(const struct rmem_answer *answer)
{
	return answer->session ? answer->session->datagram_bytes : 0;
}

/*
 * Bytes a ZERO clears at once, of pages that it only cuts: where pages are larger than 64 KiB
 * that could be nearly 8 MiB. Which way a message goes is said by itself alone, so its copies
 * go the same one.
 */
#define RMEM_NODE_FILL_BYTES_MAX (2U << RMEM_PAGE_SHIFT_MIN)

bool rmem_node_is_slow(const struct rmem_node *node, const struct rmem_head *head);

/*
 * No lock. True: the request names no session, or one of another space, and answer says so. It need
 * not take the lock of the slot that it names, so nobody waits there because of it. False: the
 * request might be of its session; rmem_node_request() tells, under the lock.
 */
bool rmem_node_refuses(const struct rmem_node *node, const struct rmem_head *head,
		       struct rmem_answer *answer);

/*
 * Fast path: a message for which rmem_node_is_slow() is false. It has verified, in length and
 * digest too (a damaged one goes to rmem_node_damaged()). payload: rmem_wire_frame_bytes() of it
 * are looked at, at any alignment. Slot lock of rmem_node_slot(head->session), held until
 * rmem_execute() or the functions below have dealt with the answer.
 */
void rmem_node_request(struct rmem_node *node, u64 now_ns, const struct rmem_head *head,
		       const void *payload, const struct rmem_peer *peer,
		       struct rmem_answer *answer);

/*
 * The extents of a COPY_IN or FILL, a SCATTER's ranges, or a COPY's stretches are written: the id
 * is executed.
 */
void rmem_node_done(const struct rmem_answer *answer);

/*
 * ACT_ATOMIC: place is where the answer's extent lies, operands the message's payload, at any
 * alignment. From now on the id counts as executed, and the value found is kept.
 */
void rmem_node_atomic(const void *operands, void *place, struct rmem_answer *answer);

/*
 * ACT_PUT, when the data is in the extents: the same; place is where the answer's integer lies, put
 * the payload that rmem_node_request() got.
 */
void rmem_node_put(const void *put, void *place, struct rmem_answer *answer);

/*
 * Data for a caller in the node's own process: its requests are neither repeated nor late, so it
 * needs no session. READ or WRITE of at most config.piece_bytes, the latter for an integer
 * (atomic.h), too. RMEM_NODE_OK: the answer's extents are to be copied or changed. The caller
 * serialises accesses to the same bytes, and ends its copies before a page that
 * rmem_node_scrub_next() handed out is zeroed. space_index: a session's place.memory.
 */
enum rmem_node_reason rmem_node_access(struct rmem_node *node, u32 space_index, u8 type, u64 addr,
				       u32 bytes, struct rmem_answer *answer);

/*
 * A COPY for such a caller, with the same rules as a request's: RMEM_NODE_OK means that the answer
 * has stretches to copy.
 */
enum rmem_node_reason rmem_node_access_copy(struct rmem_node *node, u32 space_index, u64 to,
					    u64 from, u32 bytes, struct rmem_answer *answer);

/*
 * ACT_COPY: takes the next stretch out of the answer, three at most. to and from have equal bytes,
 * don't overlap, and lie in one page each; if from's is RMEM_PAGE_NONE, zero to. False: all of them
 * were taken.
 */
bool rmem_node_stretch(struct rmem_answer *answer, struct rmem_extent *to,
		       struct rmem_extent *from);

/*
 * The part of a READ that begins at offset (0, then the sum of the bytes returned):
 * extents and reply for one response packet. Returns its bytes, 0 at the end. Where somebody
 * has freed some of it since the request was checked, the reply refuses the READ, and is the last.
 * Translations of one hold of the lock stay together.
 */
u32 rmem_node_read_part(struct rmem_node *node, const struct rmem_head *head, u32 offset,
			struct rmem_answer *answer);

/*
 * The answer's extents become those of range number index, below reply.op, of a READV or WRITEV;
 * ranges is the payload that rmem_node_request() got. False: some of it was freed since the request
 * was checked, and has no page; then a READV is answered RMEM_FAULT, and a WRITEV does the rest.
 */
bool rmem_node_range(const struct rmem_node *node, const void *ranges, u32 index,
		     struct rmem_answer *answer);

/*
 * The reply to a message that came damaged. False: there is none, since its sender isn't the
 * session's client; anybody can damage a copy of a datagram. Slot lock.
 */
bool rmem_node_damaged(struct rmem_node *node, u64 now_ns, const struct rmem_head *head,
		       const struct rmem_peer *peer, struct rmem_head *reply);

/*
 * The background: refill the pool. Slow lock. scrub_next hands out one page to be
 * zeroed, or RMEM_PAGE_NONE when the pool is full or no page is left; *used says whether
 * it was taken from the table (and so wants a grace period first). scrub_done
 * gives it back zeroed, scrub_later unzeroed because somebody still refers to it.
 */
u32 rmem_node_scrub_next(struct rmem_node *node, bool *used);
void rmem_node_scrub_done(struct rmem_node *node, u32 page);
void rmem_node_scrub_later(struct rmem_node *node, u32 page);
/*
 * The same for a caller that doesn't wait for a grace period of its own: scrub_quiet hands out
 * pages for which one has passed already, and fresh ones. The caller tells before each one begins
 * (false: no page waits for it) and after it has passed, one at a time. It is wanted when as many
 * pages as half the pool wait. Slow lock; wanted: any lock or none.
 */
u32 rmem_node_scrub_quiet(struct rmem_node *node);
bool rmem_node_grace_begin(struct rmem_node *node);
void rmem_node_grace_end(struct rmem_node *node);
bool rmem_node_grace_wanted(const struct rmem_node *node);
/* Should the background run: pool at or below half, and a page to be had? Any lock or none. */
bool rmem_node_scrub_wanted(const struct rmem_node *node);

/* Figures at this moment, for status; slow lock. */
struct rmem_node_usage {
	u64 pages;
	u64 pages_promised; /* in regions */
	u64 pages_backed;   /* in regions and written to */
	u64 pages_ready;    /* in the pool */
	u64 alloc_retries;  /* candidate ranges that would have made the table overflow */
	u32 alloc_retries_worst; /* in one ALLOC */
	u64 allocs_undone;	 /* ALLOCs whose session ended before they were acknowledged */
	u32 spaces, regions, sessions;
};

void rmem_node_usage(const struct rmem_node *node, struct rmem_node_usage *usage);

/* A region as LIST tells it. False: it is being allocated or freed, and is all 0. Slow lock. */
struct rmem_region;
bool rmem_node_list(const struct rmem_node *node, const struct rmem_region *region,
		    struct rmem_listed *listed);

#endif
