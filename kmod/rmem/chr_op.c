// SPDX-License-Identifier: GPL-2.0
/*
 * Operations of programs, by /dev/rmemN (include/uapi/remora_rmem_io.h).
 *
 *   io_uring: uring_cmd --+                                       +--> task work: answer, CQE
 *                         +--> chr_op --> the file's channel --> end
 *   ioctl: RMEM_IOC_IO ---+                                       +--> the waiting caller
 *
 * The data of an op is where the program has it: its pages are pinned for as long, or were
 * when the buffer was registered, and packets refer to them. Little data is copied
 * instead, which costs less than pinning. An op's end is told in the program's own
 * context, for only there its memory can be reached.
 *
 * All ops of an open file go by one channel. So when a change was taken back, what the file asks
 * for later is sent in the channel's new session, and no copy of the change comes after it.
 *
 * An op is the channel's until it ends or is taken back, whatever becomes of the program. So a
 * device has a fail_after, which bounds how long a program that was killed lives on.
 */
#include <linux/bvec.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "compat/compat.h"
#include "rmem/channel.h"
#include "uapi/remora_rmem_io.h"

#define COPY_BYTES 512U
#define ALLOC_TRIES 8
#define TIMEOUT_US_MAX BIT_ULL(50) /* as good as never */
#define PAGES_MAX  (RMEM_OP_BYTES_MAX / PAGE_SIZE + 1)

static_assert(RMEM_IO_BYTES_MAX == RMEM_OP_BYTES_MAX);
static_assert(RMEM_SWAP == (u8)RMEM_IO_SWAP && RMEM_CAS == (u8)RMEM_IO_CAS &&
	      RMEM_ADD == (u8)RMEM_IO_ADD && RMEM_AND == (u8)RMEM_IO_AND &&
	      RMEM_OR == (u8)RMEM_IO_OR && RMEM_XOR == (u8)RMEM_IO_XOR &&
	      RMEM_MIN == (u8)RMEM_IO_MIN && RMEM_MAX == (u8)RMEM_IO_MAX &&
	      RMEM_SMIN == (u8)RMEM_IO_SMIN && RMEM_SMAX == (u8)RMEM_IO_SMAX);
/* What an SQE of 128 bytes has room for. */
static_assert(sizeof(struct rmem_io) == 80);

struct chr_op {
	struct rmem_op op; /* first: the channels know that only */
	struct rmem_chr_data data;
	struct io_uring_cmd *cmd; /* or NULL: done is waited for */
	struct completion done;
	enum rmem_client_result result;
	struct rmem_chr_file *file; /* its own holds it */
	struct list_head entry;	    /* of the file's, if it has a cookie */
	u64 cookie;
	int taken_back;	    /* -ECANCELED, -ETIMEDOUT: how it ends then */
	u64 user;	    /* where the answer goes */
	u8 *copy;	    /* of data; or NULL */
	struct mm_struct *mm;
	unsigned int pinned; /* pages */
	struct bio_vec own[]; /* of pinned pages, or of the copy, which lies behind it */
};

const struct rmem_chr_data *rmem_chr_data(const struct rmem_op *op)
{
	return &container_of(op, struct chr_op, op)->data;
}

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
	case RMEM_IO_FENCE:
		return RMEM_FENCE;
	default:
		return 0;
	}
}

static bool has_data(const struct rmem_io *io)
{
	return io->type == RMEM_IO_READ || io->type == RMEM_IO_WRITE ||
	       (io->type == RMEM_IO_PUT && io->bytes);
}

static u32 file_put_bytes(const struct rmem_chr_file *file)
{
	return file->device->piece_bytes - sizeof(struct rmem_put);
}

/* What the node would refuse, too, but for the memory it takes here. */
static int check(const struct file *file, const struct rmem_io *io)
{
	bool valid = io->type == RMEM_IO_PUT || (!io->integer_bytes && !io->integer);

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
	case RMEM_IO_FENCE:
		valid &= !io->bytes && !io->addr && !io->how;
		break;
	default:
		valid = false;
	}
	if (!valid)
		return -EINVAL;
	if (io->type != RMEM_IO_READ && io->type != RMEM_IO_FENCE && !(file->f_mode & FMODE_WRITE))
		return -EBADF;
	return 0;
}

/* ---- an op's data ---- */

static void data_set(struct chr_op *op, const struct bio_vec *bvec, u32 done_bytes)
{
	op->data.bvec = bvec;
	op->data.iter = (struct bvec_iter){
		.bi_size = op->op.len,
		.bi_bvec_done = done_bytes,
	};
}

