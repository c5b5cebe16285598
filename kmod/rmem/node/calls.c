// SPDX-License-Identifier: GPL-2.0
/*
 * QUERY and CALL messages: the run table of core/rmem/offload/run.h, and the programs that were
 * loaded into it.
 *
 *   softirq -> node_calls_admit() -> table -> node_calls_run(), in the slow path's thread -> answer
 *
 * A node has a table from the first program on. A round of steps runs with bottom halves off, as
 * requests are executed. The thread gives up the CPU after CALLS_BURST_NS.
 */
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/netlink.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "rmem/node/calls.h"
#include "rmem/node/count.h"
#include "rmem/node/mem.h"
#include "rmem/node/reply.h"
#include "rmem/node/trace.h"
#include "rmem/node/types.h"

#define CALLS_BURST_NS (200 * NSEC_PER_USEC)

/* ---- the table ---- */

/* Where a call came from, by its index. */
struct calls_from {
	struct rmem_port *port;
	struct rmem_port_path path;
};

struct node_calls {
	struct rmem_run run;
	void *memory;		/* run's */
	spinlock_t lock;	/* the core's run lock */
	struct mutex stepping;	/* between rmem_run_take() and rmem_run_charge() */
	struct calls_from from[RMEM_RUN_CALLS];
	struct module *owner[RMEM_RUN_OFFLOADS];
};

/* Never written memory is read from the page of zeros. */
static void *calls_at(void *carrier, const struct rmem_extent *extent)
{
	struct node_host *host = carrier;

	return extent->page == RMEM_PAGE_NONE ? page_address(host->mem.zero) :
						node_mem_at(&host->mem, extent);
}

static const struct rmem_run_ops calls_ops = { .at = calls_at };

/* node_control. */
static struct node_calls *calls_table(struct node_host *host)
{
	struct node_calls *calls = host->calls;

	if (calls)
		return calls;
	calls = kvzalloc(sizeof(*calls), GFP_KERNEL);
	if (!calls)
		return NULL;
	calls->memory = kvmalloc(rmem_run_bytes(&host->core), GFP_KERNEL);
	if (!calls->memory) {
		kvfree(calls);
		return NULL;
	}
	spin_lock_init(&calls->lock);
	mutex_init(&calls->stepping);
	/* Before requests find core.running. */
	WRITE_ONCE(host->calls, calls);
	rmem_run_init(&calls->run, &host->core, &calls_ops, host, calls->memory);
	return calls;
}

void node_calls_exit(struct node_host *host)
{
	struct node_calls *calls = host->calls;
	unsigned int i;

	if (!calls)
		return;
	for (i = 0; i < RMEM_RUN_OFFLOADS; i++)
		module_put(calls->owner[i]);
	kvfree(calls->memory);
	kvfree(calls);
}

/* ---- programs of the node ---- */

static int calls_refuse(struct netlink_ext_ack *extack, enum rmem_run_error error)
{
	switch (error) {
	case RMEM_RUN_FULL:
		NL_SET_ERR_MSG_MOD(extack, "the most offloads are loaded; remove one");
		return -ENOSPC;
	case RMEM_RUN_EXISTS:
		NL_SET_ERR_MSG_MOD(extack, "a client of it has an offload of that id; remove that");
		return -EEXIST;
	case RMEM_RUN_NO_SPACE:
		NL_SET_ERR_MSG_MOD(extack, "no such SPACE with memory of its own, or CLIENT");
		return -ENOENT;
	case RMEM_RUN_NO_START:
		NL_SET_ERR_MSG_MOD(extack, "the program has a start, which only remora-node calls");
		return -EOPNOTSUPP;
	case RMEM_RUN_CLIENTS_MAX:
		NL_SET_ERR_MSG_FMT_MOD(extack, "more CLIENTS than %u", RMEM_RUN_CLIENTS);
		return -E2BIG;
	default:
		NL_SET_ERR_MSG_MOD(extack,
				   "the module's offload is of another version, or unsound");
		return -EINVAL;
	}
}

/* An offload leaves its place, and its module. False: calls of it run. node_control. */
static bool calls_leave(struct node_calls *calls, unsigned int place, bool stop)
{
	bool gone;

	spin_lock_bh(&calls->lock);
	gone = rmem_run_unload(&calls->run, place, stop);
	spin_unlock_bh(&calls->lock);
	if (gone) {
		module_put(calls->owner[place]);
		calls->owner[place] = NULL;
	}
	return gone;
}

