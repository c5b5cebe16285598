/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What client.c does with an op by itself: its parts, and the lists it is in.
 *
 * A READ or WRITE is cut into parts of piece bytes, the last one may be
 * shorter. A part is wanted (to be sent in this attempt), flying, or done. An ATOMIC, PUT, READV or
 * WRITEV is one part, whatever its bytes. The other ops have one part, too, but take the node
 * longer than a packet does.
 */
#ifndef REMORA_RMEM_OP_H
#define REMORA_RMEM_OP_H

#include "core/rmem/client.h"

/* Where an op is; client.c tells what moves it. */
enum rmem_op_state {
	RMEM_OP_WAITING,
	RMEM_OP_AGAIN,
	RMEM_OP_PARTLY,
	RMEM_OP_SENDING,
	RMEM_OP_FLYING,
	RMEM_OP_SLOW,
	RMEM_OP_DELAYED,
};

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
	return op->type == RMEM_READ || op->type == RMEM_WRITE;
}

static inline bool rmem_op_has_parts(const struct rmem_op *op)
{
	return rmem_op_is_cut(op) || rmem_type_is_exactly_once(op->type) ||
	       rmem_type_has_ranges(op->type);
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

/* Cut into parts of piece bytes, all of them wanted; none may be flying. */
void rmem_op_cut(struct rmem_op *op, u32 piece);

/* The first part from first on that is wanted, or isn't; op->parts if there is none. */
u32 rmem_op_find_part(const struct rmem_op *op, u32 first, bool wanted);

/* Out of where it is. */
void rmem_op_pick(struct rmem_client *c, struct rmem_op *op);
/* At the end of the list of state: WAITING, AGAIN, PARTLY or FLYING. */
void rmem_op_put(struct rmem_client *c, struct rmem_op *op, enum rmem_op_state state);
/* SLOW or DELAYED, until then. */
void rmem_op_put_timed(struct rmem_client *c, struct rmem_op *op, enum rmem_op_state state,
		       u64 deadline_ns);

#endif
