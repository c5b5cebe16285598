/* SPDX-License-Identifier: GPL-2.0 */
/* Start and stop of the one node. */
#ifndef REMORA_RMEM_NODE_HOST_H
#define REMORA_RMEM_NODE_HOST_H

#include <linux/types.h>

struct net;
struct netlink_ext_ack;

/* The parameters of START. */
struct node_start {
	u64 memory_bytes;
	u32 page_bytes; /* a power of two */
	u16 port;
	u32 pool_pages; /* 0: fitting the memory */
	u32 spaces_max, sessions_max, regions_max, session_idle_ms;
};

int node_host_start(struct net *net, const struct node_start *start,
		    struct netlink_ext_ack *extack);
void node_host_stop(void);

#endif
