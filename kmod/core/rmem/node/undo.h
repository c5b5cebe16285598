/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A change of one object that takes several stores, as a process that is killed leaves it: undone
 * at the next start, or complete. For nodes whose state outlives their process (store.h).
 *
 *      begin: copy the object, armed = 1 | the change | end: armed = 0
 *             '--------- killed: the copy goes back --------'
 *
 * A killed process has executed a part of each thread's stores, in program order. So it is enough
 * that the compiler keeps that order; the processor's own reordering is never seen.
 *
 * Locking: slow lock. One object at a time.
 */
#ifndef REMORA_RMEM_UNDO_H
#define REMORA_RMEM_UNDO_H

#include "core/base/bytes.h"
#include "core/base/types.h"

#define RMEM_UNDO_BYTES 2048

struct rmem_undo {
	u32 armed;
	u32 bytes;
	s64 offset; /* of the object from here: both lie in one mapping, wherever that is */
	u32 slot;   /* index + 1 of a session; 0: none */
	u64 id;	    /* once the session has marked it, the change is complete */
	u8 old[RMEM_UNDO_BYTES];
};

/* The compiler keeps the stores before this before those behind it. No instruction. */
static inline void rmem_undo_order(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/*
 * undo NULL: the state ends with the process. slot: index + 1 of the session whose mark of id
 * completes the change; 0: the end does.
 */
static inline void rmem_undo_begin_unless(struct rmem_undo *undo, const void *object, u32 bytes,
					  u32 slot, u64 id)
{
	if (!undo)
		return;
	undo->slot = slot;
	undo->id = id;
	undo->offset = (const u8 *)object - (const u8 *)undo;
	undo->bytes = bytes;
	base_copy(undo->old, object, bytes);
	rmem_undo_order();
	undo->armed = 1;
	rmem_undo_order();
}

static inline void rmem_undo_begin(struct rmem_undo *undo, const void *object, u32 bytes)
{
	rmem_undo_begin_unless(undo, object, bytes, 0, 0);
}

static inline void rmem_undo_end(struct rmem_undo *undo)
{
	if (!undo)
		return;
	rmem_undo_order();
	undo->armed = 0;
	rmem_undo_order();
}

#endif
