/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Words of own memory that another machine reads or writes over a bus, and the order of own
 * accesses as that machine sees it. In the kernel these are the barriers for devices, which hold
 * for memory that processors don't share; natively those of C.
 */
#ifndef REMORA_BASE_FENCE_H
#define REMORA_BASE_FENCE_H

#include "core/base/bytes.h"

#ifdef __KERNEL__
#include <asm/barrier.h>
#include <linux/compiler.h>

/* Stores before it have left the processor when loads behind it are made. */
#define base_fence() mb()
#define base_fence_loads() dma_rmb()
#define base_fence_stores() dma_wmb()
#define base_load_once(at) READ_ONCE(*(at))
#define base_store_once(at, value) WRITE_ONCE(*(at), value)
#else
#define base_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define base_fence_loads() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define base_fence_stores() __atomic_thread_fence(__ATOMIC_RELEASE)
#define base_load_once(at) __atomic_load_n(at, __ATOMIC_RELAXED)
#define base_store_once(at, value) __atomic_store_n(at, value, __ATOMIC_RELAXED)
#endif

/* A little-endian word of 4 or 8 bytes. Loads behind it are made later. */
static inline u64 base_word_load(const void *word, u32 bytes)
{
	u64 value = bytes == sizeof(u32) ? base_swap_le32(base_load_once((const u32 *)word)) :
					   base_swap_le64(base_load_once((const u64 *)word));

	base_fence_loads();
	return value;
}

/* Stores before it are seen before. */
static inline void base_word_store(void *word, u64 value, u32 bytes)
{
	base_fence_stores();
	if (bytes == sizeof(u32))
		base_store_once((u32 *)word, base_swap_le32((u32)value));
	else
		base_store_once((u64 *)word, base_swap_le64(value));
}

#endif
