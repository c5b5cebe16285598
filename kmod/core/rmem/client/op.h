/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * One op of a channel, for client.c: its parts, the lists that hold it, and its end, which returns
 * its credit and ids.
 *
 * A READ or WRITE is cut into parts of piece bytes, the last one can be shorter. A part is wanted
 * (to be sent in this attempt), flying, or done. An ATOMIC, PUT, READV, WRITEV or COPY is one part
 * of any length. The other ops have one part, too, but take the node longer than a packet does. So
 * do QUERY and CALL: their answers tell nothing of the path.
 */
#ifndef REMORA_RMEM_OP_H
#define REMORA_RMEM_OP_H

#include "core/rmem/client/client.h"

/* Where an op is; client.c tells which events move it. */
enum rmem_op_state {
	RMEM_OP_WAITING,
	RMEM_OP_AGAIN,
	RMEM_OP_PARTLY,
	RMEM_OP_HELD,
	RMEM_OP_SENDING,
	RMEM_OP_FLYING,
	RMEM_OP_SLOW,
	RMEM_OP_DELAYED,
};

/* waiting, again, timed, flying, partly, held */
#define RMEM_OP_LISTS 6

static inline bool rmem_op_bit_is_set(const u64 *bits, u32 i)
{
	return bits[i / 64] >> (i % 64) & 1;
}

static inline void rmem_op_bit_set(u64 *bits, u32 i)
{
	bits[i / 64] |= 1ULL << (i % 64);
}

static inline void rmem_op_bit_clear(u64 *bits, u32 i)
{
	bits[i / 64] &= ~(1ULL << (i % 64));
}

/* More than one, if it is long? */
static inline bool rmem_op_is_cut(const struct rmem_op *op)
{
	return rmem_type_is_cut(op->type);
}

static inline bool rmem_op_has_parts(const struct rmem_op *op)
{
	return rmem_type_may_share(op->type) && !rmem_type_clears(op->type) &&
	       !rmem_type_runs(op->type);
}

/* Ids it takes. */
static inline u32 rmem_op_ids(const struct rmem_op *op)
{
	return op->type == RMEM_WRITE ? op->parts : 1;
}

/* Bytes of the op before part. */
static inline u32 rmem_op_offset(const struct rmem_op *op, u32 part)
{
	u64 offset = (u64)part * op->piece;

	return offset < op->len ? offset : op->len;
}

/* Bytes of the parts from first up to end. */
static inline u32 rmem_op_bytes(const struct rmem_op *op, u32 first, u32 end)
{
	return rmem_op_is_cut(op) ? rmem_op_offset(op, end) - rmem_op_offset(op, first) : op->len;
}

/* Cut into parts of piece bytes, all of them wanted; no part flies. */
void rmem_op_cut(struct rmem_op *op, u32 piece);

/* The first part from first on that is wanted, or isn't; op->parts if there is none. */
u32 rmem_op_find_part(const struct rmem_op *op, u32 first, bool wanted);
/* The first part that flies; op->parts if there is none. */
u32 rmem_op_first_flying(const struct rmem_op *op);

/* Out of where it is. */
void rmem_op_pick(struct rmem_client *c, struct rmem_op *op);
/* At the end of the list of state: WAITING, AGAIN, PARTLY, HELD or FLYING. */
void rmem_op_put(struct rmem_client *c, struct rmem_op *op, enum rmem_op_state state);
/* SLOW or DELAYED, until then. */
void rmem_op_put_timed(struct rmem_client *c, struct rmem_op *op, enum rmem_op_state state,
		       u64 deadline_ns);

/* The parts from first up to end aren't under way any more. How many of them were? */
u32 rmem_op_recall(struct rmem_client *c, struct rmem_op *op, u32 first, u32 end);
/* The node is silent: gives all that the ops hold of iwnd to other nodes' READs. */
void rmem_op_give_back(struct rmem_client *c);
/* Take op out of the channel, and put it before those that follow it in a chain. */
struct rmem_op *rmem_op_end(struct rmem_client *c, struct rmem_op *op, struct rmem_op *chain);
struct rmem_op *rmem_op_end_all(struct rmem_client *c);

void rmem_op_count_attempt(struct rmem_client *c, struct rmem_op *op);
/* To be sent again; and as another attempt. */
void rmem_op_put_again(struct rmem_client *c, struct rmem_op *op);
void rmem_op_again(struct rmem_client *c, struct rmem_op *op);
/* Parts of the op were answered or refused. */
void rmem_op_settle(struct rmem_client *c, struct rmem_op *op);

#endif
