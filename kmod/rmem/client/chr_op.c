// SPDX-License-Identifier: GPL-2.0
/*
 * Operations of programs, by /dev/rmemN (include/uapi/remora_rmem_io.h).
 *
 *   chr_uring.c: uring_cmd --+                                       +--> task work: answer, CQE
 *                            +--> chr_op --> the file's channel --> end
 *   chr_ioctl.c: ioctl ------+                                       +--> the waiting caller
 *
 * An op's end is told in the program's own context, for only there its memory can be reached.
 *
 * All ops of an open file go by one channel. So when a change was taken back, the file's later ops
 * are sent after the channel's session was renewed, and no copy of the change comes after it. Other
 * files that use this channel wait for that, too.
 *
 * An op is the channel's until it ends or is taken back, as a program that is killed does; where it
 * has no descriptor to do that by, the device's fail_after bounds the time.
 */
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "compat/compat.h"
#include "rmem/client/channel.h"
#include "rmem/client/chr_data.h"
#include "rmem/client/chr_op.h"
#include "rmem/client/count.h"

static_assert(RMEM_IO_BYTES_MAX == RMEM_OP_BYTES_MAX);
static_assert(RMEM_IO_RANGES_MAX == RMEM_RANGES_MAX);
static_assert(RMEM_IO_COPY_BYTES_MAX == RMEM_COPY_BYTES_MAX);
static_assert(RMEM_IO_NAME_BYTES_MAX == RMEM_NAME_BYTES);
static_assert(RMEM_SWAP == (u8)RMEM_IO_SWAP && RMEM_CAS == (u8)RMEM_IO_CAS &&
	      RMEM_ADD == (u8)RMEM_IO_ADD && RMEM_AND == (u8)RMEM_IO_AND &&
	      RMEM_OR == (u8)RMEM_IO_OR && RMEM_XOR == (u8)RMEM_IO_XOR &&
	      RMEM_MIN == (u8)RMEM_IO_MIN && RMEM_MAX == (u8)RMEM_IO_MAX &&
	      RMEM_SMIN == (u8)RMEM_IO_SMIN && RMEM_SMAX == (u8)RMEM_IO_SMAX);
/* The room that an SQE of 128 bytes has for a command. */
static_assert(sizeof(struct rmem_io) == 80);

/* ---- requests ---- */

static u8 chr_op_type(u8 type)
{
	switch (type) {
	case RMEM_IO_READ:
		return RMEM_READ;
	case RMEM_IO_WRITE:
		return RMEM_WRITE;
	case RMEM_IO_ZERO:
		return RMEM_ZERO;
	case RMEM_IO_ATOMIC:
		return RMEM_ATOMIC;
	case RMEM_IO_PUT:
		return RMEM_PUT;
	case RMEM_IO_READV:
		return RMEM_READV;
	case RMEM_IO_WRITEV:
		return RMEM_WRITEV;
	case RMEM_IO_COPY:
		return RMEM_COPY;
	case RMEM_IO_PUBLISH:
		return RMEM_PUBLISH;
	case RMEM_IO_LOOKUP:
		return RMEM_LOOKUP;
	case RMEM_IO_LIST:
		return RMEM_LIST;
	case RMEM_IO_FENCE:
		return RMEM_FENCE;
	default:
		return 0;
	}
}

static bool chr_op_vector_fits(const struct rmem_chr_file *file, const struct rmem_io *io)
{
	u32 ranges_bytes = io->ranges * sizeof(struct rmem_range);
	u64 bytes = io->type == RMEM_IO_READV ? max(io->bytes, ranges_bytes)
					      : (u64)io->bytes + ranges_bytes;

	return io->ranges && io->ranges <= RMEM_IO_RANGES_MAX &&
	       bytes <= rmem_chr_vector_bytes(file->device);
}

