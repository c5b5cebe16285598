/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Powers of two, rounding, the lesser and the greater. */
#ifndef REMORA_BASE_BITS_H
#define REMORA_BASE_BITS_H

#include "core/base/types.h"

static inline u64 base_min(u64 a, u64 b)
{
	return a < b ? a : b;
}

static inline u64 base_max(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* first << times, at most max; first is below 2^32. */
static inline u64 base_doubled(u64 first, u32 times, u64 max)
{
	return base_min(first << base_min(times, 31), max);
}

static inline bool base_is_pow2(u64 x)
{
	return x && !(x & (x - 1));
}

/* Smallest power of two that is >= x; x: 1 up to 2^63. */
static inline u64 base_pow2_ceil(u64 x)
{
	return x <= 1 ? 1 : 1ULL << (64 - __builtin_clzll(x - 1));
}

/* x: a power of two. */
static inline unsigned int base_pow2_log(u64 x)
{
	return __builtin_ctzll(x);
}

/* x up to a multiple of unit, a power of two. */
static inline u64 base_round_up(u64 x, u64 unit)
{
	return (x + unit - 1) & ~(unit - 1);
}

/* A 64-bit mixer: every bit of x moves every bit of the result (splitmix64's finish). */
static inline u64 base_mix64(u64 x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

#endif
