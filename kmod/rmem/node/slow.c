// SPDX-License-Identifier: GPL-2.0
/*
 * The slow path: requests that change what exists rather than what is in it, and ZEROs that
 * clear too much for a softirq.
 *
 *   softirq -+-> brief: OPEN CLOSE FENCE --.
 *            |                              |--> thread { call lock { steps of the core } answer }
 *            `-> work: ALLOC FREE ZERO -----'
 *
 * A request is copied into a job, so that no packet buffer waits here. Both queues have a lane for
 * each space (lanes.h), and the spaces take turns. Brief calls run first, and also between the
 * steps of a long call. So a tenant's OPEN never waits for another tenant's region, and its ALLOC
 * waits for one call of each other tenant at most. A brief call that has to wait for the end of
 * the one under way is put off: it goes to its space's lane of the other queue. At most
 * NODE_SLOW_BRIEF of them run before the next step, so that a flood of them doesn't stop the work.
 *
 * When all NODE_SLOW_JOBS are in use, a request takes the place of one of the space that has most
 * of them waiting; if that is its own space, the request is dropped. What is dropped is counted,
 * and its sender asks again.
 *
 * A large region takes long. Its steps are short, and between them the CPU is given up, and
 * the slow lock, so that zeroed pages do not run out meanwhile.
 */
#include <linux/kthread.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "rmem/node/host.h"
#include "rmem/node/trace.h"

#define NODE_SLOW_BRIEF 16U

static_assert(sizeof(struct rmem_open) <= NODE_SLOW_PAYLOAD_BYTES);
static_assert(sizeof(struct rmem_alloc) <= NODE_SLOW_PAYLOAD_BYTES);
static_assert(sizeof(struct rmem_range) <= NODE_SLOW_PAYLOAD_BYTES);

/* ---- the queues ---- */

static struct node_job *job_of(struct rmem_lane_job *in_lane)
{
	return in_lane ? container_of(in_lane, struct node_job, in_lane) : NULL;
}

static void put_free(struct node_queue *queue, struct node_job *job)
{
	job->in_lane.next = queue->free ? &queue->free->in_lane : NULL;
	queue->free = job;
}

/* Takes one from the space that has most of them waiting, if that is more than the lane has. */
static struct node_job *make_room(struct node_queue *queue, const struct rmem_lane *lane)
{
	u32 brief = rmem_lanes_longest(&queue->brief);
	u32 work = rmem_lanes_longest(&queue->work);

	if (max(brief, work) <= lane->jobs + 1)
		return NULL;
	node_count(NODE_COUNT_DROP_QUEUE_FULL);
	return job_of(rmem_lanes_drop(brief > work ? &queue->brief : &queue->work));
}

static struct node_job *get_free(struct node_queue *queue, const struct rmem_lane *lane)
{
	struct node_job *job = queue->free;

	if (!job)
		return make_room(queue, lane);
	queue->free = job_of(job->in_lane.next);
	return job;
}

/* BH disabled. False: no room. */
bool node_slow_add(const struct rmem_port_batch *batch, const struct rmem_record *record)
{
	const struct rmem_head *head = record->head;
	struct node_host *host = batch->port->node;
	u32 lane = rmem_node_lane(&host->core, head->space);
	struct node_queue *queue = &host->queue;
	struct rmem_lanes *lanes = rmem_node_call_is_brief(head) ? &queue->brief : &queue->work;
	struct node_job *job;

	spin_lock(&queue->lock);
	job = get_free(queue, &lanes->lane[lane]);
	if (job) {
		job->incarnation = rmem_node_incarnation(&host->core, head->space);
		job->head = *head;
		job->port = batch->port;
		job->path = batch->path;
		record->payload->copy(record->payload, 0, job->payload,
				      rmem_wire_payload_bytes(head));
		rmem_lanes_add(lanes, &job->in_lane, lane);
	}
	spin_unlock(&queue->lock);
	if (job)
		wake_up(&queue->wait);
	return job;
}

