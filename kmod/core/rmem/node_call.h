/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Calls: the requests that may take long, mostly those that change what exists rather
 * than what is in it. They are done in steps, each of them short.
 *
 *   begin --> { slow lock, slot lock if it wants one: step } --> ... --> answer
 *
 *   OPEN    renew, or end what it supersedes, one at a time | a slot for it, perhaps by eviction
 *   CLOSE   end the session
 *   ALLOC   admit | reserve and enter pages, some a step | mark
 *   FREE    admit | remove pages, some a step | mark
 *   FENCE   admit | each slot's lock once, so that what is being executed has ended
 *   ZERO    admit, free whole pages | clear what it cuts of others, some a step | mark
 *
 * An ended session's ALLOCs that weren't acknowledged are undone before its ender is
 * answered: whoever asks again finds the memory there, and his quota.
 *
 * Between steps other requests go on, of the same session, too; the call lock keeps out
 * other calls. So sessions, regions and spaces are, at each step, what the last one
 * left. A copy of a request that comes while it is being done waits for the call lock, and
 * finds it marked.
 */
#ifndef REMORA_RMEM_NODE_CALL_H
#define REMORA_RMEM_NODE_CALL_H

#include "core/rmem/node.h"

/* In their wire form. */
union rmem_node_payload {
	struct rmem_open open;
	struct rmem_alloc alloc;
	struct rmem_opened opened;
	struct rmem_range range;
};

struct rmem_node_call {
	int slot; /* whose lock the next step wants; -1: none */
	struct rmem_extent fill; /* after a step: zero this, if there are bytes of it */
	/*
	 * Once ended: action is REPLY or DROP; out goes behind an RMEM_OK reply, as many bytes
	 * of it as rmem_wire_payload_bytes(&answer.reply) tells.
	 */
	struct rmem_answer answer;
	union rmem_node_payload out;
	struct rmem_head head; /* as begun; of type 0 if it is nobody's request */
	/* The rest is node_call.c's. */
	void (*next)(struct rmem_node *node, struct rmem_node_call *call);
	struct rmem_peer peer;
	union rmem_node_payload in;
	u64 now_ns;
	struct rmem_attempt attempt; /* OPEN's; place: the space to be cleared */
	u32 at;			     /* of a walk over regions, or sessions */
	struct {
		u64 addr;
		u32 left;
	} cut[2]; /* to be cleared */
	struct rmem_alloc_work work;
	u64 origin; /* ALLOC's: of its session */
	/* A session that ended: what it allocated with ids from floor up is undone, and then? */
	u64 ended, ended_floor;
	void (*then)(struct rmem_node *node, struct rmem_node_call *call);
};

/*
 * Call lock, from here until the call ended. rmem_node_is_slow() says yes to head; payload:
 * what came behind it, rmem_wire_payload_bytes(head) at any alignment.
 */
void rmem_node_call_begin(const struct rmem_node *node, struct rmem_node_call *call, u64 now_ns,
			  const struct rmem_head *head, const struct rmem_peer *peer,
			  const void *payload);

/*
 * What no client asks for, but the operator: end all sessions of a space and free all of its
 * regions, so that it can be deleted (rmem_node_space_del(), in the same hold of the call
 * lock). There is nothing to answer. False: no such space, or it has views; no call begun. A
 * view's memory isn't its own, and stays.
 */
bool rmem_node_call_clear(const struct rmem_node *node, struct rmem_node_call *call, u32 space);

/*
 * Slow lock, and the slot lock of call->slot unless that is -1. True: call again. Before the
 * slot lock is let go, and the grace period that a page taken out of the table waits for,
 * the caller zeroes call->fill.
 */
bool rmem_node_call_step(struct rmem_node *node, struct rmem_node_call *call);

#endif
