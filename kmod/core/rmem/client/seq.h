/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Ids of one session, at the client: who waits for which, and the floor.
 *
 *          floor                      next
 *   ---------|---x----x-x-------x-------|-----------------> ids
 *    finished  some finished, some not    not yet given out
 *             |<------------ at most window ----------->|
 *
 * An id is given out once and never again. The floor is the oldest id that is
 * still outstanding, or next when none is. Ids are given out below floor + window
 * only, for the node can tell only these executed from not executed.
 *
 * No clock and no packets here, so the model checker runs this very file, with
 * a window of a few ids.
 */
#ifndef REMORA_RMEM_SEQ_H
#define REMORA_RMEM_SEQ_H

#include "core/base/types.h"

struct rmem_seq {
	u64 floor;
	u64 next;
	u32 window;   /* a power of two */
	void **owner; /* window entries, of id at id % window; NULL: not outstanding */
};

/* owner: window entries of the caller's memory; needs no clearing. The first id is 1. */
void rmem_seq_init(struct rmem_seq *seq, void **owner, u32 window);

/* Forget all ids and start over at 1: for a new session. */
void rmem_seq_reset(struct rmem_seq *seq);

/* The first of count ids in a row, for owner (not NULL); 0 if the window hasn't that many left. */
u64 rmem_seq_take(struct rmem_seq *seq, u32 count, void *owner);

/* The id is answered or given up; the floor moves up when it was the oldest. */
void rmem_seq_put(struct rmem_seq *seq, u64 id);

/* An id that is outstanding gets another owner. */
static inline void rmem_seq_give(struct rmem_seq *seq, u64 id, void *owner)
{
	seq->owner[id & (seq->window - 1)] = owner;
}

/* The owner that waits for this id, or NULL. The id can be any number, even a stranger's. */
static inline void *rmem_seq_owner(const struct rmem_seq *seq, u64 id)
{
	if (id < seq->floor || id >= seq->next)
		return NULL;
	return seq->owner[id & (seq->window - 1)];
}

/* How far above the floor the next id will be. */
static inline u64 rmem_seq_span(const struct rmem_seq *seq)
{
	return seq->next - seq->floor;
}

static inline u64 rmem_seq_floor(const struct rmem_seq *seq)
{
	return seq->floor;
}

#endif
