// SPDX-License-Identifier: GPL-2.0
/*
 * The tunnels of a device: two tables by peer, an order of use, and an order of deadlines.
 *
 *   due:  [ earliest ] ... [ latest ]     one timer of the device fires for the earliest
 *
 * Most packets move a deadline farther away. The order keeps the earlier time; when that fires, the
 * tunnel's real deadline is looked up. Thus a packet costs no timer operation. If a poll finds the
 * timer about to fire for nothing, it arms it anew, which costs less than an interrupt.
 */
#include <linux/random.h>
#include <linux/slab.h>
#include <net/ipv6.h>

#include "eqds/device.h"
#include "eqds/trace.h"

/* Deadlines served by one firing of the timer: a bound on the time that the lock is held. */
#define TUNNEL_FIRE_MAX 64
/* A deadline's delay if it stays in the past: a fault there costs little CPU time. */
#define TUNNEL_LATE_NS (10 * NSEC_PER_MSEC)
/* The timer is about to fire: within a quarter of the least timeout. */
#define TUNNEL_SOON_NS (500 * NSEC_PER_USEC)
/* Tunnels that one poll moves in the order of deadlines. */
#define TUNNEL_POSTPONE_MAX 8
/* Tunnels that go for a new one: more than one, so that a lowered cap is reached. */
#define TUNNEL_EVICT_MAX 2
/* Tunnels looked at for one that can go. */
#define TUNNEL_LOOKS 64

static void tunnel_table_init(struct eqds_table *table)
{
	for (u32 i = 0; i < ARRAY_SIZE(table->hash); i++)
		INIT_HLIST_HEAD(&table->hash[i]);
	INIT_LIST_HEAD(&table->lru);
	table->count = 0;
}

/* With the device down. */
void eqds_tunnel_init(struct eqds_dev *ed)
{
	tunnel_table_init(&ed->tx);
	tunnel_table_init(&ed->rx);
	INIT_LIST_HEAD(&ed->replies);
	timerqueue_init_head(&ed->due);
	ed->due_ns = EQDS_NEVER;
	ed->pull_ns = EQDS_NEVER;
	ed->hash_seed = get_random_u32();
	get_random_bytes(&ed->cookie_key, sizeof(ed->cookie_key));
}

static struct hlist_head *tunnel_bucket(struct eqds_dev *ed, struct eqds_table *table,
					const struct in6_addr *peer)
{
	u32 hash = __ipv6_addr_jhash(peer, ed->hash_seed);

	return &table->hash[hash >> (32 - EQDS_HASH_BITS)];
}

static void tunnel_link(struct eqds_dev *ed, struct eqds_table *table, struct eqds_tunnel *tunnel,
			const struct in6_addr *peer)
{
	tunnel->peer = *peer;
	tunnel->sending = table == &ed->tx;
	timerqueue_init(&tunnel->due);
	hlist_add_head(&tunnel->hash, tunnel_bucket(ed, table, peer));
	list_add_tail(&tunnel->lru, &table->lru);
	table->count++;
}

static void tunnel_unlink(struct eqds_dev *ed, struct eqds_tunnel *tunnel)
{
	struct eqds_table *table = tunnel->sending ? &ed->tx : &ed->rx;

	if (!RB_EMPTY_NODE(&tunnel->due.node))
		timerqueue_del(&ed->due, &tunnel->due);
	hlist_del(&tunnel->hash);
	list_del(&tunnel->lru);
	table->count--;
}

/* ---- deadlines ---- */

static void tunnel_arm(struct eqds_dev *ed)
{
	struct timerqueue_node *first = timerqueue_getnext(&ed->due);

	if (!first || !ed->up || first->expires >= (ktime_t)min_t(u64, ed->due_ns, KTIME_MAX))
		return;
	ed->due_ns = first->expires;
	hrtimer_start(&ed->due_timer, first->expires, HRTIMER_MODE_ABS_SOFT);
}

/* The deadline of tunnel is now deadline_ns. */
void eqds_tunnel_due(struct eqds_dev *ed, struct eqds_tunnel *tunnel, u64 deadline_ns)
{
	bool listed = !RB_EMPTY_NODE(&tunnel->due.node);

	lockdep_assert_held(&ed->lock);
	if (deadline_ns == EQDS_NEVER || (listed && (u64)tunnel->due.expires <= deadline_ns))
		return;
	if (listed)
		timerqueue_del(&ed->due, &tunnel->due);
	/* The core promises later ones after an expiry. Else the timer would fire for ever. */
	if (unlikely(deadline_ns <= ed->fired_ns)) {
		ed->stats.timer_late++;
		deadline_ns = ed->fired_ns + TUNNEL_LATE_NS;
	}
	tunnel->due.expires = ns_to_ktime(deadline_ns);
	timerqueue_add(&ed->due, &tunnel->due);
	tunnel_arm(ed);
}