int rmem_chr_op_check(const struct file *file, const struct rmem_io *io)
{
	const struct rmem_chr_file *mine = file->private_data;
	bool has_second = io->type == RMEM_IO_PUT || io->type == RMEM_IO_COPY ||
			  io->type == RMEM_IO_LOOKUP || io->type == RMEM_IO_LIST;
	bool counts = io->type == RMEM_IO_PUT || rmem_chr_has_ranges(io);
	bool valid = (has_second || !io->integer) && (counts || !io->integer_bytes);

	switch (io->type) {
	case RMEM_IO_READ:
	case RMEM_IO_WRITE:
		valid &= io->bytes && io->bytes <= RMEM_OP_BYTES_MAX && !io->how;
		break;
	case RMEM_IO_ZERO:
		valid &= io->bytes && io->bytes <= RMEM_ZERO_BYTES_MAX && !io->how;
		break;
	case RMEM_IO_ATOMIC:
		valid &= io->how && io->how < RMEM_ATOMIC_OP_END &&
			 (io->bytes == 4 || io->bytes == 8 || io->bytes == 16);
		break;
	case RMEM_IO_PUT:
		valid &= io->bytes <= rmem_chr_put_bytes(mine->device) && io->how &&
			 io->how < RMEM_ATOMIC_OP_END && io->how != RMEM_IO_CAS &&
			 (io->integer_bytes == 4 || io->integer_bytes == 8);
		break;
	case RMEM_IO_READV:
	case RMEM_IO_WRITEV:
		valid &= io->bytes && !io->addr && !io->how &&
			 chr_op_vector_fits(mine, io);
		break;
	case RMEM_IO_COPY:
		valid &= io->bytes && io->bytes <= RMEM_COPY_BYTES_MAX && !io->how;
		break;
	case RMEM_IO_PUBLISH:
	case RMEM_IO_LOOKUP:
		valid &= io->bytes && io->bytes <= RMEM_NAME_BYTES && !io->how &&
			 (io->type == RMEM_IO_PUBLISH || !io->addr);
		break;
	case RMEM_IO_LIST:
		valid &= !io->bytes && !io->how;
		break;
	case RMEM_IO_FENCE:
		valid &= !io->bytes && !io->addr && !io->how;
		break;
	default:
		valid = false;
	}
	if (!valid)
		return -EINVAL;
	if (rmem_type_changes(chr_op_type(io->type)) && !(file->f_mode & FMODE_WRITE))
		return -EBADF;
	return 0;
}

/* ---- an op's life ---- */

void rmem_chr_op_free(struct chr_op *op)
{
	rmem_chr_data_release(op);
	mmdrop(op->mm);
	if (op->cmd)
		atomic_dec(&op->file->by_uring);
	kfree(op);
}

static void chr_op_set_operands(struct rmem_op *op, const struct rmem_io *io)
{
	if (op->type == RMEM_COPY)
		op->copy.from = io->from;
	else if (op->type == RMEM_PUT)
		op->put = (struct rmem_op_put){
			.addr = io->integer,
			.value = io->value[0],
			.bytes = io->integer_bytes,
			.op = io->how,
		};
	else
		op->atomic = (struct rmem_op_atomic){
			.value = { io->value[0], io->value[1] },
			.compare = { io->compare[0], io->compare[1] },
			.op = io->how,
		};
}

struct chr_op *rmem_chr_op_new(struct rmem_chr_file *file, const struct rmem_io *io,
			       const struct rmem_op_ops *ops, struct io_uring_cmd *cmd)
{
	bool fixed = cmd && (cmd->flags & IORING_URING_CMD_FIXED);
	struct chr_op *op;
	int err;

	if (cmd && atomic_read(&file->by_uring) >= RMEM_CHR_URING_MAX)
		return ERR_PTR(-EBUSY);
	op = kzalloc(sizeof(*op) + rmem_chr_data_room(io, fixed), GFP_KERNEL_ACCOUNT);
	if (!op)
		return ERR_PTR(-ENOMEM);
	if (cmd)
		atomic_inc(&file->by_uring);
	op->op.type = chr_op_type(io->type);
	op->op.ops = ops;
	op->op.addr = io->addr;
	op->op.len = io->bytes;
	chr_op_set_operands(&op->op, io);
	op->file = file;
	op->owner = cmd ? current->files : NULL;
	op->cookie = io->cookie;
	INIT_LIST_HEAD(&op->entry);
	op->cmd = cmd;
	op->user = io->data;
	op->mm = current->mm;
	mmgrab(op->mm);
	init_completion(&op->done);
	err = rmem_chr_data_take(op, io, fixed);
	if (err) {
		rmem_chr_op_free(op);
		return ERR_PTR(err);
	}
	return op;
}

