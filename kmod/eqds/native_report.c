// SPDX-License-Identifier: GPL-2.0
/*
 * Programs are told: completions of the packets that they send, and what a tunnel is like.
 *
 *                         acknowledged: eqds_native_settle             copies freed by NICs, queues
 *                                                 v                    v
 *                         the last of them is freed: native_done -> completion
 */
#include "eqds/native_report.h"

#include <linux/slab.h>
#include <net/ipv6.h>

#include "compat/compat.h"
#include "eqds/table.h"

/* A packet that the program waits for. */
struct native_tx {
	struct ubuf_info ubuf;
	struct eqds_native *native;
	struct eqds_native_completion said;
};

/* Completions that any packet of this module still owes. */
static atomic_t native_owed = ATOMIC_INIT(0);
static DECLARE_WAIT_QUEUE_HEAD(native_owed_wait);

void eqds_native_complete(struct eqds_native *native, const struct eqds_native_completion *said)
{
	unsigned long flags;

	spin_lock_irqsave(&native->lock, flags);
	/* Its place is kept: native_may_send(). */
	native->completion[native->completion_produced & (native->entries - 1)] = *said;
	native->completion_produced++;
	native->unsettled--;
	/* Pairs with the program's acquire. */
	smp_store_release(&native->rings->completion.produced, native->completion_produced);
	spin_unlock_irqrestore(&native->lock, flags);
	wake_up_interruptible_poll(&native->wait, EPOLLIN | EPOLLRDNORM);
}

/* One of the packets that lend the pages is gone. Any context. */
static void native_done(struct sk_buff *skb, struct ubuf_info *ubuf, bool success)
{
	struct native_tx *tx = container_of(ubuf, struct native_tx, ubuf);

	if (!refcount_dec_and_test(&ubuf->refcnt))
		return;
	rcu_read_lock(); /* eqds_native_drain() waits for it */
	eqds_native_complete(tx->native, &tx->said);
	eqds_native_put(tx->native);
	kfree(tx);
	if (atomic_dec_and_test(&native_owed))
		wake_up(&native_owed_wait);
	rcu_read_unlock();
}

COMPAT_UBUF_OPS(native_ubuf_ops, native_done);

bool eqds_native_owe(struct eqds_native *native, struct sk_buff *skb, u64 cookie)
{
	struct native_tx *tx = kzalloc(sizeof(*tx), GFP_ATOMIC | __GFP_NOWARN);

	if (!tx)
		return false;
	tx->native = native;
	tx->said = (struct eqds_native_completion){
		.cookie = cookie,
		.status = EQDS_NATIVE_DROPPED,
	};
	compat_ubuf_set(&tx->ubuf, native_ubuf_ops);
	tx->ubuf.flags = SKBFL_ZEROCOPY_FRAG | SKBFL_DONT_ORPHAN;
	refcount_set(&tx->ubuf.refcnt, 1);
	eqds_native_get(native);
	atomic_inc(&native_owed);
	skb_zcopy_init(skb, &tx->ubuf);
	return true;
}

/* Before the module goes, with all devices and files gone. */
void eqds_native_drain(void)
{
	wait_event(native_owed_wait, !atomic_read(&native_owed));
	synchronize_rcu(); /* for the last native_done() */
}

static u32 native_busy_us(const struct eqds_tx *tx, u64 now_ns)
{
	u64 until = tx->core.busy_until_ns;

	return until > now_ns ? (u32)div_u64(until - now_ns, NSEC_PER_USEC) : 0;
}

/* The tunnel lets the packet go. delivered: the peer has acknowledged it. Device's lock. */
void eqds_native_settle(struct eqds_tx *tx, const struct eqds_packet *packet, struct sk_buff *skb,
			bool delivered)
{
	struct ubuf_info *ubuf = skb_zcopy(skb);
	struct eqds_native_completion *said;
	const u64 now_ns = ktime_get_ns();

	if (!ubuf || !compat_ubuf_is(ubuf, native_ubuf_ops) || !delivered)
		return;
	said = &container_of(ubuf, struct native_tx, ubuf)->said;
	said->status = EQDS_NATIVE_DELIVERED;
	said->path = packet->path;
	said->attempts = packet->attempt;
	if (!packet->attempt && now_ns - packet->sent_ns <= U32_MAX)
		said->rtt_ns = now_ns - packet->sent_ns;
	said->queued = tx->core.queue.count;
	said->pulls = tx->core.target - tx->core.pull;
	said->busy_us = native_busy_us(tx, now_ns);
}

void eqds_native_describe(struct eqds_dev *ed, struct eqds_native_peer *peer)
{
	struct in6_addr address;
	struct eqds_tx *tx;

	memcpy(&address, peer->peer, sizeof(address));
	spin_lock_bh(&ed->lock);
	tx = ed->up ? eqds_table_tx(ed, &address, EQDS_CLASS_NATIVE) : NULL;
	if (tx) {
		peer->rtt_ns = tx->core.rtt_ns;
		peer->credit_bytes = max_t(s64, tx->core.credit_bytes, 0);
		peer->queued = tx->core.queue.count;
		peer->in_flight = tx->core.in_flight.count + tx->core.retransmit.count;
		peer->pulls = tx->core.target - tx->core.pull;
		peer->busy_us = native_busy_us(tx, ktime_get_ns());
		for (u32 i = 0; i < EQDS_NATIVE_PATHS; i++)
			peer->path[i] = (struct eqds_native_path){
				.rtt_ns = tx->path[i].rtt_ns,
				.sent = tx->path[i].sent,
				.trimmed = tx->path[i].trimmed,
				.lost = tx->path[i].lost,
			};
	}
	spin_unlock_bh(&ed->lock);
}
