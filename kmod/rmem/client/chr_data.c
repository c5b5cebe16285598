// SPDX-License-Identifier: GPL-2.0
/*
 * An operation's data is where the program has it: its pages are pinned for as long, or were when
 * the buffer was registered, and packets refer to them. Little data is copied instead, which costs
 * less than pinning; so are names, and the data of many ranges:
 *
 *   struct chr_op | bio_vec | rmem_io_vec[] | rmem_range[] | data of all ranges, as on the wire
 *                             the program's   the message's
 */
#include <linux/mm.h>
#include <linux/uaccess.h>

#include "compat/compat.h"
#include "rmem/client/chr_data.h"

#define COPY_BYTES 512U
#define PAGES_MAX  (RMEM_OP_BYTES_MAX / PAGE_SIZE + 1)

bool rmem_chr_walk(struct rmem_op *core, u32 offset, u32 bytes, rmem_walk_fn fn, void *arg)
{
	const struct chr_op *op = container_of(core, struct chr_op, op);
	struct bvec_iter iter = op->data.iter;
	struct bio_vec bv;

	if (!bvec_iter_advance(op->data.bvec, &iter, offset))
		return false;
	iter.bi_size = min(iter.bi_size, bytes);
	for_each_bvec(bv, op->data.bvec, iter, iter) {
		if (!fn(arg, bv.bv_page, bv.bv_offset, bv.bv_len))
			return false;
	}
	return true;
}

static bool chr_data_has(const struct rmem_io *io)
{
	return io->type == RMEM_IO_READ || io->type == RMEM_IO_WRITE ||
	       (io->type == RMEM_IO_PUT && io->bytes);
}

static bool chr_data_is_copied(const struct rmem_io *io)
{
	return io->bytes <= COPY_BYTES;
}

static unsigned int chr_data_pages_of(const struct rmem_io *io)
{
	return DIV_ROUND_UP(offset_in_page(io->data) + io->bytes, PAGE_SIZE);
}

static void chr_data_set(struct chr_op *op, const struct bio_vec *bvec, u32 done_bytes)
{
	op->data.bvec = bvec;
	op->data.iter = (struct bvec_iter){
		.bi_size = op->op.len,
		.bi_bvec_done = done_bytes,
	};
}

static void chr_data_set_copy(struct chr_op *op, u8 *copy)
{
	op->copy = copy;
	bvec_set_page(&op->own[0], virt_to_page(copy), op->op.len, offset_in_page(copy));
	chr_data_set(op, op->own, 0);
}

static int chr_data_copy(struct chr_op *op)
{
	chr_data_set_copy(op, (u8 *)&op->own[1]);
	if (op->op.type == RMEM_READ)
		return 0;
	return copy_from_user(op->copy, u64_to_user_ptr(op->user), op->op.len) ? -EFAULT : 0;
}

/* A vector's data from the program, or to it. */
static int chr_data_copy_ranges(const struct chr_op *op, bool in)
{
	const struct rmem_io_vec *vec = op->vec, *end = vec + op->op.vector.ranges;
	u8 *at = op->copy;

	for (; vec < end; at += vec->bytes, vec++) {
		void __user *user = u64_to_user_ptr(vec->data);

		if (in ? copy_from_user(at, user, vec->bytes) : copy_to_user(user, at, vec->bytes))
			return -EFAULT;
	}
	return 0;
}

static int chr_data_take_ranges(struct chr_op *op, unsigned int ranges)
{
	struct rmem_io_vec *vec = (struct rmem_io_vec *)&op->own[1];
	struct rmem_range *range = (struct rmem_range *)&vec[ranges];
	u64 bytes = 0;
	unsigned int i;

	/* The program can change it meanwhile: only this copy is looked at. */
	if (copy_from_user(vec, u64_to_user_ptr(op->user), ranges * sizeof(*vec)))
		return -EFAULT;
	for (i = 0; i < ranges; i++) {
		if (!vec[i].bytes || vec[i].reserved)
			return -EINVAL;
		range[i].addr = cpu_to_le64(vec[i].addr);
		range[i].bytes = cpu_to_le64(vec[i].bytes);
		bytes += vec[i].bytes;
	}
	if (bytes != op->op.len)
		return -EINVAL;
	op->vec = vec;
	op->op.vector = (struct rmem_op_vector){ .range = range, .ranges = ranges };
	chr_data_set_copy(op, (u8 *)&range[ranges]);
	return op->op.type == RMEM_WRITEV ? chr_data_copy_ranges(op, true) : 0;
}

