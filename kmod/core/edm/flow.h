/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * States of a host's flows, for host.c and act.c: which are open, ready, active, free.
 *
 *   free --host_fill()--> open, active --accepted in full--> closed --sent in full--> free
 *                           |  `- ready while sent < accepted -'
 *                           '--cancelled--> late --late_ns--> free
 */
#ifndef REMORA_EDM_FLOW_H
#define REMORA_EDM_FLOW_H

#include "core/edm/host.h"

#define EDM_FLOW_OF(node, member) \
	((struct edm_flow *)((char *)(node) - offsetof(struct edm_flow, member)))

/* ---- lists and sets ---- */

static inline void edm_node_init(struct edm_node *list)
{
	list->next = list;
	list->prev = list;
}

static inline bool edm_node_is_alone(const struct edm_node *list)
{
	return list->next == list;
}

/* Insert before a node: a list's head is its end. */
static inline void edm_node_insert(struct edm_node *before, struct edm_node *node)
{
	node->next = before;
	node->prev = before->prev;
	before->prev->next = node;
	before->prev = node;
}

static inline void edm_node_take(struct edm_node *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
}

static inline void edm_flow_set(u64 *set, u32 n, bool member)
{
	const u64 bit = 1ULL << (n % 64);

	set[n / 64] = member ? set[n / 64] | bit : set[n / 64] & ~bit;
}

/* ---- flows ---- */

/* The link that the host follows, or NULL. */
static inline struct edm_link *edm_flow_link(struct edm_host *h)
{
	return h->follow == EDM_UNSCHEDULED ? NULL : &h->link[h->follow];
}

/* The peer's queue or its active messages have changed. */
void edm_flow_refresh_peer(struct edm_host *h, u16 peer);

/* Report the flow with the next DEMAND. */
void edm_flow_open(struct edm_host *h, struct edm_flow *flow);

/* The scheduler need not hear of the flow any more. */
void edm_flow_close(struct edm_host *h, struct edm_flow *flow);

/* Its accepted or sent bytes have changed, or its data are there. */
void edm_flow_ready(struct edm_host *h, struct edm_flow *flow);

/* Bytes up to an offset may be sent. */
void edm_flow_accept(struct edm_host *h, struct edm_flow *flow, u32 accepted);

/* A message's slot becomes free. Its next id is the next one of the slot. */
void edm_flow_free(struct edm_host *h, struct edm_flow *flow);

/*
 * Tell the scheduler of a flow that is not open: size 0 if it has ended. A note that finds no room
 * is lost: then the scheduler's lease on the message ends in time.
 */
void edm_flow_note(struct edm_host *h, const struct edm_item *item, u32 size, u32 accepted);

/* The flow's entry in DEMAND or REQUEST. */
struct edm_item edm_flow_item(const struct edm_flow *flow);

/* ---- of host.c, for act.c ---- */

/* An op that waits becomes a message, peer by peer. Returns false if none can. */
bool edm_host_pump(struct edm_host *h, u64 now_ns);

/* A slot that has been late for long enough becomes free. Returns false if there is none. */
bool edm_host_free_late(struct edm_host *h, u64 now_ns);

/* The followed scheduler is silent: another one that is up, or none. */
void edm_host_lose(struct edm_host *h, u64 now_ns);
/* Without its first scheduler for too long: follow another. */
void edm_host_end_patience(struct edm_host *h, u64 now_ns);

#endif
