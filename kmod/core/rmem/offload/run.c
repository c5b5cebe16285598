// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/offload/run.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/rmem/node/common.h"
#include "core/rmem/node/share.h"

/* A call ends after so much time of steps in which there was no zeroed page for it. */
#define RUN_WAIT_NS_MAX (20 * BASE_NSEC_PER_MSEC)
/* A lane's debt ends there, so that a single long step doesn't lock its space out for long. */
#define RUN_DEBT_NS_MAX ((s64)(50 * RMEM_RUN_TURN_NS))

size_t rmem_run_bytes(const struct rmem_node *node)
{
	return RMEM_RUN_CALLS * sizeof(struct rmem_call) +
	       node->config.spaces_max * sizeof(struct rmem_run_lane);
}

void rmem_run_init(struct rmem_run *run, struct rmem_node *node, const struct rmem_run_ops *ops,
		   void *carrier, void *memory)
{
	u32 n;

	base_zero(run, sizeof(*run));
	base_zero(memory, rmem_run_bytes(node));
	run->node = node;
	run->ops = ops;
	run->carrier = carrier;
	run->call = memory;
	run->lane = (struct rmem_run_lane *)(run->call + RMEM_RUN_CALLS);
	run->running.next = 1;
	for (n = 0; n < RMEM_RUN_CALLS; n++) {
		run->call[n].index = n;
		run->call[n].run = run;
		run->call[n].next = run->free;
		run->free = &run->call[n];
	}
	/* Pairs with rmem_node_running(). */
	__atomic_store_n(&node->running, &run->running, __ATOMIC_RELEASE);
}

/* ---- offloads ------------------------------------------------------------------------------- */

/* The name is part of paths and commands. */
static bool run_names(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '-';
}

bool rmem_run_is_sound(const struct rmem_offload_ops *ops)
{
	u32 n = 0;

	while (n < RMEM_OFFLOAD_NAME_BYTES && run_names(ops->name[n]))
		n++;
	return ops->version == RMEM_OFFLOAD_VERSION && ops->id && ops->step && n &&
	       n < RMEM_OFFLOAD_NAME_BYTES && !ops->name[n] && ops->budget_us <= RMEM_BUDGET_US_MAX;
}

static u32 run_budget_us(const struct rmem_offload_ops *ops)
{
	return ops->budget_us ? ops->budget_us : RMEM_BUDGET_US_DEFAULT;
}

/* The space that a caller acts for, by its incarnation: a member for the one with the memory. */
static u64 run_acts_for(const struct rmem_run *run, const struct rmem_place *caller)
{
	if (caller->read_only || !rmem_spaces_has(&run->node->spaces, caller))
		return caller->incarnation;
	return __atomic_load_n(&run->node->spaces.slot[caller->memory].incarnation,
			       __ATOMIC_RELAXED);
}

/* A space that was deleted and added again is no client. */
static bool run_has_client(const struct rmem_run *run, const struct rmem_run_offload *offload,
			   const struct rmem_place *caller)
{
	u64 acts_for = run_acts_for(run, caller);
	u32 n;

	for (n = 0; n < offload->clients; n++)
		if (offload->client[n].incarnation == caller->incarnation ||
		    offload->client[n].incarnation == acts_for)
			return true;
	return offload->place.memory == caller->memory;
}

/* Its space was deleted: nobody can call it. */
static bool run_is_dead(const struct rmem_run *run, const struct rmem_run_offload *offload)
{
	return !rmem_spaces_has(&run->node->spaces, &offload->place);
}

static bool run_share_a_caller(const struct rmem_run *run, const struct rmem_run_offload *a,
			       const struct rmem_run_offload *b)
{
	u32 n;

	for (n = 0; n < a->clients; n++)
		if (run_has_client(run, b, &a->client[n]))
			return true;
	for (n = 0; n < b->clients; n++)
		if (run_has_client(run, a, &b->client[n]))
			return true;
	return run_has_client(run, b, &a->place);
}

