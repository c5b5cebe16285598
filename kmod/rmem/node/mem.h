/* SPDX-License-Identifier: GPL-2.0 */
/* The lent pages: reservation, then the thread that zeroes those given back. */
#ifndef REMORA_RMEM_NODE_MEM_H
#define REMORA_RMEM_NODE_MEM_H

#include <linux/mm.h>

#include "rmem/node/types.h"

struct netlink_ext_ack;

int node_mem_reserve(struct node_mem *mem, const struct rmem_node_config *config, u64 extra_bytes,
		     struct netlink_ext_ack *extack);
void node_mem_release(struct node_mem *mem);
int node_mem_start(struct node_host *host);
void node_mem_stop(struct node_host *host);
/* Calls the scrubber if it is wanted. Any context, no lock needed. */
void node_mem_scrub(struct node_host *host);

static inline void *node_mem_at(const struct node_mem *mem, const struct rmem_extent *extent)
{
	return page_address(mem->page[extent->page]) + extent->offset;
}

#endif
