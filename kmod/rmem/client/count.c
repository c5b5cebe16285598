// SPDX-License-Identifier: GPL-2.0
/* Counters of a device and of its channels' cores, and how long its operations took. */
#include <linux/percpu.h>

#include "rmem/client/channel.h"

/* ---- counters ---- */

static const char *const counter_name[] = {
	[RMEM_COUNT_READ] = "read",
	[RMEM_COUNT_READ_BYTES] = "read-bytes",
	[RMEM_COUNT_WRITE] = "write",
	[RMEM_COUNT_WRITE_BYTES] = "write-bytes",
	[RMEM_COUNT_DISCARD] = "discard",
	[RMEM_COUNT_ZERO] = "zero",
	[RMEM_COUNT_ATOMIC] = "atomic",
	[RMEM_COUNT_PUT] = "put",
	[RMEM_COUNT_PUT_BYTES] = "put-bytes",
	[RMEM_COUNT_COPY] = "copy",
	[RMEM_COUNT_COPY_BYTES] = "copy-bytes",
	[RMEM_COUNT_PUBLISH] = "publish",
	[RMEM_COUNT_LOOKUP] = "lookup",
	[RMEM_COUNT_FENCE] = "fence",
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
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_WIRE + RMEM_WIRE_GOOD] = NULL,
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_WIRE + RMEM_WIRE_SHORT] = "drop-short",
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_WIRE + RMEM_WIRE_VERSION] = "drop-version",
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_WIRE + RMEM_WIRE_TYPE] = "drop-type",
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_WIRE + RMEM_WIRE_MALFORMED] = "drop-malformed",
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_WIRE + RMEM_WIRE_TAG] = "drop-tag",
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_WIRE + RMEM_WIRE_DAMAGED] = NULL, /* the core's */
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

const char *rmem_count_name(unsigned int which)
{
	return counter_name[which];
}

void rmem_count_op(struct rmem_device *device, const struct rmem_op *op)
{
	switch (op->type) {
	case RMEM_READ:
	case RMEM_READV:
		rmem_count(device, RMEM_COUNT_READ);
		rmem_count_add(device, RMEM_COUNT_READ_BYTES, op->len);
		break;
	case RMEM_WRITE:
	case RMEM_WRITEV:
		rmem_count(device, RMEM_COUNT_WRITE);
		rmem_count_add(device, RMEM_COUNT_WRITE_BYTES, op->len);
		break;
	case RMEM_DISCARD:
		rmem_count(device, RMEM_COUNT_DISCARD);
		break;
	case RMEM_ZERO:
		rmem_count(device, RMEM_COUNT_ZERO);
		break;
	case RMEM_ATOMIC:
		rmem_count(device, RMEM_COUNT_ATOMIC);
		break;
	case RMEM_PUT:
		rmem_count(device, RMEM_COUNT_PUT);
		rmem_count_add(device, RMEM_COUNT_PUT_BYTES, op->len);
		break;
	case RMEM_COPY:
		rmem_count(device, RMEM_COUNT_COPY);
		rmem_count_add(device, RMEM_COUNT_COPY_BYTES, op->len);
		break;
	case RMEM_PUBLISH:
		rmem_count(device, RMEM_COUNT_PUBLISH);
		break;
	case RMEM_LOOKUP:
		rmem_count(device, RMEM_COUNT_LOOKUP);
		break;
	case RMEM_FENCE:
		rmem_count(device, RMEM_COUNT_FENCE);
		break;
	}
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

	if (rmem_type_reads(op->type))
		which = RMEM_TIME_READ;
	else if (op->type == RMEM_WRITE || op->type == RMEM_WRITEV)
		which = RMEM_TIME_WRITE;

	this_cpu_inc(device->counts->time[which][base_times_bucket(now_ns - op->submitted_ns)]);
}

unsigned int rmem_count_times(struct rmem_device *device, enum rmem_time which,
			      u64 times[BASE_TIMES_BUCKETS])
{
	unsigned int bucket, end = 0;
	int cpu;

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
