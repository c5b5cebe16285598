/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Buckets of a histogram of durations. The first ends at 64 ns. Further buckets are four to each
 * power of two, so percentiles are exact to a fifth. The last bucket has no upper bound.
 */
#ifndef REMORA_BASE_TIMES_H
#define REMORA_BASE_TIMES_H

#include "core/base/types.h"

#define BASE_TIMES_BUCKETS     128U
#define BASE_TIMES_FIRST_SHIFT 6U
#define BASE_TIMES_PART_BITS   2U
#define BASE_TIMES_PARTS       (1U << BASE_TIMES_PART_BITS)

static inline u32 base_times_bucket(u64 ns)
{
	u32 shift, bucket;

	if (ns < 1ULL << BASE_TIMES_FIRST_SHIFT)
		return 0;
	shift = 63 - (u32)__builtin_clzll(ns);
	bucket = 1 + ((shift - BASE_TIMES_FIRST_SHIFT) << BASE_TIMES_PART_BITS) +
		 ((u32)(ns >> (shift - BASE_TIMES_PART_BITS)) & (BASE_TIMES_PARTS - 1));
	return bucket < BASE_TIMES_BUCKETS ? bucket : BASE_TIMES_BUCKETS - 1;
}

/* Upper bound of the bucket's durations, exclusive. */
static inline u64 base_times_bound_ns(u32 bucket)
{
	u32 shift = BASE_TIMES_FIRST_SHIFT + (bucket >> BASE_TIMES_PART_BITS);
	u64 parts = BASE_TIMES_PARTS + (bucket & (BASE_TIMES_PARTS - 1));

	if (bucket >= BASE_TIMES_BUCKETS - 1)
		return ~0ULL;
	return parts << (shift - BASE_TIMES_PART_BITS);
}

#endif
