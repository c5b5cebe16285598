/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The client's devices: /dev/rmbN, each a region of a memory node.
 *
 *   main.c      module: life, hibernation
 *   netlink.c   control: family rmem
 *   device.c    attach, detach; list of devices and of the nodes they use
 *   blk.c       the disk: requests become ops
 *   channel.c   core/rmem/client.h with a lock, a timer and a socket around it
 *   packet.c    ops and messages become packets, and back
 *   socket.c    UDP socket and route of a channel
 *   status.c    state of a device, counters, sysfs
 *
 * Locks, outermost first:
 *   disk->open_mutex    block layer's; claimed
 *   rmem_devices_lock   mutex: the list of devices, their phase; the list of remotes. Never
 *                       held while a node is waited for
 *   channel.lock        spinlock, softirqs off: the core's client, and ops it holds
 * No two channel locks are held at once, and none while a packet is transmitted or a
 * request ended: both are collected under the lock and done after it.
 */
#ifndef REMORA_RMEM_DEVICE_H
#define REMORA_RMEM_DEVICE_H

#include <linux/blk-mq.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/kref.h>
#include <linux/percpu.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "core/rmem/client.h"
#include "uapi/remora_rmem.h"

struct netlink_ext_ack;
struct rmem_channel;

#define RMEM_BLOCK_BYTES 4096U
#define RMEM_QUEUE_DEPTH 128U
#define RMEM_INDEX_MAX 1023U

union rmem_address {
	struct sockaddr any;
	struct sockaddr_in in4;
	struct sockaddr_in6 in6;
};

/* What ATTACH asks for. */
struct rmem_wish {
	union rmem_address address;
	u64 bytes;
	u32 index; /* RMEM_INDEX_ANY: first free */
	u32 space;
	u32 fail_after_ms;
	u32 timeout_ms;
	u32 queues; /* 0: one per CPU */
	u8 integrity;
	struct base_siphash_key key;
};

#define RMEM_INDEX_ANY (~0U)

/* A node as its devices share it. */
struct rmem_remote {
	struct list_head entry;
	struct list_head devices; /* rmem_devices_lock */
	union rmem_address address;
	bool silent; /* owes answers; status.c */
	struct rmem_window window;
};

/* Counters of a device, beside those of its channels' cores; names in status.c. */
enum rmem_count {
	RMEM_COUNT_READ,
	RMEM_COUNT_READ_BYTES,
	RMEM_COUNT_WRITE,
	RMEM_COUNT_WRITE_BYTES,
	RMEM_COUNT_DISCARD,
	RMEM_COUNT_ZERO,
	RMEM_COUNT_FAILED,	    /* requests ended in error */
	RMEM_COUNT_COPIED,	    /* packets of WRITEs whose pages could not be lent */
	RMEM_COUNT_SPARE,	    /* packets that had to be in one piece and got the one kept */
	RMEM_COUNT_KICKED,	    /* times a window opened for a waiting channel */
	RMEM_COUNT_NO_BUFFER,	    /* packets put off: no memory for them */
	RMEM_COUNT_NO_ROUTE,
	RMEM_COUNT_DROP_WIRE,	    /* + enum rmem_wire_verdict */
	RMEM_COUNT_DROP_STRANGER = RMEM_COUNT_DROP_WIRE + RMEM_WIRE_VERDICTS,
	RMEM_COUNT_DROP_NO_CHECKSUM, /* level link without an UDP checksum */
	RMEM_COUNT_DROP_STOPPED,     /* device is being detached */
	RMEM_COUNTS
};

struct rmem_counts {
	u64 count[RMEM_COUNTS];
};

/* Which part of its life a device is in; only LIVE ones are seen by others. */
enum rmem_phase {
	RMEM_ATTACHING,
	RMEM_LIVE,
	RMEM_DETACHING,
};

struct rmem_device {
	/* Read by every request, written by none. */
	u64 addr; /* of the region */
	struct rmem_channel **channel;
	struct rmem_counts __percpu *counts;
	u8 state;	 /* enum rmem_device_state; status.c */
	bool gone;	 /* forced off: every request fails */
	atomic_t fences; /* channels that must open before anything is sent; channel.c */
	struct gendisk *disk;

	struct rmem_wish wish;
	struct rmem_remote *remote;
	struct list_head of_remote; /* in its devices */
	unsigned int channels;
	u64 boot, region_bytes;
	u32 page_bytes, piece_bytes, datagram_bytes;
	bool stable_writes;
	unsigned long attach_end; /* jiffies */
	struct blk_mq_tag_set tags;

	u32 index;
	enum rmem_phase phase; /* rmem_devices_lock */
	bool claimed;	       /* being detached: not to be opened; disk->open_mutex */
	u8 announced;	       /* state user space was told; the work's */
	wait_queue_head_t changed; /* a channel's state did */
	struct work_struct announce;
	struct kref ref; /* the list's, and the disk's once it is added */
	struct rcu_head rcu;
};

static inline void rmem_count_add(struct rmem_device *device, unsigned int which, u64 value)
{
	this_cpu_add(device->counts->count[which], value);
}

static inline void rmem_count(struct rmem_device *device, unsigned int which)
{
	rmem_count_add(device, which, 1);
}

/* ---- device.c ---- */

/* Sleeps, until the device is there or a signal arrives; *index is then valid. */
int rmem_device_attach(const struct rmem_wish *wish, u32 *index, struct netlink_ext_ack *extack);
int rmem_device_detach(u32 index, bool force, struct netlink_ext_ack *extack);

/* The first live device from *index on, or NULL; holds rmem_devices_lock if there is one. */
struct rmem_device *rmem_device_next(u32 *index);
void rmem_device_next_end(void);

extern struct mutex rmem_devices_lock;

/* Any device, attaching and detaching ones included? */
bool rmem_device_any(void);
/* The disk's reference. */
void rmem_device_put_late(struct rmem_device *device);

/* ---- status.c ---- */

extern const struct attribute_group *rmem_status_groups[];

/* A core's counters, and the names of all. */
#define RMEM_STATUS_COUNTERS (RMEM_COUNTS + sizeof(struct rmem_client_counters) / sizeof(u64))

int rmem_status_start(void);
void rmem_status_stop(void);
void rmem_status_init(struct rmem_device *device);
/* No announcement is under way after this. */
void rmem_status_end(struct rmem_device *device);

/* Any context. The node has another boot; it owes answers; it gave a sign. */
void rmem_status_lost(struct rmem_device *device);
void rmem_status_silent(struct rmem_device *device);
void rmem_status_answers(struct rmem_device *device);

/* The counters' sums, RMEM_STATUS_COUNTERS of them, and the name of each. */
void rmem_status_counters(struct rmem_device *device, u64 *values);
const char *rmem_status_counter_name(unsigned int which);

static inline void rmem_status_heard(struct rmem_device *device)
{
	if (unlikely(READ_ONCE(device->remote->silent) ||
		     READ_ONCE(device->state) == RMEM_DEVICE_DOWN))
		rmem_status_answers(device);
}

/* ---- blk.c ---- */

int rmem_blk_add(struct rmem_device *device);
/* No request is under way after this. The disk itself is still to be put. */
void rmem_blk_remove(struct rmem_device *device);
/* An op that a request handed out ended. */
void rmem_blk_finish(struct rmem_device *device, struct rmem_op *op,
		     enum rmem_client_result result);

static inline struct request *rmem_blk_request(struct rmem_op *op)
{
	return blk_mq_rq_from_pdu(op);
}

/* ---- netlink.c ---- */

int rmem_netlink_register(void);
void rmem_netlink_unregister(void);

#endif