static bool run_find_client(const struct rmem_run *run, u32 space, struct rmem_place *place)
{
	const struct rmem_space *found = space ? rmem_spaces_find(&run->node->spaces, space) : NULL;

	if (found)
		rmem_spaces_place(&run->node->spaces, found, place);
	return found;
}

int rmem_run_load(struct rmem_run *run, const struct rmem_offload_ops *ops, u32 space,
		  u32 budget_us, const u32 *client, u32 clients)
{
	struct rmem_run_offload made = { .ops = ops, .clients = clients };
	u32 place = RMEM_RUN_OFFLOADS, n;

	if (!rmem_run_is_sound(ops) || budget_us > RMEM_BUDGET_US_MAX)
		return RMEM_RUN_INVALID;
	if (!run_find_client(run, space, &made.place) ||
	    made.place.memory != made.place.index)
		return RMEM_RUN_NO_SPACE;
	if (clients > RMEM_RUN_CLIENTS)
		return RMEM_RUN_CLIENTS_MAX;
	if (ops->start && !run->ops->forward)
		return RMEM_RUN_NO_START;
	for (n = 0; n < clients; n++)
		if (!run_find_client(run, client[n], &made.client[n]))
			return RMEM_RUN_NO_SPACE;
	made.operators_budget = budget_us;
	made.budget_us = budget_us ? budget_us : run_budget_us(ops);
	for (n = 0; n < RMEM_RUN_OFFLOADS; n++) {
		struct rmem_run_offload *each = &run->offload[n];

		if (!each->ops)
			place = base_min(place, n);
		else if (each->ops->id == ops->id && !run_is_dead(run, each) &&
			 run_share_a_caller(run, each, &made))
			return RMEM_RUN_EXISTS;
	}
	if (place == RMEM_RUN_OFFLOADS)
		return RMEM_RUN_FULL;
	run->offload[place] = made;
	return place;
}

u32 rmem_run_dead(const struct rmem_run *run)
{
	u32 n = 0;

	while (n < RMEM_RUN_OFFLOADS && !(run->offload[n].ops && !run->offload[n].calls &&
					  run_is_dead(run, &run->offload[n])))
		n++;
	return n;
}

bool rmem_run_unload(struct rmem_run *run, u32 place, bool stop)
{
	struct rmem_run_offload *offload = &run->offload[place];

	offload->leaves = true;
	offload->stops = stop;
	if (offload->calls)
		return false;
	offload->ops = NULL;
	return true;
}

void rmem_run_replace(struct rmem_run *run, const struct rmem_offload_ops *from,
		      const struct rmem_offload_ops *to)
{
	u32 n;

	for (n = 0; n < RMEM_RUN_OFFLOADS; n++) {
		struct rmem_run_offload *offload = &run->offload[n];

		if (offload->ops != from)
			continue;
		offload->ops = to;
		if (!offload->operators_budget)
			offload->budget_us = run_budget_us(to);
	}
}

bool rmem_run_uses(const struct rmem_run *run, const struct rmem_offload_ops *ops)
{
	u32 n;

	for (n = 0; n < RMEM_RUN_CALLS; n++) {
		if (run->call[n].ops == ops)
			return true;
	}
	return false;
}

/* ---- admission ------------------------------------------------------------------------------ */

/* A space that was deleted and added again has none of the offloads of before. */
static bool run_permits(const struct rmem_run *run, const struct rmem_run_offload *offload,
			const struct rmem_place *caller)
{
	return offload->ops && !offload->leaves && run_has_client(run, offload, caller) &&
	       !run_is_dead(run, offload);
}

static struct rmem_run_offload *run_find(struct rmem_run *run, const struct rmem_place *caller,
					 u64 id)
{
	u32 n;

	for (n = 0; n < RMEM_RUN_OFFLOADS; n++) {
		struct rmem_run_offload *offload = &run->offload[n];

		if (run_permits(run, offload, caller) && offload->ops->id == id)
			return offload;
	}
	return NULL;
}

