/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A program's handle on an eqds device: include/uapi/remora_eqds_native.h.
 *
 *   native.c      the file: setup, rings in memory, poll, end
 *   native_io.c   packets: from tx to the tunnel and to the completion, from the tunnel to rx
 *
 * Lifetime: the file has a reference, and so has each packet that the network still has a copy of.
 * The area's pages are unpinned with the file; fragments of packets keep references of their own.
 * The last put queues a work item, which gives locked memory back.
 *
 * Locking: calls for the sending edge; lock for rings that softirqs write. Nothing else is taken
 * within lock. The device's lock may be held.
 */
#ifndef KMOD_EQDS_NATIVE_H
#define KMOD_EQDS_NATIVE_H

#include <linux/kref.h>
#include <linux/mm_types.h>
#include <linux/mutex.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "eqds/device.h"
#include "uapi/remora_eqds_native.h"

struct eqds_native {
	struct kref refs;
	struct mutex calls; /* setup, kick */
	struct eqds_dev __rcu *ed; /* NULL before setup, and once the device is gone; RTNL */
	struct hlist_node port_hash; /* in ed->natives; RTNL, RCU */
	struct rcu_head rcu;
	struct work_struct end; /* after the last put, which may be in a softirq */
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

void eqds_native_get(struct eqds_native *native);
void eqds_native_put(struct eqds_native *native);
int eqds_native_kick(struct eqds_native *native);

#endif
