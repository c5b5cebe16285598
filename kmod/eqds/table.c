// SPDX-License-Identifier: GPL-2.0
/*
 * The tunnels of a device: two tables by peer, an order of use, and an order of deadlines.
 *
 *   due:  [ earliest ] ... [ latest ]     one timer of the device fires for the earliest (life.c)
 *
 * Most packets move a deadline farther away. The order keeps the earlier time; when that fires, the
 * tunnel's real deadline is looked up. Thus a packet costs no timer operation. If a poll finds the
 * timer about to fire for nothing, it arms it anew, which costs less than an interrupt.
 */
#include "eqds/table.h"

#include <linux/random.h>
#include <net/ipv6.h>

/* A deadline's delay if it stays in the past: a fault there costs little CPU time. */
#define TABLE_LATE_NS (10 * NSEC_PER_MSEC)
/* The timer is about to fire: within a quarter of the least timeout. */
#define TABLE_SOON_NS (500 * NSEC_PER_USEC)
/* Tunnels that one poll moves in the order of deadlines. */
#define TABLE_POSTPONE_MAX 8

static void table_init(struct eqds_table *table)
{
	for (u32 i = 0; i < ARRAY_SIZE(table->hash); i++)
		INIT_HLIST_HEAD(&table->hash[i]);
	INIT_LIST_HEAD(&table->lru);
	table->count = 0;
}

/* With the device down. */
void eqds_table_init(struct eqds_dev *ed)
{
	table_init(&ed->tx);
	table_init(&ed->rx);
	INIT_LIST_HEAD(&ed->replies);
	timerqueue_init_head(&ed->due);
	ed->due_ns = EQDS_NEVER;
	ed->pull_ns = EQDS_NEVER;
	ed->hash_seed = get_random_u32();
	get_random_bytes(&ed->cookie_key, sizeof(ed->cookie_key));
}

static struct hlist_head *table_bucket(struct eqds_dev *ed, struct eqds_table *table,
				       const struct in6_addr *peer)
{
	u32 hash = __ipv6_addr_jhash(peer, ed->hash_seed);

	return &table->hash[hash >> (32 - EQDS_HASH_BITS)];
}

void eqds_table_link(struct eqds_dev *ed, struct eqds_table *table, struct eqds_tunnel *tunnel,
		     const struct in6_addr *peer)
{
	tunnel->peer = *peer;
	tunnel->sending = table == &ed->tx;
	timerqueue_init(&tunnel->due);
	hlist_add_head(&tunnel->hash, table_bucket(ed, table, peer));
	list_add_tail(&tunnel->lru, &table->lru);
	table->count++;
}

void eqds_table_unlink(struct eqds_dev *ed, struct eqds_tunnel *tunnel)
{
	struct eqds_table *table = tunnel->sending ? &ed->tx : &ed->rx;

	if (!RB_EMPTY_NODE(&tunnel->due.node))
		timerqueue_del(&ed->due, &tunnel->due);
	hlist_del(&tunnel->hash);
	list_del(&tunnel->lru);
	table->count--;
}

/* ---- look-ups ---- */

static bool table_tx_is(const struct eqds_tx *tx, const struct in6_addr *peer, u16 sender)
{
	return tx->core.id == sender && ipv6_addr_equal(&tx->tunnel.peer, peer);
}

/* sender: of the wire, the class of the tunnel. The one used last is looked at first. */
struct eqds_tx *eqds_table_tx(struct eqds_dev *ed, const struct in6_addr *peer, u16 sender)
{
	struct eqds_tx *tx;

	if (list_empty(&ed->tx.lru))
		return NULL;
	tx = list_last_entry(&ed->tx.lru, struct eqds_tx, tunnel.lru);
	if (table_tx_is(tx, peer, sender))
		return tx;
	hlist_for_each_entry(tx, table_bucket(ed, &ed->tx, peer), tunnel.hash)
		if (table_tx_is(tx, peer, sender))
			return tx;
	return NULL;
}

static bool table_rx_is(const struct eqds_rx *rx, const struct eqds_cb *cb, u16 sender)
{
	return rx->core.id == sender && ipv6_addr_equal(&rx->tunnel.peer, &cb->peer) &&
	       ipv6_addr_equal(&rx->tunnel.local, &cb->local);
}

/*
 * A tunnel from the peer to the address that its packet came to: this host may have several. The
 * one used last is looked at first.
 */
struct eqds_rx *eqds_table_rx(struct eqds_dev *ed, const struct eqds_cb *cb, u16 sender)
{
	struct eqds_rx *rx;

	if (list_empty(&ed->rx.lru))
		return NULL;
	rx = list_last_entry(&ed->rx.lru, struct eqds_rx, tunnel.lru);
	if (table_rx_is(rx, cb, sender))
		return rx;
	hlist_for_each_entry(rx, table_bucket(ed, &ed->rx, &cb->peer), tunnel.hash) {
		if (table_rx_is(rx, cb, sender)) {
			list_move_tail(&rx->tunnel.lru, &ed->rx.lru);
			return rx;
		}
	}
	return NULL;
}

/* ---- deadlines ---- */

u64 eqds_table_deadline_ns(const struct eqds_tunnel *tunnel)
{
	const struct eqds_rx *rx = container_of(tunnel, struct eqds_rx, tunnel);
	const struct eqds_tx *tx = container_of(tunnel, struct eqds_tx, tunnel);

	return tunnel->sending ? eqds_sender_deadline_ns(&tx->core)
			       : eqds_receiver_deadline_ns(&rx->core);
}

void eqds_table_arm(struct eqds_dev *ed)
{
	struct timerqueue_node *first = timerqueue_getnext(&ed->due);

	if (!first || !ed->up || first->expires >= (ktime_t)min_t(u64, ed->due_ns, KTIME_MAX))
		return;
	ed->due_ns = first->expires;
	hrtimer_start(&ed->due_timer, first->expires, HRTIMER_MODE_ABS_SOFT);
}

/* The deadline of tunnel is now deadline_ns. */
void eqds_table_due(struct eqds_dev *ed, struct eqds_tunnel *tunnel, u64 deadline_ns)
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
		deadline_ns = ed->fired_ns + TABLE_LATE_NS;
	}
	tunnel->due.expires = ns_to_ktime(deadline_ns);
	timerqueue_add(&ed->due, &tunnel->due);
	eqds_table_arm(ed);
}

/* Arm the timer anew if it is about to fire for tunnels whose deadlines have moved on. */
void eqds_table_postpone(struct eqds_dev *ed, u64 now_ns)
{
	const u64 soon_ns = now_ns + TABLE_SOON_NS;
	struct timerqueue_node *first = timerqueue_getnext(&ed->due);

	lockdep_assert_held(&ed->lock);
	if (!ed->up || ed->due_ns > soon_ns)
		return;
	for (u32 n = 0; n < TABLE_POSTPONE_MAX && first && (u64)first->expires <= soon_ns; n++) {
		struct eqds_tunnel *tunnel = container_of(first, struct eqds_tunnel, due);
		const u64 deadline_ns = eqds_table_deadline_ns(tunnel);

		/* Of a closed one, the timer frees the memory. */
		if (deadline_ns <= soon_ns || deadline_ns == EQDS_NEVER)
			return;
		timerqueue_del(&ed->due, first);
		first->expires = ns_to_ktime(deadline_ns);
		timerqueue_add(&ed->due, first);
		first = timerqueue_getnext(&ed->due);
	}
	ed->due_ns = EQDS_NEVER;
	eqds_table_arm(ed);
}