static enum rmem_node_reason run_check(const struct rmem_run *run, const struct rmem_head *head,
				       const struct rmem_run_offload *offload)
{
	bool is_call = head->type == RMEM_CALL;

	if (!offload)
		return RMEM_NODE_NO_OFFLOAD;
	if (head->op >= RMEM_FUNCTIONS_MAX || head->len > RMEM_ARGS_BYTES_MAX ||
	    head->piece > run->node->config.piece_bytes ||
	    (offload->ops->once_mask >> head->op & 1) != is_call)
		return RMEM_NODE_LENGTH;
	return RMEM_NODE_OK;
}

static struct rmem_call *run_take_free(struct rmem_run *run, u32 lane)
{
	u32 spaces = __atomic_load_n(&run->node->spaces.in_use, __ATOMIC_RELAXED);
	struct rmem_call *call = run->free;

	if (!call || !rmem_share_permits(RMEM_RUN_CALLS, RMEM_RUN_CALLS - run->in_use, spaces,
					 run->lane[lane].calls))
		return NULL;
	run->free = call->next;
	run->in_use++;
	run->lane[lane].calls++;
	return call;
}

struct rmem_call *rmem_run_admit(struct rmem_run *run, const struct rmem_head *head,
				 struct rmem_answer *answer)
{
	struct rmem_session *session = answer->session;
	struct rmem_run_offload *offload = run_find(run, &session->place, head->addr);
	enum rmem_node_reason reason = run_check(run, head, offload);
	struct rmem_call *call = NULL;

	if (reason == RMEM_NODE_OK) {
		call = run_take_free(run, session->place.index);
		reason = call ? RMEM_NODE_OK : RMEM_NODE_BUSY;
	}
	if (reason != RMEM_NODE_OK) {
		rmem_node_refuse_call(run->node, head, reason, 0, answer);
		return NULL;
	}
	call->offload = offload;
	call->ops = offload->ops;
	offload->calls++;
	call->head = *head;
	call->head.space = session->place.space; /* a plain message doesn't say */
	call->slot = session - run->node->sessions.slot;
	call->lane = session->place.index;
	call->incarnation = session->place.incarnation;
	call->marked = rmem_session_run(session, head->id);
	call->ended = false;
	call->wants_page = false;
	call->parks = false;
	call->woken = false;
	call->error = 0;
	call->used_ns = 0;
	call->waited_ns = 0;
	call->room_bytes = head->type == RMEM_CALL ? sizeof(struct rmem_found) : head->piece;
	call->result_bytes = 0;
	call->scratch_bytes = 0;
	rmem_running_begin(&run->running, call->index, offload->place.memory,
			   session->place.memory);
	return call;
}

/* ---- turns ---------------------------------------------------------------------------------- */

void rmem_run_begin(struct rmem_run *run, struct rmem_call *call)
{
	struct rmem_run_lane *lane = &run->lane[call->lane];

	call->next = NULL;
	if (lane->first)
		lane->last->next = call;
	else
		lane->first = call;
	lane->last = call;
	if (lane->listed)
		return;
	lane->listed = true;
	/* At the end of the round: behind the lane that was served last. */
	lane->next = run->served ? run->served->next : lane;
	if (run->served)
		run->served->next = lane;
	run->served = lane;
}

/* The lane whose turn it is. Where all have debts, the turns of one round pay them in part. */
static struct rmem_run_lane *run_turn(struct rmem_run *run)
{
	struct rmem_run_lane *lane = run->served->next;

	while (lane->credit_ns <= 0) {
		lane->credit_ns += RMEM_RUN_TURN_NS;
		if (lane->credit_ns > 0)
			break;
		run->served = lane;
		lane = lane->next;
	}
	return lane;
}

