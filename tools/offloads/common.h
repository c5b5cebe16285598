/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Byte order, loads and stores of remote memory, for the sources of offloads. Clients can write to
 * that memory during a step, so a value that a check depends on is loaded once.
 */
#ifndef REMORA_OFFLOADS_COMMON_H
#define REMORA_OFFLOADS_COMMON_H

#include "remora/offload.h"

#ifdef __KERNEL__
#include <asm/byteorder.h>
#include <linux/module.h>

#include "rmem_offload_ops.h"
#else
#include <stdbool.h>
#include <stddef.h>

/* Without libc, which not every build of an offload has. */
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "turn the bytes below, and see offload_add()"
#endif
#define le64_to_cpu(value) ((__u64)(value))
#define le32_to_cpu(value) ((__u32)(value))
#define le16_to_cpu(value) ((__u16)(value))
#define cpu_to_le64(value) ((__le64)(value))
#define cpu_to_le32(value) ((__le32)(value))
#define cpu_to_le16(value) ((__le16)(value))

#define __force /* for sparse: a cast of __le64 is meant */
#endif

/* The compiler makes one load of it. */
static inline __u64 offload_load(const __le64 *from)
{
	return le64_to_cpu(*(const volatile __le64 *)from);
}

static inline __u32 offload_load_32(const __le32 *from)
{
	return le32_to_cpu(*(const volatile __le32 *)from);
}

/* Readers by READ that see the value see all earlier stores, too. */
static inline void offload_store(__le64 *to, __u64 value)
{
	__atomic_store_n((__force __u64 *)to, (__force __u64)cpu_to_le64(value), __ATOMIC_RELEASE);
}

static inline void offload_store_32(__le32 *to, __u32 value)
{
	__atomic_store_n((__force __u32 *)to, (__force __u32)cpu_to_le32(value), __ATOMIC_RELEASE);
}

/* Adds to an integer of remote memory, as ATOMIC does, on a little-endian processor. Returns it as it was. */
static inline __le64 offload_add(__le64 *to, __u64 value)
{
	return (__force __le64)__atomic_fetch_add((__force __u64 *)to, value, __ATOMIC_SEQ_CST);
}

#endif
