// SPDX-License-Identifier: GPL-2.0
/*
 * The slow path: requests that change regions, names or sessions rather than content, and ZEROs
 * that clear too much for a softirq.
 *
 *   softirq -> queue (core/rmem/node/queue.h) -> thread { call lock { steps of the core } answer }
 *
 * A request is copied into a job, so that no packet buffer waits here. The queue says who has the
 * next turn. Dropped requests are counted, and their clients retransmit them.
 *
 * A large region takes long. Its steps are short, and between them the CPU is given up, and
 * the slow lock, so that zeroed pages do not run out meanwhile.
 */
#include <linux/kthread.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "rmem/node/calls.h"
#include "rmem/node/count.h"
#include "rmem/node/mem.h"
#include "rmem/node/reply.h"
#include "rmem/node/slow.h"
#include "rmem/node/trace.h"
#include "rmem/node/types.h"

/* ---- the queue ---- */

static struct node_job *slow_job_of(struct rmem_job *job)
{
	return job ? container_of(job, struct node_job, job) : NULL;
}

/* BH disabled. False: no room. */
bool node_slow_add(const struct rmem_port_batch *batch, const struct rmem_record *record)
{
	struct node_host *host = batch->port->node;
	struct node_queue *queue = &host->queue;
	struct node_job *job;
	bool dropped;

	spin_lock(&queue->lock);
	job = slow_job_of(rmem_queue_add(&queue->waiting, &host->core, record->head, &dropped));
	if (job) {
		job->port = batch->port;
		job->path = batch->path;
		record->payload->copy(record->payload, 0, &job->job.payload,
				      rmem_wire_payload_bytes(record->head));
	}
	spin_unlock(&queue->lock);
	if (dropped)
		node_count(NODE_COUNT_DROP_QUEUE_FULL);
	if (job)
		wake_up(&queue->wait);
	return job;
}

static bool slow_has_jobs(struct node_queue *queue)
{
	bool any;

	spin_lock_bh(&queue->lock);
	any = rmem_queue_any(&queue->waiting);
	spin_unlock_bh(&queue->lock);
	return any;
}

static struct node_job *slow_take(struct node_queue *queue,
				  struct rmem_job *(*whose)(struct rmem_queue *waiting))
{
	struct node_job *job;

	spin_lock_bh(&queue->lock);
	job = slow_job_of(whose(&queue->waiting));
	spin_unlock_bh(&queue->lock);
	return job;
}

static void slow_let_go(struct node_queue *queue, struct node_job *job,
			void (*how)(struct rmem_queue *waiting, struct rmem_job *job))
{
	spin_lock_bh(&queue->lock);
	how(&queue->waiting, &job->job);
	spin_unlock_bh(&queue->lock);
}

/* ---- the requests ---- */

/* The step might have changed which session the slot holds. */
static void slow_trace_session(const struct node_host *host, u32 slot, u64 before, u8 type)
{
	u64 after = host->core.sessions.slot[slot].name;

	if (after == before)
		return;
	if (after != RMEM_SESSION_NONE &&
	    rmem_session_is_renewed(&host->core.sessions.slot[slot])) {
		trace_rmem_node_session("renewed", slot, after);
		return;
	}
	if (before != RMEM_SESSION_NONE)
		trace_rmem_node_session(type == RMEM_CLOSE ? "closed" : "ended", slot, before);
	if (after != RMEM_SESSION_NONE)
		trace_rmem_node_session("opened", slot, after);
}

static bool slow_step(struct node_host *host, struct rmem_node_call *call)
{
	int slot = call->slot;
	u64 before;
	bool more;

	if (slot < 0)
		return rmem_node_call_step(&host->core, call);
	rcu_read_lock(); /* for the page to be zeroed */
	spin_lock_bh(&host->slot[slot].lock);
	before = host->core.sessions.slot[slot].name;
	more = rmem_node_call_step(&host->core, call);
	if (call->fill.bytes)
		memset(node_mem_at(&host->mem, &call->fill), 0, call->fill.bytes);
	slow_trace_session(host, slot, before, call->head.type);
	spin_unlock_bh(&host->slot[slot].lock);
	rcu_read_unlock();
	return more;
}

