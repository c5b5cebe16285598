// SPDX-License-Identifier: GPL-2.0
/*
 * Operations of programs, by /dev/rmemN (include/uapi/remora_rmem_io.h).
 *
 *   io_uring: uring_cmd --+                                       +--> task work: answer, CQE
 *                         +--> chr_op --> the file's channel --> end
 *   ioctl: RMEM_IOC_IO ---+                                       +--> the waiting caller
 *
 * An op's end is told in the program's own context, for only there its memory can be reached.
 *
 * All ops of an open file go by one channel. So when a change was taken back, what the file asks
 * for later is sent in the channel's new session, and no copy of the change comes after it.
 *
 * An op is the channel's until it ends or is taken back, as a program that is killed does; where it
 * has no descriptor to do that by, the device's fail_after bounds the time.
 */
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "compat/compat.h"
#include "rmem/channel.h"
#include "rmem/chr_op.h"

#define ALLOC_TRIES 8
/* A program that ends: how long answers are waited for, as taking changes back costs a session. */
#define LINGER_MS 1000U
#define TIMEOUT_US_MAX BIT_ULL(50) /* as good as never */

static_assert(RMEM_IO_BYTES_MAX == RMEM_OP_BYTES_MAX);
static_assert(RMEM_IO_RANGES_MAX == RMEM_RANGES_MAX);
static_assert(RMEM_SWAP == (u8)RMEM_IO_SWAP && RMEM_CAS == (u8)RMEM_IO_CAS &&
	      RMEM_ADD == (u8)RMEM_IO_ADD && RMEM_AND == (u8)RMEM_IO_AND &&
	      RMEM_OR == (u8)RMEM_IO_OR && RMEM_XOR == (u8)RMEM_IO_XOR &&
	      RMEM_MIN == (u8)RMEM_IO_MIN && RMEM_MAX == (u8)RMEM_IO_MAX &&
	      RMEM_SMIN == (u8)RMEM_IO_SMIN && RMEM_SMAX == (u8)RMEM_IO_SMAX);
/* What an SQE of 128 bytes has room for. */
static_assert(sizeof(struct rmem_io) == 80);

/* ---- what is asked ---- */

static u8 op_type(u8 type)
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
	case RMEM_IO_FENCE:
		return RMEM_FENCE;
	default:
		return 0;
	}
}

static u32 file_put_bytes(const struct rmem_chr_file *file)
{
	return file->device->piece_bytes - sizeof(struct rmem_put);
}

static u32 file_vector_bytes(const struct rmem_chr_file *file)
{
	return file->device->piece_bytes;
}

static bool vector_fits(const struct rmem_chr_file *file, const struct rmem_io *io)
{
	u32 ranges_bytes = io->ranges * sizeof(struct rmem_range);
	u64 bytes = io->type == RMEM_IO_READV ? max(io->bytes, ranges_bytes)
					      : (u64)io->bytes + ranges_bytes;

	return io->ranges && io->ranges <= RMEM_IO_RANGES_MAX && bytes <= file_vector_bytes(file);
}

/* What the node would refuse, too, but for the memory it takes here. */
static int check(const struct file *file, const struct rmem_io *io)
{
	bool valid = io->type == RMEM_IO_PUT ||
		     (!io->integer && (rmem_chr_has_ranges(io) || !io->integer_bytes));

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
		valid &= io->bytes <= file_put_bytes(file->private_data) && io->how &&
			 io->how < RMEM_ATOMIC_OP_END && io->how != RMEM_IO_CAS &&
			 (io->integer_bytes == 4 || io->integer_bytes == 8);
		break;
	case RMEM_IO_READV:
	case RMEM_IO_WRITEV:
		valid &= io->bytes && !io->addr && !io->how &&
			 vector_fits(file->private_data, io);
		break;
	case RMEM_IO_FENCE:
		valid &= !io->bytes && !io->addr && !io->how;
		break;
	default:
		valid = false;
	}
	if (!valid)
		return -EINVAL;
	if (io->type != RMEM_IO_READ && io->type != RMEM_IO_READV && io->type != RMEM_IO_FENCE &&
	    !(file->f_mode & FMODE_WRITE))
		return -EBADF;
	return 0;
}

/* ---- an op's life ---- */

static void op_free(struct chr_op *op)
{
	rmem_chr_data_release(op);
	mmdrop(op->mm);
	kfree(op);
}

