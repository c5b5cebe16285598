/* SPDX-License-Identifier: GPL-2.0 */
/* QUERY and CALL messages, and the offloads that they call. */
#ifndef REMORA_RMEM_NODE_CALLS_H
#define REMORA_RMEM_NODE_CALLS_H

#include "core/rmem/offload/run.h"

struct module;
struct netlink_ext_ack;
struct node_host;
struct rmem_answer;
struct rmem_port_batch;
struct rmem_record;

/* Offloads, as LOAD and REMOVE name them. node_control. */
struct node_offload {
	const char *name;
	u32 space;
	u32 budget_us; /* 0: the program's own */
	u32 client[RMEM_RUN_CLIENTS];
	u32 clients;
};

/* ops: the program. On success the table takes the caller's reference to owner. */
int node_calls_load(struct node_host *host, const struct node_offload *offload,
		    const struct rmem_offload_ops *ops, struct module *owner,
		    struct netlink_ext_ack *extack);
int node_calls_remove(struct node_host *host, const struct node_offload *offload,
		      struct netlink_ext_ack *extack);
void node_calls_space_gone(struct node_host *host);
bool node_calls_at(struct node_host *host, unsigned int at, struct rmem_run_offload *copy);
void node_calls_drop(struct node_host *host, const struct rmem_offload_ops *ops);
void node_calls_replace(struct node_host *host, const struct rmem_offload_ops *from,
			const struct rmem_offload_ops *to);
bool node_calls_use(struct node_host *host, const struct rmem_offload_ops *ops);
void node_calls_exit(struct node_host *host);
bool node_calls_admit(const struct rmem_port_batch *batch, const struct rmem_record *record,
		      struct rmem_answer *answer);
bool node_calls_any(struct node_host *host);
void node_calls_run(struct node_host *host);

#endif
