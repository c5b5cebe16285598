/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The addresses that a space has given out, as spans of pages in their order. No page of the holes
 * between them was ever given out.
 *
 *      at[0]              at[1]          at[count - 1]
 *      |##########|  hole  |####|  hole   |##|  hole
 *      0          ^             ^            ^
 *                 '-------------'------------'-- a region without a wanted address begins here
 *
 * A region without one goes into the first hole that is long enough, so a span grows. Only a region
 * with a wanted address can begin a span of its own, and no more than RMEM_SPANS_MAX exist: the
 * caller moves a region that would need another one.
 *
 * Invariants:
 *   - a page in a span stays in one;
 *   - at[0] begins at 0, and there is a hole before each of the others.
 *
 * Locking: the lock of the space that the spans belong to.
 */
#ifndef REMORA_RMEM_SPAN_H
#define REMORA_RMEM_SPAN_H

#include "core/base/types.h"

#define RMEM_SPANS_MAX 64

struct rmem_span {
	u64 begin; /* page numbers */
	u64 end;
};

struct rmem_spans {
	struct rmem_span at[RMEM_SPANS_MAX];
	u32 count;
};

/* The pages below end, which is more than 0, count as given out, and no others. */
void rmem_spans_init(struct rmem_spans *spans, u64 end);

/* The first page, from vpn on, at which that many pages in a row are in no span. */
u64 rmem_spans_next(const struct rmem_spans *spans, u64 vpn, u64 pages);

/* The first page of the hole that vpn is in. */
u64 rmem_spans_hole(const struct rmem_spans *spans, u64 vpn);

/* Is there room to add a part of a hole? Always, where it touches a span. */
bool rmem_spans_may_add(const struct rmem_spans *spans, u64 begin, u64 end);

/* A part of a hole is given out, for which there is room. */
void rmem_spans_add(struct rmem_spans *spans, u64 begin, u64 end);

#endif