static void op_set_operands(struct rmem_op *op, const struct rmem_io *io)
{
	if (op->type == RMEM_PUT)
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

static struct chr_op *op_new(struct rmem_chr_file *file, const struct rmem_io *io,
			     struct io_uring_cmd *cmd)
{
	bool fixed = cmd && (cmd->flags & IORING_URING_CMD_FIXED);
	struct chr_op *op;
	int err;

	op = kzalloc(sizeof(*op) + rmem_chr_data_room(io, fixed), GFP_KERNEL);
	if (!op)
		return ERR_PTR(-ENOMEM);
	op->op.type = op_type(io->type);
	op->op.owner = RMEM_OWNER_CHR;
	op->op.addr = io->addr;
	op->op.len = io->bytes;
	op_set_operands(&op->op, io);
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
		op_free(op);
		return ERR_PTR(err);
	}
	return op;
}

/* Where it is found to be taken back, until it has ended. */
static void list_add_op(struct chr_op *op)
{
	spin_lock_bh(&op->file->lock);
	list_add_tail(&op->entry, &op->file->ops);
	spin_unlock_bh(&op->file->lock);
}

static void list_remove_op(struct chr_op *op)
{
	struct rmem_chr_file *file = op->file;

	spin_lock_bh(&file->lock);
	list_del_init(&op->entry);
	spin_unlock_bh(&file->lock);
	if (wq_has_sleeper(&file->ended))
		wake_up(&file->ended);
}

/* The node has restarted since the file was opened. */
static bool file_is_stale(const struct rmem_chr_file *file)
{
	return READ_ONCE(file->device->generation) != file->generation ||
	       READ_ONCE(file->device->state) == RMEM_DEVICE_LOST;
}

/* To the channel of that index. */
static int submit(struct chr_op *op, unsigned int channel)
{
	struct rmem_device *device = op->file->device;
	bool taken = false;

	op->channel = channel;
	list_add_op(op);
	/* Channels go a grace period after the device was gone; one after LOST they begin anew. */
	rcu_read_lock();
	if (likely(!READ_ONCE(device->gone) && !file_is_stale(op->file)))
		taken = rmem_channel_submit(device->channel[channel], &op->op, true);
	rcu_read_unlock();
	if (likely(taken))
		return 0;
	list_remove_op(op);
	rmem_count(device, RMEM_COUNT_FAILED);
	if (READ_ONCE(device->gone))
		return -ENODEV;
	return file_is_stale(op->file) ? -ESTALE : -ETIMEDOUT;
}

static int submit_io(struct chr_op *op)
{
	rmem_status_count_op(op->file->device, &op->op);
	return submit(op, op->file->channel);
}

static int error_of(const struct chr_op *op)
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
	default:
		return -EIO;
	}
}

/* The program's memory gets what is to be copied there; then the op is no more. */
static int conclude(struct chr_op *op)
{
	int err = error_of(op);
	__le64 found[2];

	if (!err && op->op.type == RMEM_ATOMIC && op->user) {
		found[0] = cpu_to_le64(op->op.atomic.found[0]);
		found[1] = cpu_to_le64(op->op.atomic.found[1]);
		if (copy_to_user(u64_to_user_ptr(op->user), found, sizeof(found)))
			err = -EFAULT;
	}
	if (!err)
		err = rmem_chr_data_give(op);
	op_free(op);
	return err;
}

/* ---- io_uring ---- */

struct chr_pdu {
	struct chr_op *op;
};

static struct chr_pdu *pdu_of(struct io_uring_cmd *cmd)
{
	static_assert(sizeof(struct chr_pdu) <= sizeof(cmd->pdu));
	return (struct chr_pdu *)cmd->pdu;
}

static struct workqueue_struct *concluders;

/* In a kernel thread, for the program's that asked has exited; as long as others of it live. */
static int conclude_elsewhere(struct chr_op *op)
{
	struct mm_struct *mm = op->mm;
	int err;

	if (!mmget_not_zero(mm)) {
		op_free(op);
		return -ECANCELED;
	}
	kthread_use_mm(mm);
	err = conclude(op);
	kthread_unuse_mm(mm);
	mmput(mm);
	return err;
}

static void conclude_later(struct work_struct *work)
{
	struct chr_op *op = container_of(work, struct chr_op, later);
	struct io_uring_cmd *cmd = op->cmd;

	io_uring_cmd_done(cmd, conclude_elsewhere(op), 0, IO_URING_F_UNLOCKED);
}

