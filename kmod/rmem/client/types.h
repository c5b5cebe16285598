/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The client's devices: /dev/rmbN, each a region of a memory node; /dev/rmemN, each a whole
 * remote address space.
 *
 *   main.c      module: life, hibernation
 *   netlink.c   control: family rmem
 *   device.c    attach, detach; list of devices
 *   region.c    a disk's memory at the node, and its name there
 *   remote.c    the nodes they use; the lock of both lists
 *   blk.c       the disk: requests become ops
 *   chr.c       the character device
 *   chr_op.c    its operations: programs' requests become ops
 *   chr_data.c  their data
 *   chr_uring.c, chr_ioctl.c  how they are asked for
 *   channel.c   core/rmem/client/client.h with a lock and a timer around it
 *   transport.c carriers of messages, by name: kmod/rmem_ops.h
 *   status.c    state of a device, sysfs
 *   count.c     counters, times
 *
 * A file includes headers of lower floors only; the floors are in README.md. blk.c and chr.c know
 * the devices and channels that they use; these know them by rmem_device_ops and rmem_op_ops.
 *
 * Locks, outermost first:
 *   calls               mutex: ALLOC and FREE on a character device's last channel, and
 *                       connecting it anew, one at a time
 *   disk->open_mutex    the block layer's; open and release of a disk run under it
 *   rmem_devices_lock   mutex: the list of devices, their phase and openers; the list of
 *                       remotes. Never held while a node is waited for
 *   chr_file.lock       spinlock, softirqs off: list of an open file's ops
 *   channel.lock        spinlock, softirqs off: the core's client, and ops it holds
 * No two channel locks are held at once, and none while a packet is transmitted or a
 * request ended: both are collected under the lock and done after it.
 */
#ifndef REMORA_RMEM_CLIENT_TYPES_H
#define REMORA_RMEM_CLIENT_TYPES_H

#include <linux/blk-mq.h>
#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/hrtimer.h>
#include <linux/kref.h>
#include <linux/percpu.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "core/base/times.h"
#include "core/rmem/client/client.h"
#include "rmem_ops.h"
#include "uapi/remora_rmem.h"

struct rmem_channel;
struct rmem_device;

#define RMEM_BLOCK_BYTES 4096U
#define RMEM_QUEUE_DEPTH 128U

/* How a device is used: as a disk, or by programs. */
struct rmem_device_ops {
	const char *name; /* and the index make the device's */
	const char *in_use; /* advice when a detach is refused */
	const char *lost; /* the fate of I/O after the node's restart, for the log */
	u8 kind; /* enum rmem_kind */
	bool allocates; /* one more channel, for ALLOCs */
	int (*add)(struct rmem_device *device);
	/* No op is begun after this; of a disk, none is under way. */
	void (*remove)(struct rmem_device *device);
	void (*put)(struct rmem_device *device); /* undoes add */
	struct device *(*dev)(struct rmem_device *device);
	/* NULL: never. Removed, it would stay on the kernel's list of swap areas for good. */
	bool (*is_swap)(struct rmem_device *device);
};

/* The parameters of ATTACH. */
struct rmem_attach_params {
	const struct rmem_transport_ops *transport;
	struct rmem_address address;
	const struct rmem_device_ops *ops;
	u64 bytes; /* of a disk */
	u32 index; /* RMEM_INDEX_ANY: first free */
	u32 timeout_ms;
	u32 queues; /* 0: one per CPU */
	char name[RMEM_DEVICE_NAME_MAX + 1]; /* empty: none */
	bool keep; /* the region of that name, with its content */
	bool take; /* from another owner */
	char owner[RMEM_OWNER_MAX + 1]; /* of the name; empty: none */
	u64 cookie;
	struct rmem_session session;
};

#define RMEM_INDEX_ANY (~0U)

/* A node as its devices share it. */
struct rmem_remote {
	struct list_head entry;
	struct list_head devices; /* rmem_devices_lock */
	const struct rmem_transport_ops *transport;
	struct rmem_address address;
	bool silent; /* owes answers; status.c */
	struct rmem_base base;
};

