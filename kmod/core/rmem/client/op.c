// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/client/op.h"

#include "core/base/bits.h"

/* ---- parts ---- */

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

u32 rmem_op_first_flying(const struct rmem_op *op)
{
	u32 word;

	for (word = 0; word * 64 < op->parts; word++) {
		if (op->flying[word])
			return word * 64 + __builtin_ctzll(op->flying[word]);
	}
	return op->parts;
}

/* ---- lists ---- */

static void op_list_insert(struct rmem_op_list *list, struct rmem_op *prev, struct rmem_op *op)
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
static void op_list_add_by_deadline(struct rmem_op_list *list, struct rmem_op *op)
{
	struct rmem_op *prev = list->tail;

	while (prev && prev->deadline_ns > op->deadline_ns)
		prev = prev->prev;
	op_list_insert(list, prev, op);
}

static void op_list_remove(struct rmem_op_list *list, struct rmem_op *op)
{
	struct rmem_op **from_prev = op->prev ? &op->prev->next : &list->head;
	struct rmem_op **from_next = op->next ? &op->next->prev : &list->tail;

	*from_prev = op->next;
	*from_next = op->prev;
	list->ops--;
}

static struct rmem_op_list *op_list_of(struct rmem_client *c, enum rmem_op_state state)
{
	switch (state) {
	case RMEM_OP_WAITING:
		return &c->waiting;
	case RMEM_OP_AGAIN:
		return &c->again;
	case RMEM_OP_PARTLY:
		return &c->partly;
	case RMEM_OP_HELD:
		return &c->held;
	case RMEM_OP_FLYING:
		return &c->flying;
	default:
		return &c->timed;
	}
}

void rmem_op_put(struct rmem_client *c, struct rmem_op *op, enum rmem_op_state state)
{
	struct rmem_op_list *list = op_list_of(c, state);

	op->state = state;
	op_list_insert(list, list->tail, op);
}

void rmem_op_put_timed(struct rmem_client *c, struct rmem_op *op, enum rmem_op_state state,
		       u64 deadline_ns)
{
	op->state = state;
	op->deadline_ns = deadline_ns;
	op_list_add_by_deadline(&c->timed, op);
}

void rmem_op_pick(struct rmem_client *c, struct rmem_op *op)
{
	if (op->state == RMEM_OP_SENDING)
		c->sending = NULL;
	else
		op_list_remove(op_list_of(c, op->state), op);
}

/* ---- credit ---- */

static void op_give_back(struct rmem_client *c, struct rmem_op *op, u32 bytes)
{
	bytes = base_min(bytes, op->iwnd_bytes);
	if (!bytes)
		return;
	op->iwnd_bytes -= bytes;
	rmem_incast_release(c->incast, bytes);
}

void rmem_op_give_back(struct rmem_client *c)
{
	struct rmem_op *const lists[4] = {c->flying.head, c->partly.head, c->timed.head,
					  c->sending};
	struct rmem_op *op;
	unsigned int i;

	for (i = 0; i < 4; i++) {
		for (op = lists[i]; op; op = op == c->sending ? NULL : op->next)
			op_give_back(c, op, op->iwnd_bytes);
	}
}

u32 rmem_op_recall(struct rmem_client *c, struct rmem_op *op, u32 first, u32 end)
{
	u32 packets = 0, bytes = 0;
	u32 part;

	for (part = first; part < end && op->flying_parts; part++) {
		if (!rmem_op_bit_is_set(op->flying, part))
			continue;
		rmem_op_bit_clear(op->flying, part);
		op->flying_parts--;
		packets++;
		bytes += rmem_type_runs(op->type) ? op->iwnd_bytes :
						    rmem_op_bytes(op, part, part + 1);
	}
	if (!packets)
		return 0;
	rmem_window_release(&c->window, packets);
	op_give_back(c, op, bytes);
	return packets;
}

/* ---- ending ops ---- */

/* Without an answer to it, there might be a region that belongs to nobody. */
static bool op_is_owed(const struct rmem_op *op)
{
	if (op->parts_done || op->status != RMEM_OK)
		return false;
	return op->type == RMEM_ALLOC ? op->may_be_done : op->type == RMEM_FREE && op->range.undoes;
}

/*
 * The id of an ALLOC that nobody waits for any more is never passed by the floor: that tells the
 * node that its region belongs to nobody, when the session ends.
 */
static void op_put_ids(struct rmem_client *c, struct rmem_op *op)
{
	bool owed = op_is_owed(op);
	u64 id = op->id;

	c->abandons |= owed;
	if (!id)
		return;
	if (owed && op->type == RMEM_ALLOC) {
		rmem_seq_give(&c->seq, id, &c->abandoned);
		return;
	}
	for (; id < op->id + rmem_op_ids(op); id++) {
		if (rmem_seq_owner(&c->seq, id) == op)
			rmem_seq_put(&c->seq, id);
	}
}

struct rmem_op *rmem_op_end(struct rmem_client *c, struct rmem_op *op, struct rmem_op *chain)
{
	rmem_op_pick(c, op);
	rmem_op_recall(c, op, 0, op->parts);
	op_put_ids(c, op);
	c->outstanding_ops--;
	op->prev = NULL;
	op->next = chain;
	return op;
}

struct rmem_op *rmem_op_end_all(struct rmem_client *c)
{
	struct rmem_op_list *const lists[RMEM_OP_LISTS] = {&c->waiting, &c->again, &c->timed,
							   &c->flying, &c->partly, &c->held};
	struct rmem_op *chain = NULL;
	unsigned int i;

	for (i = 0; i < RMEM_OP_LISTS; i++) {
		while (lists[i]->tail)
			chain = rmem_op_end(c, lists[i]->tail, chain);
	}
	if (c->sending)
		chain = rmem_op_end(c, c->sending, chain);
	rmem_incast_place_leave(c->incast, c->share, &c->place);
	return chain;
}

/* ---- again ---- */

/* 0 stays the first attempt's alone. */
void rmem_op_count_attempt(struct rmem_client *c, struct rmem_op *op)
{
	op->attempt = op->attempt == 255 ? 1 : op->attempt + 1;
	op->recalled_parts = 0;
	c->count.retries++;
}

/*
 * A part that flies holds credit, so where it waits for others to be sent it must be able to
 * time out: else nobody might ever be let in again.
 */
void rmem_op_put_again(struct rmem_client *c, struct rmem_op *op)
{
	rmem_op_pick(c, op);
	rmem_op_put(c, op, op->flying_parts ? RMEM_OP_PARTLY : RMEM_OP_AGAIN);
}

void rmem_op_settle(struct rmem_client *c, struct rmem_op *op)
{
	if (op->state == RMEM_OP_PARTLY && !op->flying_parts)
		rmem_op_put_again(c, op);
}

void rmem_op_again(struct rmem_client *c, struct rmem_op *op)
{
	rmem_op_count_attempt(c, op);
	rmem_op_put_again(c, op);
}