/* ---- sending tunnels ---- */

static bool tunnel_tx_is(const struct eqds_tx *tx, const struct in6_addr *peer, u16 sender)
{
	return tx->core.id == sender && ipv6_addr_equal(&tx->tunnel.peer, peer);
}

/* sender: of the wire, the class of the tunnel. The one used last is looked at first. */
struct eqds_tx *eqds_tunnel_tx(struct eqds_dev *ed, const struct in6_addr *peer, u16 sender)
{
	struct eqds_tx *tx;

	if (list_empty(&ed->tx.lru))
		return NULL;
	tx = list_last_entry(&ed->tx.lru, struct eqds_tx, tunnel.lru);
	if (tunnel_tx_is(tx, peer, sender))
		return tx;
	hlist_for_each_entry(tx, tunnel_bucket(ed, &ed->tx, peer), tunnel.hash)
		if (tunnel_tx_is(tx, peer, sender))
			return tx;
	return NULL;
}

/* The core has closed it, so it holds no packet. */
static void tunnel_tx_free(struct eqds_dev *ed, struct eqds_tx *tx)
{
	lockdep_assert_held(&ed->lock);
	eqds_drr_remove(&tx->core);
	tunnel_unlink(ed, &tx->tunnel);
	kfree(tx);
}

/* The peer is told, as far as it knows of the tunnel; packets of the tunnel are dropped. */
static void tunnel_tx_close(struct eqds_dev *ed, struct eqds_tx *tx, struct eqds_work *work)
{
	struct eqds_out out;

	eqds_sender_close(&tx->core, &out);
	eqds_xmit_settle(ed, tx, &out, work);
	tunnel_tx_free(ed, tx);
}

/* The peer can't be reached: the tunnel ends, and senders of its packets are told. */
void eqds_tunnel_tx_lose(struct eqds_dev *ed, struct eqds_tx *tx, struct eqds_work *work)
{
	struct eqds_work end;

	lockdep_assert_held(&ed->lock);
	eqds_work_init(&end);
	tunnel_tx_close(ed, tx, &end);
	skb_queue_splice_tail(&end.emit, &work->emit);
	skb_queue_splice_tail(&end.free, &work->lost);
}

/* A translator of addresses is on the way, and keeps the peer's answers. */
static void tunnel_tx_translated(struct eqds_dev *ed, struct eqds_tx *tx, struct eqds_work *work)
{
	lockdep_assert_held(&ed->lock);
	ed->stats.tx_translated++;
	if (!ed->translation_told)
		netdev_warn(ed->dev,
			    "NAT between this host and %pI6c drops answers to UDP port %u, so no tunnel opens: forward that port unchanged\n",
			    &tx->tunnel.peer, EQDS_PORT);
	ed->translation_told = true;
	eqds_tunnel_tx_lose(ed, tx, work);
}

/*
 * At the cap, the tunnel used longest ago that has no packets makes room. One with packets, which a
 * peer can hold for as long as it likes, goes to the end of the order, so that the next look-up
 * finds others. Returns false if all that were looked at have packets.
 */
static bool tunnel_tx_room(struct eqds_dev *ed, struct eqds_work *work)
{
	u32 evicted = 0;

	for (u32 n = 0; n < TUNNEL_LOOKS && evicted < TUNNEL_EVICT_MAX; n++) {
		struct eqds_tx *oldest;

		if (ed->tx.count < ed->tunnels_max)
			break;
		oldest = list_first_entry(&ed->tx.lru, struct eqds_tx, tunnel.lru);
		if (!oldest->core.resting) {
			list_move_tail(&oldest->tunnel.lru, &ed->tx.lru);
			continue;
		}
		tunnel_tx_close(ed, oldest, work);
		ed->stats.tx_evicted++;
		evicted++;
	}
	return evicted || ed->tx.count < ed->tunnels_max;
}

/* The tunnel of a class to peer, made if there is none. NULL: no memory, or at the cap. */
struct eqds_tx *eqds_tunnel_tx_get(struct eqds_dev *ed, const struct in6_addr *peer, u8 kind,
				   struct eqds_work *work)
{
	struct eqds_tx *tx = eqds_tunnel_tx(ed, peer, kind);
	u64 seed;

