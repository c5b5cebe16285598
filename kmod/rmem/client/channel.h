/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One hardware queue's way to the node: a session (core/rmem/client/client.h), its lock, timer
 * and path (rmem_ops.h).
 *
 *   rmem_channel_submit() --> [ core ] --next--> add, flush --> path --> node
 *                    timer --> [ core ]
 *   op->ops->end <----------- [ core ] <-- receive, copy <----- path
 *
 * All of it in the caller's context: process or softirq, never a work queue. Messages to
 * send and ops that ended are collected under the lock and dealt with after it.
 */
#ifndef REMORA_RMEM_CHANNEL_H
#define REMORA_RMEM_CHANNEL_H

#include <linux/completion.h>

#include "rmem/client/types.h"

/* The machine's window of answers asked for. */
extern struct rmem_incast rmem_channel_incast;

/* An op of our own, waited for. */
struct rmem_call {
	struct rmem_op op;
	struct completion done;
	enum rmem_client_result result;
};

/* Opens the path only. */
struct rmem_channel *rmem_channel_new(struct rmem_device *device, unsigned int index);
/*
 * Start opening the session. boot: of the region, or 0. When the node has restarted it's done
 * again, as another client; then no ops are left, and none is submitted meanwhile.
 */
void rmem_channel_open(struct rmem_channel *channel, u64 boot);

/*
 * The end, in this order for all channels of a device. stop: ops finish as CANCELLED; then
 * a grace period (synchronize_net()); free.
 */
void rmem_channel_stop(struct rmem_channel *channel);
void rmem_channel_free(struct rmem_channel *channel);

/*
 * false: the channel takes no ops now. Unless it's the last of several, the op needn't leave before
 * rmem_channel_commit(). Process context or softirq.
 */
bool rmem_channel_submit(struct rmem_channel *channel, struct rmem_op *op, bool last);
void rmem_channel_commit(struct rmem_channel *channel);

/* This machine's memory was rolled back: the channel is LOST, and so are its ops. */
void rmem_channel_rolled_back(struct rmem_channel *channel);
/* Ops finish so: as CANCELLED or LOST. */
void rmem_channel_cancel(struct rmem_channel *channel, enum rmem_client_result result);
/*
 * Takes one op from the channel, as rmem_client_cancel() does. False: it has ended, or wasn't
 * submitted. On true the caller must call taken_back(), after it dropped the locks that the op's
 * ops->end takes.
 */
bool rmem_channel_take_back(struct rmem_channel *channel, struct rmem_op *op);
void rmem_channel_taken_back(struct rmem_channel *channel, struct rmem_op *op);
/* End the session; device->changed tells when it is CLOSED. No ops are left. */
void rmem_channel_close(struct rmem_channel *channel);

/*
 * One op, waited for. 0: it ended, see call->result. -ETIMEDOUT: it was cancelled, but might have
 * been executed.
 */
int rmem_channel_call(struct rmem_channel *channel, struct rmem_call *call,
		      unsigned int timeout_ms);

#endif
