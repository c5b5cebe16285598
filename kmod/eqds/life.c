// SPDX-License-Identifier: GPL-2.0
/*
 * A tunnel's life: made on demand, ended by its deadline, by a peer that can't be reached, for a
 * new one at the cap, or when memory is short.
 */
#include "eqds/life.h"

#include <linux/random.h>
#include <linux/slab.h>
#include <net/ipv6.h>

#include "eqds/reply.h"
#include "eqds/rule.h"
#include "eqds/send.h"
#include "eqds/settle.h"
#include "eqds/table.h"
#include "eqds/trace.h"
#include "eqds/work.h"

/* Deadlines served by one firing of the timer: a bound on the time that the lock is held. */
#define LIFE_FIRE_MAX 64
/* Tunnels that go for a new one: more than one, so that a lowered cap is reached. */
#define LIFE_EVICT_MAX 2
/* Tunnels looked at for one that can go. */
#define LIFE_LOOKS 64

/* ---- sending tunnels ---- */

/* The core has closed it, so it holds no packet. */
static void life_tx_free(struct eqds_dev *ed, struct eqds_tx *tx)
{
	lockdep_assert_held(&ed->lock);
	eqds_drr_remove(&tx->core);
	eqds_table_unlink(ed, &tx->tunnel);
	kfree(tx);
}

/* The peer is told, as far as it knows of the tunnel; packets of the tunnel are dropped. */
static void life_tx_close(struct eqds_dev *ed, struct eqds_tx *tx, struct eqds_work *work)
{
	struct eqds_out out;

	eqds_sender_close(&tx->core, &out);
	eqds_settle_tx(ed, tx, &out, work);
	life_tx_free(ed, tx);
}

/* The peer can't be reached: the tunnel ends, and senders of its packets are told. */
void eqds_life_tx_lose(struct eqds_dev *ed, struct eqds_tx *tx, struct eqds_work *work)
{
	struct eqds_work end;

	lockdep_assert_held(&ed->lock);
	eqds_work_init(&end);
	life_tx_close(ed, tx, &end);
	skb_queue_splice_tail(&end.emit, &work->emit);
	skb_queue_splice_tail(&end.free, &work->lost);
}

/* A translator of addresses is on the way, and keeps the peer's answers. */
static void life_tx_translated(struct eqds_dev *ed, struct eqds_tx *tx, struct eqds_work *work)
{
	lockdep_assert_held(&ed->lock);
	ed->stats.tx_translated++;
	if (!ed->translation_told)
		netdev_warn(ed->dev,
			    "NAT between this host and %pI6c drops answers to UDP port %u, so no tunnel opens: forward that port unchanged\n",
			    &tx->tunnel.peer, EQDS_PORT);
	ed->translation_told = true;
	eqds_life_tx_lose(ed, tx, work);
}

/*
 * At the cap, the tunnel used longest ago that has no packets makes room. One with packets, which a
 * peer can hold for as long as it likes, goes to the end of the order, so that the next look-up
 * finds others. Returns false if all that were looked at have packets.
 */
static bool life_tx_room(struct eqds_dev *ed, struct eqds_work *work)
{
	u32 evicted = 0;

	for (u32 n = 0; n < LIFE_LOOKS && evicted < LIFE_EVICT_MAX; n++) {
		struct eqds_tx *oldest;

		if (ed->tx.count < ed->tunnels_max)
			break;
		oldest = list_first_entry(&ed->tx.lru, struct eqds_tx, tunnel.lru);
		if (!oldest->core.resting) {
			list_move_tail(&oldest->tunnel.lru, &ed->tx.lru);
			continue;
		}
		life_tx_close(ed, oldest, work);
		ed->stats.tx_evicted++;
		evicted++;
	}
	return evicted || ed->tx.count < ed->tunnels_max;
}