static int data_copy(struct chr_op *op)
{
	op->copy = (u8 *)&op->own[1];
	if (op->op.type != RMEM_READ &&
	    copy_from_user(op->copy, u64_to_user_ptr(op->user), op->op.len))
		return -EFAULT;
	bvec_set_page(&op->own[0], virt_to_page(op->copy), op->op.len, offset_in_page(op->copy));
	data_set(op, op->own, 0);
	return 0;
}

static int data_pin(struct chr_op *op, unsigned int pages)
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
	data_set(op, op->own, offset);
	return 0;
}

static int data_import(struct chr_op *op)
{
	struct iov_iter iter;
	int rw = op->op.type == RMEM_READ ? READ : WRITE;
	int err = io_uring_cmd_import_fixed(op->user, op->op.len, rw, &iter, op->cmd);

	if (err)
		return err;
	data_set(op, iter.bvec, iter.iov_offset);
	return 0;
}

/* Process context. */
static void data_release(struct chr_op *op)
{
	unsigned int i;

	for (i = 0; i < op->pinned; i++) {
		if (op->op.type == RMEM_READ)
			set_page_dirty_lock(op->own[i].bv_page);
		unpin_user_page(op->own[i].bv_page);
	}
}

/* ---- an op's life ---- */

static void op_free(struct chr_op *op)
{
	data_release(op);
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
	bool fixed = cmd && (cmd->flags & IORING_URING_CMD_FIXED) && has_data(io);
	bool copied = has_data(io) && !fixed && io->bytes <= COPY_BYTES;
	unsigned int pages = 0;
	struct chr_op *op;
	size_t bytes = 0;
	int err = 0;

	if (copied) {
		bytes = sizeof(op->own[0]) + io->bytes;
	} else if (has_data(io) && !fixed) {
		pages = DIV_ROUND_UP(offset_in_page(io->data) + io->bytes, PAGE_SIZE);
		bytes = pages * sizeof(op->own[0]);
	}
	op = kzalloc(sizeof(*op) + bytes, GFP_KERNEL);
	if (!op)
		return ERR_PTR(-ENOMEM);
	op->op.type = op_type(io->type);
	op->op.owner = RMEM_OWNER_CHR;
	op->op.addr = io->addr;
	op->op.len = io->bytes;
	op_set_operands(&op->op, io);
	op->file = file;
	op->cookie = io->cookie;
	INIT_LIST_HEAD(&op->entry);
	op->cmd = cmd;
	op->user = io->data;
	op->mm = current->mm;
	mmgrab(op->mm);
	init_completion(&op->done);
	if (fixed)
		err = data_import(op);
	else if (copied)
		err = data_copy(op);
	else if (pages)
		err = data_pin(op, pages);
	if (err) {
		op_free(op);
		return ERR_PTR(err);
	}
	return op;
}

/* Where CANCEL finds it, until it has ended. */
static void list_add_op(struct chr_op *op)
{
	if (!op->cookie)
		return;
	spin_lock_bh(&op->file->lock);
	list_add_tail(&op->entry, &op->file->ops);
	spin_unlock_bh(&op->file->lock);
}