static bool has_jobs(struct node_queue *queue)
{
	bool any;

	spin_lock_bh(&queue->lock);
	any = rmem_lanes_any(&queue->brief) || rmem_lanes_any(&queue->work);
	spin_unlock_bh(&queue->lock);
	return any;
}

static struct node_job *take(struct node_queue *queue, struct rmem_lanes *lanes)
{
	struct node_job *job;

	spin_lock_bh(&queue->lock);
	job = job_of(rmem_lanes_take(lanes));
	spin_unlock_bh(&queue->lock);
	return job;
}

static void put_off(struct node_queue *queue, struct node_job *job)
{
	spin_lock_bh(&queue->lock);
	rmem_lanes_add(&queue->work, &job->in_lane, job->in_lane.lane);
	spin_unlock_bh(&queue->lock);
}

static void give_back(struct node_queue *queue, struct node_job *job)
{
	spin_lock_bh(&queue->lock);
	put_free(queue, job);
	spin_unlock_bh(&queue->lock);
}

/* ---- the requests ---- */

/* The step may have changed which session the slot holds. */
static void trace_session(const struct node_host *host, u32 slot, u64 before, u8 type)
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

static bool step(struct node_host *host, struct rmem_node_call *call)
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
	trace_session(host, slot, before, call->head.type);
	spin_unlock_bh(&host->slot[slot].lock);
	rcu_read_unlock();
	return more;
}

static void trace_region(const struct node_job *job, const struct rmem_node_call *call)
{
	struct rmem_range range;

	if (call->answer.action != RMEM_ACT_REPLY || call->answer.reply.status != RMEM_OK)
		return;
	if (job->head.type == RMEM_ALLOC)
		range = call->out.range;
	else if (job->head.type == RMEM_FREE)
		memcpy(&range, job->payload, sizeof(range));
	else
		return;
	trace_rmem_node_region(&job->head, le64_to_cpu(range.addr), le64_to_cpu(range.bytes));
}

/* The space may have been deleted since its request was verified: then nobody is answered. */
static void answer_job(struct node_host *host, const struct node_job *job,
		       struct rmem_answer *answer, const void *payload)
{
	const struct base_siphash_key *key;

	local_bh_disable();
	rcu_read_lock();
	key = rmem_node_key(&host->core, job->head.space);
	if (key)
		job->port->ops->reply(job->port, &job->path, key, &answer->reply, payload);
	rcu_read_unlock();
	local_bh_enable();
}

static bool locked_step(struct node_host *host, struct rmem_node_call *call)
{
	bool more;

	mutex_lock(&host->slow_lock);
	more = step(host, call);
	mutex_unlock(&host->slow_lock);
	return more;
}

/* Call lock. False: meanwhile its space may have become another's, with another key. */
static bool is_current(const struct node_host *host, const struct node_job *job)
{
	if (job->incarnation == rmem_node_incarnation(&host->core, job->head.space))
		return true;
	node_count(NODE_COUNT_DROP_SPACE);
	return false;
}

static void end(struct node_host *host, struct node_job *job)
{
	node_count(NODE_COUNT_REASON + job->call.answer.reason);
	trace_rmem_node_decision(&job->head, &job->call.answer);
	trace_region(job, &job->call);
	if (job->call.answer.action == RMEM_ACT_REPLY)
		answer_job(host, job, &job->call.answer, &job->call.out);
}

/* False: it has to wait for the end of the call under way. Call lock. */
static bool run_between(struct node_host *host, struct node_job *job,
			const struct rmem_node_call *under_way)
{
	if (!is_current(host, job))
		return true;
	if (!rmem_node_call_enter(&host->core, under_way, &job->call, ktime_get_coarse_ns(),
				  &job->head, &job->path.peer, job->payload))
		return false;
	while (locked_step(host, &job->call))
		cond_resched();
	if (job->call.put_off)
		return false;
	end(host, job);
	return true;
}

