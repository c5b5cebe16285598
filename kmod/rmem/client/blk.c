// SPDX-License-Identifier: GPL-2.0
/*
 * The disk: a request is an op, which lies in the request's own memory and goes to the
 * channel of its hardware queue; when that is done with it, the request ends.
 *
 * blk_queue_rq() always takes the request. One that can't be sent yet (windows closed, no session,
 * no memory for a packet) waits in the channel, which is woken by released credit, an answer or its
 * timer.
 *
 * There is no cache to flush: a write has ended when it is in the node's memory.
 *
 * How an op's end is told:
 *   LOST       EIO. The content is gone, no retry brings it back.
 *   TIMEOUT    ENOLINK, a path's error: the content is there once the node answers again.
 *   REFUSED    EREMOTEIO: the node's own word, the same on any path.
 *   CANCELLED  EIO, the device was forced off; or a write of swap's isn't needed (reserve.h).
 */
#include <linux/module.h>

#include "compat/compat.h"
#include "rmem/client/blk.h"
#include "rmem/client/channel.h"
#include "rmem/client/count.h"
#include "rmem/client/device.h"
#include "rmem/client/reserve.h"
#include "rmem/client/status.h"

#define SEGMENTS_MAX 128

static u8 blk_op_type(const struct request *rq)
{
	switch (req_op(rq)) {
	case REQ_OP_READ:
		return RMEM_READ;
	case REQ_OP_WRITE:
		return RMEM_WRITE;
	case REQ_OP_DISCARD:
		return RMEM_DISCARD;
	case REQ_OP_WRITE_ZEROES:
		return RMEM_ZERO;
	default:
		return 0;
	}
}

static const struct rmem_op_ops blk_op_ops;

static blk_status_t blk_queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *bd)
{
	struct rmem_channel *channel = hctx->driver_data;
	struct rmem_device *device = channel->device;
	struct request *rq = bd->rq;
	struct rmem_op *op = blk_mq_rq_to_pdu(rq);

	blk_mq_start_request(rq);
	op->type = blk_op_type(rq);
	if (unlikely(!op->type))
		return BLK_STS_NOTSUPP;
	op->addr = device->addr + ((u64)blk_rq_pos(rq) << SECTOR_SHIFT);
	op->len = blk_rq_bytes(rq);
	op->ops = &blk_op_ops;
	rmem_count_op(device, op);
	if (likely(READ_ONCE(device->state) != RMEM_DEVICE_LOST &&
		   rmem_channel_submit(channel, op, bd->last)))
		return BLK_STS_OK;
	rmem_count(device, RMEM_COUNT_FAILED);
	return atomic_read(&device->fences) ? BLK_STS_TRANSPORT : BLK_STS_IOERR;
}

/* The block layer has no more requests, though the last one taken was not marked as the last. */
static void blk_commit_rqs(struct blk_mq_hw_ctx *hctx)
{
	rmem_channel_commit(hctx->driver_data);
}

static blk_status_t blk_status_of(enum rmem_client_result result)
{
	switch (result) {
	case RMEM_CLIENT_OK:
		return BLK_STS_OK;
	case RMEM_CLIENT_TIMEOUT:
		return BLK_STS_TRANSPORT;
	case RMEM_CLIENT_REFUSED:
		return BLK_STS_TARGET;
	case RMEM_CLIENT_LOST:
	case RMEM_CLIENT_UNKNOWN:
	case RMEM_CLIENT_CANCELLED:
		break;
	}
	return BLK_STS_IOERR;
}

/* A request of swap's can hold pages of a file, merged with it. */
static bool blk_swaps_out(struct rmem_op *op)
{
	struct request *rq = blk_mq_rq_from_pdu(op);
	struct bio *bio;

	if (req_op(rq) != REQ_OP_WRITE)
		return false;
	__rq_for_each_bio(bio, rq) {
		if (!(bio->bi_opf & REQ_SWAP))
			return false;
	}
	return true;
}

/*
 * Ended right here, in the answer's softirq, without the detour over the submitting CPU
 * that blk_mq_complete_request() can take: the answer came to this CPU as its channel's port
 * steered it. No other path ends requests, as timeouts don't.
 */
static void blk_end(struct rmem_op *op, enum rmem_client_result result)
{
	struct request *rq = blk_mq_rq_from_pdu(op);

	if (unlikely(result != RMEM_CLIENT_OK))
		rmem_count(rq->q->queuedata, RMEM_COUNT_FAILED);
	/* The kernel's swap tells of it. */
	if (unlikely(result == RMEM_CLIENT_CANCELLED && blk_swaps_out(op)))
		rq->rq_flags |= RQF_QUIET;
	blk_mq_end_request(rq, blk_status_of(result));
}

static bool blk_walk(struct rmem_op *op, u32 offset, u32 bytes, rmem_walk_fn fn, void *arg)
{
	struct req_iterator iter;
	struct bio_vec bv;
	u32 now;

	rq_for_each_segment(bv, blk_mq_rq_from_pdu(op), iter) {
		if (offset >= bv.bv_len) {
			offset -= bv.bv_len;
			continue;
		}
		now = min(bv.bv_len - offset, bytes);
		if (!fn(arg, bv.bv_page, bv.bv_offset + offset, now))
			return false;
		bytes -= now;
		offset = 0;
		if (!bytes)
			return true;
	}
	return false;
}