/* The tunnel of a class to peer, made if there is none. NULL: no memory, or at the cap. */
struct eqds_tx *eqds_life_tx_get(struct eqds_dev *ed, const struct in6_addr *peer, u8 kind,
				 struct eqds_work *work)
{
	struct eqds_tx *tx = eqds_table_tx(ed, peer, kind);
	u64 seed;

	lockdep_assert_held(&ed->lock);
	if (tx) {
		list_move_tail(&tx->tunnel.lru, &ed->tx.lru);
		return tx;
	}
	if (!life_tx_room(ed, work))
		return NULL;
	tx = kzalloc(struct_size(tx, slot, ed->config.window_packets), GFP_ATOMIC | __GFP_NOWARN);
	if (!tx)
		return NULL;
	eqds_class_queue_init(&tx->queue);
	seed = get_random_u64();
	eqds_paths_init(&tx->paths, tx->path, EQDS_PATHS, seed);
	eqds_sender_init(&tx->core, &ed->config, tx->slot, &tx->paths, kind, get_random_u32(), 0);
	eqds_table_link(ed, &ed->tx, &tx->tunnel, peer);
	trace_eqds_open(ed, &tx->tunnel, kind, tx->core.epoch, seed);
	return tx;
}

static void life_tx_expire(struct eqds_dev *ed, struct eqds_tx *tx, u64 now_ns,
			   struct eqds_work *work)
{
	const u32 in_flight = tx->core.in_flight.count;
	struct eqds_out out;

	if (tx->core.translated && tx->core.state != EQDS_SENDER_ESTABLISHED && !tx->core.resting &&
	    now_ns > tx->core.heard_ns + EQDS_SILENT_TRANSLATED_NS) {
		life_tx_translated(ed, tx, work);
		return;
	}
	if (!tx->core.resting && now_ns > tx->core.heard_ns + EQDS_SILENT_NS) {
		ed->stats.tx_given_up++;
		eqds_life_tx_lose(ed, tx, work);
		return;
	}
	trace_eqds_expire(ed, tx);
	eqds_sender_expire(&tx->core, now_ns, &out);
	ed->stats.tx_expired++;
	ed->stats.tx_timeouts += in_flight - tx->core.in_flight.count;
	eqds_settle_tx(ed, tx, &out, work);
	if (tx->core.state == EQDS_SENDER_CLOSED)
		life_tx_free(ed, tx);
}

/* ---- receiving tunnels ---- */

static void life_rx_close(struct eqds_dev *ed, struct eqds_rx *rx, struct eqds_work *work)
{
	struct eqds_out out;

	eqds_receiver_close(&rx->core, &out);
	eqds_settle_rx(ed, rx, &out, work); /* frees rx */
}

/* A tunnel that the core admitted. At the cap, the one used longest ago goes. NULL: no memory. */
struct eqds_rx *eqds_life_rx_new(struct eqds_dev *ed, const struct eqds_cb *cb, u16 sender,
				 u64 cookie, struct eqds_work *work)
{
	struct eqds_rx *rx;

	for (u32 n = 0; n < LIFE_EVICT_MAX && ed->rx.count >= ed->tunnels_max; n++) {
		rx = list_first_entry(&ed->rx.lru, struct eqds_rx, tunnel.lru);
		life_rx_close(ed, rx, work);
		ed->stats.rx_evicted++;
	}
	rx = kzalloc(struct_size(rx, slot, ed->config.window_packets), GFP_ATOMIC | __GFP_NOWARN);
	if (!rx)
		return NULL;
	INIT_LIST_HEAD(&rx->replying);
	eqds_receiver_init(&rx->core, &ed->config, &ed->asl, rx->slot, sender, cookie);
	rx->tunnel.local = cb->local;
	eqds_table_link(ed, &ed->rx, &rx->tunnel, &cb->peer);
	trace_eqds_open(ed, &rx->tunnel, sender, 0, cookie);
	eqds_rule_share(ed, rx);
	return rx;
}

/* ---- time and end ---- */

