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
#include "remora/marlin_grants.h"

#define SCATTER_PARTS 256 /* sub-transfers of a transaction: the paper's batch */

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

#endif