/* Offloads whose space was deleted go when their last call has ended. node_control. */
static void calls_unload_dead(struct node_host *host, struct node_calls *calls)
{
	unsigned int place;

	do {
		mutex_lock(&host->slow_lock);
		spin_lock_bh(&calls->lock);
		place = rmem_run_dead(&calls->run);
		spin_unlock_bh(&calls->lock);
		mutex_unlock(&host->slow_lock);
	} while (place < RMEM_RUN_OFFLOADS && calls_leave(calls, place, false));
}

static int calls_bind(struct node_host *host, struct node_calls *calls,
		      const struct rmem_offload_ops *ops, struct module *owner,
		      const struct node_offload *offload, struct netlink_ext_ack *extack)
{
	int place;

	mutex_lock(&host->call_lock);
	mutex_lock(&host->slow_lock);
	spin_lock_bh(&calls->lock);
	place = rmem_run_load(&calls->run, ops, offload->space, offload->budget_us, offload->client,
			      offload->clients);
	if (place >= 0)
		calls->owner[place] = owner;
	spin_unlock_bh(&calls->lock);
	mutex_unlock(&host->slow_lock);
	mutex_unlock(&host->call_lock);
	return place < 0 ? calls_refuse(extack, place) : 0;
}

/* node_control. */
int node_calls_load(struct node_host *host, const struct node_offload *offload,
		    const struct rmem_offload_ops *ops, struct module *owner,
		    struct netlink_ext_ack *extack)
{
	struct node_calls *calls = calls_table(host);

	if (!calls) {
		NL_SET_ERR_MSG_MOD(extack, "no memory for calls");
		return -ENOMEM;
	}
	calls_unload_dead(host, calls);
	return calls_bind(host, calls, ops, owner, offload, extack);
}

/* RMEM_RUN_OFFLOADS: there is none. */
static unsigned int calls_find(const struct node_calls *calls, const struct node_offload *offload)
{
	unsigned int place;

	for (place = 0; place < RMEM_RUN_OFFLOADS; place++) {
		const struct rmem_run_offload *each = &calls->run.offload[place];

		if (each->ops && each->place.space == offload->space &&
		    !strncmp(each->ops->name, offload->name, RMEM_OFFLOAD_NAME_BYTES))
			break;
	}
	return place;
}

/* Runs its calls to their end, and stops those that take long. node_control. */
static void calls_unload(struct node_host *host, unsigned int place)
{
	unsigned int tries = 0;

	while (!calls_leave(host->calls, place, tries++ >= RMEM_RUN_UNLOAD_TRIES))
		node_calls_run(host);
}

/* node_control. */
int node_calls_remove(struct node_host *host, const struct node_offload *offload,
		      struct netlink_ext_ack *extack)
{
	unsigned int place = host->calls ? calls_find(host->calls, offload) : RMEM_RUN_OFFLOADS;

	if (place == RMEM_RUN_OFFLOADS) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "space %u has no offload %s", offload->space,
				       offload->name);
		return -ENOENT;
	}
	calls_unload(host, place);
	return 0;
}

/* node_control. A space was deleted. */
void node_calls_space_gone(struct node_host *host)
{
	if (host->calls)
		calls_unload_dead(host, host->calls);
}

/* node_control. False: there is none at that place. */
bool node_calls_at(struct node_host *host, unsigned int at, struct rmem_run_offload *copy)
{
	struct node_calls *calls = host->calls;

	if (!calls)
		return false;
	spin_lock_bh(&calls->lock);
	*copy = calls->run.offload[at];
	spin_unlock_bh(&calls->lock);
	return copy->ops;
}

/* node_control. A module's program goes: from all spaces. */
void node_calls_drop(struct node_host *host, const struct rmem_offload_ops *ops)
{
	unsigned int place;

	for (place = 0; host->calls && place < RMEM_RUN_OFFLOADS; place++) {
		if (host->calls->run.offload[place].ops == ops)
			calls_unload(host, place);
	}
}

/* node_control. Calls that begin from now on run `to`. */
void node_calls_replace(struct node_host *host, const struct rmem_offload_ops *from,
			const struct rmem_offload_ops *to)
{
	struct node_calls *calls = host->calls;

	if (!calls)
		return;
	spin_lock_bh(&calls->lock);
	rmem_run_replace(&calls->run, from, to);
	spin_unlock_bh(&calls->lock);
}

