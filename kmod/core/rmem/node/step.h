/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The steps of a call, for call.c and call_session.c. A step names the next one and the slot whose
 * lock that wants, by rmem_call_go_on() or rmem_call_work(). Or it answers and ends the call, by
 * rmem_call_finish().
 */
#ifndef REMORA_RMEM_NODE_STEP_H
#define REMORA_RMEM_NODE_STEP_H

#include "core/rmem/node/call.h"
#include "core/rmem/node/common.h"
#include "core/rmem/seal.h"

#define RMEM_CALL_NO_SLOT (-1)

typedef void rmem_call_step(struct rmem_node *node, struct rmem_node_call *call);

static inline void rmem_call_go_on(struct rmem_node_call *call, rmem_call_step *next, int slot)
{
	call->next = next;
	call->slot = slot;
	call->divisible = false;
	call->waits = false;
	call->alone = false;
}

/* To a step that looks at the call and at nothing else of the node but its configuration. */
static inline void rmem_call_go_alone(struct rmem_node_call *call, rmem_call_step *next)
{
	rmem_call_go_on(call, next, RMEM_CALL_NO_SLOT);
	call->alone = true;
	call->took_long = true;
}

/* To a step that can be one of many, and relies on nothing but memory's regions. */
static inline void rmem_call_work(struct rmem_node_call *call, rmem_call_step *next, int slot)
{
	rmem_call_go_on(call, next, slot);
	call->divisible = true;
}

static inline void rmem_call_finish(struct rmem_node *node, struct rmem_node_call *call,
				    enum rmem_node_reason reason)
{
	rmem_node_answer(node, &call->head, reason, &call->answer);
	/* The secret that an OPEN agreed on: the memory of a call can lie unused for long. */
	if (call->attempt.seal)
		rmem_seal_wipe(&call->seal.keying, sizeof(call->seal.keying));
	rmem_call_go_on(call, NULL, RMEM_CALL_NO_SLOT);
}

static inline void rmem_call_finish_silently(struct rmem_node *node, struct rmem_node_call *call,
					     enum rmem_node_reason reason)
{
	rmem_call_finish(node, call, reason);
	call->answer.action = RMEM_ACT_DROP;
}

/*
 * To a step again once calls of offloads have run on. Other requests go on meanwhile. Calls can
 * run for longer than others should wait for the call lock: then the request is dropped, and its
 * client asks again. Between the steps of another call this one is put off.
 */
static inline void rmem_call_await(struct rmem_node *node, struct rmem_node_call *call,
				   rmem_call_step *next, int slot)
{
	if (call->entered || call->awaits == RMEM_CALL_AWAITS) {
		rmem_call_finish_silently(node, call, RMEM_NODE_BUSY);
		call->put_off = call->entered;
		return;
	}
	rmem_call_work(call, next, slot);
	call->waits = true;
	call->awaits++;
}

static inline int rmem_call_slot(const struct rmem_node *node, const struct rmem_node_call *call)
{
	return rmem_node_slot(node, call->head.session);
}

/* Decides whether to execute the request, and finds its session. Slot lock. */
enum rmem_node_reason rmem_call_admit(struct rmem_node *node, struct rmem_node_call *call,
				      struct rmem_session **session);

/* Some more pages of the region under work. True: there are more. */
bool rmem_call_work_on(struct rmem_node *node, struct rmem_node_call *call);

/* Withdraws the names of the region at once; its pages go in steps. */
void rmem_call_give_back(struct rmem_node *node, struct rmem_node_call *call,
			 struct rmem_region *region, rmem_call_step *next);

/*
 * From call->at on, the region that an ALLOC of this session made whose id is from .. to. A step's
 * regions cost as much as its pages would. False: not yet found, nor the last one seen.
 */
bool rmem_call_walk(const struct rmem_node *node, struct rmem_node_call *call, u64 session,
		    u64 from, u64 to, struct rmem_region **found);

/*
 * The session of call->slot ends, and the ALLOCs that it owes are undone before the step `then`. No
 * request can acknowledge anything from here on. Slot lock of call->slot.
 */
void rmem_call_end_session(struct rmem_node *node, struct rmem_node_call *call,
			   rmem_call_step *then);

/* First steps of OPEN, and of CLOSE in the session's slot lock. */
rmem_call_step rmem_call_open, rmem_call_close;

#endif