u32 rmem_run_take(struct rmem_run *run, struct rmem_call *round[RMEM_RUN_ROUND])
{
	struct rmem_run_lane *lane;
	u32 count = 0;

	if (!run->served)
		return 0;
	lane = run_turn(run);
	while (lane->first && count < RMEM_RUN_ROUND) {
		round[count++] = lane->first;
		lane->first = lane->first->next;
	}
	return count;
}

/* The lane, whose turn it was, has no calls that run, or has had its time. */
static void run_end_turn(struct rmem_run *run, struct rmem_run_lane *lane)
{
	if (lane->first) {
		if (lane->credit_ns <= 0)
			run->served = lane;
		return;
	}
	lane->listed = false;
	run->served->next = lane->next;
	if (lane->next == lane)
		run->served = NULL;
	/* A lane without calls saves no time for later; its debts stay. */
	if (lane->credit_ns > 0)
		lane->credit_ns = 0;
}

static void run_end(struct rmem_call *call, enum rmem_node_reason reason, int error)
{
	call->ended = true;
	call->reason = reason;
	call->error = error;
}

static void run_step_one(struct rmem_call *call)
{
	int error;

	call->wants_page = false;
	call->turns = 0;
	call->step_ns = 0;
	error = call->ops->step(call);
	if (error == RMEM_AGAIN)
		return;
	/* A result that is no errno is a fault of the program. */
	run_end(call, error ? RMEM_NODE_FAILED : RMEM_NODE_OK,
		error >= -4095 && error <= 0 ? -error : EPROTO);
}

void rmem_run_step(struct rmem_call *const round[RMEM_RUN_ROUND], u32 count, u32 steps)
{
	u32 n;

	for (; steps; steps--) {
		for (n = 0; n < count; n++) {
			if (!round[n]->ended && !round[n]->parks)
				run_step_one(round[n]);
		}
	}
}

/* Its offload leaves, or its client's session. */
static bool run_is_stopped(const struct rmem_run *run, const struct rmem_call *call)
{
	const struct rmem_session *session = &run->node->sessions.slot[call->slot];

	return call->offload->stops || __atomic_load_n(&session->stops, __ATOMIC_RELAXED);
}

/* The caller has pages zeroed between rounds, so a call that wants one isn't charged. */
static void run_charge_one(const struct rmem_run *run, struct rmem_call *call, u64 elapsed_ns)
{
	call->offload->used_ns += elapsed_ns;
	if (call->wants_page)
		call->waited_ns += elapsed_ns;
	else
		call->used_ns += elapsed_ns;
	if (call->ended)
		return;
	if (call->used_ns > call->offload->budget_us * BASE_NSEC_PER_USEC ||
	    run_is_stopped(run, call))
		run_end(call, RMEM_NODE_OVER_BUDGET, 0);
	else if (call->waited_ns > RUN_WAIT_NS_MAX)
		run_end(call, RMEM_NODE_FAILED, ENOMEM);
}

/* A space that has the place of the call's, which was deleted, isn't charged. */
static void run_charge_space(const struct rmem_run *run, const struct rmem_call *call,
			     u64 elapsed_ns)
{
	struct rmem_space *space = &run->node->spaces.slot[call->lane];

	if (__atomic_load_n(&space->incarnation, __ATOMIC_RELAXED) == call->incarnation)
		__atomic_store_n(&space->calls_ns, space->calls_ns + elapsed_ns, __ATOMIC_RELAXED);
}

/* ---- sleep ---------------------------------------------------------------------------------- */

/* After a step that parked it. */
static void run_sleep(struct rmem_run *run, struct rmem_call *call)
{
	call->parks = false;
	if (call->woken) {
		call->woken = false;
		rmem_run_begin(run, call);
		return;
	}
	call->asleep = true;
	run->asleep++;
}

void rmem_run_wake(struct rmem_run *run, struct rmem_call *call)
{
	if (!call->asleep) {
		call->woken = true;
		return;
	}
	call->asleep = false;
	run->asleep--;
	rmem_run_begin(run, call);
}