static void life_expire(struct eqds_dev *ed, struct eqds_tunnel *tunnel, u64 now_ns,
			struct eqds_work *work)
{
	struct eqds_rx *rx = container_of(tunnel, struct eqds_rx, tunnel);
	struct eqds_tx *tx = container_of(tunnel, struct eqds_tx, tunnel);
	const u64 deadline_ns = eqds_table_deadline_ns(tunnel);

	timerqueue_del(&ed->due, &tunnel->due);
	if (tunnel->sending && tx->core.state == EQDS_SENDER_CLOSED)
		life_tx_free(ed, tx);
	else if (deadline_ns > now_ns)
		eqds_table_due(ed, tunnel, deadline_ns);
	else if (tunnel->sending)
		life_tx_expire(ed, tx, now_ns, work);
	else
		life_rx_close(ed, rx, work);
}

enum hrtimer_restart eqds_life_fire(struct hrtimer *timer)
{
	struct eqds_dev *ed = container_of(timer, struct eqds_dev, due_timer);
	struct timerqueue_node *first;
	struct eqds_work work;
	u64 now_ns;

	eqds_work_init(&work);
	spin_lock_bh(&ed->lock);
	now_ns = ktime_get_ns();
	trace_eqds_turn(ed, EQDS_TURN_DUE, now_ns);
	/* While it is 0, no deadline is early enough to arm the timer; that is done once, below. */
	ed->due_ns = 0;
	ed->fired_ns = now_ns;
	for (u32 n = 0; n < LIFE_FIRE_MAX && ed->up; n++) {
		first = timerqueue_getnext(&ed->due);
		if (!first || (u64)first->expires > now_ns)
			break;
		life_expire(ed, container_of(first, struct eqds_tunnel, due), now_ns, &work);
	}
	ed->fired_ns = 0;
	eqds_send_ready(ed, now_ns, &work);
	eqds_reply_flush(ed, &work);
	ed->due_ns = EQDS_NEVER;
	eqds_table_arm(ed);
	spin_unlock_bh(&ed->lock);
	eqds_work_run(ed, &work);
	return HRTIMER_NORESTART;
}

/* Lock, with the device marked down. */
void eqds_life_close_all(struct eqds_dev *ed, struct eqds_work *work)
{
	struct eqds_tx *tx, *next_tx;
	struct eqds_rx *rx, *next_rx;

	list_for_each_entry_safe(tx, next_tx, &ed->tx.lru, tunnel.lru)
		life_tx_close(ed, tx, work);
	list_for_each_entry_safe(rx, next_rx, &ed->rx.lru, tunnel.lru)
		life_rx_close(ed, rx, work);
}

/*
 * Memory is short: ends tunnels that hold nothing, and were not used since before_ns. Looks at so
 * many of each direction, in the order of use, and returns how many went.
 */
u32 eqds_life_shrink(struct eqds_dev *ed, u64 before_ns, u32 looks, struct eqds_work *work)
{
	struct eqds_tx *tx, *next_tx;
	struct eqds_rx *rx, *next_rx;
	const u32 was = ed->tx.count + ed->rx.count;
	u32 tx_looks = 0, rx_looks = 0;

	lockdep_assert_held(&ed->lock);
	list_for_each_entry_safe(tx, next_tx, &ed->tx.lru, tunnel.lru) {
		if (tx_looks++ >= looks)
			break;
		if (tx->core.resting && tx->core.used_ns < before_ns)
			life_tx_close(ed, tx, work);
		else if (!tx->core.resting)
			list_move_tail(&tx->tunnel.lru, &ed->tx.lru);
	}
	list_for_each_entry_safe(rx, next_rx, &ed->rx.lru, tunnel.lru) {
		if (rx_looks++ >= looks)
			break;
		if (!rx->core.held && !rx->core.share.active && rx->core.used_ns < before_ns)
			life_rx_close(ed, rx, work);
	}
	return was - ed->tx.count - ed->rx.count;
}