/* Counters of a device, beside those of its channels' cores; names in count.c. */
enum rmem_count {
	RMEM_COUNT_OPS, /* + 2 * (enum rmem_type - RMEM_OPEN); then the bytes of those operations */
	RMEM_COUNT_FAILED = RMEM_COUNT_OPS + 2 * (RMEM_TYPE_END - RMEM_OPEN), /* with an error */
	RMEM_COUNT_KICKED,	    /* times the incast window opened for a waiting channel */
	RMEM_COUNT_TIMER_LATE,	    /* deadlines still past after the timer; 0 without faults */
	RMEM_COUNT_RESERVE,	    /* blocks of the reserve given back to the kernel */
	RMEM_COUNT_PATH,	    /* + enum rmem_path_count */
	RMEM_COUNT_DROP_STOPPED = RMEM_COUNT_PATH + RMEM_PATH_COUNTS, /* being detached */
	RMEM_COUNTS
};

/* Ops whose time is told apart; names in count.c. */
enum rmem_time {
	RMEM_TIME_READ,
	RMEM_TIME_WRITE,
	RMEM_TIME_OTHER,
	RMEM_TIMES
};

struct rmem_counts {
	u64 count[RMEM_COUNTS];
	u64 time[RMEM_TIMES][BASE_TIMES_BUCKETS]; /* ops that ended well, from submission on */
	u64 time_sum_ns[RMEM_TIMES];
};

/*
 * Which part of its life a device is in. Only LIVE ones are seen by others; from DETACHING on none
 * can be opened.
 */
enum rmem_phase {
	RMEM_ATTACHING,
	RMEM_LIVE,
	RMEM_DETACHING,
};

struct rmem_device {
	/* Read by every request, written by none. */
	u64 addr; /* of a disk's region */
	struct rmem_channel **channel;
	struct rmem_counts __percpu *counts;
	u8 state;	 /* enum rmem_device_state; status.c */
	bool gone;	 /* forced off, or a removed character device: every request fails */
	atomic_t fences; /* channels that must open before anything is sent; channel.c */
	unsigned int queues; /* channels for requests; of a character device there is one more */
	unsigned int generation; /* of a character device: how often it was connected; calls */
	union {
		struct gendisk *disk;
		struct {
			struct cdev cdev;
			struct device dev;
			atomic_t turn; /* the channel that the next opener gets */
		} chr;
	};

	struct rmem_attach_params params;
	struct rmem_remote *remote;
	struct list_head of_remote; /* in its devices */
	unsigned int channels;
	u64 boot, region_bytes, memory_bytes;
	bool keeps; /* the region stays at the node when this device goes */
	u32 page_bytes, piece_bytes;
	struct rmem_limits limits; /* of the path, when it was looked at last */
	struct rmem_incast_share share; /* its channels' turn for the incast window */
	unsigned long attach_end; /* jiffies */
	struct blk_mq_tag_set tags;
	struct mutex calls; /* of programs: the last channel, and generation */

	u32 index;
	char name[16];
	enum rmem_phase phase; /* rmem_devices_lock */
	unsigned int openers;  /* rmem_devices_lock */
	unsigned int rollbacks; /* of the machine, when attach began */
	bool rolled_back;      /* LOST, though the node still lends the region; rmem_devices_lock */
	u8 announced;	       /* state user space was told; the work's */
	wait_queue_head_t changed; /* a channel's state did */
	struct work_struct announce;
	struct kref ref; /* the list's, and the disk's once it is added */
	struct rcu_head rcu;
};

/* One hardware queue's way to the node (channel.h). */
struct rmem_channel {
	spinlock_t lock; /* guards the members up to client, and its ops; softirqs off */
	bool stopped;	 /* nothing is submitted, sent or received any more */
	u64 armed_ns;	 /* time at which the timer goes off; 0: it is not set */
	u64 silent_ns;	 /* timeouts and no sign of the node since then; 0: all well */
	bool fences;	 /* counted in device->fences */
	struct rmem_client client;

	struct rmem_device *device;
	struct rmem_path *path;
	struct hrtimer timer;
	struct hlist_node waiter_entry;
	unsigned int waiter;
	unsigned int index;
};

/* Milliseconds that remain to attach for all its steps. */
static inline unsigned int rmem_attach_left_ms(const struct rmem_device *device)
{
	long left = device->attach_end - jiffies;

	return left > 0 ? jiffies_to_msecs(left) : 0;
}

static inline enum rmem_client_state rmem_channel_state(const struct rmem_channel *channel)
{
	return READ_ONCE(channel->client.state);
}

#endif
