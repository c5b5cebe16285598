/* SPDX-License-Identifier: GPL-2.0 */
/* The data of a program's op. */
#ifndef REMORA_RMEM_CHR_DATA_H
#define REMORA_RMEM_CHR_DATA_H

#include "rmem/client/chr_types.h"

/* As ops->walk. */
bool rmem_chr_walk(struct rmem_op *op, u32 offset, u32 bytes, rmem_walk_fn fn, void *arg);

/* Bytes that data takes behind the op. fixed: it is in a registered buffer. */
size_t rmem_chr_data_room(const struct rmem_io *io, bool fixed);
/* The op gets its data, or a place for it. */
int rmem_chr_data_take(struct chr_op *op, const struct rmem_io *io, bool fixed);
/* Copies data that was read to the program, in its address space, unless it is there already. */
int rmem_chr_data_give(const struct chr_op *op);
void rmem_chr_data_release(struct chr_op *op);

#endif
