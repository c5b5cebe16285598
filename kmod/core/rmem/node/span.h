/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Which of its addresses a space has given out: spans of pages, in order; and
 * between them holes, which were given out never.
 *
 *      at[0]              at[1]          at[count - 1]
 *      |##########|  hole  |####|  hole   |##|  hole
 *      0          ^             ^            ^
 *                 '-------------'------------'-- a region that isn't wished for begins here
 *
 * It goes into the first hole that is long enough, so a span grows. Only a region that is
 * wished for may be a span of its own. When these are too many, the shortest hole between
 * two is lost: it counts as given out, though nobody had it.
 *
 * Who cuts holes in halves loses most, a sixteenth of what is left at each cut: a few
 * hundred such wishes would take all. So the caller has to look at what is lost.
 *
 * Invariants:
 *   - a page in a span stays in one;
 *   - at[0] begins at 0, and there is a hole before each of the others.
 *
 * Who: as the space they are of.
 */
#ifndef REMORA_RMEM_SPAN_H
#define REMORA_RMEM_SPAN_H

#include "core/base/types.h"

#define RMEM_SPANS_MAX 16

struct rmem_span {
	u64 begin; /* page numbers */
	u64 end;
};

struct rmem_spans {
	struct rmem_span at[RMEM_SPANS_MAX + 1]; /* one more while one is added */
	u32 count;
	u64 lost; /* pages of holes that became spans */
};

/* Nothing was given out but what is below end, more than 0. */
void rmem_spans_init(struct rmem_spans *spans, u64 end);

/* The first page, from vpn on, behind which that many are in no span. */
u64 rmem_spans_next(const struct rmem_spans *spans, u64 vpn, u64 pages);

/* Where the hole begins that vpn is in. */
u64 rmem_spans_hole(const struct rmem_spans *spans, u64 vpn);

/* A part of a hole is given out. */
void rmem_spans_add(struct rmem_spans *spans, u64 begin, u64 end);

#endif
