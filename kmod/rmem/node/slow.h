/* SPDX-License-Identifier: GPL-2.0 */
/* Requests that can take long: their queue, and the thread that empties it. */
#ifndef REMORA_RMEM_NODE_SLOW_H
#define REMORA_RMEM_NODE_SLOW_H

#include <linux/types.h>

struct node_host;
struct rmem_node_call;
struct rmem_port_batch;
struct rmem_record;

/* The queue is there for as long as requests come. */
int node_slow_init(struct node_host *host);
void node_slow_exit(struct node_host *host);
int node_slow_start(struct node_host *host);
void node_slow_stop(struct node_host *host);
bool node_slow_add(const struct rmem_port_batch *batch, const struct rmem_record *record);

/* Does a call's steps, to its end, and between them the brief calls. Call lock. */
void node_slow_run(struct node_host *host, struct rmem_node_call *call);

#endif