static void run_brief(struct node_host *host, const struct rmem_node_call *under_way)
{
	struct node_queue *queue = &host->queue;
	struct node_job *job;
	unsigned int n;

	for (n = 0; n < NODE_SLOW_BRIEF && (job = take(queue, &queue->brief)); n++) {
		if (run_between(host, job, under_way))
			give_back(queue, job);
		else
			put_off(queue, job);
		cond_resched();
	}
}

void node_slow_run(struct node_host *host, struct rmem_node_call *call)
{
	while (locked_step(host, call)) {
		cond_resched();
		if (call->divisible)
			run_brief(host, call);
	}
}

static void handle(struct node_host *host, struct node_job *job)
{
	bool current_space;

	mutex_lock(&host->call_lock);
	current_space = is_current(host, job);
	if (current_space) {
		rmem_node_call_begin(&host->core, &job->call, ktime_get_coarse_ns(), &job->head,
				     &job->path.peer, job->payload);
		node_slow_run(host, &job->call);
	}
	mutex_unlock(&host->call_lock);
	if (current_space) {
		end(host, job);
		node_mem_scrub(host);
	}
	give_back(&host->queue, job);
	cond_resched();
}

/* ---- the thread ---- */

static void run_jobs(struct node_host *host)
{
	struct node_queue *queue = &host->queue;
	struct node_job *job;
	unsigned int n;

	for (n = 0; n < NODE_SLOW_BRIEF && (job = take(queue, &queue->brief)); n++)
		handle(host, job);
	job = take(queue, &queue->work);
	if (job)
		handle(host, job);
}

static void expire(struct node_host *host)
{
	struct rmem_node_call call;

	mutex_lock(&host->call_lock);
	rmem_node_call_expire(&call, ktime_get_coarse_ns());
	node_slow_run(host, &call);
	mutex_unlock(&host->call_lock);
	node_mem_scrub(host);
}

static int run(void *data)
{
	struct node_host *host = data;
	struct node_queue *queue = &host->queue;
	unsigned long period = msecs_to_jiffies(rmem_node_expire_ms(&host->core.config));
	unsigned long next = jiffies + period;

	while (!kthread_should_stop()) {
		unsigned long now = jiffies;

		wait_event_idle_timeout(queue->wait, kthread_should_stop() || has_jobs(queue),
					time_before(now, next) ? next - now : 1);
		if (kthread_should_stop())
			break;
		run_jobs(host);
		if (time_after_eq(jiffies, next)) {
			expire(host);
			next = jiffies + period;
		}
	}
	return 0;
}

int node_slow_init(struct node_host *host)
{
	struct node_queue *queue = &host->queue;
	u32 spaces = host->core.config.spaces_max;
	size_t bytes = rmem_lanes_bytes(spaces);
	unsigned int n;

	spin_lock_init(&queue->lock);
	init_waitqueue_head(&queue->wait);
	queue->job = kvcalloc(NODE_SLOW_JOBS, sizeof(*queue->job), GFP_KERNEL);
	queue->lanes = kvmalloc_array(2, bytes, GFP_KERNEL);
	if (!queue->job || !queue->lanes) {
		node_slow_exit(host);
		return -ENOMEM;
	}
	rmem_lanes_init(&queue->brief, queue->lanes, spaces);
	rmem_lanes_init(&queue->work, queue->lanes + bytes, spaces);
	for (n = 0; n < NODE_SLOW_JOBS; n++)
		put_free(queue, &queue->job[n]);
	return 0;
}

void node_slow_exit(struct node_host *host)
{
	kvfree(host->queue.job);
	kvfree(host->queue.lanes);
}

int node_slow_start(struct node_host *host)
{
	struct task_struct *thread = kthread_run(run, host, "rmem_node/slow");

	if (IS_ERR(thread))
		return PTR_ERR(thread);
	host->queue.thread = thread;
	return 0;
}

void node_slow_stop(struct node_host *host)
{
	kthread_stop(host->queue.thread);
}
