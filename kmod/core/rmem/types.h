/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The table of message types. Code asks a type's row and doesn't compare types, but where
 * a type is executed. README.md tells how a type is added.
 */
#ifndef REMORA_RMEM_TYPES_H
#define REMORA_RMEM_TYPES_H

#include "core/base/types.h"
#include "remora/rmem.h"

/* A row's flags, by the columns path, memory, data and also. */
enum rmem_type_flag {
	/* Executed in steps (node/call.h); travels alone in its datagram. */
	RMEM_TYPE_SLOW = 0,
	/* Executed at once (node/request.c), unless its range is too long; can share a datagram. */
	RMEM_TYPE_FAST = 1 << 0,

	RMEM_TYPE_KEEPS = 0,
	/* Changes memory or its allocation, so a view refuses it. */
	RMEM_TYPE_CHANGES = 1 << 1,

	RMEM_TYPE_NO_DATA = 0,
	/* A request ends with head.len bytes of data. */
	RMEM_TYPE_DATA_IN = 1 << 2,
	/* An answer's payload is head.len bytes of data. */
	RMEM_TYPE_DATA_OUT = 1 << 3,

	/* Data that the tag covers at every level; other data it covers at RMEM_FULL only. */
	RMEM_TYPE_TAGGED = 1 << 4,
	RMEM_TYPE_TAGGED_IN = RMEM_TYPE_DATA_IN | RMEM_TYPE_TAGGED,

	RMEM_TYPE_NO_MORE = 0,
	/* A request's payload begins with head.op ranges. */
	RMEM_TYPE_RANGES = 1 << 5,
	/* Not issued again when its session has ended, as it might have been executed. */
	RMEM_TYPE_ONCE = 1 << 6,
	/* Data of any length, in several packets. */
	RMEM_TYPE_CUT = 1 << 7,
	/* Discards or zeroes head.len bytes. */
	RMEM_TYPE_CLEARS = 1 << 8,
	/* Copies head.len bytes inside the node. */
	RMEM_TYPE_COPIES = 1 << 9,
	/* The payload is a struct rmem_named. */
	RMEM_TYPE_NAMED = 1 << 10,
	RMEM_TYPE_NAMED_ONCE = RMEM_TYPE_NAMED | RMEM_TYPE_ONCE,
	/* Changes an integer; head.op is an enum rmem_atomic_op. */
	RMEM_TYPE_INTEGER = 1 << 11,
	RMEM_TYPE_INTEGER_ONCE = RMEM_TYPE_INTEGER | RMEM_TYPE_ONCE,
};

/*
 * request, answer: the structure that a payload is, or begins with; u8[0] is none. Only answers
 * that are RMEM_OK have a payload.
 */
/* clang-format off */
#define RMEM_TYPES(ROW) \
	/*  type     name       path  memory   request               answer              data       also */ \
	ROW(OPEN,    "open",    SLOW, KEEPS,   struct rmem_open,     struct rmem_opened, NO_DATA,   NO_MORE) \
	ROW(CLOSE,   "close",   SLOW, KEEPS,   u8[0],                u8[0],              NO_DATA,   NO_MORE) \
	ROW(ALLOC,   "alloc",   SLOW, CHANGES, struct rmem_alloc,    struct rmem_range,  NO_DATA,   NO_MORE) \
	ROW(FREE,    "free",    SLOW, CHANGES, struct rmem_range,    u8[0],              NO_DATA,   NO_MORE) \
	ROW(READ,    "read",    FAST, KEEPS,   u8[0],                u8[0],              DATA_OUT,  CUT) \
	ROW(WRITE,   "write",   FAST, CHANGES, u8[0],                u8[0],              DATA_IN,   CUT) \
	ROW(DISCARD, "discard", FAST, CHANGES, u8[0],                u8[0],              NO_DATA,   CLEARS) \
	ROW(ZERO,    "zero",    FAST, CHANGES, u8[0],                u8[0],              NO_DATA,   CLEARS) \
	ROW(ATOMIC,  "atomic",  FAST, CHANGES, struct rmem_operands, struct rmem_found,  NO_DATA,   INTEGER_ONCE) \
	ROW(FENCE,   "fence",   SLOW, KEEPS,   u8[0],                u8[0],              NO_DATA,   NO_MORE) \
	ROW(PUT,     "put",     FAST, CHANGES, struct rmem_put,      struct rmem_found,  TAGGED_IN, INTEGER_ONCE) \
	ROW(READV,   "readv",   FAST, KEEPS,   u8[0],                u8[0],              DATA_OUT,  RANGES) \
	ROW(WRITEV,  "writev",  FAST, CHANGES, u8[0],                u8[0],              DATA_IN,   RANGES) \
	ROW(COPY,    "copy",    FAST, CHANGES, struct rmem_copy,     u8[0],              NO_DATA,   COPIES) \
	ROW(PUBLISH, "publish", SLOW, CHANGES, struct rmem_named,    u8[0],              NO_DATA,   NAMED_ONCE) \
	ROW(LOOKUP,  "lookup",  SLOW, KEEPS,   struct rmem_named,    struct rmem_range,  NO_DATA,   NAMED)
/* clang-format on */

struct rmem_type_row {
	const char *name;
	u16 flags; /* enum rmem_type_flag */
	u8 request_bytes;
	u8 answer_bytes;
};

/* By type without RMEM_RESPONSE. The row of an unknown type has no name, flags or bytes. */
extern const struct rmem_type_row rmem_type_table[RMEM_RESPONSE];

/* All types and their names, as __print_symbolic() takes them. */
#define RMEM_TYPE_SYMBOL(type, name, ...) { RMEM_##type, name },
#define RMEM_TYPE_SYMBOLS RMEM_TYPES(RMEM_TYPE_SYMBOL) { 0, "none" }

/* type: of a request or a response. */
static inline u32 rmem_type_flags(u8 type)
{
	return rmem_type_table[type & ~RMEM_RESPONSE].flags;
}

static inline bool rmem_type_may_share(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_FAST;
}

static inline bool rmem_type_changes(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_CHANGES;
}

static inline bool rmem_type_writes(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_DATA_IN;
}

static inline bool rmem_type_reads(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_DATA_OUT;
}

static inline bool rmem_type_has_ranges(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_RANGES;
}

static inline bool rmem_type_has_integer(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_INTEGER;
}

static inline bool rmem_type_is_exactly_once(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_ONCE;
}

static inline bool rmem_type_copies(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_COPIES;
}

static inline bool rmem_type_has_name(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_NAMED;
}

static inline bool rmem_type_is_cut(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_CUT;
}

#endif
