/* SPDX-License-Identifier: GPL-2.0 */
/* The life of a program's op. */
#ifndef REMORA_RMEM_CHR_OP_H
#define REMORA_RMEM_CHR_OP_H

#include "rmem/client/chr_types.h"

/* Refuses malformed operations before they take memory here; the node would refuse them, too. */
int rmem_chr_op_check(const struct file *file, const struct rmem_io *io);
/* Or an error. cmd: by io_uring, or NULL. Process context, as are the others but ended. */
struct chr_op *rmem_chr_op_new(struct rmem_chr_file *file, const struct rmem_io *io,
			       const struct rmem_op_ops *ops, struct io_uring_cmd *cmd);
void rmem_chr_op_free(struct chr_op *op);
/* To the file's channel. If that fails it's still the caller's, else the channel's. */
int rmem_chr_op_submit(struct chr_op *op);
/* Likewise to the channel of that index, without counting it. */
int rmem_chr_op_submit_by(struct chr_op *op, unsigned int channel);
/* The caller keeps op allocated. The op ends with error, unless it has ended or is about to. */
void rmem_chr_op_take_back(struct chr_op *op, int error);
/* How it has ended: 0 or negative. */
int rmem_chr_op_error(const struct chr_op *op);
/* Copies the op's results into the program's memory; then the op is no more. */
int rmem_chr_op_conclude(struct chr_op *op);
/* To be called by ops->end, before it tells of it. */
void rmem_chr_op_ended(struct chr_op *op, enum rmem_client_result result);

/* Selects a file's ops. */
struct rmem_chr_which {
	fl_owner_t owner; /* operations of a program that ends; or NULL: */
	u64 cookie;	  /* operations with this cookie; 0: with any */
};

/* Cancels ops that are under way now, and none that begins later. Returns how many. */
unsigned int rmem_chr_cancel(struct rmem_chr_file *file, const struct rmem_chr_which *which);
int rmem_chr_flush(struct file *file, fl_owner_t owner);

#endif
