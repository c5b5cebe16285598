/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An operation of a program: chr_op.c has its life, chr_data.c its data; it is asked for by
 * io_uring (chr_uring.c) or by ioctl (chr_ioctl.c).
 */
#ifndef REMORA_RMEM_CHR_OP_H
#define REMORA_RMEM_CHR_OP_H

#include <linux/bvec.h>
#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/workqueue.h>

#include "rmem/client/device.h"
#include "uapi/remora_rmem_io.h"

/* Ops that one file has under way by io_uring, at most: each takes kernel memory, up to 16 KiB. */
#define RMEM_CHR_URING_MAX 4096
/* A program that ends: how long answers are waited for, as taking changes back costs a session. */
#define RMEM_CHR_LINGER_MS 1000U

/* Where an op's data is. */
struct rmem_chr_data {
	const struct bio_vec *bvec;
	struct bvec_iter iter;
};

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
	u64 number;	    /* of the file's ops, in the order they were begun */
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

static inline bool rmem_chr_has_name(const struct rmem_io *io)
{
	return io->type == RMEM_IO_PUBLISH || io->type == RMEM_IO_LOOKUP ||
	       io->type == RMEM_IO_LIST;
}

/* The longest data of a PUT. */
static inline u32 rmem_chr_put_bytes(const struct rmem_device *device)
{
	return device->piece_bytes - sizeof(struct rmem_put);
}

/* And of a vector, with its ranges. */
static inline u32 rmem_chr_vector_bytes(const struct rmem_device *device)
{
	return device->piece_bytes;
}

/* ---- an op ---- */

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

/* ---- its data ---- */

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
