/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The declarations of a kernel that kmod/compat/disk.h uses. The lab has kernels 6.1 and 6.12; this is the
 * block layer's interface of those between, too: linux/blk-mq.h and linux/blkdev.h of the releases named below.
 */
#include <linux/version.h> /* KERNEL_VERSION; the test defines LINUX_VERSION_CODE */
#include <stdbool.h>
#include <stdint.h>

typedef uint16_t u16;
typedef uint32_t u32;
#define SECTOR_SHIFT 9

struct queue_limits {
	unsigned int logical_block_size, physical_block_size, io_min, io_opt, max_hw_sectors;
	unsigned int max_segment_size, max_hw_discard_sectors, max_write_zeroes_sectors;
	unsigned int discard_granularity;
	unsigned short max_segments;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
	unsigned int features;
#define BLK_FEAT_STABLE_WRITES (1U << 2)
#endif
};

struct request_queue {
	struct queue_limits limits;
};

struct gendisk {
	struct request_queue *queue;
};

struct blk_mq_tag_set;
bool IS_ERR(const void *pointer);

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
struct gendisk *blk_mq_alloc_disk(struct blk_mq_tag_set *set, struct queue_limits *lim, void *queuedata);
#else
struct gendisk *blk_mq_alloc_disk(struct blk_mq_tag_set *set, void *queuedata);
void blk_queue_max_discard_sectors(struct request_queue *q, unsigned int sectors);
void blk_queue_logical_block_size(struct request_queue *q, unsigned int size);
void blk_queue_physical_block_size(struct request_queue *q, unsigned int size);
void blk_queue_io_min(struct request_queue *q, unsigned int min);
void blk_queue_io_opt(struct request_queue *q, unsigned int opt);
void blk_queue_max_hw_sectors(struct request_queue *q, unsigned int sectors);
void blk_queue_max_segments(struct request_queue *q, unsigned short segments);
void blk_queue_max_segment_size(struct request_queue *q, unsigned int size);
void blk_queue_max_write_zeroes_sectors(struct request_queue *q, unsigned int sectors);
#endif
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0)
enum { QUEUE_FLAG_NONROT, QUEUE_FLAG_ADD_RANDOM, QUEUE_FLAG_STABLE_WRITES };
void blk_queue_flag_set(unsigned int flag, struct request_queue *q);
void blk_queue_flag_clear(unsigned int flag, struct request_queue *q);
#endif