/* Where it is found to be taken back, until it has ended. */
static void chr_op_list_add(struct chr_op *op)
{
	spin_lock_bh(&op->file->lock);
	op->number = ++op->file->begun;
	list_add_tail(&op->entry, &op->file->ops);
	spin_unlock_bh(&op->file->lock);
}

static void chr_op_list_remove(struct chr_op *op)
{
	struct rmem_chr_file *file = op->file;

	spin_lock_bh(&file->lock);
	list_del_init(&op->entry);
	spin_unlock_bh(&file->lock);
	if (wq_has_sleeper(&file->ended))
		wake_up(&file->ended);
}

/* The node has restarted since the file was opened. */
static bool chr_file_is_stale(const struct rmem_chr_file *file)
{
	return READ_ONCE(file->device->generation) != file->generation ||
	       READ_ONCE(file->device->state) == RMEM_DEVICE_LOST;
}

int rmem_chr_op_submit_by(struct chr_op *op, unsigned int channel)
{
	struct rmem_device *device = op->file->device;
	bool taken = false;

	op->channel = channel;
	chr_op_list_add(op);
	/* Channels go a grace period after the device was gone; one after LOST they begin anew. */
	rcu_read_lock();
	if (likely(!READ_ONCE(device->gone) && !chr_file_is_stale(op->file)))
		taken = rmem_channel_submit(device->channel[channel], &op->op, true);
	rcu_read_unlock();
	if (likely(taken))
		return 0;
	chr_op_list_remove(op);
	rmem_count(device, RMEM_COUNT_FAILED);
	if (READ_ONCE(device->gone))
		return -ENODEV;
	return chr_file_is_stale(op->file) ? -ESTALE : -ETIMEDOUT;
}

int rmem_chr_op_submit(struct chr_op *op)
{
	rmem_count_op(op->file->device, &op->op);
	return rmem_chr_op_submit_by(op, op->file->channel);
}

int rmem_chr_op_error(const struct chr_op *op)
{
	switch (op->result) {
	case RMEM_CLIENT_OK:
		return 0;
	case RMEM_CLIENT_LOST:
		return -ESTALE;
	case RMEM_CLIENT_TIMEOUT:
		return -ETIMEDOUT;
	case RMEM_CLIENT_UNKNOWN:
		return -ECONNRESET;
	case RMEM_CLIENT_CANCELLED:
		return op->taken_back ?: -ENODEV;
	case RMEM_CLIENT_REFUSED:
		break;
	}
	switch (op->op.status) {
	case RMEM_FAULT:
		return -EFAULT;
	case RMEM_PERM:
		return -EACCES;
	case RMEM_INVALID:
		return -EINVAL;
	case RMEM_NO_MEMORY:
		return -ENOSPC;
	case RMEM_EXISTS:
		return -EEXIST;
	case RMEM_NO_NAME:
		return -ENOENT;
	default:
		return -EIO;
	}
}

int rmem_chr_op_conclude(struct chr_op *op)
{
	int err = rmem_chr_op_error(op);
	__le64 found[2];

	if (!err && op->op.type == RMEM_ATOMIC && op->user) {
		found[0] = cpu_to_le64(op->op.atomic.found[0]);
		found[1] = cpu_to_le64(op->op.atomic.found[1]);
		if (copy_to_user(u64_to_user_ptr(op->user), found, sizeof(found)))
			err = -EFAULT;
	}
	if (!err)
		err = rmem_chr_data_give(op);
	rmem_chr_op_free(op);
	return err;
}

