/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A push-in first-out queue (Sivaraman et al., SIGCOMM'16): a pairing heap of nodes that are
 * embedded in the caller's memory. Equal ranks leave in the order they came.
 */
#ifndef REMORA_EQDS_PIFO_H
#define REMORA_EQDS_PIFO_H

#include "core/base/types.h"

struct eqds_pifo_node {
	struct eqds_pifo_node *child, *next; /* next: sibling */
	struct eqds_pifo_node *prev;	     /* sibling before, or parent of a first child */
	u64 rank;
	u64 came; /* order of equal ranks */
	u8 priority;
};

struct eqds_pifo {
	struct eqds_pifo_node *root;
	u64 came;
};

static inline void eqds_pifo_init(struct eqds_pifo *pifo)
{
	pifo->root = NULL;
	pifo->came = 0;
}

/* Lower priority first, then lower rank. */
void eqds_pifo_push(struct eqds_pifo *pifo, struct eqds_pifo_node *node, u8 priority, u64 rank);
struct eqds_pifo_node *eqds_pifo_pop(struct eqds_pifo *pifo); /* NULL: empty */
void eqds_pifo_remove(struct eqds_pifo *pifo, struct eqds_pifo_node *node);

#endif
