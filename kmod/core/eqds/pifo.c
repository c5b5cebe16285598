// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/pifo.h"

static bool pifo_before(const struct eqds_pifo_node *a, const struct eqds_pifo_node *b)
{
	if (a->priority != b->priority)
		return a->priority < b->priority;
	return a->rank != b->rank ? a->rank < b->rank : a->came < b->came;
}

/* Two heaps, either may be NULL, in one. */
static struct eqds_pifo_node *pifo_meld(struct eqds_pifo_node *a, struct eqds_pifo_node *b)
{
	struct eqds_pifo_node *t;

	if (!a || !b)
		return a ? a : b;
	if (pifo_before(b, a)) {
		t = a;
		a = b;
		b = t;
	}
	b->next = a->child;
	if (b->next)
		b->next->prev = b;
	b->prev = a;
	a->child = b;
	return a;
}

/* Siblings in one heap: pairs from the left, then the pairs from the right. */
static struct eqds_pifo_node *pifo_pair(struct eqds_pifo_node *first)
{
	struct eqds_pifo_node *pairs = NULL, *all = NULL;

	while (first) {
		struct eqds_pifo_node *a = first, *b = first->next;

		first = b ? b->next : NULL;
		a->next = NULL;
		a->prev = NULL;
		if (b) {
			b->next = NULL;
			b->prev = NULL;
		}
		a = pifo_meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	while (pairs) {
		struct eqds_pifo_node *a = pairs;

		pairs = a->next;
		a->next = NULL;
		all = pifo_meld(all, a);
	}
	return all;
}

void eqds_pifo_push(struct eqds_pifo *pifo, struct eqds_pifo_node *node, u8 priority, u64 rank)
{
	node->child = NULL;
	node->next = NULL;
	node->prev = NULL;
	node->priority = priority;
	node->rank = rank;
	node->came = pifo->came++;
	pifo->root = pifo_meld(pifo->root, node);
}

void eqds_pifo_remove(struct eqds_pifo *pifo, struct eqds_pifo_node *node)
{
	struct eqds_pifo_node *below = pifo_pair(node->child);

	if (pifo->root == node) {
		pifo->root = below;
	} else {
		if (node->prev->child == node)
			node->prev->child = node->next;
		else
			node->prev->next = node->next;
		if (node->next)
			node->next->prev = node->prev;
		pifo->root = pifo_meld(pifo->root, below);
	}
	node->child = NULL;
	node->next = NULL;
	node->prev = NULL;
}

struct eqds_pifo_node *eqds_pifo_pop(struct eqds_pifo *pifo)
{
	struct eqds_pifo_node *node = pifo->root;

	if (node)
		eqds_pifo_remove(pifo, node);
	return node;
}