void rmem_run_rouse(struct rmem_run *run)
{
	u32 n;

	for (n = 0; run->asleep && n < RMEM_RUN_CALLS; n++) {
		struct rmem_call *call = &run->call[n];

		if (call->asleep && run_is_stopped(run, call))
			rmem_run_wake(run, call);
	}
}

void rmem_run_start_init(struct rmem_run *run, struct rmem_run_offload *offload,
			 struct rmem_call *call)
{
	base_zero(call, sizeof(*call));
	call->run = run;
	call->offload = offload;
	call->index = RMEM_RUN_CALLS;
	call->head.type = RMEM_CALL;
	call->room_bytes = sizeof(struct rmem_found);
}

int rmem_run_start_step(struct rmem_call *call)
{
	call->wants_page = false;
	call->parks = false;
	return call->offload->ops->start(call);
}

static void run_count(struct rmem_run_offload *offload, const struct rmem_call *call)
{
	offload->ended++;
	offload->failed += call->reason == RMEM_NODE_FAILED;
	offload->over_budget += call->reason == RMEM_NODE_OVER_BUDGET;
}

struct rmem_call *rmem_run_charge(struct rmem_run *run,
				  struct rmem_call *const round[RMEM_RUN_ROUND], u32 count,
				  u64 elapsed_ns)
{
	struct rmem_run_lane *lane = &run->lane[round[0]->lane];
	struct rmem_call *ended = NULL;
	u32 n;

	lane->credit_ns = lane->credit_ns - (s64)elapsed_ns > -RUN_DEBT_NS_MAX ?
				  lane->credit_ns - (s64)elapsed_ns : -RUN_DEBT_NS_MAX;
	run_charge_space(run, round[0], elapsed_ns);
	for (n = 0; n < count; n++) {
		struct rmem_call *call = round[n];

		run_charge_one(run, call, elapsed_ns / count);
		if (!call->ended && call->parks)
			run_sleep(run, call);
		else if (!call->ended)
			rmem_run_begin(run, call);
		if (!call->ended)
			continue;
		run_count(call->offload, call);
		call->next = ended;
		ended = call;
	}
	run_end_turn(run, lane);
	return ended;
}

/* ---- the end -------------------------------------------------------------------------------- */

static u32 run_part(const struct rmem_call *call)
{
	u64 used_us = call->used_ns / BASE_NSEC_PER_USEC;

	switch (call->reason) {
	case RMEM_NODE_FAILED:
		return call->error;
	case RMEM_NODE_OVER_BUDGET:
		return used_us < ~0U ? (u32)used_us : ~0U;
	default:
		return 0;
	}
}

void rmem_run_settle(struct rmem_run *run, struct rmem_call *call, struct rmem_answer *answer)
{
	struct rmem_session *session = &run->node->sessions.slot[call->slot];
	const struct rmem_head *head = &call->head;
	struct rmem_found found;

	rmem_session_ran(session, head->id, call->marked);
	rmem_running_end(&run->running, call->index);
	answer->session = session;
	if (head->id < session->floor && head->type == RMEM_CALL) {
		/* Its client went on, so its place can belong to another id. */
		rmem_node_answer(run->node, head, RMEM_NODE_STALE, answer);
		answer->action = RMEM_ACT_DROP;
		return;
	}
	if (call->reason != RMEM_NODE_OK) {
		rmem_node_refuse_call(run->node, head, call->reason, run_part(call), answer);
		return;
	}
	rmem_node_answer(run->node, head, RMEM_NODE_OK, answer);
	if (head->type == RMEM_CALL) {
		base_zero(call->result + call->result_bytes, sizeof(found) - call->result_bytes);
		base_copy(&found, call->result, sizeof(found));
		rmem_session_keep(session, head->id, &found);
	} else {
		answer->reply.len = call->result_bytes;
	}
}

void rmem_run_give(struct rmem_run *run, struct rmem_call *call)
{
	call->offload->calls--;
	call->ops = NULL;
	run->lane[call->lane].calls--;
	run->in_use--;
	call->next = run->free;
	run->free = call;
}
