/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A program's handle on an eqds device: include/uapi/remora_eqds_native.h.
 *
 *   native.c         the file: setup, rings in memory, poll, end
 *   native_tx.c      packets from tx to the tunnel
 *   native_report.c  completions of those
 *   native_rx.c      packets from the tunnel to rx
 *
 * Lifetime: the file has a reference, and so has each packet that the network still has a copy of.
 * The area's pages are unpinned with the file; fragments of packets keep references of their own.
 * The last put queues a work item, which gives locked memory back.
 *
 * Locking: calls for the sending edge; lock for rings that softirqs write. Nothing else is taken
 * within lock. The device's lock may be held.
 */
#ifndef KMOD_EQDS_NATIVE_TYPES_H
#define KMOD_EQDS_NATIVE_TYPES_H

#include <linux/kref.h>
#include <linux/mm_types.h>
#include <linux/mutex.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "eqds/device.h"
#include "uapi/remora_eqds_native.h"

struct eqds_native {
	struct kref refs;
	void (*free)(struct kref *refs); /* after the last put, in any context */
	struct mutex calls; /* setup, kick */
	struct eqds_dev __rcu *ed; /* NULL before setup, and once the device is gone; RTNL */
	struct hlist_node port_hash; /* in ed->natives; RTNL, RCU */
	struct rcu_head rcu;
	struct work_struct end;
	u16 port;
	wait_queue_head_t wait;

	struct mm_struct *mm; /* owner of the locked memory */
	struct page **pages;
	unsigned long page_count;
	u64 area_bytes;

	u32 entries;
	u32 map_bytes;
	struct eqds_native_rings *rings; /* shared with the program */
	struct eqds_native_fill *fill;
	struct eqds_native_packet *rx, *tx;
	struct eqds_native_completion *completion;
	u32 tx_consumed; /* under calls */

	spinlock_t lock; /* below */
	u32 fill_consumed, rx_produced, completion_produced;
	u32 unsettled; /* packets of tx without a completion yet */
	u64 rx_dropped, fill_skipped;
};

static inline void eqds_native_get(struct eqds_native *native)
{
	kref_get(&native->refs);
}

static inline void eqds_native_put(struct eqds_native *native)
{
	kref_put(&native->refs, native->free);
}

static inline struct hlist_head *eqds_native_bucket(struct eqds_dev *ed, u16 port)
{
	return &ed->natives[port % EQDS_NATIVE_BUCKETS];
}

/* Entries that the other end has produced beyond mine; a number that can't be counts as none. */
static inline u32 eqds_native_available(const u32 *produced, u32 consumed, u32 entries)
{
	/* Pairs with the program's release. */
	u32 n = smp_load_acquire(produced) - consumed;

	return n <= entries ? n : 0;
}

/* Is there room for another entry? */
static inline bool eqds_native_room(const u32 *consumed, u32 produced, u32 entries)
{
	/* Pairs with the program's release. */
	return produced - smp_load_acquire(consumed) < entries;
}

static inline bool eqds_native_in_area(const struct eqds_native *native, u64 at, u32 bytes)
{
	return at < native->area_bytes && bytes <= native->area_bytes - at;
}

#endif