static void list_remove_op(struct chr_op *op)
{
	if (!op->cookie)
		return;
	spin_lock_bh(&op->file->lock);
	list_del_init(&op->entry);
	spin_unlock_bh(&op->file->lock);
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
	if (!err && op->op.type == RMEM_READ && op->copy &&
	    copy_to_user(u64_to_user_ptr(op->user), op->copy, op->op.len))
		err = -EFAULT;
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

/* The thread that asked has exited: a kernel thread stands in for it, as long as others live. */
static int conclude_elsewhere(struct chr_op *op)
{
	struct mm_struct *mm = op->mm;
	int err;

	if (!(current->flags & PF_KTHREAD) || !mmget_not_zero(mm)) {
		op_free(op);
		return -ECANCELED;
	}
	kthread_use_mm(mm);
	err = conclude(op);
	kthread_unuse_mm(mm);
	mmput(mm);
	return err;
}

static void uring_end(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct chr_op *op = pdu_of(cmd)->op;
	int err = likely(current->mm == op->mm) ? conclude(op) : conclude_elsewhere(op);

	io_uring_cmd_done(cmd, err, 0, issue_flags);
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
static struct rmem_channel *file_channel(const struct rmem_chr_file *file)
{
	struct rmem_device *device = file->device;

	return READ_ONCE(device->gone) ? NULL : device->channel[file->channel];
}

/* The op can't go meanwhile. It ends as error, but if it has ended already, or is about to. */
static void op_take_back(struct chr_op *op, int error)
{
	struct rmem_channel *channel;
	struct rmem_op *unknown;

	rcu_read_lock();
	channel = file_channel(op->file);
	if (channel && rmem_channel_take_back(channel, &op->op, &unknown)) {
		op->taken_back = error;
		rmem_channel_taken_back(channel, &op->op, unknown);
	}
	rcu_read_unlock();
}

/* The last one that is under way and has that cookie, or any. */
static struct chr_op *file_take_back(struct rmem_chr_file *file, struct rmem_channel *channel,
				     u64 cookie, struct rmem_op **unknown) __must_hold(&file->lock)
{
	struct chr_op *op;

	list_for_each_entry_reverse(op, &file->ops, entry) {
		if ((!cookie || op->cookie == cookie) &&
		    rmem_channel_take_back(channel, &op->op, unknown))
			return op;
	}
	return NULL;
}

/* False: there is none. */
static bool file_cancel_one(struct rmem_chr_file *file, u64 cookie)
{
	struct rmem_channel *channel;
	struct rmem_op *unknown;
	struct chr_op *op = NULL;

	rcu_read_lock();
	channel = file_channel(file);
	if (channel) {
		spin_lock_bh(&file->lock);
		op = file_take_back(file, channel, cookie, &unknown);
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

/* The op's end is waited for; bounded by fail_after. */
static int call(struct chr_op *op, unsigned int channel)
{
	int err = submit(op, channel);

	if (err)
		return err;
	wait_for_completion(&op->done);
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

static int call_alloc(struct rmem_chr_file *file, struct rmem_io_alloc *io)
{
	const struct rmem_io nothing = { .type = RMEM_IO_FENCE };
	struct chr_op *op = op_new(file, &nothing, NULL);
	int err;

	if (IS_ERR(op))
		return PTR_ERR(op);
	op->op.type = RMEM_ALLOC;
	op->op.alloc = (struct rmem_op_alloc){
		.bytes = io->bytes,
		.addr = io->addr,
		.perm = io->perm,
	};
	err = call(op, calls_channel(file));
	if (!err) {
		io->addr = op->op.range.addr;
		io->bytes = op->op.range.bytes;
	}
	op_free(op);
	return err;
}

/* -EFAULT: the session ended before the node knew that we know; the region went with it. */
static int call_confirm(struct rmem_chr_file *file, u64 addr)
{
	const struct rmem_io byte = { .type = RMEM_IO_READ, .bytes = 1, .addr = addr };
	struct chr_op *op = op_new(file, &byte, NULL);
	int err;

	if (IS_ERR(op))
		return PTR_ERR(op);
	err = call(op, calls_channel(file));
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
	op->op.type = RMEM_FREE;
	op->op.range = (struct rmem_op_range){ .addr = io->addr, .bytes = io->bytes };
	err = call(op, file->channel);
	/* Executed before, and the answer was lost with the session. */
	if (err == -EFAULT && op->op.attempt)
		err = 0;
	op_free(op);
	return err;
}

static long ioctl_alloc(struct file *opened, void __user *arg)
{
	struct rmem_chr_file *file = opened->private_data;
	struct rmem_device *device = file->device;
	struct rmem_io_alloc wish, io;
	unsigned int tries = 0;
	int err;

	if (!(opened->f_mode & FMODE_WRITE))
		return -EBADF;
	if (copy_from_user(&wish, arg, sizeof(wish)))
		return -EFAULT;
	if (wish.reserved)
		return -EINVAL;
	if (mutex_lock_killable(&device->calls))
		return -EINTR;
	do {
		io = wish;
		err = call_alloc(file, &io);
		if (!err)
			err = call_confirm(file, io.addr);
	} while (err == -EFAULT && ++tries < ALLOC_TRIES);
	mutex_unlock(&device->calls);
	if (err)
		return err == -EFAULT ? -EAGAIN : err;
	if (!copy_to_user(arg, &io, sizeof(io)))
		return 0;
	/* Nobody would ever know where it is. */
	call_free(file, &(struct rmem_io_range){ .addr = io.addr, .bytes = io.bytes });
	return -EFAULT;
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
	unsigned int ops = 0;
	u64 cookie;

	if (copy_from_user(&cookie, arg, sizeof(cookie)))
		return -EFAULT;
	while (file_cancel_one(file, cookie)) {
		ops++;
		cond_resched();
	}
	return ops;
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
