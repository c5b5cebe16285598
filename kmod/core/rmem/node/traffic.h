/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Requests executed for clients, counted by session and told by space:
 *
 *   request -> its session's counts (slot lock)       no word that two CPUs write
 *                  |
 *                  `-- settled when it ends, or when an operator asks -> its space's sums
 *
 * Counts are of the fast path (node.h), without calls of offloads, whose time is told instead.
 */
#ifndef REMORA_RMEM_TRAFFIC_H
#define REMORA_RMEM_TRAFFIC_H

#include "core/base/types.h"

struct rmem_traffic {
	u64 operations;
	u64 read_bytes;
	u64 written_bytes;
};

struct rmem_head;
struct rmem_node;
struct rmem_session;

/* A request of the session was executed. Slot lock. */
void rmem_traffic_count(struct rmem_session *session, const struct rmem_head *head);

/* Adds the requests of a session, or of all, since the last call to their spaces. Slow lock. */
void rmem_traffic_settle(struct rmem_node *node, struct rmem_session *session);
void rmem_traffic_settle_all(struct rmem_node *node);

#endif
