// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/node/queue.h"

#include "core/rmem/node/node.h"

static struct rmem_job *queue_job_of(struct rmem_lane_job *in_lane)
{
	return (struct rmem_job *)in_lane;
}

size_t rmem_queue_bytes(u32 spaces)
{
	return 2 * rmem_lanes_bytes(spaces);
}

void rmem_queue_init(struct rmem_queue *queue, void *memory, u32 spaces)
{
	rmem_lanes_init(&queue->brief, memory, spaces);
	rmem_lanes_init(&queue->work, (u8 *)memory + rmem_lanes_bytes(spaces), spaces);
	queue->free = NULL;
}

void rmem_queue_give(struct rmem_queue *queue, struct rmem_job *job)
{
	job->in_lane.next = queue->free ? &queue->free->in_lane : NULL;
	queue->free = job;
}

/* Takes one from the space that has most of them waiting, if that is more than the lane has. */
static struct rmem_job *queue_make_room(struct rmem_queue *queue, const struct rmem_lane *lane)
{
	u32 brief = rmem_lanes_longest(&queue->brief);
	u32 work = rmem_lanes_longest(&queue->work);

	if ((brief > work ? brief : work) <= lane->jobs + 1)
		return NULL;
	return queue_job_of(rmem_lanes_drop(brief > work ? &queue->brief : &queue->work));
}

struct rmem_job *rmem_queue_add(struct rmem_queue *queue, const struct rmem_node *node,
				const struct rmem_head *head, bool *dropped)
{
	struct rmem_lanes *lanes = rmem_node_call_is_brief(head) ? &queue->brief : &queue->work;
	u32 lane = rmem_node_lane(node, head->space);
	struct rmem_job *job = queue->free;

	*dropped = false;
	if (job) {
		queue->free = queue_job_of(job->in_lane.next);
	} else {
		job = queue_make_room(queue, &lanes->lane[lane]);
		*dropped = job;
	}
	if (!job)
		return NULL;
	job->incarnation = rmem_node_incarnation(node, head->space);
	job->head = *head;
	job->call.took_long = false; /* its former request's */
	rmem_lanes_add(lanes, &job->in_lane, lane);
	return job;
}

struct rmem_job *rmem_queue_take_brief(struct rmem_queue *queue)
{
	return queue_job_of(rmem_lanes_take(&queue->brief));
}

struct rmem_job *rmem_queue_take_work(struct rmem_queue *queue)
{
	return queue_job_of(rmem_lanes_take(&queue->work));
}

void rmem_queue_put_off(struct rmem_queue *queue, struct rmem_job *job)
{
	rmem_lanes_add(&queue->work, &job->in_lane, job->in_lane.lane);
}

bool rmem_job_is_current(const struct rmem_job *job, const struct rmem_node *node)
{
	return job->incarnation == rmem_node_incarnation(node, job->head.space);
}