/* Some rounds of calls. False: none runs `ops`. node_control. */
bool node_calls_use(struct node_host *host, const struct rmem_offload_ops *ops)
{
	struct node_calls *calls = host->calls;
	bool uses;

	if (!calls)
		return false;
	spin_lock_bh(&calls->lock);
	uses = rmem_run_uses(&calls->run, ops);
	spin_unlock_bh(&calls->lock);
	if (uses)
		node_calls_run(host);
	return uses;
}

/* ---- calls ---- */

/* BH disabled, slot lock. False: answer refuses it. */
bool node_calls_admit(const struct rmem_port_batch *batch, const struct rmem_record *record,
		      struct rmem_answer *answer)
{
	struct node_host *host = batch->port->node;
	struct node_calls *calls = READ_ONCE(host->calls);
	struct rmem_call *call;

	spin_lock(&calls->lock);
	call = rmem_run_admit(&calls->run, record->head, answer);
	if (call) {
		if (record->head->len)
			record->payload->copy(record->payload, 0, call->args, record->head->len);
		calls->from[call->index].port = batch->port;
		calls->from[call->index].path = batch->path;
		rmem_run_begin(&calls->run, call);
	}
	spin_unlock(&calls->lock);
	if (call)
		wake_up(&host->queue.wait);
	else
		node_count(NODE_COUNT_REASON + answer->reason);
	return call;
}

bool node_calls_any(struct node_host *host)
{
	struct node_calls *calls = READ_ONCE(host->calls);
	bool any;

	if (!calls)
		return false;
	spin_lock_bh(&calls->lock);
	any = rmem_run_any(&calls->run);
	spin_unlock_bh(&calls->lock);
	return any;
}

/* The space might have been deleted since the call was admitted: then nobody is answered. */
static void calls_answer(struct node_host *host, const struct rmem_call *call,
			 struct rmem_answer *answer)
{
	const struct calls_from *from = &host->calls->from[call->index];
	u32 space = call->head.space;
	const struct base_siphash_key *key;

	local_bh_disable();
	rcu_read_lock();
	key = rmem_node_key(&host->core, space);
	if (key && rmem_node_incarnation(&host->core, space) == call->incarnation)
		node_reply(host, from->port, &from->path, key, &call->head, &answer->reply,
			   call->result);
	else
		node_count(NODE_COUNT_DROP_SPACE);
	rcu_read_unlock();
	local_bh_enable();
}

static void calls_end(struct node_host *host, struct rmem_call *call)
{
	struct node_slot *slot = &host->slot[call->slot];
	struct rmem_answer answer;

	spin_lock_bh(&slot->lock);
	rmem_run_settle(&host->calls->run, call, &answer);
	spin_unlock_bh(&slot->lock);
	node_count(NODE_COUNT_REASON + answer.reason);
	trace_rmem_node_decision(&call->head, &answer);
	if (answer.action == RMEM_ACT_REPLY)
		calls_answer(host, call, &answer);
	spin_lock_bh(&host->calls->lock);
	rmem_run_give(&host->calls->run, call);
	spin_unlock_bh(&host->calls->lock);
}

/* A round: some steps of calls of one space. False: there are none. */
static bool calls_round(struct node_host *host)
{
	struct node_calls *calls = host->calls;
	struct rmem_call *round[RMEM_RUN_ROUND];
	struct rmem_call *ended;
	u64 began_ns;
	u32 count;

	spin_lock_bh(&calls->lock);
	count = rmem_run_take(&calls->run, round);
	spin_unlock_bh(&calls->lock);
	if (!count)
		return false;
	local_bh_disable();
	rcu_read_lock();
	began_ns = ktime_get_ns();
	rmem_run_step(round, count, RMEM_RUN_ROUND / count);
	spin_lock(&calls->lock);
	ended = rmem_run_charge(&calls->run, round, count, ktime_get_ns() - began_ns);
	spin_unlock(&calls->lock);
	rcu_read_unlock();
	local_bh_enable();
	while (ended) {
		struct rmem_call *call = ended;

		ended = call->next;
		calls_end(host, call);
	}
	return true;
}

/* Process context. Some rounds. */
void node_calls_run(struct node_host *host)
{
	struct node_calls *calls = READ_ONCE(host->calls);
	u64 until_ns;

	if (!calls)
		return;
	mutex_lock(&calls->stepping);
	until_ns = ktime_get_ns() + CALLS_BURST_NS;
	while (calls_round(host) && ktime_get_ns() < until_ns)
		;
	mutex_unlock(&calls->stepping);
	node_mem_scrub(host);
	cond_resched();
}