/*
 * The thread that asked; or, when that has exited, a kernel thread. Between the two it is a thread
 * that exits, and has no memory any more.
 */
static void uring_end(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct chr_op *op = pdu_of(cmd)->op;

	if (likely(current->mm == op->mm)) {
		io_uring_cmd_done(cmd, conclude(op), 0, issue_flags);
	} else if (current->flags & PF_KTHREAD) {
		io_uring_cmd_done(cmd, conclude_elsewhere(op), 0, issue_flags);
	} else {
		INIT_WORK(&op->later, conclude_later);
		queue_work(concluders, &op->later);
	}
}

void rmem_chr_finish(struct rmem_device *device, struct rmem_op *core,
		     enum rmem_client_result result)
{
	struct chr_op *op = container_of(core, struct chr_op, op);

	if (unlikely(result != RMEM_CLIENT_OK))
		rmem_count(device, RMEM_COUNT_FAILED);
	op->result = result;
	list_remove_op(op);
	if (op->cmd)
		io_uring_cmd_complete_in_task(op->cmd, uring_end);
	else
		complete(&op->done);
}

int rmem_chr_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct rmem_io io;
	struct chr_op *op;
	int err;

	if (cmd->cmd_op != RMEM_IO_URING)
		return -ENOTTY;
	if (!(issue_flags & IO_URING_F_SQE128))
		return -EINVAL;
	/* The program may change it meanwhile. */
	memcpy(&io, compat_uring_cmd_data(cmd), sizeof(io));
	if (io.timeout_us)
		return -EINVAL;
	if (rmem_chr_has_ranges(&io) && (cmd->flags & IORING_URING_CMD_FIXED))
		return -EINVAL;
	err = check(cmd->file, &io);
	if (err)
		return err;
	op = op_new(cmd->file->private_data, &io, cmd);
	if (IS_ERR(op))
		return PTR_ERR(op);
	pdu_of(cmd)->op = op;
	err = submit_io(op);
	if (err) {
		op_free(op);
		return err;
	}
	return -EIOCBQUEUED;
}

/* ---- what is taken back ---- */

/* As long as rcu_read_lock() is held. NULL: the device is gone, and all ends. */
static struct rmem_channel *device_channel(struct rmem_device *device, unsigned int channel)
{
	return READ_ONCE(device->gone) ? NULL : device->channel[channel];
}

/* The op can't go meanwhile. It ends as error, but if it has ended already, or is about to. */
static void op_take_back(struct chr_op *op, int error)
{
	struct rmem_channel *channel;
	struct rmem_op *unknown;

	rcu_read_lock();
	channel = device_channel(op->file->device, op->channel);
	if (channel && rmem_channel_take_back(channel, &op->op, &unknown)) {
		op->taken_back = error;
		rmem_channel_taken_back(channel, &op->op, unknown);
	}
	rcu_read_unlock();
}

/* Which of a file's ops. */
struct which {
	fl_owner_t owner; /* those of a program that ends; or NULL: */
	u64 cookie;	  /* those that have it; 0: that have any */
};

static bool is_meant(const struct chr_op *op, const struct which *which)
{
	if (which->owner)
		return op->owner == which->owner;
	return which->cookie ? op->cookie == which->cookie : op->cookie;
}

/* The last one that is under way and is meant. */
static struct chr_op *file_take_back(struct rmem_chr_file *file, struct rmem_channel *channel,
				     const struct which *which, struct rmem_op **unknown)
	__must_hold(&file->lock)
{
	struct chr_op *op;

	list_for_each_entry_reverse(op, &file->ops, entry) {
		if (is_meant(op, which) && rmem_channel_take_back(channel, &op->op, unknown))
			return op;
	}
	return NULL;
}

/* False: there is none. */
static bool file_cancel_one(struct rmem_chr_file *file, const struct which *which)
{
	struct rmem_channel *channel;
	struct rmem_op *unknown;
	struct chr_op *op = NULL;

	rcu_read_lock();
	channel = device_channel(file->device, file->channel);
	if (channel) {
		spin_lock_bh(&file->lock);
		op = file_take_back(file, channel, which, &unknown);
		spin_unlock_bh(&file->lock);
	}
	if (op) {
		op->taken_back = -ECANCELED;
		/* Not under the lock, which is taken when an op ends. */
		rmem_channel_taken_back(channel, &op->op, unknown);
	}
	rcu_read_unlock();
	return op;
}

