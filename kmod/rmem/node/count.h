/* SPDX-License-Identifier: GPL-2.0 */
/* Counters. */
#ifndef REMORA_RMEM_NODE_COUNT_H
#define REMORA_RMEM_NODE_COUNT_H

#include <linux/percpu.h>

#include "core/rmem/node/node.h"
#include "rmem_port_ops.h"

/* Counters of the module itself, beside those of the core's reasons. */
enum node_count {
	NODE_COUNT_PORT = 0, /* + enum rmem_port_count */
	NODE_COUNT_REASON = NODE_COUNT_PORT + RMEM_PORT_COUNTS, /* + enum rmem_node_reason */
	NODE_COUNT_TYPE = NODE_COUNT_REASON + RMEM_NODE_REASONS, /* + enum rmem_type - RMEM_OPEN */
	NODE_COUNT_READ_BYTES = NODE_COUNT_TYPE + RMEM_TYPE_END - RMEM_OPEN,
	NODE_COUNT_WRITE_BYTES,
	NODE_COUNT_SCRUBBED,   /* pages zeroed */
	NODE_COUNT_HELD,       /* pages found still referred to, put off */
	NODE_COUNT_DROP_SPACE, /* unknown address space */
	NODE_COUNT_DROP_HIBERNATING,
	NODE_COUNT_DROP_QUEUE_FULL, /* slow path's */
	NODE_COUNTS
};

struct node_counts {
	u64 count[NODE_COUNTS];
};

DECLARE_PER_CPU_ALIGNED(struct node_counts, node_counts);

extern const char *const node_count_name[NODE_COUNTS];

/* Any context. 64-bit kernels only (Kbuild), so a sum never sees half a value. */
static inline void node_count_add(unsigned int which, u64 value)
{
	this_cpu_add(node_counts.count[which], value);
}

static inline void node_count(unsigned int which)
{
	node_count_add(which, 1);
}

u64 node_count_sum(unsigned int which);

#endif
