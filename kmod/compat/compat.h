/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Differences between kernels, 6.1 and later: the one place that knows of them.
 * Compile probes where there is something to probe, version numbers else. Each entry names a kernel
 * and its change, so that it can go when that kernel is the oldest.
 */
#ifndef REMORA_COMPAT_H
#define REMORA_COMPAT_H

#include <linux/atomic.h>
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/eventfd.h>
#include <linux/hrtimer.h>
#include <linux/kernel.h>
#include <linux/netdevice.h>
#include <linux/netlink.h>
#include <linux/skbuff.h>
#include <linux/timer.h>
#include <linux/version.h>

/* 6.6: the pool of pages has a directory of headers. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)
#include <net/page_pool/helpers.h>
#else
#include <net/page_pool.h>
#endif

#include "compat/disk.h"

/* 6.13: free pages kept for higher orders are counted. Before, all pages kept count as used. */
#ifdef COMPAT_FREE_HIGHATOMIC
#define compat_zone_kept(zone) READ_ONCE((zone)->nr_free_highatomic)
#else
#define compat_zone_kept(zone) READ_ONCE((zone)->nr_reserved_highatomic)
#endif

/*
 * 6.2: extack carries formatted text in a buffer of its own. Before, the text
 * must live until the acknowledgement is built, just after the command returns:
 * a ring of texts serves, and eight refusals would have to be written within that
 * instant for one to be seen with another's words.
 */
#ifndef NL_SET_ERR_MSG_FMT
#define COMPAT_EXTACK_TEXTS 8
#define COMPAT_EXTACK_BYTES 80

static inline char *compat_extack_text(void)
{
	static char text[COMPAT_EXTACK_TEXTS][COMPAT_EXTACK_BYTES];
	static atomic_t next;

	return text[(unsigned int)atomic_inc_return(&next) % COMPAT_EXTACK_TEXTS];
}

#define NL_SET_ERR_MSG_FMT(extack, fmt, args...)                                                   \
	do {                                                                                       \
		struct netlink_ext_ack *__extack = (extack);                                       \
		char *__text = compat_extack_text();                                               \
		if (__extack) {                                                                    \
			snprintf(__text, COMPAT_EXTACK_BYTES, fmt, ##args);                        \
			__extack->_msg = __text;                                                   \
		}                                                                                  \
	} while (0)

#define NL_SET_ERR_MSG_FMT_MOD(extack, fmt, args...)                                               \
	NL_SET_ERR_MSG_FMT((extack), KBUILD_MODNAME ": " fmt, ##args)
#endif

/* 6.5: block_device_operations.open() gets the disk, not the block device; release() no mode. */
#ifdef BLK_OPEN_READ
#define COMPAT_DISK_OPEN_ARGS struct gendisk *disk, blk_mode_t mode
#define COMPAT_DISK_OPENED disk
#define COMPAT_DISK_RELEASE_ARGS struct gendisk *disk
#else
#define COMPAT_DISK_OPEN_ARGS struct block_device *bdev, fmode_t mode
#define COMPAT_DISK_OPENED (bdev->bd_disk)
#define COMPAT_DISK_RELEASE_ARGS struct gendisk *disk, fmode_t mode
#endif

/* 6.4: a class has no owner. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
#define compat_class_create(name) class_create(name)
#else
#define compat_class_create(name) class_create(THIS_MODULE, name)
#endif

/* 6.5: segmentation is declared in a header of its own. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
#include <net/gso.h>
#endif

/* 6.7: the drivers' part of io_uring is in a header of its own, and a command's SQE is whole. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
#include <linux/io_uring/cmd.h>
#define compat_uring_cmd_data(command) io_uring_sqe_cmd((command)->sqe)
#else
#include <linux/io_uring.h>
#define compat_uring_cmd_data(command) ((command)->cmd)
#endif

/*
 * Hands a nonblocking command to a worker. From 6.10 to 6.13 io_uring copies its SQE for
 * that, and forgets to use the copy: the worker would read the ring, where the program might have
 * written its next command. The ring has IORING_SETUP_SQE128.
 */
static inline int compat_uring_cmd_again(struct io_uring_cmd *command)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0) && LINUX_VERSION_CODE < KERNEL_VERSION(6, 14, 0)
	struct io_uring_sqe *copy = cmd_to_io_kiocb(command)->async_data;

	if (command->sqe != copy) {
		memcpy(copy, command->sqe, 2 * sizeof(*copy));
		command->sqe = copy;
	}
#endif
	return -EAGAIN;
}

