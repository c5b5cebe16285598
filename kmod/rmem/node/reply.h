/* SPDX-License-Identifier: GPL-2.0 */
/* Answers outside of a batch, and notices that replace a sealed answer. */
#ifndef REMORA_RMEM_NODE_REPLY_H
#define REMORA_RMEM_NODE_REPLY_H

#include "rmem_port_ops.h"

struct node_host;

/* An answer to `head` that can't be sealed: its session has ended, or the node has begun anew. */
void node_reply_notice(const struct node_host *host, const struct rmem_head *head,
		       struct rmem_head *notice);

/*
 * An answer to request by itself, sealed if its session is. key: the space's. BH disabled, under
 * rcu_read_lock().
 */
void node_reply(struct node_host *host, struct rmem_port *port, const struct rmem_port_path *path,
		const struct base_siphash_key *key, const struct rmem_head *request,
		struct rmem_head *reply, const void *payload);

#endif
