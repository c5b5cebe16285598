// SPDX-License-Identifier: GPL-2.0
/*
 * Operations by ioctl, whose caller waits; and calls that exist by ioctl alone: regions,
 * cancelling, properties of the device.
 */
#include <linux/module.h>
#include <linux/uaccess.h>

#include "rmem/client/chr_data.h"
#include "rmem/client/chr_ioctl.h"
#include "rmem/client/chr_op.h"

#define ALLOC_TRIES 8
#define TIMEOUT_US_MAX BIT_ULL(50) /* as good as never */

static void chr_ioctl_op_end(struct rmem_op *core, enum rmem_client_result result)
{
	struct chr_op *op = container_of(core, struct chr_op, op);

	rmem_chr_op_ended(op, result);
	complete(&op->done);
}

static const struct rmem_op_ops ioctl_op_ops = { .walk = rmem_chr_walk, .end = chr_ioctl_op_end };

/* Its end; when the time is up or the program is killed it is taken back. */
static void chr_ioctl_wait_op(struct chr_op *op, u64 timeout_us)
{
	unsigned long timeout = MAX_SCHEDULE_TIMEOUT;
	long left;

	if (timeout_us && timeout_us < TIMEOUT_US_MAX)
		timeout = nsecs_to_jiffies(timeout_us * NSEC_PER_USEC) + 1;
	left = wait_for_completion_killable_timeout(&op->done, timeout);
	if (left > 0)
		return;
	rmem_chr_op_take_back(op, left ? -ECANCELED : -ETIMEDOUT);
	wait_for_completion(&op->done);
}

static long chr_ioctl_io(struct file *file, const void __user *arg)
{
	struct rmem_io io;
	struct chr_op *op;
	int err;

	if (copy_from_user(&io, arg, sizeof(io)))
		return -EFAULT;
	err = rmem_chr_op_check(file, &io);
	if (err)
		return err;
	op = rmem_chr_op_new(file->private_data, &io, &ioctl_op_ops, NULL);
	if (IS_ERR(op))
		return PTR_ERR(op);
	err = rmem_chr_op_submit(op);
	if (err) {
		rmem_chr_op_free(op);
		return err;
	}
	chr_ioctl_wait_op(op, io.timeout_us);
	return rmem_chr_op_conclude(op);
}

/* One op serves all requests of a call, so that no allocation can fail between them. */
static int chr_ioctl_call_begin(struct chr_op *op, u8 type, u64 addr, u32 bytes,
				unsigned int channel)
{
	op->op.type = type;
	op->op.addr = addr;
	op->op.len = bytes;
	reinit_completion(&op->done);
	return rmem_chr_op_submit_by(op, channel);
}

static int chr_ioctl_call(struct chr_op *op, u8 type, u64 addr, u32 bytes, unsigned int channel)
{
	int err = chr_ioctl_call_begin(op, type, addr, bytes, channel);

	if (err)
		return err;
	chr_ioctl_wait_op(op, 0);
	return rmem_chr_op_error(op);
}

/*
 * The channel for ALLOCs has one op at a time: the next one's floor is then above its id, which is
 * how the node learns of an ALLOC's receipt.
 */
static unsigned int chr_ioctl_calls_channel(const struct rmem_chr_file *file)
	__must_hold(&file->device->calls)
{
	lockdep_assert_held(&file->device->calls);
	return file->device->queues;
}

static int chr_ioctl_call_alloc(struct chr_op *op, struct rmem_io_alloc *io)
{
	int err;

	op->op.alloc = (struct rmem_op_alloc){
		.bytes = io->bytes,
		.addr = io->addr,
		.perm = io->perm,
	};
	err = chr_ioctl_call(op, RMEM_ALLOC, 0, 0, chr_ioctl_calls_channel(op->file));
	if (!err) {
		io->addr = op->op.range.addr;
		io->bytes = op->op.range.bytes;
	}
	return err;
}

static void chr_ioctl_set_range(struct chr_op *op, u64 addr, u64 bytes)
{
	op->op.range = (struct rmem_op_range){ .addr = addr, .bytes = bytes };
}

/*
 * Frees a region that the program will never learn of. A killed program doesn't wait long for the
 * answer. If no FREE arrives, cancelling it ends the session that made the region; this undoes it.
 */
static void chr_ioctl_call_undo(struct chr_op *op, const struct rmem_io_alloc *io)
{
	chr_ioctl_set_range(op, io->addr, io->bytes);
	op->op.range.undoes = true;
	if (chr_ioctl_call_begin(op, RMEM_FREE, 0, 0, chr_ioctl_calls_channel(op->file)) ||
	    wait_for_completion_timeout(&op->done, msecs_to_jiffies(RMEM_CHR_LINGER_MS)))
		return;
	rmem_chr_op_take_back(op, -ECANCELED);
	wait_for_completion(&op->done);
}

