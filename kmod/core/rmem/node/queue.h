/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Slow requests that wait for the thread that executes them (call.h).
 *
 *   request -+-> brief: OPEN CLOSE FENCE --.
 *            |                              |--> thread { call lock { steps of the call } answer }
 *            `-> work: ALLOC FREE ZERO -----'
 *
 * Both queues have a lane for each space (lanes.h), and the spaces take turns. The thread runs
 * brief calls first, and also between the steps of a long call. So a tenant's OPEN never waits
 * for another tenant's region, and its ALLOC waits for one call of each other tenant at most. A
 * brief call that has to wait for the end of the one under way is put off: it goes to its
 * space's lane of the other queue. At most RMEM_QUEUE_BRIEF of them run before the next step, so
 * a flood of them slows the work but doesn't stop it. An OPEN that computes a sealed session's keys
 * takes as long as many others, so it is the last before that step (rmem_queue_cost()).
 *
 * When all jobs are in use, a request takes the place of one of the space that has most of them
 * waiting; if that is its own space, the request is dropped. Its sender asks again.
 *
 * The caller has the jobs, and holds a lock of the queue around each call.
 */
#ifndef REMORA_RMEM_QUEUE_H
#define REMORA_RMEM_QUEUE_H

#include "core/rmem/node/call.h"
#include "core/rmem/node/lanes.h"

#define RMEM_QUEUE_JOBS	 256U /* enough for a caller to have */
#define RMEM_QUEUE_BRIEF 16U

/* A verified request. The caller's own is behind it. */
struct rmem_job {
	struct rmem_lane_job in_lane; /* first; while the job is free, next links the free ones */
	u64 incarnation;	      /* of its space */
	struct rmem_head head;
	union rmem_node_payload payload; /* rmem_wire_payload_bytes(&head) of it; the caller's */
	struct rmem_node_call call;
};

struct rmem_queue {
	struct rmem_lanes brief; /* rmem_node_call_is_brief() */
	struct rmem_lanes work;	 /* the others, and brief ones put off */
	struct rmem_job *free;
};

/* memory: rmem_queue_bytes() of it, not cleared. spaces: config.spaces_max. No job is there yet. */
size_t rmem_queue_bytes(u32 spaces);
void rmem_queue_init(struct rmem_queue *queue, void *memory, u32 spaces);

/* A job is free; from the first on, each is given once. */
void rmem_queue_give(struct rmem_queue *queue, struct rmem_job *job);

/*
 * Adds a request; the caller fills in its payload before it drops the lock. NULL: no room.
 * *dropped: one of another space had to go for it.
 */
struct rmem_job *rmem_queue_add(struct rmem_queue *queue, const struct rmem_node *node,
				const struct rmem_head *head, bool *dropped);

static inline bool rmem_queue_any(const struct rmem_queue *queue)
{
	return rmem_lanes_any(&queue->brief) || rmem_lanes_any(&queue->work);
}

/* The job whose turn it is, or NULL. The caller gives it back, or puts it off. */
struct rmem_job *rmem_queue_take_brief(struct rmem_queue *queue);
struct rmem_job *rmem_queue_take_work(struct rmem_queue *queue);
void rmem_queue_put_off(struct rmem_queue *queue, struct rmem_job *job);

/* The part of RMEM_QUEUE_BRIEF that a finished brief job used. */
static inline u32 rmem_queue_cost(const struct rmem_job *job)
{
	return job->call.took_long ? RMEM_QUEUE_BRIEF : 1;
}

/* Call lock, and none of the queue. False: its slot might have another space and key by now. */
bool rmem_job_is_current(const struct rmem_job *job, const struct rmem_node *node);

#endif
