// SPDX-License-Identifier: GPL-2.0
/*
 * QUERY and CALL messages: the run table of core/rmem/offload/run.h, and the modules with its
 * programs.
 *
 *   softirq -> node_calls_admit() -> table -> node_calls_run(), in the slow path's thread -> answer
 *
 * A node has a table from the first program on. A round of steps runs with bottom halves off, as
 * requests are executed. The thread gives up the CPU after CALLS_BURST_NS.
 */
#include <linux/export.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/netlink.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "rmem/node/host.h"
#include "rmem/node/trace.h"
#include "rmem_offload_ops.h"

#define CALLS_BURST_NS (200 * NSEC_PER_USEC)

/* ---- modules with programs ---- */

struct calls_program {
	struct list_head list;
	const struct rmem_offload_ops *ops;
	struct module *owner;
};

static LIST_HEAD(calls_programs);
static DEFINE_MUTEX(calls_programs_lock);

static struct calls_program *calls_find_program(const char *name)
{
	struct calls_program *program;

	lockdep_assert_held(&calls_programs_lock);
	list_for_each_entry(program, &calls_programs, list) {
		if (!strncmp(program->ops->name, name, RMEM_OFFLOAD_NAME_BYTES))
			return program;
	}
	return NULL;
}

int rmem_offload_register(const struct rmem_offload_ops *ops, struct module *owner)
{
	struct calls_program *program = kzalloc(sizeof(*program), GFP_KERNEL);
	int err = 0;

	if (!program)
		return -ENOMEM;
	program->ops = ops;
	program->owner = owner;
	mutex_lock(&calls_programs_lock);
	if (calls_find_program(ops->name))
		err = -EEXIST;
	else
		list_add_tail(&program->list, &calls_programs);
	mutex_unlock(&calls_programs_lock);
	if (err)
		kfree(program);
	return err;
}
EXPORT_SYMBOL_GPL(rmem_offload_register);

void rmem_offload_unregister(const struct rmem_offload_ops *ops)
{
	struct calls_program *program;

	mutex_lock(&calls_programs_lock);
	program = calls_find_program(ops->name);
	list_del(&program->list);
	mutex_unlock(&calls_programs_lock);
	kfree(program);
}
EXPORT_SYMBOL_GPL(rmem_offload_unregister);

EXPORT_SYMBOL_GPL(rmem_function);
EXPORT_SYMBOL_GPL(rmem_args);
EXPORT_SYMBOL_GPL(rmem_args_bytes);
EXPORT_SYMBOL_GPL(rmem_result);
EXPORT_SYMBOL_GPL(rmem_scratch);
EXPORT_SYMBOL_GPL(rmem_look);
EXPORT_SYMBOL_GPL(rmem_at);
EXPORT_SYMBOL_GPL(rmem_read);
EXPORT_SYMBOL_GPL(rmem_write);
EXPORT_SYMBOL_GPL(rmem_error);
EXPORT_SYMBOL_GPL(rmem_prefetch);

/* The program of that name, with a reference to its module; or NULL. */
static const struct rmem_offload_ops *calls_get_program(const char *name, struct module **owner)
{
	const struct rmem_offload_ops *ops = NULL;
	struct calls_program *program;

	mutex_lock(&calls_programs_lock);
	program = calls_find_program(name);
	if (program && try_module_get(program->owner)) {
		ops = program->ops;
		*owner = program->owner;
	}
	mutex_unlock(&calls_programs_lock);
	return ops;
}

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
	case RMEM_RUN_OK:
		return 0;
	case RMEM_RUN_FULL:
		NL_SET_ERR_MSG_MOD(extack, "the most offloads are loaded; remove one");
		return -ENOSPC;
	case RMEM_RUN_EXISTS:
		NL_SET_ERR_MSG_MOD(extack, "a client of it has an offload of that id; remove that");
		return -EEXIST;
	case RMEM_RUN_NO_SPACE:
		NL_SET_ERR_MSG_MOD(extack, "no such SPACE with memory of its own, or CLIENT");
		return -ENOENT;
	case RMEM_RUN_CLIENTS_MAX:
		NL_SET_ERR_MSG_FMT_MOD(extack, "more CLIENTS than %u", RMEM_RUN_CLIENTS);
		return -E2BIG;
	default:
		NL_SET_ERR_MSG_MOD(extack,
				   "the module's offload is of another version, or unsound");
		return -EINVAL;
	}
}

