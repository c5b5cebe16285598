/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A queue with one lane for each space. The lanes that have jobs take turns, a job each, so a
 * space waits for at most one job of each other space.
 *
 *      lane of space 1:  a b c d       taken: a e f b g c d
 *      lane of space 2:  e
 *      lane of space 4:  f g
 *
 * The caller owns the jobs and holds a lock around each call.
 */
#ifndef REMORA_RMEM_LANES_H
#define REMORA_RMEM_LANES_H

#include "core/base/types.h"

/* Part of the caller's job. */
struct rmem_lane_job {
	struct rmem_lane_job *next; /* in its lane */
	u32 lane;
};

struct rmem_lane {
	struct rmem_lane_job *first, *last;
	struct rmem_lane *next; /* among the lanes with jobs, which form a ring */
	u32 jobs;
};

struct rmem_lanes {
	struct rmem_lane *lane;
	struct rmem_lane *served; /* last; the next one in the ring has its turn; NULL: no jobs */
};

size_t rmem_lanes_bytes(u32 lanes);
/* memory: rmem_lanes_bytes() of it, not cleared. */
void rmem_lanes_init(struct rmem_lanes *lanes, void *memory, u32 count);

static inline bool rmem_lanes_any(const struct rmem_lanes *lanes)
{
	return lanes->served;
}

/* Behind the jobs of its lane, which is below count. */
void rmem_lanes_add(struct rmem_lanes *lanes, struct rmem_lane_job *job, u32 lane);

/* The oldest job of the lane whose turn it is, or NULL. */
struct rmem_lane_job *rmem_lanes_take(struct rmem_lanes *lanes);

/* How many jobs the longest lane has. This and the next visit each lane that has jobs. */
u32 rmem_lanes_longest(const struct rmem_lanes *lanes);
/* The oldest job of the longest lane; there is one. */
struct rmem_lane_job *rmem_lanes_drop(struct rmem_lanes *lanes);

#endif
