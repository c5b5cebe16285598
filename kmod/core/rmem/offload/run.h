/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The run table: the calls (QUERY and CALL messages) that run, and the offloads that they call.
 *
 *   admit --> [ lane of the caller's space ] --take--> steps ............ --charge--> ended
 *   (slot lock)         ^                              (16 calls, no lock)   |          |
 *                       '----------------------------------------------------'        settle
 *                                                                                   (slot lock)
 *
 * The calls of a lane take turns, a step each. Each step ends in a prefetch, so the processor
 * fetches for one call while it runs the others. The lanes take turns by time: a lane has
 * RMEM_RUN_TURN_NS in its turn, and pays an excess in its next ones (deficit round robin; Shreedhar
 * and Varghese, SIGCOMM'95). So a call waits for one turn of each other space
 * however many calls they have, and however long their steps are.
 *
 * When all calls are in use the client asks again. A quarter of them is kept in equal parts for
 * spaces that have few (node/share.h).
 *
 * Invariants:
 *   - a call in use belongs to a session that counts it (rmem_session_run()), so the session has
 *     the same name from admit to settle;
 *   - a call's program (ops) is there as long as the call is in use;
 *   - a call that sleeps is in no lane, and the host that parked it wakes it within a bound.
 *
 * Locking, the caller's business: the run lock around all but rmem_run_step() and _settle(). Taken
 * after a slot lock. One thread at a time is between take and charge.
 */
#ifndef REMORA_RMEM_OFFLOAD_RUN_H
#define REMORA_RMEM_OFFLOAD_RUN_H

#include "core/rmem/node/node.h"
#include "remora/offload.h"

#define RMEM_RUN_ROUND 16U
#define RMEM_RUN_TURN_NS (20 * BASE_NSEC_PER_USEC)
#define RMEM_RUN_OFFLOADS 16U
#define RMEM_RUN_CLIENTS 16U

struct rmem_run;

/* A program, as it was loaded. */
struct rmem_run_offload {
	const struct rmem_offload_ops *ops; /* NULL: the place is free */
	struct rmem_place place;	    /* the space that it is bound to */
	struct rmem_place client[RMEM_RUN_CLIENTS]; /* other spaces that can call it */
	u32 clients;
	u32 budget_us;
	bool operators_budget; /* rather than the program's */
	bool leaves; /* admits no more calls */
	bool stops;  /* ends its calls in their next round */
	u32 calls;   /* in use */
	u64 ended, failed, over_budget, used_ns;
};

/* A QUERY or CALL in use. */
struct rmem_call {
	struct rmem_call *next; /* in its lane, among those that ended, or free */
	struct rmem_run *run;
	struct rmem_run_offload *offload;
	const struct rmem_offload_ops *ops; /* offload's when it was admitted; NULL: not in use */
	struct rmem_head head;
	u32 index;	 /* of this one in the table */
	u32 slot;	 /* its session's */
	u32 lane;	 /* its space's */
	u64 incarnation; /* of its space */
	bool marked;	 /* rmem_session_run()'s */
	bool ended;
	bool wants_page; /* the last step found no zeroed page */
	bool parks;	 /* the last step waits for rmem_run_wake() */
	bool woken;	 /* by that, since the call last slept; run lock */
	bool asleep;	 /* in no lane; run lock */
	int error; /* of the last access; once ended: the program's */
	enum rmem_node_reason reason;
	u64 used_ns, waited_ns;
	u32 turns; /* the host's: of loops and accesses, since the step began */
	u64 began_ns, step_ns; /* the host's, of that step */
	u32 room_bytes, result_bytes, scratch_bytes;
	u8 scratch[RMEM_SCRATCH_BYTES_MAX] __attribute__((aligned(16)));
	u8 args[RMEM_ARGS_BYTES_MAX] __attribute__((aligned(16)));
	u8 result[RMEM_PIECE_BYTES_MAX] __attribute__((aligned(16)));
};

struct rmem_run_ops {
	/* The memory of an extent; of RMEM_PAGE_NONE: as many zeros. */
	void *(*at)(void *carrier, const struct rmem_extent *extent);
	/* NULL, all of them: the host has none of it. As the functions of offload.h, in a step. */
	int (*persist)(void *carrier, void *at, u64 bytes);
	int (*drain)(void *carrier);
	int (*key_lock)(void *carrier, struct rmem_call *call, u64 key);
	int (*forward)(void *carrier, struct rmem_call *call, const char *link, u32 function,
		       const void *args, u32 bytes);
	int (*forwarded)(void *carrier, struct rmem_call *call, void *answer);
};

struct rmem_run_lane {
	struct rmem_call *first, *last;
	struct rmem_run_lane *next; /* of those with calls that run, which form a ring */
	bool listed;		    /* in it */
	u32 calls;		    /* in use */
	s64 credit_ns;
};

struct rmem_run {
	struct rmem_node *node;
	const struct rmem_run_ops *ops;
	void *carrier;
	struct rmem_call *call; /* RMEM_RUN_CALLS */
	struct rmem_call *free;
	u32 in_use;
	u32 asleep;
	struct rmem_running running;
	struct rmem_run_lane *lane;   /* config.spaces_max */
	struct rmem_run_lane *served; /* before the one whose turn it is; NULL: no calls run */
	struct rmem_run_offload offload[RMEM_RUN_OFFLOADS];
};

/* memory: rmem_run_bytes() of it, not cleared. From now on node->running points into run. */
size_t rmem_run_bytes(const struct rmem_node *node);
void rmem_run_init(struct rmem_run *run, struct rmem_node *node, const struct rmem_run_ops *ops,
		   void *carrier, void *memory);

enum rmem_run_error {
	RMEM_RUN_INVALID = -1,	 /* version, id, budget or name of ops can't be */
	RMEM_RUN_FULL = -2,	 /* RMEM_RUN_OFFLOADS are loaded */
	RMEM_RUN_EXISTS = -3,	 /* one of its callers can call another one of that id */
	RMEM_RUN_NO_SPACE = -4,	 /* there is no such space, or it is a view, or no such client */
	RMEM_RUN_CLIENTS_MAX = -5, /* RMEM_RUN_CLIENTS are possible */
	RMEM_RUN_NO_START = -6, /* the program has a start, and the host has no links */
};

/* Whether ops can be loaded, as far as it tells. */
bool rmem_run_is_sound(const struct rmem_offload_ops *ops);
/*
 * Slow lock, too. Returns the offload's place, its index in run->offload, until rmem_run_unload()
 * has returned true; so long stays ops. Or an enum rmem_run_error. budget_us: the operator's, or 0:
 * the program's.
 */
int rmem_run_load(struct rmem_run *run, const struct rmem_offload_ops *ops, u32 space,
		  u32 budget_us, const u32 *client, u32 clients);
/*
 * The place of an offload that has no calls and whose space was deleted, for the caller to unload;
 * or RMEM_RUN_OFFLOADS. Slow lock, too.
 */
u32 rmem_run_dead(const struct rmem_run *run);
/*
 * False: calls of it run, and no others begin; ask again once some have ended. stop: they end in
 * their next round, as if over budget. True: it is gone, and its place is free.
 */
bool rmem_run_unload(struct rmem_run *run, u32 place, bool stop);
/* Times to ask without `stop`, with rounds between; about 3 ms. */
#define RMEM_RUN_UNLOAD_TRIES 16U

/*
 * Calls that are admitted from now on run `to` in the place of `from`, whose id, name and functions
 * it has. Calls that run end with `from`, which stays until rmem_run_uses() is false.
 */
void rmem_run_replace(struct rmem_run *run, const struct rmem_offload_ops *from,
		      const struct rmem_offload_ops *to);
bool rmem_run_uses(const struct rmem_run *run, const struct rmem_offload_ops *ops);

/*
 * RMEM_ACT_RUN. The slot lock of answer->session, too. NULL: answer refuses it. Else the caller
 * copies head->len bytes of arguments to args, and then, in the same hold of the run lock, calls
 * rmem_run_begin().
 */
struct rmem_call *rmem_run_admit(struct rmem_run *run, const struct rmem_head *head,
				 struct rmem_answer *answer);
void rmem_run_begin(struct rmem_run *run, struct rmem_call *call);

static inline bool rmem_run_any(const struct rmem_run *run)
{
	return run->served;
}

/* Takes up to RMEM_RUN_ROUND calls of one lane. Returns their number. */
u32 rmem_run_take(struct rmem_run *run, struct rmem_call *round[RMEM_RUN_ROUND]);
/*
 * Steps of each call in turn, so many that few calls cost no more looks at the clock than many:
 * RMEM_RUN_ROUND / count. The caller keeps pages as rmem_node_scrub_next() demands. No lock.
 */
void rmem_run_step(struct rmem_call *const round[RMEM_RUN_ROUND], u32 count, u32 steps);
/* The steps took so long. Returns the calls that have ended, linked; the others wait again. */
struct rmem_call *rmem_run_charge(struct rmem_run *run,
				  struct rmem_call *const round[RMEM_RUN_ROUND], u32 count,
				  u64 elapsed_ns);

/*
 * For the host's key_lock() and forwarded(), before they return -EAGAIN: the call sleeps after this
 * step until it is woken. A call that was woken before doesn't sleep.
 */
static inline void rmem_run_park(struct rmem_call *call)
{
	call->parks = true;
}

/* Run lock; also where the call isn't parked. */
void rmem_run_wake(struct rmem_run *run, struct rmem_call *call);
/* Wakes the calls that are to be stopped. */
void rmem_run_rouse(struct rmem_run *run);

/* A step's access failed with -errno, for rmem_error(). NULL. */
void *rmem_call_fails(struct rmem_call *call, int error);

/*
 * For a program's start: a call without a client, which is in no table and no lane. The caller
 * steps it by rmem_run_start_step(): RMEM_AGAIN, or the result. If it parks, the caller waits under
 * the run lock until it is woken, and clears that.
 */
void rmem_run_start_init(struct rmem_run *run, struct rmem_run_offload *offload,
			 struct rmem_call *call);
int rmem_run_start_step(struct rmem_call *call);

/*
 * A call has ended: keeps its result and makes the answer to its client, which has
 * rmem_wire_payload_bytes(&answer->reply) of call->result as its payload. Lock of the slot
 * call->slot.
 */
void rmem_run_settle(struct rmem_run *run, struct rmem_call *call, struct rmem_answer *answer);
/* The answer was sent. */
void rmem_run_give(struct rmem_run *run, struct rmem_call *call);

#endif
