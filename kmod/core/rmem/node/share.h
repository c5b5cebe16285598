/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Spaces share the node's sessions and regions, which have no quota. The node keeps a quarter of
 * them for spaces that have few. Each space has an equal part of the quarter, which the others
 * can't take. A space that is added while the quarter is in use waits for its part.
 */
#ifndef REMORA_RMEM_SHARE_H
#define REMORA_RMEM_SHARE_H

#include "core/base/bits.h"
#include "core/base/types.h"

/* True if one of `spaces` spaces, which has `has` of all, is permitted a free one. */
static inline bool rmem_share_permits(u32 all, u32 free, u32 spaces, u32 has)
{
	u32 kept = all / 4;

	return spaces < 2 || free > kept || has < base_max(kept / spaces, 1);
}

#endif
