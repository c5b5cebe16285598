/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Scalar types of the cores, the same in the kernel and natively.
 *
 * Here and in fence.h a core looks at its surroundings: the kernel builds
 * with -nostdinc and has no <stdint.h>, user space has no u64.
 */
#ifndef REMORA_BASE_TYPES_H
#define REMORA_BASE_TYPES_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;
#endif

#define BASE_NSEC_PER_USEC 1000ULL
#define BASE_NSEC_PER_MSEC 1000000ULL
#define BASE_NSEC_PER_SEC 1000000000ULL

#endif
