/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Byte order and memory: the parts of <endian.h> and <string.h> that a
 * freestanding core needs. Loads and stores go through memcpy, so any alignment will do.
 */
#ifndef REMORA_BASE_BYTES_H
#define REMORA_BASE_BYTES_H

#include "core/base/bits.h"

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

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define base_swap_be16(x) __builtin_bswap16(x)
#define base_swap_be32(x) __builtin_bswap32(x)
#define base_swap_be64(x) __builtin_bswap64(x)
#else
#define base_swap_be16(x) ((u16)(x))
#define base_swap_be32(x) ((u32)(x))
#define base_swap_be64(x) ((u64)(x))
#endif

/* The next piece of memory, aligned for a u64; with memory NULL it is only counted. */
static inline void *base_carve(void *memory, size_t *used, size_t bytes)
{
	void *piece = memory ? (char *)memory + *used : NULL;

	*used += base_round_up(bytes, sizeof(u64));
	return piece;
}

/* An unsigned number of 1, 2, 4 or 8 bytes, the most significant first. */
static inline u64 base_load_be(const void *p, u32 bytes)
{
	u16 x16;
	u32 x32;
	u64 x64;

	switch (bytes) {
	case 1:
		return *(const u8 *)p;
	case 2:
		base_copy(&x16, p, sizeof(x16));
		return base_swap_be16(x16);
	case 4:
		base_copy(&x32, p, sizeof(x32));
		return base_swap_be32(x32);
	default:
		base_copy(&x64, p, sizeof(x64));
		return base_swap_be64(x64);
	}
}

static inline void base_store_be(void *p, u64 x, u32 bytes)
{
	u16 x16 = base_swap_be16((u16)x);
	u32 x32 = base_swap_be32((u32)x);
	u64 x64 = base_swap_be64(x);

	switch (bytes) {
	case 1:
		*(u8 *)p = (u8)x;
		break;
	case 2:
		base_copy(p, &x16, sizeof(x16));
		break;
	case 4:
		base_copy(p, &x32, sizeof(x32));
		break;
	default:
		base_copy(p, &x64, sizeof(x64));
	}
}

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
