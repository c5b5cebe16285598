// SPDX-License-Identifier: GPL-2.0
/*
 * Counters: one array per processor, of everything that can happen to a
 * message. They count from the module's loading on, across stop and start.
 */
#include "rmem/node/count.h"

#ifndef CONFIG_64BIT
#error "the memory node's page table and counters are words of 64 bits"
#endif

DEFINE_PER_CPU_ALIGNED(struct node_counts, node_counts);

#define PORT(which) (NODE_COUNT_PORT + RMEM_PORT_##which)
#define WIRE_NAME(verdict, name) [PORT(WIRE) + RMEM_WIRE_##verdict] = name,
#define REASON_NAME(reason, status, name) [NODE_COUNT_REASON + RMEM_NODE_##reason] = name,
#define TYPE_NAME(type, name, ...) [NODE_COUNT_TYPE + RMEM_##type - RMEM_OPEN] = name,

const char *const node_count_name[NODE_COUNTS] = {
	RMEM_WIRE_ROWS(WIRE_NAME)
	[PORT(ANSWERS)] = "answers",
	[PORT(NO_CHECKSUM)] = "drop-no-checksum",
	[PORT(NOT_UNICAST)] = "drop-not-unicast",
	[PORT(RESERVE)] = "drop-reserve",
	[PORT(NO_BUFFER)] = "drop-no-buffer",
	[PORT(NO_ROUTE)] = "drop-no-route",
	[PORT(XMIT)] = "drop-xmit",

	RMEM_NODE_REASON_ROWS(REASON_NAME)
	RMEM_TYPES(TYPE_NAME)

	[NODE_COUNT_READ_BYTES] = "read-bytes",
	[NODE_COUNT_WRITE_BYTES] = "write-bytes",
	[NODE_COUNT_SCRUBBED] = "scrubbed-pages",
	[NODE_COUNT_HELD] = "held-pages",
	[NODE_COUNT_DROP_SPACE] = "drop-space",
	[NODE_COUNT_DROP_HIBERNATING] = "drop-hibernating",
	[NODE_COUNT_DROP_QUEUE_FULL] = "drop-queue-full",
};

u64 node_count_sum(unsigned int which)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu_ptr(&node_counts, cpu)->count[which]);
	return sum;
}