/* 6.2: del_timer_sync() got its second name, and loses its first later. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
#define compat_timer_delete_sync(timer) timer_delete_sync(timer)
#else
#define compat_timer_delete_sync(timer) del_timer_sync(timer)
#endif

/* 6.10: __assign_str() knows its source from __string(). The preprocessor can't tell the two. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
#define compat_assign_str(dst, src) __assign_str(dst)
#else
#define compat_assign_str(dst, src) __assign_str(dst, src)
#endif

/* 6.12: a device's properties of locks and namespace are flags, not features. */
static inline void compat_netdev_lltx(struct net_device *dev)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
	dev->lltx = true;
#else
	dev->features |= NETIF_F_LLTX;
#endif
}

/* 6.13: hrtimer_setup() takes the function, too; 6.15 has no hrtimer_init(). */
static inline void compat_hrtimer_setup(struct hrtimer *timer,
					enum hrtimer_restart (*function)(struct hrtimer *),
					clockid_t clock, enum hrtimer_mode mode)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(timer, function, clock, mode);
#else
	hrtimer_init(timer, clock, mode);
	timer->function = function;
#endif
}

/*
 * 6.2: pages pinned for long are made the program's own even if they are only read. Before, a page
 * that a private mapping shares is pinned as it is, and no longer the program's after a write: so
 * they are pinned as if written.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
#define COMPAT_FOLL_LONGTERM_READ FOLL_LONGTERM
#else
#define COMPAT_FOLL_LONGTERM_READ (FOLL_LONGTERM | FOLL_WRITE | FOLL_FORCE)
#endif

/* 6.8: a signal of an eventfd counts as 1. Before, the caller says as how much. */
static inline void compat_eventfd_signal(struct eventfd_ctx *eventfd)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
	eventfd_signal(eventfd);
#else
	eventfd_signal(eventfd, 1);
#endif
}

/* 6.10: the owner of a packet's lent pages is a table of functions; before, one function. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
#define COMPAT_UBUF_OPS(name, function)                                                            \
	static const struct ubuf_info_ops name = {.complete = function}
#define compat_ubuf_set(ubuf, name) ((ubuf)->ops = &(name))
#define compat_ubuf_is(ubuf, name)  ((ubuf)->ops == &(name))
#else
#define COMPAT_UBUF_OPS(name, function)                                                            \
	static void (*const name)(struct sk_buff *skb, struct ubuf_info *ubuf, bool success) = \
		(function)
#define compat_ubuf_set(ubuf, name)	((ubuf)->callback = (name))
#define compat_ubuf_is(ubuf, name)	((ubuf)->callback == (name))
#endif

/* 6.3: a device lists its features of XDP. */
static inline void compat_xdp_features(struct net_device *dev)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	dev->xdp_features = NETDEV_XDP_ACT_BASIC | NETDEV_XDP_ACT_REDIRECT |
			    NETDEV_XDP_ACT_NDO_XMIT;
#endif
}

/* Until 6.6 a pool whose pages are shared has to say so. */
#ifdef PP_FLAG_PAGE_FRAG
#define COMPAT_PAGE_POOL_FRAGS PP_FLAG_PAGE_FRAG
#else
#define COMPAT_PAGE_POOL_FRAGS 0
#endif

/* Likewise, of a page that has one user. */
static inline struct page *compat_page_pool_whole(struct page_pool *pool)
{
	struct page *page = page_pool_dev_alloc_pages(pool);

#ifdef PP_FLAG_PAGE_FRAG
	if (page)
		page_pool_fragment_page(page, 1);
#endif
	return page;
}

/* 6.4: pages that the poll itself frees go straight back. */
static inline void compat_page_pool_napi(struct page_pool_params *params, struct napi_struct *napi)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	params->napi = napi;
#endif
}

#endif
