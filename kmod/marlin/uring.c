// SPDX-License-Identifier: GPL-2.0
/*
 * Copies by io_uring: a command is one copy, and its completion the copy's end.
 *
 *   submission -> cmmc_uring_cmd, which may not block: -EAGAIN
 *                   '-> io_uring's worker, a thread of the program -> cmmc_uring_cmd -> the copy
 *
 * The worker has the program's memory and credentials, so a copy may fault pages in as by ioctl. It
 * is ended as any of io_uring's: the copy looks for a signal between batches of pages.
 */
#include <linux/uio.h>

#include "compat/compat.h"
#include "marlin/cmmc.h"

/* The buffer of io_uring that a command names, whose pages are pinned already. */
static int uring_fixed(struct io_uring_cmd *cmd, const struct cmmc_copy *in,
		       struct cmmc_memory *memory, bool write)
{
	struct iov_iter iter;
	int err;

	if (in->bytes > CMMC_BYTES_MAX)
		return -ERANGE;
	err = io_uring_cmd_import_fixed(in->address, in->bytes, write ? WRITE : READ, &iter, cmd);
	if (err)
		return err;
	memory->vector = iter.bvec;
	memory->iter = (struct bvec_iter){
		.bi_size = in->bytes,
		.bi_bvec_done = iter.iov_offset,
	};
	return 0;
}

int cmmc_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	bool write = cmd->cmd_op == CMMC_URING_WRITE;
	struct cmmc_memory memory = { };
	struct cmmc_copy in;
	int err = 0;

	if (!write && cmd->cmd_op != CMMC_URING_READ)
		return -ENOTTY;
	if (!(issue_flags & IO_URING_F_SQE128))
		return -EINVAL;
	if (issue_flags & IO_URING_F_NONBLOCK)
		return compat_uring_cmd_again(cmd);
	/* The program may change it meanwhile. */
	memcpy(&in, compat_uring_cmd_data(cmd), sizeof(in));
	in.done = 0;
	if (in.size != sizeof(in))
		err = -EINVAL;
	else if (cmd->flags & IORING_URING_CMD_FIXED && in.bytes)
		err = uring_fixed(cmd, &in, &memory, write);
	if (!err)
		err = cmmc_copy_buffer(cmd->file->private_data, &in, &memory, write);
	io_uring_cmd_done(cmd, err, in.done, issue_flags);
	return -EIOCBQUEUED;
}
