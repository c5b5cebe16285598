/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Scatter lists for copies between two machines' pages (Marlin, ANCS'14, 3.3): sub-transfers of a
 * transaction, with contiguous pages combined.
 *
 *     local   [page][page]      [page]            remote  [page][page][page]   offset in the first
 *              '---------------- scatter_cut ----------------'
 *     parts   {local, remote, bytes} ...          at most SCATTER_PARTS
 */
#ifndef REMORA_MARLIN_SCATTER_H
#define REMORA_MARLIN_SCATTER_H

#include "core/base/types.h"
#include "remora/marlin.h"
#include "remora/marlin_grants.h"

#define SCATTER_PARTS 256 /* sub-transfers of a transaction: the paper's batch */
#define SCATTER_ALIGN 64  /* bytes; DMA engines are slower where a side is no multiple (Figure 7) */

struct scatter_part {
	u64 local, remote; /* physical addresses */
	u64 bytes;
};

/* One machine's pages. */
struct scatter_pages {
	const u64 *pages; /* physical addresses, each page-aligned */
	u64 offset;	  /* of the next byte, from the first page on */
};

/*
 * Cuts up to so many bytes into parts, and moves both offsets on. Returns the parts; *cut is what
 * they carry. The pages of both sides hold `bytes` from their offsets on.
 */
u32 scatter_cut(struct scatter_part *parts, u32 parts_max, struct scatter_pages *local,
		struct scatter_pages *remote, u64 bytes, u64 *cut);

/* A request's list of a client's memory, as it came: unchecked. */
struct scatter_pieces {
	const struct marlin_loan_piece *pieces;
	u32 count;
	u32 at;	    /* the piece of the next byte, */
	u32 offset; /* and its place there */
};

/* Are all pieces by the rules, below ram_bytes, and together of so many bytes or more? */
bool scatter_holds(const struct scatter_pieces *remote, u64 ram_bytes, u64 bytes);
/*
 * Appends parts for the next bytes of a loan, *count being those there are. The pieces hold them.
 * False: it takes more than parts_max.
 */
bool scatter_add(struct scatter_part *parts, u32 *count, u32 parts_max,
		 struct scatter_pieces *remote, u64 local, u64 bytes);

bool scatter_is_aligned(const struct scatter_part *part);

/*
 * Bytes from a part's start to the first place where both sides are multiples of SCATTER_ALIGN; 0
 * if the start is one, if no place is, or if the part ends before.
 */
u32 scatter_head(const struct scatter_part *part);

/*
 * The headroom trick (5.3): moves a part's start down to a multiple of SCATTER_ALIGN, if that is
 * one on both sides. Returns the bytes that were added, whose old content is lost.
 */
u32 scatter_widen(struct scatter_part *part);

#endif
