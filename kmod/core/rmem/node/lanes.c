// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/node/lanes.h"

#include "core/base/bytes.h"

size_t rmem_lanes_bytes(u32 lanes)
{
	return lanes * sizeof(struct rmem_lane);
}

void rmem_lanes_init(struct rmem_lanes *lanes, void *memory, u32 count)
{
	base_zero(memory, rmem_lanes_bytes(count));
	lanes->lane = memory;
	lanes->served = NULL;
}

void rmem_lanes_add(struct rmem_lanes *lanes, struct rmem_lane_job *job, u32 at)
{
	struct rmem_lane *lane = &lanes->lane[at];

	job->lane = at;
	job->next = NULL;
	if (lane->jobs++) {
		lane->last->next = job;
		lane->last = job;
		return;
	}
	lane->first = job;
	lane->last = job;
	/* The lane was served last, so it is at the end of the round. */
	lane->next = lanes->served ? lanes->served->next : lane;
	if (lanes->served)
		lanes->served->next = lane;
	lanes->served = lane;
}

/* The oldest job of the lane behind before in the ring. */
static struct rmem_lane_job *lanes_take_after(struct rmem_lanes *lanes, struct rmem_lane *before)
{
	struct rmem_lane *lane = before->next;
	struct rmem_lane_job *job = lane->first;

	lane->first = job->next;
	if (--lane->jobs)
		return job;
	before->next = lane->next;
	if (lanes->served == lane)
		lanes->served = before == lane ? NULL : before;
	return job;
}

struct rmem_lane_job *rmem_lanes_take(struct rmem_lanes *lanes)
{
	struct rmem_lane *before = lanes->served;

	if (!before)
		return NULL;
	if (before->next->jobs > 1)
		lanes->served = before->next;
	return lanes_take_after(lanes, before);
}

/* The lane before the longest one, or NULL. */
static struct rmem_lane *lanes_before_longest(const struct rmem_lanes *lanes)
{
	struct rmem_lane *found = lanes->served;
	struct rmem_lane *at = found;

	if (!at)
		return NULL;
	do {
		if (at->next->jobs > found->next->jobs)
			found = at;
		at = at->next;
	} while (at != lanes->served);
	return found;
}

u32 rmem_lanes_longest(const struct rmem_lanes *lanes)
{
	const struct rmem_lane *before = lanes_before_longest(lanes);

	return before ? before->next->jobs : 0;
}

struct rmem_lane_job *rmem_lanes_drop(struct rmem_lanes *lanes)
{
	return lanes_take_after(lanes, lanes_before_longest(lanes));
}
