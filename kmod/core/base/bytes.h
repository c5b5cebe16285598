/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Byte order and memory: the parts of <endian.h> and <string.h> that a
 * freestanding core needs. Loads and stores go through memcpy, so any alignment will do.
 */
#ifndef REMORA_BASE_BYTES_H
#define REMORA_BASE_BYTES_H

#include "core/base/types.h"

#define base_copy(dst, src, bytes) __builtin_memcpy((dst), (src), (bytes))
#define base_zero(dst, bytes) __builtin_memset((dst), 0, (bytes))

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define base_swap_le16(x) ((u16)(x))
#define base_swap_le32(x) ((u32)(x))
#define base_swap_le64(x) ((u64)(x))
#else
#define base_swap_le16(x) __builtin_bswap16(x)
#define base_swap_le32(x) __builtin_bswap32(x)
#define base_swap_le64(x) __builtin_bswap64(x)
#endif

static inline u64 base_load_le64(const void *p)
{
	u64 x;

	base_copy(&x, p, sizeof(x));
	return base_swap_le64(x);
}

static inline u32 base_load_le32(const void *p)
{
	u32 x;

	base_copy(&x, p, sizeof(x));
	return base_swap_le32(x);
}

static inline u16 base_load_le16(const void *p)
{
	u16 x;

	base_copy(&x, p, sizeof(x));
	return base_swap_le16(x);
}

static inline void base_store_le64(void *p, u64 x)
{
	x = base_swap_le64(x);
	base_copy(p, &x, sizeof(x));
}

static inline void base_store_le32(void *p, u32 x)
{
	x = base_swap_le32(x);
	base_copy(p, &x, sizeof(x));
}

static inline void base_store_le16(void *p, u16 x)
{
	x = base_swap_le16(x);
	base_copy(p, &x, sizeof(x));
}

#endif
