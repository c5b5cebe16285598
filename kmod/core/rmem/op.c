// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/op.h"

void rmem_op_cut(struct rmem_op *op, u32 piece)
{
	u32 word;

	op->piece = piece;
	op->parts = rmem_op_is_cut(op) ? (op->len + piece - 1) / piece : 1;
	op->parts_done = 0;
	op->flying_parts = 0;
	for (word = 0; word * 64 < op->parts; word++) {
		op->done[word] = 0;
		op->flying[word] = 0;
	}
}

u32 rmem_op_find_part(const struct rmem_op *op, u32 first, bool wanted)
{
	u64 mask = ~0ULL << (first % 64);
	u32 word;

	for (word = first / 64; word * 64 < op->parts; word++) {
		u64 found = op->done[word] | op->flying[word];
		u32 part;

		found = (wanted ? ~found : found) & mask;
		mask = ~0ULL;
		if (!found)
			continue;
		part = word * 64 + __builtin_ctzll(found);
		return part < op->parts ? part : op->parts;
	}
	return op->parts;
}

static void list_insert(struct rmem_op_list *list, struct rmem_op *prev, struct rmem_op *op)
{
	struct rmem_op **from_prev = prev ? &prev->next : &list->head;
	struct rmem_op **from_next;

	op->prev = prev;
	op->next = *from_prev;
	from_next = op->next ? &op->next->prev : &list->tail;
	*from_prev = op;
	*from_next = op;
	list->ops++;
}

/* Before the first that has a later deadline; quick when that's near the end. */
static void list_add_by_deadline(struct rmem_op_list *list, struct rmem_op *op)
{
	struct rmem_op *prev = list->tail;

	while (prev && prev->deadline_ns > op->deadline_ns)
		prev = prev->prev;
	list_insert(list, prev, op);
}

static void list_remove(struct rmem_op_list *list, struct rmem_op *op)
{
	struct rmem_op **from_prev = op->prev ? &op->prev->next : &list->head;
	struct rmem_op **from_next = op->next ? &op->next->prev : &list->tail;

	*from_prev = op->next;
	*from_next = op->prev;
	list->ops--;
}

static struct rmem_op_list *list_of(struct rmem_client *c, enum rmem_op_state state)
{
	switch (state) {
	case RMEM_OP_WAITING:
		return &c->waiting;
	case RMEM_OP_AGAIN:
		return &c->again;
	case RMEM_OP_PARTLY:
		return &c->partly;
	case RMEM_OP_FLYING:
		return &c->flying;
	default:
		return &c->timed;
	}
}

void rmem_op_put(struct rmem_client *c, struct rmem_op *op, enum rmem_op_state state)
{
	struct rmem_op_list *list = list_of(c, state);

	op->state = state;
	list_insert(list, list->tail, op);
}

void rmem_op_put_timed(struct rmem_client *c, struct rmem_op *op, enum rmem_op_state state,
		       u64 deadline_ns)
{
	op->state = state;
	op->deadline_ns = deadline_ns;
	list_add_by_deadline(&c->timed, op);
}

void rmem_op_pick(struct rmem_client *c, struct rmem_op *op)
{
	if (op->state == RMEM_OP_SENDING)
		c->sending = NULL;
	else
		list_remove(list_of(c, op->state), op);
}