static const struct rmem_op_ops blk_op_ops = {
	.walk = blk_walk,
	.end = blk_end,
	.swaps_out = blk_swaps_out,
};

/* How long to wait for a node is the core's to decide: a slow node must not fail a swap-in. */
static enum blk_eh_timer_return blk_timeout(struct request *rq)
{
	return BLK_EH_RESET_TIMER;
}

static int blk_init_hctx(struct blk_mq_hw_ctx *hctx, void *data, unsigned int index)
{
	struct rmem_device *device = data;

	hctx->driver_data = device->channel[index];
	return 0;
}

static const struct blk_mq_ops mq_ops = {
	.queue_rq = blk_queue_rq,
	.commit_rqs = blk_commit_rqs,
	.timeout = blk_timeout,
	.init_hctx = blk_init_hctx,
};

static int blk_disk_open(COMPAT_DISK_OPEN_ARGS)
{
	return rmem_device_open(COMPAT_DISK_OPENED->private_data) ? 0 : -ENXIO;
}

/* Comes after the last closer's writeback, which a silent node can hold up. */
static void blk_disk_release(COMPAT_DISK_RELEASE_ARGS)
{
	rmem_device_close(disk->private_data);
}

static void blk_disk_free(struct gendisk *disk)
{
	rmem_device_put_late(disk->private_data);
}

static const struct block_device_operations disk_ops = {
	.owner = THIS_MODULE,
	.open = blk_disk_open,
	.release = blk_disk_release,
	.free_disk = blk_disk_free,
};

static int blk_tags_init(struct rmem_device *device)
{
	device->tags = (struct blk_mq_tag_set){
		.ops = &mq_ops,
		.nr_hw_queues = device->queues,
		.queue_depth = RMEM_QUEUE_DEPTH,
		.numa_node = NUMA_NO_NODE,
		.cmd_size = sizeof(struct rmem_op),
		/*
		 * Memory has no order that is better than another. STACKING: a CPU can go while its
		 * queue's requests wait for a silent node; they end on any other.
		 */
		.flags = BLK_MQ_F_SHOULD_MERGE | BLK_MQ_F_NO_SCHED_BY_DEFAULT |
			 BLK_MQ_F_STACKING,
		.driver_data = device,
	};
	return blk_mq_alloc_tag_set(&device->tags);
}

static bool blk_is_sealed(const struct rmem_device *device)
{
	return device->params.session.integrity == RMEM_SEALED;
}

static int blk_add(struct rmem_device *device)
{
	const struct compat_disk_limits limits = {
		.block_bytes = RMEM_BLOCK_BYTES,
		.io_opt_bytes = device->piece_bytes % RMEM_BLOCK_BYTES ? 0 : device->piece_bytes,
		.transfer_bytes_max = RMEM_OP_BYTES_MAX,
		.segments_max = SEGMENTS_MAX,
		.discard_bytes_max = RMEM_ZERO_BYTES_MAX,
		.discard_granularity_bytes = device->page_bytes,
		/* A page that changes between digest and wire makes for a packet in vain. */
		.stable_writes = device->params.session.integrity != RMEM_LINK ||
				 device->limits.reads_early,
	};
	struct gendisk *disk;
	int err;

	err = blk_tags_init(device);
	if (err)
		return err;
	rmem_reserve_get(blk_is_sealed(device));
	disk = compat_disk_alloc(&device->tags, device, &limits);
	if (IS_ERR(disk)) {
		err = PTR_ERR(disk);
		goto free_tags;
	}
	device->disk = disk;
	strscpy(disk->disk_name, device->name, DISK_NAME_LEN);
	disk->fops = &disk_ops;
	disk->private_data = device;
	dev_set_drvdata(disk_to_dev(disk), device);
	disk->flags |= GENHD_FL_NO_PART;
	set_capacity(disk, device->params.bytes >> SECTOR_SHIFT);
	err = device_add_disk(NULL, disk, rmem_status_groups);
	if (err)
		goto put_disk;
	/* blk_disk_free() puts it; that can't come before blk_remove(). */
	kref_get(&device->ref);
	return 0;

put_disk:
	device->disk = NULL;
	put_disk(disk);
free_tags:
	rmem_reserve_put(blk_is_sealed(device));
	blk_mq_free_tag_set(&device->tags);
	return err;
}

static void blk_remove(struct rmem_device *device)
{
	if (device->gone)
		blk_mark_disk_dead(device->disk);
	del_gendisk(device->disk);
	rmem_reserve_put(blk_is_sealed(device));
	blk_mq_free_tag_set(&device->tags);
}

static void blk_put(struct rmem_device *device)
{
	put_disk(device->disk);
}

static struct device *blk_dev(struct rmem_device *device)
{
	return disk_to_dev(device->disk);
}

static bool blk_is_swap(struct rmem_device *device)
{
	return IS_SWAPFILE(compat_disk_inode(device->disk));
}

const struct rmem_device_ops rmem_blk_device_ops = {
	.name = "rmb",
	.in_use = "swapoff or unmount it first",
	.lost = "all I/O fails",
	.kind = RMEM_KIND_DISK,
	.add = blk_add,
	.remove = blk_remove,
	.put = blk_put,
	.dev = blk_dev,
	.is_swap = blk_is_swap,
};