/* The name as it is on the wire, behind the op, which begins as zeros. */
static int chr_data_take_name(struct chr_op *op, const struct rmem_io *io)
{
	struct rmem_named *named = (struct rmem_named *)op->own;

	if (copy_from_user(named->name, u64_to_user_ptr(io->data), io->bytes))
		return -EFAULT;
	if (memchr(named->name, 0, io->bytes))
		return -EINVAL;
	named->addr = cpu_to_le64(io->addr);
	op->op.name = (struct rmem_op_name){
		.named = named,
		.listed = (struct rmem_listed *)(named + 1),
	};
	op->op.addr = 0;
	op->op.len = 0;
	op->user = io->found;
	return 0;
}

/* Copies the region that a LOOKUP has found to the program. */
static int chr_data_give_range(const struct chr_op *op)
{
	const struct rmem_io_range range = {
		.addr = op->op.name.addr,
		.bytes = op->op.name.bytes,
	};

	return copy_to_user(u64_to_user_ptr(op->user), &range, sizeof(range)) ? -EFAULT : 0;
}

/* The same of a LIST's. */
static int chr_data_give_region(const struct chr_op *op)
{
	const struct rmem_listed *listed = op->op.name.listed;
	struct rmem_io_region region = {
		.addr = op->op.name.addr,
		.bytes = op->op.name.bytes,
		.perm = le32_to_cpu(listed->perm),
		.names = le32_to_cpu(listed->names),
	};

	memcpy(region.name, listed->name, sizeof(region.name));
	return copy_to_user(u64_to_user_ptr(op->user), &region, sizeof(region)) ? -EFAULT : 0;
}

static int chr_data_pin(struct chr_op *op, unsigned int pages)
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
	chr_data_set(op, op->own, offset);
	return 0;
}

static int chr_data_import(struct chr_op *op)
{
	struct iov_iter iter;
	int rw = op->op.type == RMEM_READ ? READ : WRITE;
	int err = io_uring_cmd_import_fixed(op->user, op->op.len, rw, &iter, op->cmd);

	if (err)
		return err;
	chr_data_set(op, iter.bvec, iter.iov_offset);
	return 0;
}

size_t rmem_chr_data_room(const struct rmem_io *io, bool fixed)
{
	if (rmem_chr_has_ranges(io))
		return sizeof(struct bio_vec) + io->bytes +
		       io->ranges * (sizeof(struct rmem_io_vec) + sizeof(struct rmem_range));
	if (rmem_chr_has_name(io))
		return sizeof(struct rmem_named) + sizeof(struct rmem_listed);
	if (!chr_data_has(io) || fixed)
		return 0;
	if (chr_data_is_copied(io))
		return sizeof(struct bio_vec) + io->bytes;
	return chr_data_pages_of(io) * sizeof(struct bio_vec);
}

int rmem_chr_data_take(struct chr_op *op, const struct rmem_io *io, bool fixed)
{
	if (rmem_chr_has_ranges(io))
		return chr_data_take_ranges(op, io->ranges);
	if (rmem_chr_has_name(io))
		return chr_data_take_name(op, io);
	if (!chr_data_has(io))
		return 0;
	if (fixed)
		return chr_data_import(op);
	return chr_data_is_copied(io) ? chr_data_copy(op) : chr_data_pin(op, chr_data_pages_of(io));
}

int rmem_chr_data_give(const struct chr_op *op)
{
	if (op->op.type == RMEM_READV)
		return chr_data_copy_ranges(op, false);
	if (op->op.type == RMEM_LOOKUP)
		return chr_data_give_range(op);
	if (op->op.type == RMEM_LIST)
		return chr_data_give_region(op);
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
