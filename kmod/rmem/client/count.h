/* SPDX-License-Identifier: GPL-2.0 */
#ifndef REMORA_RMEM_COUNT_H
#define REMORA_RMEM_COUNT_H

#include "rmem/client/types.h"

static inline void rmem_count_add(struct rmem_device *device, unsigned int which, u64 value)
{
	this_cpu_add(device->counts->count[which], value);
}

static inline void rmem_count(struct rmem_device *device, unsigned int which)
{
	rmem_count_add(device, which, 1);
}

/* The device's counters, then its cores'. */
#define RMEM_COUNTERS (RMEM_COUNTS + sizeof(struct rmem_client_counters) / sizeof(u64))

/* An operation other than ALLOC and FREE was asked for. */
void rmem_count_op(struct rmem_device *device, const struct rmem_op *op);

/* The operation has ended well. */
void rmem_count_time(struct rmem_device *device, const struct rmem_op *op, u64 now_ns);

/* The sums of a kind's buckets, and of its times; how many buckets up to the last that isn't 0. */
unsigned int rmem_count_times(struct rmem_device *device, enum rmem_time which,
			      u64 times[BASE_TIMES_BUCKETS], u64 *sum_ns);
const char *rmem_count_time_name(enum rmem_time which);

/* The counters' sums, RMEM_COUNTERS of them, and the name of each. */
void rmem_count_sums(struct rmem_device *device, u64 *values);
const char *rmem_count_name(unsigned int which);

#endif
