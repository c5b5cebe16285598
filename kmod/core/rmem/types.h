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
	/* Can share a datagram. Executed at once (node/request.c), unless its range is too long, or */
	/* the type RUNS. */
	RMEM_TYPE_FAST = 1 << 0,
	/* Slow, yet short enough to run between the steps of another call. */
	RMEM_TYPE_BRIEF = 1 << 12,
	/* Brief, and about a session rather than its space's memory. */
	RMEM_TYPE_OF_SESSION = 1 << 13,
	RMEM_TYPE_SESSION = RMEM_TYPE_BRIEF | RMEM_TYPE_OF_SESSION,

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
	RMEM_TYPE_TAGGED_BOTH = RMEM_TYPE_TAGGED_IN | RMEM_TYPE_DATA_OUT,

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
	/* Runs a function of an offload (offload/run.h); head.op is the function. */
	RMEM_TYPE_RUNS = 1 << 14,
	RMEM_TYPE_RUNS_ONCE = RMEM_TYPE_RUNS | RMEM_TYPE_ONCE,
	/* Request and answer end with a key of RMEM_X25519_BYTES at level RMEM_SEALED. */
	RMEM_TYPE_KEYED = 1 << 15,
};

/*
 * request, answer: the structure (struct rmem_...) that a payload is, or begins with. Only answers
 * that are RMEM_OK have a payload. counted: the type under whose name a client counts its
 * operations; NOT: a client doesn't.
 */
/* clang-format off */
#define RMEM_TYPES(ROW) \
	/*  type     name        path      memory    request    answer   data        also           counted */ \
	ROW(OPEN,    "open",     SESSION,  KEEPS,    open,      opened,  NO_DATA,    KEYED,         NOT) \
	ROW(CLOSE,   "close",    SESSION,  KEEPS,    none,      none,    NO_DATA,    NO_MORE,       NOT) \
	ROW(ALLOC,   "alloc",    SLOW,     CHANGES,  alloc,     range,   NO_DATA,    NO_MORE,       NOT) \
	ROW(FREE,    "free",     SLOW,     CHANGES,  range,     none,    NO_DATA,    NO_MORE,       NOT) \
	ROW(READ,    "read",     FAST,     KEEPS,    none,      none,    DATA_OUT,   CUT,           READ) \
	ROW(WRITE,   "write",    FAST,     CHANGES,  none,      none,    DATA_IN,    CUT,           WRITE) \
	ROW(DISCARD, "discard",  FAST,     CHANGES,  none,      none,    NO_DATA,    CLEARS,        DISCARD) \
	ROW(ZERO,    "zero",     FAST,     CHANGES,  none,      none,    NO_DATA,    CLEARS,        ZERO) \
	ROW(ATOMIC,  "atomic",   FAST,     CHANGES,  operands,  found,   NO_DATA,    INTEGER_ONCE,  ATOMIC) \
	ROW(FENCE,   "fence",    BRIEF,    KEEPS,    none,      none,    NO_DATA,    NO_MORE,       FENCE) \
	ROW(PUT,     "put",      FAST,     CHANGES,  put,       found,   TAGGED_IN,  INTEGER_ONCE,  PUT) \
	ROW(READV,   "readv",    FAST,     KEEPS,    none,      none,    DATA_OUT,   RANGES,        READ) \
	ROW(WRITEV,  "writev",   FAST,     CHANGES,  none,      none,    DATA_IN,    RANGES,        WRITE) \
	ROW(COPY,    "copy",     FAST,     CHANGES,  copy,      none,    NO_DATA,    COPIES,        COPY) \
	ROW(PUBLISH, "publish",  BRIEF,    CHANGES,  named,     none,    NO_DATA,    NAMED_ONCE,    PUBLISH) \
	ROW(LOOKUP,  "lookup",   BRIEF,    KEEPS,    named,     range,   NO_DATA,    NAMED,         LOOKUP) \
	ROW(LIST,    "list",     SLOW,     KEEPS,    named,     listed,  NO_DATA,    NAMED,         LIST) \
	ROW(QUERY,   "query",    FAST,     KEEPS,    none,      none,    TAGGED_BOTH, RUNS,         QUERY) \
	ROW(CALL,    "call",     FAST,     CHANGES,  none,      found,   TAGGED_IN,  RUNS_ONCE,     CALL)
/* clang-format on */

struct rmem_type_row {
	const char *name;
	u16 flags; /* enum rmem_type_flag */
	u8 request_bytes;
	u8 answer_bytes;
	u8 counted; /* 0: it isn't */
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

static inline bool rmem_type_is_brief(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_BRIEF;
}

static inline bool rmem_type_is_of_session(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_OF_SESSION;
}

static inline bool rmem_type_changes(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_CHANGES;
}

/*
 * True if a node that has executed or refused an id of this type must remember it. The others
 * change nothing, so a copy of any age can be executed.
 */
static inline bool rmem_type_needs_mark(u8 type)
{
	return rmem_type_changes(type);
}

static inline bool rmem_type_brings_data(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_DATA_IN;
}

static inline bool rmem_type_answers_data(u8 type)
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

static inline bool rmem_type_clears(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_CLEARS;
}

static inline bool rmem_type_copies(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_COPIES;
}

static inline bool rmem_type_runs(u8 type)
{
	return rmem_type_flags(type) & RMEM_TYPE_RUNS;
}

/* True if the node keeps the result among those of the RMEM_REPLAY ids from the floor on. */
static inline bool rmem_type_keeps_result(u8 type)
{
	return rmem_type_has_integer(type) || (rmem_type_runs(type) && rmem_type_changes(type));
}

/* True if len is a number of bytes that are copied, to memory, from it or inside of it. */
static inline bool rmem_type_moves_bytes(u8 type)
{
	return !rmem_type_runs(type) && rmem_type_flags(type) & (RMEM_TYPE_DATA_IN |
								   RMEM_TYPE_DATA_OUT |
								   RMEM_TYPE_COPIES);
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