/* The node keeps the region once a later request, here a READ, has acknowledged the ALLOC. */
static int chr_ioctl_alloc_region(struct chr_op *op, const struct rmem_io_alloc *wanted,
				  struct rmem_io_alloc *io)
	__must_hold(&op->file->device->calls)
{
	unsigned int tries = 0;
	int err;

	lockdep_assert_held(&op->file->device->calls);
	do {
		*io = *wanted;
		err = chr_ioctl_call_alloc(op, io);
		if (err)
			return err == -EFAULT ? -EAGAIN : err;
		err = chr_ioctl_call(op, RMEM_READ, io->addr, 1, chr_ioctl_calls_channel(op->file));
		/* The session ended before the node knew; the region went with it. */
	} while (err == -EFAULT && ++tries < ALLOC_TRIES);
	if (err == -EFAULT)
		return -EAGAIN;
	if (err)
		chr_ioctl_call_undo(op, io);
	return err;
}

/* copy_to_user() can fault into a slow userfaultfd handler, so device->calls is not held. */
static int chr_ioctl_tell_region(struct chr_op *op, const struct rmem_io_alloc *io,
				 void __user *arg)
{
	struct rmem_device *device = op->file->device;

	if (!copy_to_user(arg, io, sizeof(*io)))
		return 0;
	mutex_lock(&device->calls);
	chr_ioctl_call_undo(op, io);
	mutex_unlock(&device->calls);
	return -EFAULT;
}

static long chr_ioctl_alloc(struct file *opened, void __user *arg)
{
	const struct rmem_io byte = { .type = RMEM_IO_READ, .bytes = 1 };
	struct rmem_chr_file *file = opened->private_data;
	struct rmem_io_alloc wanted, io;
	struct chr_op *op;
	int err = -EINTR;

	if (!(opened->f_mode & FMODE_WRITE))
		return -EBADF;
	if (copy_from_user(&wanted, arg, sizeof(wanted)))
		return -EFAULT;
	if (wanted.reserved)
		return -EINVAL;
	op = rmem_chr_op_new(file, &byte, &ioctl_op_ops, NULL);
	if (IS_ERR(op))
		return PTR_ERR(op);
	if (!mutex_lock_killable(&file->device->calls)) {
		err = chr_ioctl_alloc_region(op, &wanted, &io);
		mutex_unlock(&file->device->calls);
		if (!err)
			err = chr_ioctl_tell_region(op, &io, arg);
	}
	rmem_chr_op_free(op);
	return err;
}

/* By the file's own channel: no copy of a change it took back comes after this. */
static int chr_ioctl_call_free(struct rmem_chr_file *file, const struct rmem_io_range *io)
{
	const struct rmem_io nothing = { .type = RMEM_IO_FENCE };
	struct chr_op *op = rmem_chr_op_new(file, &nothing, &ioctl_op_ops, NULL);
	int err;

	if (IS_ERR(op))
		return PTR_ERR(op);
	chr_ioctl_set_range(op, io->addr, io->bytes);
	err = chr_ioctl_call(op, RMEM_FREE, 0, 0, file->channel);
	/* Executed in a session that ended before its answer came; a retry has the same answer. */
	if (err == -EFAULT && op->op.sent_before)
		err = 0;
	rmem_chr_op_free(op);
	return err;
}

static long chr_ioctl_free(struct file *file, const void __user *arg)
{
	struct rmem_io_range io;

	if (!(file->f_mode & FMODE_WRITE))
		return -EBADF;
	if (copy_from_user(&io, arg, sizeof(io)))
		return -EFAULT;
	return chr_ioctl_call_free(file->private_data, &io);
}

static long chr_ioctl_cancel(struct rmem_chr_file *file, const void __user *arg)
{
	struct rmem_chr_which which = {};

	if (copy_from_user(&which.cookie, arg, sizeof(which.cookie)))
		return -EFAULT;
	return rmem_chr_cancel(file, &which);
}

static long chr_ioctl_info(const struct rmem_chr_file *file, void __user *arg)
{
	const struct rmem_device *device = file->device;
	struct rmem_io_info info = {
		.memory_bytes = device->memory_bytes,
		.page_bytes = device->page_bytes,
		.piece_bytes = device->piece_bytes,
		.space = device->params.session.space,
		.fail_after_ms = device->params.session.fail_after_ms,
		.put_bytes = rmem_chr_put_bytes(device),
		.vector_bytes = rmem_chr_vector_bytes(device),
	};

	return copy_to_user(arg, &info, sizeof(info)) ? -EFAULT : 0;
}

long rmem_chr_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	void __user *user = (void __user *)arg;

	switch (cmd) {
	case RMEM_IOC_IO:
		return chr_ioctl_io(file, user);
	case RMEM_IOC_ALLOC:
		return chr_ioctl_alloc(file, user);
	case RMEM_IOC_FREE:
		return chr_ioctl_free(file, user);
	case RMEM_IOC_CANCEL:
		return chr_ioctl_cancel(file->private_data, user);
	case RMEM_IOC_INFO:
		return chr_ioctl_info(file->private_data, user);
	default:
		return -ENOTTY;
	}
}