/* How many there were. */
static unsigned int file_cancel(struct rmem_chr_file *file, const struct which *which)
{
	unsigned int ops = 0;

	while (file_cancel_one(file, which)) {
		ops++;
		cond_resched();
	}
	return ops;
}

static bool file_has(struct rmem_chr_file *file, const struct which *which)
{
	struct chr_op *op;
	bool has = false;

	spin_lock_bh(&file->lock);
	list_for_each_entry(op, &file->ops, entry) {
		has = is_meant(op, which);
		if (has)
			break;
	}
	spin_unlock_bh(&file->lock);
	return has;
}

/*
 * A descriptor is closed; or all are, for a program ends. What that has under way by io_uring
 * would keep its pages and the device until it ends: a worker waits for it there, which can't take
 * anything back before Linux 6.7.
 */
int rmem_chr_flush(struct file *opened, fl_owner_t owner)
{
	struct rmem_chr_file *file = opened->private_data;
	const struct which which = { .owner = owner };

	if (!(current->flags & PF_EXITING))
		return 0;
	wait_event_timeout(file->ended, !file_has(file, &which), msecs_to_jiffies(LINGER_MS));
	file_cancel(file, &which);
	return 0;
}

/* ---- ioctl ---- */

/* Its end; when the time is up or the program is killed it is taken back. */
static void wait_op(struct chr_op *op, u64 timeout_us)
{
	unsigned long timeout = MAX_SCHEDULE_TIMEOUT;
	long left;

	if (timeout_us && timeout_us < TIMEOUT_US_MAX)
		timeout = nsecs_to_jiffies(timeout_us * NSEC_PER_USEC) + 1;
	left = wait_for_completion_killable_timeout(&op->done, timeout);
	if (left > 0)
		return;
	op_take_back(op, left ? -ECANCELED : -ETIMEDOUT);
	wait_for_completion(&op->done);
}

static long ioctl_io(struct file *file, const void __user *arg)
{
	struct rmem_io io;
	struct chr_op *op;
	int err;

	if (copy_from_user(&io, arg, sizeof(io)))
		return -EFAULT;
	err = check(file, &io);
	if (err)
		return err;
	op = op_new(file->private_data, &io, NULL);
	if (IS_ERR(op))
		return PTR_ERR(op);
	err = submit_io(op);
	if (err) {
		op_free(op);
		return err;
	}
	wait_op(op, io.timeout_us);
	return conclude(op);
}

/* The op is used for one after the other, so that nothing is wanting between them. */
static int call_begin(struct chr_op *op, u8 type, u64 addr, u32 bytes, unsigned int channel)
{
	op->op.type = type;
	op->op.addr = addr;
	op->op.len = bytes;
	reinit_completion(&op->done);
	return submit(op, channel);
}

static int call(struct chr_op *op, u8 type, u64 addr, u32 bytes, unsigned int channel)
{
	int err = call_begin(op, type, addr, bytes, channel);

	if (err)
		return err;
	wait_op(op, 0);
	return error_of(op);
}

/*
 * The channel for ALLOCs has one op at a time: the next one's floor is then above its id, which is
 * how the node learns of an ALLOC's receipt.
 */
static unsigned int calls_channel(const struct rmem_chr_file *file)
	__must_hold(&file->device->calls)
{
	return file->device->queues;
}

static int call_alloc(struct chr_op *op, struct rmem_io_alloc *io)
{
	int err;

	op->op.alloc = (struct rmem_op_alloc){
		.bytes = io->bytes,
		.addr = io->addr,
		.perm = io->perm,
	};
	err = call(op, RMEM_ALLOC, 0, 0, calls_channel(op->file));
	if (!err) {
		io->addr = op->op.range.addr;
		io->bytes = op->op.range.bytes;
	}
	return err;
}

static void set_range(struct chr_op *op, u64 addr, u64 bytes)
{
	op->op.range = (struct rmem_op_range){ .addr = addr, .bytes = bytes };
}

/*
 * Nobody will ever know where it is. Who was killed doesn't wait long for the answer; where no FREE
 * arrives, the session that made the region ends with this one's being taken back, and undoes it.
 */
static void call_undo(struct chr_op *op, const struct rmem_io_alloc *io)
{
	set_range(op, io->addr, io->bytes);
	if (call_begin(op, RMEM_FREE, 0, 0, calls_channel(op->file)) ||
	    wait_for_completion_timeout(&op->done, msecs_to_jiffies(LINGER_MS)))
		return;
	op_take_back(op, -ECANCELED);
	wait_for_completion(&op->done);
}