	lockdep_assert_held(&ed->lock);
	if (tx) {
		list_move_tail(&tx->tunnel.lru, &ed->tx.lru);
		return tx;
	}
	if (!tunnel_tx_room(ed, work))
		return NULL;
	tx = kzalloc(struct_size(tx, slot, ed->config.window_packets), GFP_ATOMIC | __GFP_NOWARN);
	if (!tx)
		return NULL;
	eqds_class_queue_init(&tx->queue);
	seed = get_random_u64();
	eqds_paths_init(&tx->paths, tx->path, EQDS_PATHS, seed);
	eqds_sender_init(&tx->core, &ed->config, tx->slot, &tx->paths, kind, get_random_u32(), 0);
	tunnel_link(ed, &ed->tx, &tx->tunnel, peer);
	trace_eqds_open(ed, &tx->tunnel, kind, tx->core.epoch, seed);
	return tx;
}

static void tunnel_tx_expire(struct eqds_dev *ed, struct eqds_tx *tx, u64 now_ns,
			     struct eqds_work *work)
{
	const u32 in_flight = tx->core.in_flight.count;
	struct eqds_out out;

	if (tx->core.translated && tx->core.state != EQDS_SENDER_ESTABLISHED && !tx->core.resting &&
	    now_ns > tx->core.heard_ns + EQDS_SILENT_TRANSLATED_NS) {
		tunnel_tx_translated(ed, tx, work);
		return;
	}
	if (!tx->core.resting && now_ns > tx->core.heard_ns + EQDS_SILENT_NS) {
		ed->stats.tx_given_up++;
		eqds_tunnel_tx_lose(ed, tx, work);
		return;
	}
	trace_eqds_expire(ed, tx);
	eqds_sender_expire(&tx->core, now_ns, &out);
	ed->stats.tx_expired++;
	ed->stats.tx_timeouts += in_flight - tx->core.in_flight.count;
	eqds_xmit_settle(ed, tx, &out, work);
	if (tx->core.state == EQDS_SENDER_CLOSED)
		tunnel_tx_free(ed, tx);
}

/* ---- receiving tunnels ---- */

static bool tunnel_rx_is(const struct eqds_rx *rx, const struct eqds_cb *cb, u16 sender)
{
	return rx->core.id == sender && ipv6_addr_equal(&rx->tunnel.peer, &cb->peer) &&
	       ipv6_addr_equal(&rx->tunnel.local, &cb->local);
}

/*
 * A tunnel from the peer to the address that its packet came to: this host may have several. The
 * one used last is looked at first.
 */
struct eqds_rx *eqds_tunnel_rx(struct eqds_dev *ed, const struct eqds_cb *cb, u16 sender)
{
	struct eqds_rx *rx;

	if (list_empty(&ed->rx.lru))
		return NULL;
	rx = list_last_entry(&ed->rx.lru, struct eqds_rx, tunnel.lru);
	if (tunnel_rx_is(rx, cb, sender))
		return rx;
	hlist_for_each_entry(rx, tunnel_bucket(ed, &ed->rx, &cb->peer), tunnel.hash) {
		if (tunnel_rx_is(rx, cb, sender)) {
			list_move_tail(&rx->tunnel.lru, &ed->rx.lru);
			return rx;
		}
	}
	return NULL;
}

/* The core has closed it, so it holds no packet and is in no list of the core's. */
void eqds_tunnel_rx_free(struct eqds_dev *ed, struct eqds_rx *rx)
{
	lockdep_assert_held(&ed->lock);
	list_del(&rx->replying);
	eqds_key_cookie_used(ed, &rx->tunnel.peer);
	tunnel_unlink(ed, &rx->tunnel);
	kfree(rx);
}

static void tunnel_rx_close(struct eqds_dev *ed, struct eqds_rx *rx, struct eqds_work *work)
{
	struct eqds_out out;

	eqds_receiver_close(&rx->core, &out);
	eqds_recv_settle(ed, rx, &out, work); /* frees rx */
}

/* A tunnel that the core admitted. At the cap, the one used longest ago goes. NULL: no memory. */
struct eqds_rx *eqds_tunnel_rx_new(struct eqds_dev *ed, const struct eqds_cb *cb, u16 sender,
				   u64 cookie, struct eqds_work *work)
{
	struct eqds_rx *rx;

	for (u32 n = 0; n < TUNNEL_EVICT_MAX && ed->rx.count >= ed->tunnels_max; n++) {
		rx = list_first_entry(&ed->rx.lru, struct eqds_rx, tunnel.lru);
		tunnel_rx_close(ed, rx, work);
		ed->stats.rx_evicted++;
	}
	rx = kzalloc(struct_size(rx, slot, ed->config.window_packets), GFP_ATOMIC | __GFP_NOWARN);
	if (!rx)
		return NULL;
	INIT_LIST_HEAD(&rx->replying);
	eqds_receiver_init(&rx->core, &ed->config, &ed->asl, rx->slot, sender, cookie);
	rx->tunnel.local = cb->local;
	tunnel_link(ed, &ed->rx, &rx->tunnel, &cb->peer);
	trace_eqds_open(ed, &rx->tunnel, sender, 0, cookie);
	eqds_rule_share(ed, rx);
	return rx;
}