/* Offloads whose space was deleted go when their last call has ended. node_control. */
static void calls_unload_dead(struct node_host *host, struct node_calls *calls)
{
	unsigned int i;

	do {
		mutex_lock(&host->slow_lock);
		spin_lock_bh(&calls->lock);
		i = rmem_run_dead(&calls->run);
		if (i < RMEM_RUN_OFFLOADS)
			rmem_run_unload(&calls->run, &calls->run.offload[i], false);
		spin_unlock_bh(&calls->lock);
		mutex_unlock(&host->slow_lock);
		if (i < RMEM_RUN_OFFLOADS) {
			module_put(calls->owner[i]);
			calls->owner[i] = NULL;
		}
	} while (i < RMEM_RUN_OFFLOADS);
}

static int calls_bind(struct node_host *host, struct node_calls *calls,
		      const struct rmem_offload_ops *ops, struct module *owner,
		      const struct node_offload *offload, struct netlink_ext_ack *extack)
{
	enum rmem_run_error error;
	unsigned int i;

	mutex_lock(&host->call_lock);
	mutex_lock(&host->slow_lock);
	spin_lock_bh(&calls->lock);
	error = rmem_run_load(&calls->run, ops, offload->space, offload->budget_us, offload->client,
			      offload->clients);
	for (i = 0; error == RMEM_RUN_OK && i < RMEM_RUN_OFFLOADS; i++) {
		if (calls->run.offload[i].ops == ops && !calls->owner[i]) {
			calls->owner[i] = owner;
			break;
		}
	}
	spin_unlock_bh(&calls->lock);
	mutex_unlock(&host->slow_lock);
	mutex_unlock(&host->call_lock);
	return calls_refuse(extack, error);
}

/* node_control. */
int node_calls_load(struct node_host *host, const struct node_offload *offload,
		    struct netlink_ext_ack *extack)
{
	const struct rmem_offload_ops *ops;
	struct node_calls *calls;
	struct module *owner;
	int err;

	ops = calls_get_program(offload->name, &owner);
	if (!ops) {
		NL_SET_ERR_MSG_FMT_MOD(extack,
				       "no module has an offload %s; modprobe remora-offload-%s",
				       offload->name, offload->name);
		return -ENOENT;
	}
	calls = calls_table(host);
	if (!calls) {
		NL_SET_ERR_MSG_MOD(extack, "no memory for calls");
		err = -ENOMEM;
	} else {
		calls_unload_dead(host, calls);
		err = calls_bind(host, calls, ops, owner, offload, extack);
	}
	if (err)
		module_put(owner);
	return err;
}

static struct rmem_run_offload *calls_find(struct node_calls *calls,
					   const struct node_offload *offload)
{
	unsigned int i;

	for (i = 0; calls && i < RMEM_RUN_OFFLOADS; i++) {
		struct rmem_run_offload *each = &calls->run.offload[i];

		if (each->ops && each->place.space == offload->space &&
		    !strncmp(each->ops->name, offload->name, RMEM_OFFLOAD_NAME_BYTES))
			return each;
	}
	return NULL;
}

/* node_control. */
int node_calls_remove(struct node_host *host, const struct node_offload *offload,
		      struct netlink_ext_ack *extack)
{
	struct node_calls *calls = host->calls;
	struct rmem_run_offload *found = calls_find(calls, offload);
	unsigned int i, tries = 0;
	bool gone = false;

	if (!found) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "space %u has no offload %s", offload->space,
				       offload->name);
		return -ENOENT;
	}
	while (!gone) {
		spin_lock_bh(&calls->lock);
		gone = rmem_run_unload(&calls->run, found, tries++ >= RMEM_RUN_UNLOAD_TRIES);
		spin_unlock_bh(&calls->lock);
		if (!gone)
			node_calls_run(host);
	}
	i = found - calls->run.offload;
	module_put(calls->owner[i]);
	calls->owner[i] = NULL;
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
		from->port->ops->reply(from->port, &from->path, key, &answer->reply, call->result);
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