static void slow_trace_region(const struct node_job *job, const struct rmem_node_call *call)
{
	struct rmem_range range;

	if (call->answer.action != RMEM_ACT_REPLY || call->answer.reply.status != RMEM_OK)
		return;
	if (job->job.head.type == RMEM_ALLOC)
		range = call->out.range;
	else if (job->job.head.type == RMEM_FREE)
		memcpy(&range, &job->job.payload, sizeof(range));
	else
		return;
	trace_rmem_node_region(&job->job.head, le64_to_cpu(range.addr), le64_to_cpu(range.bytes));
}

/* The space might have been deleted since its request was verified: then nobody is answered. */
static void slow_answer_job(struct node_host *host, const struct node_job *job,
			    struct rmem_answer *answer, const void *payload)
{
	const struct base_siphash_key *key;

	local_bh_disable();
	rcu_read_lock();
	key = rmem_node_key(&host->core, job->job.head.space);
	if (key)
		node_reply(host, job->port, &job->path, key, &job->job.head, &answer->reply,
			   payload);
	rcu_read_unlock();
	local_bh_enable();
}

static bool slow_locked_step(struct node_host *host, struct rmem_node_call *call)
{
	bool more;

	if (call->alone)
		return rmem_node_call_step(&host->core, call);
	mutex_lock(&host->slow_lock);
	more = slow_step(host, call);
	mutex_unlock(&host->slow_lock);
	return more;
}

static bool slow_is_current(const struct node_host *host, const struct node_job *job)
{
	lockdep_assert_held(&host->call_lock);
	if (rmem_job_is_current(&job->job, &host->core))
		return true;
	node_count(NODE_COUNT_DROP_SPACE);
	return false;
}

static void slow_end(struct node_host *host, struct node_job *job)
{
	struct rmem_node_call *call = &job->job.call;

	node_count(NODE_COUNT_REASON + call->answer.reason);
	trace_rmem_node_decision(&job->job.head, &call->answer);
	slow_trace_region(job, call);
	if (call->answer.action == RMEM_ACT_REPLY)
		slow_answer_job(host, job, &call->answer, &call->out);
}

/* False: it has to wait for the end of the call under way. */
static bool slow_run_between(struct node_host *host, struct node_job *job,
			     const struct rmem_node_call *under_way)
{
	lockdep_assert_held(&host->call_lock);
	if (!slow_is_current(host, job))
		return true;
	if (!rmem_node_call_enter(&host->core, under_way, &job->job.call, ktime_get_coarse_ns(),
				  &job->job.head, &job->path.peer, &job->job.payload))
		return false;
	while (slow_locked_step(host, &job->job.call))
		cond_resched();
	if (job->job.call.put_off)
		return false;
	slow_end(host, job);
	return true;
}

static void slow_run_brief(struct node_host *host, const struct rmem_node_call *under_way)
{
	struct node_queue *queue = &host->queue;
	struct node_job *job;
	u32 spent = 0;
	bool ended;

	while (spent < RMEM_QUEUE_BRIEF && (job = slow_take(queue, rmem_queue_take_brief))) {
		ended = slow_run_between(host, job, under_way);
		spent += rmem_queue_cost(&job->job);
		slow_let_go(queue, job, ended ? rmem_queue_give : rmem_queue_put_off);
		cond_resched();
	}
}

void node_slow_run(struct node_host *host, struct rmem_node_call *call)
{
	lockdep_assert_held(&host->call_lock);
	while (!READ_ONCE(host->queue.stopping) && slow_locked_step(host, call)) {
		cond_resched();
		if (call->divisible)
			slow_run_brief(host, call);
		if (call->divisible || call->waits)
			node_calls_run(host);
	}
}

