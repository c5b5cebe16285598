/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The integer operations of ATOMIC, on page memory (include/remora/rmem.h, enum rmem_atomic_op).
 *
 * Each is a loop around the processor's compare and exchange, so that it's one step for all users
 * of the same bytes, under any lock or none. Integers in remote memory are little-endian on any
 * processor.
 */
#ifndef REMORA_RMEM_ATOMIC_H
#define REMORA_RMEM_ATOMIC_H

#include "core/base/types.h"
#include "remora/rmem.h"

/* Integers of 16 bytes: can this processor do it? */
bool rmem_atomic_has_16(void);

/* True if op exists for integers of `bytes` bytes, on a processor that can do those of 16. */
bool rmem_atomic_is_known(u8 op, u32 bytes);

/* The caller has checked the op, and aligned place to `bytes`. */
void rmem_atomic_apply(void *place, u8 op, u32 bytes, const struct rmem_operands *in,
		       struct rmem_found *found);

#endif
