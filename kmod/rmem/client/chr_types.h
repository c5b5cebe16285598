/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An operation of a program: chr_op.c has its life, chr_data.c its data; it is asked for by
 * io_uring (chr_uring.c) or by ioctl (chr_ioctl.c).
 */
#ifndef REMORA_RMEM_CHR_TYPES_H
#define REMORA_RMEM_CHR_TYPES_H

#include <linux/bvec.h>
#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/workqueue.h>

#include "rmem/client/types.h"
#include "uapi/remora_rmem_io.h"

struct io_uring_cmd;

/* An open file; its ops hold it. */
struct rmem_chr_file {
	struct rmem_device *device;
	unsigned int channel;
	unsigned int generation; /* of the device, when it was opened */
	spinlock_t lock;	 /* guards ops and begun */
	struct list_head ops;
	u64 begun;		 /* ops, so far */
	wait_queue_head_t ended; /* an op has */
	atomic_t by_uring;	 /* ops */
};

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

#endif