/* Returns the job's rmem_queue_cost(). */
static u32 slow_handle(struct node_host *host, struct node_job *job)
{
	bool current_space;
	u32 cost;

	mutex_lock(&host->call_lock);
	current_space = slow_is_current(host, job);
	if (current_space) {
		rmem_node_call_begin(&host->core, &job->job.call, ktime_get_coarse_ns(),
				     &job->job.head, &job->path.peer, &job->job.payload);
		node_slow_run(host, &job->job.call);
	}
	mutex_unlock(&host->call_lock);
	if (current_space && !READ_ONCE(host->queue.stopping)) {
		slow_end(host, job);
		node_mem_scrub(host);
	}
	cost = rmem_queue_cost(&job->job);
	slow_let_go(&host->queue, job, rmem_queue_give);
	cond_resched();
	return cost;
}

/* ---- the thread ---- */

static void slow_run_jobs(struct node_host *host)
{
	struct node_queue *queue = &host->queue;
	struct node_job *job;
	u32 spent = 0;

	while (spent < RMEM_QUEUE_BRIEF && (job = slow_take(queue, rmem_queue_take_brief)))
		spent += slow_handle(host, job);
	job = slow_take(queue, rmem_queue_take_work);
	if (job)
		slow_handle(host, job);
}

static void slow_expire(struct node_host *host)
{
	struct rmem_node_call call;

	mutex_lock(&host->call_lock);
	rmem_node_call_expire(&call, ktime_get_coarse_ns());
	node_slow_run(host, &call);
	mutex_unlock(&host->call_lock);
	node_mem_scrub(host);
}

static int slow_run(void *data)
{
	struct node_host *host = data;
	struct node_queue *queue = &host->queue;
	unsigned long period = msecs_to_jiffies(rmem_node_expire_ms(&host->core.config));
	unsigned long next = jiffies + period;

	while (!kthread_should_stop()) {
		unsigned long now = jiffies;

		wait_event_idle_timeout(queue->wait,
					kthread_should_stop() || slow_has_jobs(queue) ||
						node_calls_any(host),
					time_before(now, next) ? next - now : 1);
		if (kthread_should_stop())
			break;
		slow_run_jobs(host);
		node_calls_run(host);
		if (time_after_eq(jiffies, next)) {
			slow_expire(host);
			next = jiffies + period;
		}
	}
	return 0;
}

int node_slow_init(struct node_host *host)
{
	struct node_queue *queue = &host->queue;
	u32 spaces = host->core.config.spaces_max;
	unsigned int n;

	spin_lock_init(&queue->lock);
	init_waitqueue_head(&queue->wait);
	queue->job = kvcalloc(RMEM_QUEUE_JOBS, sizeof(*queue->job), GFP_KERNEL);
	queue->lanes = kvmalloc(rmem_queue_bytes(spaces), GFP_KERNEL);
	if (!queue->job || !queue->lanes) {
		node_slow_exit(host);
		return -ENOMEM;
	}
	rmem_queue_init(&queue->waiting, queue->lanes, spaces);
	for (n = 0; n < RMEM_QUEUE_JOBS; n++)
		rmem_queue_give(&queue->waiting, &queue->job[n].job);
	return 0;
}

void node_slow_exit(struct node_host *host)
{
	/* A stop leaves an OPEN between its steps, with the secret that it agreed on. */
	kvfree_sensitive(host->queue.job, RMEM_QUEUE_JOBS * sizeof(*host->queue.job));
	kvfree(host->queue.lanes);
}

int node_slow_start(struct node_host *host)
{
	struct task_struct *thread = kthread_run(slow_run, host, "rmem_node/slow");

	if (IS_ERR(thread))
		return PTR_ERR(thread);
	host->queue.thread = thread;
	return 0;
}

void node_slow_stop(struct node_host *host)
{
	WRITE_ONCE(host->queue.stopping, true);
	kthread_stop(host->queue.thread);
}
