/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Calls: the requests that can take long, mostly those that change regions, names or sessions
 * rather than content. They are done in steps, each of them short.
 *
 *   begin --> { slow lock, slot lock if it wants one: step } --> ... --> answer
 *               (neither, if it is alone)
 *
 *   OPEN    renew, or end superseded sessions, one at a time | a slot for it, perhaps by eviction
 *   CLOSE   end the session
 *   ALLOC   admit | reserve and enter pages, some a step | mark
 *   FREE    admit | remove pages, some a step | mark
 *   FENCE   admit | each slot's lock once, so that requests under way have ended | note which
 *           calls of offloads had begun | wait for these
 *   PUBLISH, LOOKUP   at once, in the session's slot lock
 *   LIST              walks over all regions
 *   ZERO    admit, free whole pages | clear parts of others, some a step | mark
 *
 * An ended session's ALLOCs that weren't acknowledged are undone before the request that ended it
 * is answered: a client that asks again finds the memory and its quota free. One that is being made
 * while its session ends is given back when it is complete, before the next ALLOC begins.
 *
 * Between steps other requests go on, of the same session, too. The call lock keeps out other
 * calls, with one exception: while a call works on regions or clears memory, it is divisible, and
 * brief calls (rmem_type_is_brief()) can run between its steps. So no session waits
 * for another tenant's million pages.
 *
 *   FREE   1.  2.  3.              4.  5.              6.  end
 *   OPEN               1.  2.  end                               (another tenant's)
 *   OPEN                                   1.  put off           1.  2.  3.  end
 *
 * A session that calls of offloads run in (offload/run.h) is neither renewed nor ended. OPEN and
 * CLOSE have it drain, so that no more begin, and a cleared space has them stopped. They wait for
 * a moment, as a FENCE does for the calls that it noted; then they are dropped, and find their
 * drained session, or note, when their client asks again. So nobody holds the call lock for as long
 * as other clients' programs run.
 *
 * A brief call is put off before it would end a session that owes regions, for those are given
 * back by a call of their own. So each step finds regions and spaces as the last one left them. The
 * session might have been renewed, or have ended. A copy of a request that comes while it is being
 * done waits for the end of the call under way, and finds it marked.
 */
#ifndef REMORA_RMEM_NODE_CALL_H
#define REMORA_RMEM_NODE_CALL_H

#include "core/rmem/node/node.h"

/* Times that a request's call has calls of offloads run on, before it is dropped; about 3 ms. */
#define RMEM_CALL_AWAITS 16U

/* In their wire form. */
union rmem_node_payload {
	struct rmem_open open;
	struct rmem_open_sealed open_sealed;
	struct rmem_alloc alloc;
	struct rmem_opened opened;
	struct rmem_opened_sealed opened_sealed;
	struct rmem_range range;
	struct rmem_named named;
	struct rmem_listed listed;
};

struct rmem_node_call {
	int slot; /* the session slot whose lock the next step needs; -1: none */
	struct rmem_extent fill; /* after a step: zero this, if there are bytes of it */
	/*
	 * Once ended: action is REPLY or DROP; out goes behind an RMEM_OK reply, as many bytes
	 * of it as rmem_wire_payload_bytes(&answer.reply) tells.
	 */
	struct rmem_answer answer;
	union rmem_node_payload out;
	struct rmem_head head; /* as begun; of type 0 if it is nobody's request */
	bool divisible; /* rmem_node_call_enter() can begin another before the next step */
	bool waits;	/* the caller has calls of offloads run on before the next step */
	bool alone;	/* the next step takes long, and needs no lock but the call lock */
	bool took_long; /* one of its steps did (queue.h) */
	u8 awaits;	/* how often it did */
	bool entered;	/* between another call's steps */
	u64 freeing;	/* entered: the session, by its origin, whose FREE is under way; or 0 */
	bool put_off;	/* once ended: nothing is answered; begin again after the other call */
	/* The rest is the steps': step.h. */
	void (*next)(struct rmem_node *node, struct rmem_node_call *call);
	struct rmem_peer peer;
	union rmem_node_payload in;
	u64 now_ns;
	u64 boot; /* the node's, when the call began */
	u64 challenge; /* OPEN's, or 0 */
	struct rmem_attempt attempt; /* OPEN's; place: the space to be cleared, 0: all */
	struct rmem_seal_attempt seal; /* OPEN's, of a sealed session: once agreed, */
	bool agreed;		       /* with the client's key */
	bool replaces;		     /* OPEN's: it ended a session of its space */
	bool keeps_memory;	     /* a revoke's, or of a view or member: regions stay */
	u32 at;			     /* of a walk over regions, or sessions */
	u32 session_at;		     /* of a walk over sessions that end regions on the way */
	struct {
		u64 addr;
		u32 left;
	} cut[2]; /* to be cleared */
	struct rmem_alloc_work work;
	u64 origin; /* of the session it was admitted for */
	u32 memory; /* index of the space whose regions it works on */
	u64 listed; /* LIST's: first page of the region found so far; 0: none */
	/*
	 * A session that ended: its ALLOCs with ids from ended_floor up are undone, then then()
	 * goes on.
	 */
	u64 ended, ended_floor;
	void (*then)(struct rmem_node *node, struct rmem_node_call *call);
};

/*
 * Call lock, from here until the call ended. rmem_node_is_slow() says yes to head; payload:
 * the bytes behind it, rmem_wire_payload_bytes(head) at any alignment.
 */
void rmem_node_call_begin(const struct rmem_node *node, struct rmem_node_call *call, u64 now_ns,
			  const struct rmem_head *head, const struct rmem_peer *peer,
			  const void *payload);

/*
 * The operator's request: end all sessions of a space and free all of its
 * regions, so that it can be deleted (rmem_node_space_del(), in the same hold of the call
 * lock). There is nothing to answer. False: no such space, or it has views or persistent pages; no
 * call begun. The memory of a view or a member isn't its own, and stays: only ALLOCs that its
 * clients haven't acknowledged are undone. So this comes before each deletion of such a space
 * (rmem_node_space_is_view()), or these ALLOCs would stay with the other space for good.
 */
bool rmem_node_call_clear(const struct rmem_node *node, struct rmem_node_call *call, u32 space);

/*
 * The same before rmem_node_space_revoke(), in the same hold of the call lock: end all sessions of
 * a space, but keep its regions. Only ALLOCs that its clients haven't acknowledged are undone.
 * False: no such space; no call begun.
 */
bool rmem_node_call_revoke(const struct rmem_node *node, struct rmem_node_call *call, u32 space);

/*
 * After rmem_node_reboot(): end all sessions and free all regions, in the same way. Spaces, their
 * keys and quotas stay. A page that held data is zeroed before it is lent again.
 */
void rmem_node_call_forget(struct rmem_node_call *call);

/*
 * The caller begins this once every rmem_node_expire_ms(): end the sessions that were idle for
 * session_idle_ms and have an ALLOC that wasn't acknowledged. Their clients are gone, and the
 * memory is promised to nobody. In the same way; there is nothing to answer.
 */
static inline u32 rmem_node_expire_ms(const struct rmem_node_config *config)
{
	return config->session_idle_ms > 1000 ? config->session_idle_ms : 1000;
}

void rmem_node_call_expire(struct rmem_node_call *call, u64 now_ns);

/* Which requests take one step, or steps by the number of sessions, not of pages or regions. */
static inline bool rmem_node_call_is_brief(const struct rmem_head *head)
{
	return rmem_type_is_brief(head->type);
}

/*
 * Begins a brief request's call before the next step of the call that is under way. False: it has
 * to wait for that call's end. That is so if both work on the memory of one space, and for an OPEN
 * that renews the session whose FREE that call is.
 * Call lock.
 */
bool rmem_node_call_enter(const struct rmem_node *node, const struct rmem_node_call *under_way,
			  struct rmem_node_call *call, u64 now_ns, const struct rmem_head *head,
			  const struct rmem_peer *peer, const void *payload);

/*
 * Slow lock, and the slot lock of call->slot unless that is -1. True: call again. Before the
 * slot lock is let go, and the grace period that a page taken out of the table waits for,
 * the caller zeroes call->fill.
 */
bool rmem_node_call_step(struct rmem_node *node, struct rmem_node_call *call);

#endif
