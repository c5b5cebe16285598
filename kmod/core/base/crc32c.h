/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * CRC32C (Castagnoli, RFC 3720 appendix B.4), the payload digest. Portable:
 * eight table lookups per eight bytes. The kernel module uses the kernel's
 * own crc32c(), which knows the processor's instruction; both agree.
 */
#ifndef REMORA_BASE_CRC32C_H
#define REMORA_BASE_CRC32C_H

#include "core/base/types.h"

#define BASE_CRC32C_SEED 0xffffffffU

/* Fill the tables; call once before base_crc32c_update(). Idempotent. */
void base_crc32c_setup(void);

/*
 * Raw update as the kernel's crc32c(): start from BASE_CRC32C_SEED, chain the
 * results, and invert the last one (base_crc32c_final()).
 */
u32 base_crc32c_update(u32 crc, const void *data, size_t bytes);

static inline u32 base_crc32c_final(u32 crc)
{
	return ~crc;
}

#endif
