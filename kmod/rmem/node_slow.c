// SPDX-License-Identifier: GPL-2.0
/*
 * The slow path: requests that change what exists rather than what is in it, and ZEROs that
 * clear too much for a softirq.
 *
 *   softirq --> queue of NODE_SLOW_JOBS --> thread { call lock { steps of the core } answer }
 *
 * A request is copied into a job, so that no packet buffer waits here. When the
 * queue is full a request is dropped and counted; its sender asks again.
 *
 * A large region takes long. Its steps are short, and between them the CPU is given up, and
 * the slow lock, so that zeroed pages do not run out meanwhile.
 */
#include <linux/kthread.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "rmem/node_priv.h"
#include "rmem/node_trace.h"

static_assert(sizeof(struct rmem_open) <= NODE_SLOW_PAYLOAD_BYTES);
static_assert(sizeof(struct rmem_alloc) <= NODE_SLOW_PAYLOAD_BYTES);
static_assert(sizeof(struct rmem_range) <= NODE_SLOW_PAYLOAD_BYTES);

/* ---- the queue ---- */

/* BH disabled. skb: verified, with as much payload as head says. False: no room. */
bool node_slow_add(struct node_host *host, const struct rmem_head *head,
		   const struct node_path *path, const struct sk_buff *skb, u32 payload_offset)
{
	u32 bytes = rmem_wire_payload_bytes(head);
	struct node_queue *queue = &host->queue;
	struct node_job *job;
	bool room;

	spin_lock(&queue->lock);
	room = queue->tail - queue->head < NODE_SLOW_JOBS;
	if (room) {
		job = &queue->job[queue->tail % NODE_SLOW_JOBS];
		job->incarnation = rmem_node_incarnation(&host->core, head->space);
		job->head = *head;
		job->path = *path;
		room = !WARN_ON_ONCE(skb_copy_bits(skb, payload_offset, job->payload, bytes));
		WRITE_ONCE(queue->tail, queue->tail + room);
	}
	spin_unlock(&queue->lock);
	if (room)
		wake_up(&queue->wait);
	return room;
}

/* The thread's: nobody else takes. */
static bool has_jobs(const struct node_queue *queue)
{
	return READ_ONCE(queue->tail) != queue->head;
}

static bool take_job(struct node_queue *queue, struct node_job *job)
{
	bool any;

	spin_lock_bh(&queue->lock);
	any = queue->head != queue->tail;
	if (any) {
		*job = queue->job[queue->head % NODE_SLOW_JOBS];
		queue->head++;
	}
	spin_unlock_bh(&queue->lock);
	return any;
}

/* ---- the requests ---- */

/* The step may have changed which session the slot holds. */
static void trace_session(const struct node_host *host, u32 slot, u64 before, u8 type)
{
	u64 after = host->core.sessions.slot[slot].name;

	if (after == before)
		return;
	if (after != RMEM_SESSION_NONE && host->core.sessions.slot[slot].renewed) {
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

void node_slow_run(struct node_host *host, struct rmem_node_call *call)
{
	bool more;

	do {
		mutex_lock(&host->slow_lock);
		more = step(host, call);
		mutex_unlock(&host->slow_lock);
		cond_resched();
	} while (more);
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

/* ---- the thread ---- */

/* The space may have been deleted since its request was verified: then nobody is answered. */
static void answer_job(struct node_host *host, const struct node_job *job,
		       struct rmem_answer *answer, const void *payload)
{
	const struct base_siphash_key *key;
	struct node_route route = {};
	struct dst_entry *dst;
	struct sk_buff *packet;

	local_bh_disable();
	rcu_read_lock();
	key = rmem_node_key(&host->core, job->head.space);
	packet = key ? node_send_message(key, &answer->reply, payload,
					 rmem_wire_payload_bytes(&answer->reply)) : NULL;
	if (packet) {
		dst = node_send_route(host, &route, &job->path);
		node_send_packets(host, dst, &job->path, job->head.integrity == RMEM_LINK, packet);
		node_send_forget(&route);
	}
	rcu_read_unlock();
	local_bh_enable();
}

static void handle(struct node_host *host, const struct node_job *job)
{
	struct rmem_node_call call;

	mutex_lock(&host->call_lock);
	/* Meanwhile its space may have become another's, with another key. */
	if (job->incarnation != rmem_node_incarnation(&host->core, job->head.space)) {
		mutex_unlock(&host->call_lock);
		node_count(NODE_COUNT_DROP_SPACE);
		return;
	}
	rmem_node_call_begin(&host->core, &call, ktime_get_coarse_ns(), &job->head,
			     &job->path.peer, job->payload);
	node_slow_run(host, &call);
	mutex_unlock(&host->call_lock);

	node_count(NODE_COUNT_REASON + call.answer.reason);
	trace_rmem_node_decision(&job->head, &call.answer);
	trace_region(job, &call);
	if (call.answer.action == RMEM_ACT_REPLY)
		answer_job(host, job, &call.answer, &call.out);
	node_mem_scrub(host);
}

static int run(void *data)
{
	struct node_host *host = data;
	struct node_queue *queue = &host->queue;
	struct node_job job;

	while (!kthread_should_stop()) {
		wait_event_idle(queue->wait, kthread_should_stop() || has_jobs(queue));
		while (!kthread_should_stop() && take_job(queue, &job)) {
			handle(host, &job);
			cond_resched();
		}
	}
	return 0;
}

int node_slow_init(struct node_host *host)
{
	struct node_queue *queue = &host->queue;

	spin_lock_init(&queue->lock);
	init_waitqueue_head(&queue->wait);
	queue->job = kvcalloc(NODE_SLOW_JOBS, sizeof(*queue->job), GFP_KERNEL);
	return queue->job ? 0 : -ENOMEM;
}

void node_slow_exit(struct node_host *host)
{
	kvfree(host->queue.job);
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
