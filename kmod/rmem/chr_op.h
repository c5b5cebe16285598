/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An operation of a program: chr_op.c has its life, chr_data.c its data.
 */
#ifndef REMORA_RMEM_CHR_OP_H
#define REMORA_RMEM_CHR_OP_H

#include <linux/bvec.h>
#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/workqueue.h>

#include "rmem/device.h"
#include "uapi/remora_rmem_io.h"

struct chr_op {
	struct rmem_op op; /* first: the channels know that only */
	struct rmem_chr_data data;
	struct io_uring_cmd *cmd; /* or NULL: done is waited for */
	union {
		struct completion done;
		struct work_struct later; /* by io_uring */
	};
	enum rmem_client_result result;
	struct rmem_chr_file *file; /* its own holds it */
	unsigned int channel;	    /* which has it */
	struct list_head entry;	    /* of the file's */
	fl_owner_t owner; /* by io_uring: the descriptors of the program that asked */
	u64 cookie;
	int taken_back;	    /* -ECANCELED, -ETIMEDOUT: how it ends then */
	u64 user;	    /* where the answer goes */
	u8 *copy;	    /* of data; or NULL */
	const struct rmem_io_vec *vec; /* READV, WRITEV: its ranges */
	struct mm_struct *mm;
	unsigned int pinned; /* pages */
	struct bio_vec own[]; /* of pinned pages, or of the copy, which lies behind */
};

static inline bool rmem_chr_has_ranges(const struct rmem_io *io)
{
	return io->type == RMEM_IO_READV || io->type == RMEM_IO_WRITEV;
}

/* Bytes that data takes behind the op. fixed: it is in a registered buffer. */
size_t rmem_chr_data_room(const struct rmem_io *io, bool fixed);
/* The op gets its data, or a place for it. Process context, as are the others. */
int rmem_chr_data_take(struct chr_op *op, const struct rmem_io *io, bool fixed);
/* What was read, and isn't there already, goes to the program, in whose memory we are. */
int rmem_chr_data_give(const struct chr_op *op);
void rmem_chr_data_release(struct chr_op *op);

#endif