/* ---- time and end ---- */

static u64 tunnel_deadline_ns(const struct eqds_tunnel *tunnel)
{
	const struct eqds_rx *rx = container_of(tunnel, struct eqds_rx, tunnel);
	const struct eqds_tx *tx = container_of(tunnel, struct eqds_tx, tunnel);

	return tunnel->sending ? eqds_sender_deadline_ns(&tx->core)
			       : eqds_receiver_deadline_ns(&rx->core);
}

static void tunnel_expire(struct eqds_dev *ed, struct eqds_tunnel *tunnel, u64 now_ns,
			  struct eqds_work *work)
{
	struct eqds_rx *rx = container_of(tunnel, struct eqds_rx, tunnel);
	struct eqds_tx *tx = container_of(tunnel, struct eqds_tx, tunnel);
	const u64 deadline_ns = tunnel_deadline_ns(tunnel);

	timerqueue_del(&ed->due, &tunnel->due);
	if (tunnel->sending && tx->core.state == EQDS_SENDER_CLOSED)
		tunnel_tx_free(ed, tx);
	else if (deadline_ns > now_ns)
		eqds_tunnel_due(ed, tunnel, deadline_ns);
	else if (tunnel->sending)
		tunnel_tx_expire(ed, tx, now_ns, work);
	else
		tunnel_rx_close(ed, rx, work);
}

/* Arm the timer anew if it is about to fire for tunnels whose deadlines have moved on. */
void eqds_tunnel_postpone(struct eqds_dev *ed, u64 now_ns)
{
	const u64 soon_ns = now_ns + TUNNEL_SOON_NS;
	struct timerqueue_node *first = timerqueue_getnext(&ed->due);

	lockdep_assert_held(&ed->lock);
	if (!ed->up || ed->due_ns > soon_ns)
		return;
	for (u32 n = 0; n < TUNNEL_POSTPONE_MAX && first && (u64)first->expires <= soon_ns; n++) {
		struct eqds_tunnel *tunnel = container_of(first, struct eqds_tunnel, due);
		const u64 deadline_ns = tunnel_deadline_ns(tunnel);

		/* Of a closed one, the timer frees the memory. */
		if (deadline_ns <= soon_ns || deadline_ns == EQDS_NEVER)
			return;
		timerqueue_del(&ed->due, first);
		first->expires = ns_to_ktime(deadline_ns);
		timerqueue_add(&ed->due, first);
		first = timerqueue_getnext(&ed->due);
	}
	ed->due_ns = EQDS_NEVER;
	tunnel_arm(ed);
}

enum hrtimer_restart eqds_tunnel_fire(struct hrtimer *timer)
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
	for (u32 n = 0; n < TUNNEL_FIRE_MAX && ed->up; n++) {
		first = timerqueue_getnext(&ed->due);
		if (!first || (u64)first->expires > now_ns)
			break;
		tunnel_expire(ed, container_of(first, struct eqds_tunnel, due), now_ns, &work);
	}
	ed->fired_ns = 0;
	eqds_xmit_ready(ed, now_ns, &work);
	eqds_reply_flush(ed, &work);
	ed->due_ns = EQDS_NEVER;
	tunnel_arm(ed);
	spin_unlock_bh(&ed->lock);
	eqds_work_run(ed, &work);
	return HRTIMER_NORESTART;
}

/* Lock, with the device marked down. */
void eqds_tunnel_close_all(struct eqds_dev *ed, struct eqds_work *work)
{
	struct eqds_tx *tx, *next_tx;
	struct eqds_rx *rx, *next_rx;

	list_for_each_entry_safe(tx, next_tx, &ed->tx.lru, tunnel.lru)
		tunnel_tx_close(ed, tx, work);
	list_for_each_entry_safe(rx, next_rx, &ed->rx.lru, tunnel.lru)
		tunnel_rx_close(ed, rx, work);
}

/*
 * Memory is short: ends tunnels that hold nothing, and were not used since before_ns. Looks at so
 * many of each direction, in the order of use, and returns how many went.
 */
u32 eqds_tunnel_shrink(struct eqds_dev *ed, u64 before_ns, u32 looks, struct eqds_work *work)
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
			tunnel_tx_close(ed, tx, work);
		else if (!tx->core.resting)
			list_move_tail(&tx->tunnel.lru, &ed->tx.lru);
	}
	list_for_each_entry_safe(rx, next_rx, &ed->rx.lru, tunnel.lru) {
		if (rx_looks++ >= looks)
			break;
		if (!rx->core.held && !rx->core.active && rx->core.used_ns < before_ns)
			tunnel_rx_close(ed, rx, work);
	}
	return was - ed->tx.count - ed->rx.count;
}
