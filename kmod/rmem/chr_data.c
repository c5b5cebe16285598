// SPDX-License-Identifier: GPL-2.0
/*
 * An operation's data is where the program has it: its pages are pinned for as long, or were when
 * the buffer was registered, and packets refer to them. Little data is copied instead, which costs
 * less than pinning.
 */
#include <linux/mm.h>
#include <linux/uaccess.h>

#include "compat/compat.h"
#include "rmem/chr_op.h"

#define COPY_BYTES 512U
#define PAGES_MAX  (RMEM_OP_BYTES_MAX / PAGE_SIZE + 1)

const struct rmem_chr_data *rmem_chr_data(const struct rmem_op *op)
{
	return &container_of(op, struct chr_op, op)->data;
}

static bool has_data(const struct rmem_io *io)
{
	return io->type == RMEM_IO_READ || io->type == RMEM_IO_WRITE ||
	       (io->type == RMEM_IO_PUT && io->bytes);
}

static bool is_copied(const struct rmem_io *io)
{
	return io->bytes <= COPY_BYTES;
}

static unsigned int pages_of(const struct rmem_io *io)
{
	return DIV_ROUND_UP(offset_in_page(io->data) + io->bytes, PAGE_SIZE);
}

static void set_data(struct chr_op *op, const struct bio_vec *bvec, u32 done_bytes)
{
	op->data.bvec = bvec;
	op->data.iter = (struct bvec_iter){
		.bi_size = op->op.len,
		.bi_bvec_done = done_bytes,
	};
}

static int copy(struct chr_op *op)
{
	op->copy = (u8 *)&op->own[1];
	if (op->op.type != RMEM_READ &&
	    copy_from_user(op->copy, u64_to_user_ptr(op->user), op->op.len))
		return -EFAULT;
	bvec_set_page(&op->own[0], virt_to_page(op->copy), op->op.len, offset_in_page(op->copy));
	set_data(op, op->own, 0);
	return 0;
}

static int pin(struct chr_op *op, unsigned int pages)
{
	unsigned int offset = offset_in_page(op->user), i;
	struct page *page[PAGES_MAX];
	int got;

	got = pin_user_pages_fast(op->user - offset, pages,
				  op->op.type == RMEM_READ ? FOLL_WRITE : 0, page);
	if (got < 0)
		return got;
	for (i = 0; i < got; i++)
		bvec_set_page(&op->own[i], page[i], PAGE_SIZE, 0);
	op->pinned = got;
	if (got < pages)
		return -EFAULT;
	set_data(op, op->own, offset);
	return 0;
}

static int import(struct chr_op *op)
{
	struct iov_iter iter;
	int rw = op->op.type == RMEM_READ ? READ : WRITE;
	int err = io_uring_cmd_import_fixed(op->user, op->op.len, rw, &iter, op->cmd);

	if (err)
		return err;
	set_data(op, iter.bvec, iter.iov_offset);
	return 0;
}

size_t rmem_chr_data_room(const struct rmem_io *io, bool fixed)
{
	if (!has_data(io) || fixed)
		return 0;
	if (is_copied(io))
		return sizeof(struct bio_vec) + io->bytes;
	return pages_of(io) * sizeof(struct bio_vec);
}

int rmem_chr_data_take(struct chr_op *op, const struct rmem_io *io, bool fixed)
{
	if (!has_data(io))
		return 0;
	if (fixed)
		return import(op);
	return is_copied(io) ? copy(op) : pin(op, pages_of(io));
}

int rmem_chr_data_give(const struct chr_op *op)
{
	if (op->op.type != RMEM_READ || !op->copy)
		return 0;
	return copy_to_user(u64_to_user_ptr(op->user), op->copy, op->op.len) ? -EFAULT : 0;
}

void rmem_chr_data_release(struct chr_op *op)
{
	unsigned int i;

	for (i = 0; i < op->pinned; i++) {
		if (op->op.type == RMEM_READ)
			set_page_dirty_lock(op->own[i].bv_page);
		unpin_user_page(op->own[i].bv_page);
	}
}
