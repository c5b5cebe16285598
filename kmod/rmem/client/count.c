// SPDX-License-Identifier: GPL-2.0
/* Counters of a device and of its channels' cores, and how long its operations took. */
#include <linux/percpu.h>

#include "rmem/client/count.h"

/* ---- counters ---- */

#define OPS(type) (RMEM_COUNT_OPS + 2 * ((type) - RMEM_OPEN))
#define OPS_NAME(type, name, ...)                                                                  \
	[OPS(RMEM_##type)] = name, [OPS(RMEM_##type) + 1] = name "-bytes",

#define WIRE(verdict) (RMEM_COUNT_PATH + RMEM_PATH_DROP_WIRE + (verdict))
#define WIRE_NAME(verdict, name) [WIRE(RMEM_WIRE_##verdict)] = name,

static const char *const counter_name[] = {
	RMEM_TYPES(OPS_NAME)
	[RMEM_COUNT_FAILED] = "failed",
	[RMEM_COUNT_PATH + RMEM_PATH_COPIED] = "copied-packets",
	[RMEM_COUNT_PATH + RMEM_PATH_SPARE] = "spare-packets",
	[RMEM_COUNT_KICKED] = "kicked",
	[RMEM_COUNT_TIMER_LATE] = "timer-late",
	[RMEM_COUNT_RESERVE] = "reserve-given",
	[RMEM_COUNT_PATH + RMEM_PATH_NO_BUFFER] = "no-buffer",
	[RMEM_COUNT_PATH + RMEM_PATH_NO_ROUTE] = "no-route",
	[RMEM_COUNT_PATH + RMEM_PATH_UNSCHEDULED] = "unscheduled",
	[RMEM_COUNT_PATH + RMEM_PATH_WAITING] = "waiting",
	RMEM_WIRE_ROWS(WIRE_NAME)
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_STRANGER] = "drop-stranger",
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_NO_CHECKSUM] = "drop-no-checksum",
	[RMEM_COUNT_DROP_STOPPED] = "drop-stopped",
	/* In the order of struct rmem_client_counters. */
	[RMEM_COUNTS] = "sent",
	"received",
	"retries",
	"timeouts",
	"lost",
	"damaged",
	"busy",
	"reopened",
	"ignored",
	"bad",
};

static_assert(ARRAY_SIZE(counter_name) == RMEM_COUNTERS);

static bool count_is_shown(unsigned int which)
{
	u8 type = RMEM_OPEN + (which - RMEM_COUNT_OPS) / 2;

	if (which < RMEM_COUNT_FAILED)
		return rmem_type_table[type].counted == type &&
		       (which == OPS(type) || rmem_type_moves_bytes(type));
	/* The core counts damaged messages. */
	return which != WIRE(RMEM_WIRE_GOOD) && which != WIRE(RMEM_WIRE_DAMAGED);
}

/* NULL: it isn't shown. */
const char *rmem_count_name(unsigned int which)
{
	return count_is_shown(which) ? counter_name[which] : NULL;
}

void rmem_count_op(struct rmem_device *device, const struct rmem_op *op)
{
	u8 type = rmem_type_table[op->type].counted;

	if (!type)
		return;
	rmem_count(device, OPS(type));
	if (rmem_type_moves_bytes(type))
		rmem_count_add(device, OPS(type) + 1, op->len);
}

/* ---- times ---- */

static const char *const time_name[RMEM_TIMES] = {
	[RMEM_TIME_READ] = "read",
	[RMEM_TIME_WRITE] = "write",
	[RMEM_TIME_OTHER] = "other",
};

const char *rmem_count_time_name(enum rmem_time which)
{
	return time_name[which];
}

void rmem_count_time(struct rmem_device *device, const struct rmem_op *op, u64 now_ns)
{
	enum rmem_time which = RMEM_TIME_OTHER;

	if (rmem_type_table[op->type].counted == RMEM_READ)
		which = RMEM_TIME_READ;
	else if (rmem_type_table[op->type].counted == RMEM_WRITE)
		which = RMEM_TIME_WRITE;

	this_cpu_inc(device->counts->time[which][base_times_bucket(now_ns - op->submitted_ns)]);
	this_cpu_add(device->counts->time_sum_ns[which], now_ns - op->submitted_ns);
}

unsigned int rmem_count_times(struct rmem_device *device, enum rmem_time which,
			      u64 times[BASE_TIMES_BUCKETS], u64 *sum_ns)
{
	unsigned int bucket, end = 0;
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += per_cpu_ptr(device->counts, cpu)->time_sum_ns[which];
	*sum_ns = sum;
	for (bucket = 0; bucket < BASE_TIMES_BUCKETS; bucket++) {
		times[bucket] = 0;
		for_each_possible_cpu(cpu)
			times[bucket] += per_cpu_ptr(device->counts, cpu)->time[which][bucket];
		if (times[bucket])
			end = bucket + 1;
	}
	return end;
}

void rmem_count_sums(struct rmem_device *device, u64 *values)
{
	unsigned int which, i;
	const u64 *core;
	int cpu;

	memset(values, 0, RMEM_COUNTERS * sizeof(*values));
	for_each_possible_cpu(cpu) {
		for (which = 0; which < RMEM_COUNTS; which++)
			values[which] += per_cpu_ptr(device->counts, cpu)->count[which];
	}
	for (i = 0; i < device->channels; i++) {
		core = (const u64 *)&device->channel[i]->client.count;
		for (which = RMEM_COUNTS; which < RMEM_COUNTERS; which++)
			values[which] += READ_ONCE(core[which - RMEM_COUNTS]);
	}
}