/* A region is its asker's when a READ has told the node that he knows of it, and he does. */
static int alloc_region(struct chr_op *op, const struct rmem_io_alloc *wish, void __user *arg)
{
	struct rmem_io_alloc io;
	unsigned int tries = 0;
	int err;

	do {
		io = *wish;
		err = call_alloc(op, &io);
		if (err)
			return err == -EFAULT ? -EAGAIN : err;
		err = call(op, RMEM_READ, io.addr, 1, calls_channel(op->file));
		/* The session ended before the node knew; the region went with it. */
	} while (err == -EFAULT && ++tries < ALLOC_TRIES);
	if (err == -EFAULT)
		return -EAGAIN;
	if (!err && copy_to_user(arg, &io, sizeof(io)))
		err = -EFAULT;
	if (err)
		call_undo(op, &io);
	return err;
}

static long ioctl_alloc(struct file *opened, void __user *arg)
{
	const struct rmem_io byte = { .type = RMEM_IO_READ, .bytes = 1 };
	struct rmem_chr_file *file = opened->private_data;
	struct rmem_io_alloc wish;
	struct chr_op *op;
	int err = -EINTR;

	if (!(opened->f_mode & FMODE_WRITE))
		return -EBADF;
	if (copy_from_user(&wish, arg, sizeof(wish)))
		return -EFAULT;
	if (wish.reserved)
		return -EINVAL;
	op = op_new(file, &byte, NULL);
	if (IS_ERR(op))
		return PTR_ERR(op);
	if (!mutex_lock_killable(&file->device->calls)) {
		err = alloc_region(op, &wish, arg);
		mutex_unlock(&file->device->calls);
	}
	op_free(op);
	return err;
}

/* By the file's own channel: no copy of a change it took back comes after this. */
static int call_free(struct rmem_chr_file *file, const struct rmem_io_range *io)
{
	const struct rmem_io nothing = { .type = RMEM_IO_FENCE };
	struct chr_op *op = op_new(file, &nothing, NULL);
	int err;

	if (IS_ERR(op))
		return PTR_ERR(op);
	set_range(op, io->addr, io->bytes);
	err = call(op, RMEM_FREE, 0, 0, file->channel);
	/* Executed before, and the answer was lost with the session. */
	if (err == -EFAULT && op->op.attempt)
		err = 0;
	op_free(op);
	return err;
}

static long ioctl_free(struct file *file, const void __user *arg)
{
	struct rmem_io_range io;

	if (!(file->f_mode & FMODE_WRITE))
		return -EBADF;
	if (copy_from_user(&io, arg, sizeof(io)))
		return -EFAULT;
	return call_free(file->private_data, &io);
}

static long ioctl_cancel(struct rmem_chr_file *file, const void __user *arg)
{
	struct which which = {};

	if (copy_from_user(&which.cookie, arg, sizeof(which.cookie)))
		return -EFAULT;
	return file_cancel(file, &which);
}

static long ioctl_info(const struct rmem_chr_file *file, void __user *arg)
{
	const struct rmem_device *device = file->device;
	struct rmem_io_info info = {
		.memory_bytes = device->memory_bytes,
		.page_bytes = device->page_bytes,
		.piece_bytes = device->piece_bytes,
		.space = device->wish.space,
		.fail_after_ms = device->wish.fail_after_ms,
		.put_bytes = file_put_bytes(file),
		.vector_bytes = file_vector_bytes(file),
	};

	return copy_to_user(arg, &info, sizeof(info)) ? -EFAULT : 0;
}

long rmem_chr_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	void __user *user = (void __user *)arg;

	switch (cmd) {
	case RMEM_IOC_IO:
		return ioctl_io(file, user);
	case RMEM_IOC_ALLOC:
		return ioctl_alloc(file, user);
	case RMEM_IOC_FREE:
		return ioctl_free(file, user);
	case RMEM_IOC_CANCEL:
		return ioctl_cancel(file->private_data, user);
	case RMEM_IOC_INFO:
		return ioctl_info(file->private_data, user);
	default:
		return -ENOTTY;
	}
}

int rmem_chr_op_start(void)
{
	concluders = alloc_workqueue("rmem_chr", WQ_UNBOUND, 0);
	return concluders ? 0 : -ENOMEM;
}

/* The last one that was concluded let the module go, but may not have returned. */
void rmem_chr_op_stop(void)
{
	destroy_workqueue(concluders);
}
