// SPDX-License-Identifier: GPL-2.0
/* Packets that an event under the lock made leave, are delivered or are freed after the unlock. */
#include "eqds/work.h"

#include <linux/netdevice.h>

#include "eqds/deliver.h"
#include "eqds/emit.h"
#include "eqds/unreachable.h"

void eqds_work_init(struct eqds_work *work)
{
	__skb_queue_head_init(&work->emit);
	__skb_queue_head_init(&work->deliver);
	__skb_queue_head_init(&work->free);
	__skb_queue_head_init(&work->local);
	__skb_queue_head_init(&work->lost);
	work->polling = false;
}

/* Not under the lock. The caller is in softirq, under RCU, or has marked the device down. */
void eqds_work_run(struct eqds_dev *ed, struct eqds_work *work)
{
	struct sk_buff *skb;

	rcu_read_lock_bh();
	while ((skb = __skb_dequeue(&work->emit)))
		eqds_emit(ed, skb);
	while ((skb = __skb_dequeue(&work->deliver)))
		eqds_deliver(ed, skb, work->polling);
	while ((skb = __skb_dequeue(&work->local)))
		netif_rx(skb);
	while ((skb = __skb_dequeue(&work->lost)))
		eqds_unreachable_tell(ed, skb);
	rcu_read_unlock_bh();
	while ((skb = __skb_dequeue(&work->free)))
		consume_skb(skb);
}
