/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Differences between kernels in how a disk comes by its limits: a part of compat.h, which files
 * include. selftests/unit/compat compiles it for kernels that the lab has not.
 */
#ifndef REMORA_COMPAT_DISK_H
#define REMORA_COMPAT_DISK_H

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/version.h>

/* 6.10: a block device has its inode behind its page cache. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
#define compat_disk_inode(disk) ((disk)->part0->bd_mapping->host)
#else
#define compat_disk_inode(disk) ((disk)->part0->bd_inode)
#endif

/*
 * 6.9 made a disk's limits an argument of its allocation; before, there are setters. 6.11 made
 * features part of the limits; before, they are flags of the queue, and a disk counts as rotational
 * unless told otherwise.
 */
struct compat_disk_limits {
	u32 block_bytes;
	u32 io_opt_bytes; /* 0: none */
	u32 transfer_bytes_max;
	u32 discard_bytes_max; /* of write-zeroes, too */
	u32 discard_granularity_bytes;
	u16 segments_max;
	bool stable_writes;
};

#ifdef BLK_FEAT_STABLE_WRITES
#define COMPAT_DISK_FEATURES(want) .features = (want)->stable_writes ? BLK_FEAT_STABLE_WRITES : 0,
static inline void compat_disk_flags(struct gendisk *disk, const struct compat_disk_limits *want)
{
}
#else
#define COMPAT_DISK_FEATURES(want)
static inline void compat_disk_flags(struct gendisk *disk, const struct compat_disk_limits *want)
{
	blk_queue_flag_set(QUEUE_FLAG_NONROT, disk->queue);
	blk_queue_flag_clear(QUEUE_FLAG_ADD_RANDOM, disk->queue);
	if (want->stable_writes)
		blk_queue_flag_set(QUEUE_FLAG_STABLE_WRITES, disk->queue);
}
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
static inline struct gendisk *compat_disk_alloc(struct blk_mq_tag_set *tags, void *queuedata,
						const struct compat_disk_limits *want)
{
	struct queue_limits limits = {
		.logical_block_size = want->block_bytes,
		.physical_block_size = want->block_bytes,
		.io_min = want->block_bytes,
		.io_opt = want->io_opt_bytes,
		.max_hw_sectors = want->transfer_bytes_max >> SECTOR_SHIFT,
		.max_segments = want->segments_max,
		.max_segment_size = want->transfer_bytes_max,
		.max_hw_discard_sectors = want->discard_bytes_max >> SECTOR_SHIFT,
		.max_write_zeroes_sectors = want->discard_bytes_max >> SECTOR_SHIFT,
		.discard_granularity = want->discard_granularity_bytes,
		COMPAT_DISK_FEATURES(want)
	};
	struct gendisk *disk = blk_mq_alloc_disk(tags, &limits, queuedata);

	if (!IS_ERR(disk))
		compat_disk_flags(disk, want);
	return disk;
}
#else
static inline struct gendisk *compat_disk_alloc(struct blk_mq_tag_set *tags, void *queuedata,
						const struct compat_disk_limits *want)
{
	struct gendisk *disk = blk_mq_alloc_disk(tags, queuedata);
	struct request_queue *q;

	if (IS_ERR(disk))
		return disk;
	q = disk->queue;
	blk_queue_logical_block_size(q, want->block_bytes);
	blk_queue_physical_block_size(q, want->block_bytes);
	blk_queue_io_min(q, want->block_bytes);
	blk_queue_io_opt(q, want->io_opt_bytes);
	blk_queue_max_hw_sectors(q, want->transfer_bytes_max >> SECTOR_SHIFT);
	blk_queue_max_segments(q, want->segments_max);
	blk_queue_max_segment_size(q, want->transfer_bytes_max);
	blk_queue_max_discard_sectors(q, want->discard_bytes_max >> SECTOR_SHIFT);
	blk_queue_max_write_zeroes_sectors(q, want->discard_bytes_max >> SECTOR_SHIFT);
	q->limits.discard_granularity = want->discard_granularity_bytes;
	compat_disk_flags(disk, want);
	return disk;
}
#endif

#endif
