// SPDX-License-Identifier: GPL-2.0
/*
 * Operations by io_uring: a command begins one, its completion is the operation's end.
 */
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched/mm.h>

#include "compat/compat.h"
#include "rmem/client/chr_data.h"
#include "rmem/client/chr_op.h"
#include "rmem/client/chr_uring.h"

struct chr_pdu {
	struct chr_op *op;
};

static struct chr_pdu *chr_uring_pdu_of(struct io_uring_cmd *cmd)
{
	static_assert(sizeof(struct chr_pdu) <= sizeof(cmd->pdu));
	return (struct chr_pdu *)cmd->pdu;
}

static struct workqueue_struct *concluders;

/* In a kernel thread, since the thread that asked has exited. Fails if its whole program has. */
static int chr_uring_conclude_elsewhere(struct chr_op *op)
{
	struct mm_struct *mm = op->mm;
	int err;

	if (!mmget_not_zero(mm)) {
		rmem_chr_op_free(op);
		return -ECANCELED;
	}
	kthread_use_mm(mm);
	err = rmem_chr_op_conclude(op);
	kthread_unuse_mm(mm);
	mmput(mm);
	return err;
}

static void chr_uring_conclude_later(struct work_struct *work)
{
	struct chr_op *op = container_of(work, struct chr_op, later);
	struct io_uring_cmd *cmd = op->cmd;

	io_uring_cmd_done(cmd, chr_uring_conclude_elsewhere(op), 0, IO_URING_F_UNLOCKED);
}

/*
 * The thread that asked; or, when that has exited, a kernel thread. Between the two it is a thread
 * that exits, and has no memory any more.
 */
static void chr_uring_end(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct chr_op *op = chr_uring_pdu_of(cmd)->op;

	if (likely(current->mm == op->mm)) {
		io_uring_cmd_done(cmd, rmem_chr_op_conclude(op), 0, issue_flags);
	} else if (current->flags & PF_KTHREAD) {
		io_uring_cmd_done(cmd, chr_uring_conclude_elsewhere(op), 0, issue_flags);
	} else {
		INIT_WORK(&op->later, chr_uring_conclude_later);
		queue_work(concluders, &op->later);
	}
}

static void chr_uring_op_end(struct rmem_op *core, enum rmem_client_result result)
{
	struct chr_op *op = container_of(core, struct chr_op, op);

	rmem_chr_op_ended(op, result);
	io_uring_cmd_complete_in_task(op->cmd, chr_uring_end);
}

static const struct rmem_op_ops uring_op_ops = { .walk = rmem_chr_walk, .end = chr_uring_op_end };

int rmem_chr_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct rmem_io io;
	struct chr_op *op;
	int err;

	if (cmd->cmd_op != RMEM_IO_URING)
		return -ENOTTY;
	if (!(issue_flags & IO_URING_F_SQE128))
		return -EINVAL;
	/* The program can change it meanwhile. */
	memcpy(&io, compat_uring_cmd_data(cmd), sizeof(io));
	if (io.timeout_us)
		return -EINVAL;
	if ((rmem_chr_has_ranges(&io) || rmem_chr_has_name(&io)) &&
	    (cmd->flags & IORING_URING_CMD_FIXED))
		return -EINVAL;
	err = rmem_chr_op_check(cmd->file, &io);
	if (err)
		return err;
	op = rmem_chr_op_new(cmd->file->private_data, &io, &uring_op_ops, cmd);
	if (IS_ERR(op))
		return PTR_ERR(op);
	chr_uring_pdu_of(cmd)->op = op;
	err = rmem_chr_op_submit(op);
	if (err) {
		rmem_chr_op_free(op);
		return err;
	}
	return -EIOCBQUEUED;
}

int rmem_chr_uring_start(void)
{
	concluders = alloc_workqueue("rmem_chr", WQ_UNBOUND, 0);
	return concluders ? 0 : -ENOMEM;
}

/* The last one that was concluded let the module go, but might not have returned. */
void rmem_chr_uring_stop(void)
{
	destroy_workqueue(concluders);
}