void rmem_chr_op_ended(struct chr_op *op, enum rmem_client_result result)
{
	if (unlikely(result != RMEM_CLIENT_OK))
		rmem_count(op->file->device, RMEM_COUNT_FAILED);
	op->result = result;
	chr_op_list_remove(op);
}

/* ---- cancelling ---- */

/* As long as rcu_read_lock() is held. NULL: the device is gone, and all ends. */
static struct rmem_channel *chr_op_device_channel(struct rmem_device *device, unsigned int channel)
{
	return READ_ONCE(device->gone) ? NULL : device->channel[channel];
}

void rmem_chr_op_take_back(struct chr_op *op, int error)
{
	struct rmem_channel *channel;

	rcu_read_lock();
	channel = chr_op_device_channel(op->file->device, op->channel);
	if (channel && rmem_channel_take_back(channel, &op->op)) {
		op->taken_back = error;
		rmem_channel_taken_back(channel, &op->op);
	}
	rcu_read_unlock();
}

static bool chr_op_is_meant(const struct chr_op *op, const struct rmem_chr_which *which)
{
	if (which->owner)
		return op->owner == which->owner;
	return which->cookie ? op->cookie == which->cookie : op->cookie;
}

/* The last one that is under way and is meant, of the first `begun` ones. */
static struct chr_op *chr_file_take_back(struct rmem_chr_file *file, struct rmem_channel *channel,
					 const struct rmem_chr_which *which, u64 begun)
	__must_hold(&file->lock)
{
	struct chr_op *op;

	lockdep_assert_held(&file->lock);
	list_for_each_entry_reverse(op, &file->ops, entry) {
		if (op->number <= begun && chr_op_is_meant(op, which) &&
		    rmem_channel_take_back(channel, &op->op))
			return op;
	}
	return NULL;
}

/* Cancels one op. False: none is left. */
static bool chr_file_cancel_one(struct rmem_chr_file *file, const struct rmem_chr_which *which,
				u64 begun)
{
	struct rmem_channel *channel;
	struct chr_op *op = NULL;

	rcu_read_lock();
	channel = chr_op_device_channel(file->device, file->channel);
	if (channel) {
		spin_lock_bh(&file->lock);
		op = chr_file_take_back(file, channel, which, begun);
		spin_unlock_bh(&file->lock);
	}
	if (op) {
		op->taken_back = -ECANCELED;
		/* Not under the lock, which is taken when an op ends. */
		rmem_channel_taken_back(channel, &op->op);
	}
	rcu_read_unlock();
	return op;
}

unsigned int rmem_chr_cancel(struct rmem_chr_file *file, const struct rmem_chr_which *which)
{
	unsigned int ops = 0;
	u64 begun;

	/* Without a bound the loop would not end while other threads submit, even by SIGKILL. */
	spin_lock_bh(&file->lock);
	begun = file->begun;
	spin_unlock_bh(&file->lock);
	while (chr_file_cancel_one(file, which, begun)) {
		ops++;
		cond_resched();
	}
	return ops;
}

static bool chr_file_has(struct rmem_chr_file *file, const struct rmem_chr_which *which)
{
	struct chr_op *op;
	bool has = false;

	spin_lock_bh(&file->lock);
	list_for_each_entry(op, &file->ops, entry) {
		has = chr_op_is_meant(op, which);
		if (has)
			break;
	}
	spin_unlock_bh(&file->lock);
	return has;
}

/*
 * A descriptor is closed; or all are, because the program ends. Then its operations in flight by
 * io_uring would keep its pages and the device: io_uring waits for them, and can't cancel them
 * before Linux 6.7.
 */
int rmem_chr_flush(struct file *opened, fl_owner_t owner)
{
	struct rmem_chr_file *file = opened->private_data;
	const struct rmem_chr_which which = { .owner = owner };

	if (!(current->flags & PF_EXITING))
		return 0;
	wait_event_timeout(file->ended, !chr_file_has(file, &which),
			   msecs_to_jiffies(RMEM_CHR_LINGER_MS));
	rmem_chr_cancel(file, &which);
	return 0;
}
