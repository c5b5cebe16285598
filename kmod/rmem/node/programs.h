/* SPDX-License-Identifier: GPL-2.0 */
/* The modules with programs (rmem_offload_ops.h). */
#ifndef REMORA_RMEM_NODE_PROGRAMS_H
#define REMORA_RMEM_NODE_PROGRAMS_H

struct netlink_ext_ack;
struct node_host;
struct node_offload;

/* Loads the program of that name. node_control. */
int node_programs_load(struct node_host *host, const struct node_offload *offload,
		       struct netlink_ext_ack *extack);

#endif
