// SPDX-License-Identifier: GPL-2.0
#include "rmem/channel.h"

#include <linux/random.h>
#include <linux/rculist.h>
#include <linux/slab.h>
#include <net/sock.h>

#include "rmem/packet.h"
#include "rmem/skb.h"
#include "rmem/trace.h"

/* Silence that is not loss: the largest RTO is a second. */
#define CHANNEL_DOWN_NS (2 * NSEC_PER_SEC)
/* After a signal: what an answer under way is waited for, so that what it grants is given back. */
#define CHANNEL_LINGER_MS 1000U

/* ---- channels by their bit in the windows' waiters ---- */

static DEFINE_SPINLOCK(waiters_lock); /* guards changes; readers are under rcu_read_lock() */
static struct hlist_head waiters[RMEM_WAITERS];
static unsigned int waiters_next;

struct rmem_incast rmem_channel_incast; /* initialised by main.c */

/* ---- what the core wants done ---- */

/* Packets built under the lock, to be sent after it. */
struct packets {
	struct sk_buff *first, **end;
};

static void packets_init(struct packets *packets)
{
	packets->first = NULL;
	packets->end = &packets->first;
}

static void queue(struct packets *packets, struct rmem_packet *packet)
{
	if (!packet->skb)
		return;
	*packets->end = packet->skb;
	packets->end = &packet->skb->next;
	packet->skb = NULL;
}

static void build(struct rmem_channel *c, u64 now_ns, struct packets *packets)
	__must_hold(&c->lock)
{
	struct rmem_device *device = c->device;
	struct rmem_packet packet = {};
	struct rmem_client_tx tx;
	bool copied = false;

	while (rmem_client_next(&c->client, now_ns, &tx)) {
		if (!rmem_packet_takes(&packet, &tx, device->datagram_bytes))
			queue(packets, &packet);
		if (unlikely(!rmem_packet_add(&packet, &c->client.config, &tx,
					      rmem_client_row(&c->client, &tx), &copied))) {
			/* The core sets a deadline for the part, hence the timer goes off. */
			rmem_client_unsent(&c->client, &tx, now_ns);
			rmem_count(device, RMEM_COUNT_NO_BUFFER);
			trace_rmem_unsent(c, &tx.head);
			continue;
		}
		if (unlikely(copied)) {
			rmem_count(device, RMEM_COUNT_COPIED);
			copied = false;
		}
		trace_rmem_send(c, &tx.head);
	}
	queue(packets, &packet);
	trace_rmem_wait(c);
}

/*
 * The timer is moved to an earlier deadline only. Deadlines of ops that were answered so
 * cost nothing: the timer goes off once per timeout at most, and finds what is next.
 */
static void arm(struct rmem_channel *c) __must_hold(&c->lock)
{
	u64 deadline_ns = rmem_client_deadline(&c->client);

	if (!deadline_ns || (c->armed_ns && c->armed_ns <= deadline_ns))
		return;
	c->armed_ns = deadline_ns;
	hrtimer_start(&c->timer, ns_to_ktime(deadline_ns), HRTIMER_MODE_ABS_SOFT);
}

/*
 * A change that failed for fail_after may have a copy on its way. Were the same place written
 * again by another channel, the copy could come after that. So while a channel that gave
 * such a change up waits for its session to be renewed (which makes the node refuse the copy), the
 * whole device fails what it is asked: the node has been silent for fail_after anyway.
 */
static void fence(struct rmem_channel *c) __must_hold(&c->lock)
{
	if (c->fences || c->client.state != RMEM_CHANNEL_OPENING)
		return;
	c->fences = true;
	atomic_inc(&c->device->fences);
}

static void unfence(struct rmem_channel *c) __must_hold(&c->lock)
{
	if (!c->fences)
		return;
	c->fences = false;
	atomic_dec(&c->device->fences);
}

static void note_state(struct rmem_channel *c, enum rmem_client_state before)
	__must_hold(&c->lock)
{
	enum rmem_client_state state = c->client.state;

	if (likely(state == before))
		return;
	trace_rmem_channel_state(c, before, state);
	if (state != RMEM_CHANNEL_OPENING)
		unfence(c);
	if (state == RMEM_CHANNEL_LOST)
		rmem_status_lost(c->device);
	wake_up_all(&c->device->changed);
}

/* To be called before the lock is dropped after whatever was told to the core. */
static void settle(struct rmem_channel *c, u64 now_ns, enum rmem_client_state before,
		   struct packets *packets) __must_hold(&c->lock)
{
	build(c, now_ns, packets);
	arm(c);
	note_state(c, before);
}

/* BH disabled; not under the lock: other CPUs' answers needn't wait for the network. */
static void transmit(struct rmem_channel *c, struct packets *packets)
{
	struct sk_buff *skb = packets->first, *next;
	int how;

	for (; skb; skb = next) {
		next = skb->next;
		skb_mark_not_on_list(skb);
		/* What doesn't leave here counts as lost on the way. */
		how = rmem_socket_transmit(&c->socket, skb);
		if (unlikely(how))
			rmem_count(c->device, how > 0	     ? RMEM_COUNT_SPARE :
					      how == -ENOMEM ? RMEM_COUNT_NO_BUFFER :
							       RMEM_COUNT_NO_ROUTE);
	}
}

static void finish_call(struct rmem_call *call, enum rmem_client_result result)
{
	call->result = result;
	complete(&call->done);
}

/* The core has no more to do with these. */
static void let_go(struct rmem_op *op)
{
	for (; op; op = op->next)
		op->held = false;
}

/* No lock held: ending a request may well start another. */
static void finish(struct rmem_channel *c, struct rmem_op *op, enum rmem_client_result result,
		   u64 now_ns)
{
	struct rmem_op *next;

	for (; op; op = next) {
		next = op->next;
		trace_rmem_finish(c, op, result);
		if (likely(result == RMEM_CLIENT_OK))
			rmem_status_count_time(c->device, op, now_ns);
		switch ((enum rmem_owner)op->owner) {
		case RMEM_OWNER_CALL:
			finish_call(container_of(op, struct rmem_call, op), result);
			break;
		case RMEM_OWNER_BLK:
			rmem_blk_finish(c->device, op, result);
			break;
		case RMEM_OWNER_CHR:
			rmem_chr_finish(c->device, op, result);
			break;
		}
	}
}

/* ---- windows ---- */

static void pump(struct rmem_channel *c)
{
	enum rmem_client_state before;
	struct packets packets;

	packets_init(&packets);
	spin_lock(&c->lock);
	if (likely(!c->stopped)) {
		before = c->client.state;
		settle(c, ktime_get_ns(), before, &packets);
	}
	spin_unlock(&c->lock);
	transmit(c, &packets);
}

/*
 * Credit may have been released: let go on who waits for it. c's lock was dropped, so no two
 * are held at once. BH disabled.
 */
static void kick(struct rmem_channel *c)
{
	u64 kicked = rmem_window_waiting(c->client.window) |
		     rmem_incast_waiting(c->client.incast);
	struct rmem_channel *waiter;

	if (likely(!kicked))
		return;
	rcu_read_lock();
	for (; kicked; kicked &= kicked - 1) {
		hlist_for_each_entry_rcu(waiter, &waiters[__ffs64(kicked)], waiter_entry) {
			rmem_count(waiter->device, RMEM_COUNT_KICKED);
			pump(waiter);
		}
	}
	rcu_read_unlock();
}

/* ---- events ---- */

static bool may_take(struct rmem_channel *c, const struct rmem_op *op) __must_hold(&c->lock)
{
	if (unlikely(c->stopped))
		return false;
	return op->owner == RMEM_OWNER_CALL ||
	       likely(!READ_ONCE(c->device->gone) && !atomic_read(&c->device->fences));
}

bool rmem_channel_submit(struct rmem_channel *c, struct rmem_op *op, bool last)
{
	struct packets packets;
	bool taken;
	u64 now_ns;

	packets_init(&packets);
	/* Until the packets are out: rmem_channel_free() comes after a grace period. */
	local_bh_disable();
	spin_lock(&c->lock);
	taken = may_take(c, op);
	if (likely(taken)) {
		now_ns = ktime_get_ns();
		trace_rmem_submit(c, op);
		op->held = true;
		rmem_client_submit(&c->client, op, now_ns);
		if (last)
			settle(c, now_ns, c->client.state, &packets);
	}
	spin_unlock(&c->lock);
	transmit(c, &packets);
	local_bh_enable();
	return taken;
}

void rmem_channel_commit(struct rmem_channel *c)
{
	local_bh_disable();
	pump(c);
	local_bh_enable();
}

static void expire(struct rmem_channel *c)
{
	enum rmem_client_result result = RMEM_CLIENT_OK;
	enum rmem_client_state before;
	struct rmem_op *finished = NULL;
	struct packets packets;
	bool silent = false;
	u64 now_ns = 0;

	packets_init(&packets);
	spin_lock(&c->lock);
	c->armed_ns = 0;
	if (likely(!c->stopped)) {
		u32 cwnd = rmem_window_cwnd(c->client.window);

		before = c->client.state;
		now_ns = ktime_get_ns();
		finished = rmem_client_expire(&c->client, now_ns, &result);
		let_go(finished);
		if (unlikely(finished && result == RMEM_CLIENT_TIMEOUT)) {
			fence(c);
			silent = true;
		}
		trace_rmem_expire(c);
		trace_rmem_shrink(c, cwnd);
		if (!c->client.silent)
			c->silent_ns = 0;
		else if (!c->silent_ns)
			c->silent_ns = now_ns;
		/* Under the lock, or an answer that comes just now would be overruled. */
		silent |= c->silent_ns && now_ns - c->silent_ns >= CHANNEL_DOWN_NS;
		if (unlikely(silent))
			rmem_status_silent(c->device);
		settle(c, now_ns, before, &packets);
	}
	spin_unlock(&c->lock);
	transmit(c, &packets);
	finish(c, finished, result, now_ns);
	kick(c);
}

static enum hrtimer_restart timer_due(struct hrtimer *timer)
{
	struct rmem_channel *c = container_of(timer, struct rmem_channel, timer);

	rcu_read_lock();
	expire(c);
	rcu_read_unlock();
	return HRTIMER_NORESTART;
}

static void count_drop(struct rmem_channel *c, struct sk_buff *skb, unsigned int reason)
{
	rmem_count(c->device, reason);
	trace_rmem_drop(c, skb, reason);
}

/* A message that verified, or did but for its payload; the last one of its datagram? */
static void receive(struct rmem_channel *c, const struct rmem_datagram *d, struct sk_buff *skb,
		    bool damaged, bool last)
{
	enum rmem_client_state before;
	struct rmem_client_rx rx = {};
	struct rmem_found found;
	struct packets packets;
	u64 now_ns;
	u32 cwnd;

	packets_init(&packets);
	spin_lock(&c->lock);
	if (unlikely(c->stopped)) {
		spin_unlock(&c->lock);
		count_drop(c, skb, RMEM_COUNT_DROP_STOPPED);
		return;
	}
	before = c->client.state;
	cwnd = rmem_window_cwnd(c->client.window);
	now_ns = ktime_get_ns();
	rmem_client_receive(&c->client, now_ns, &d->head,
			    damaged ? NULL : rmem_packet_payload(d, skb, &found), damaged, &rx);
	let_go(rx.finished);
	trace_rmem_receive(c, &d->head, rx.accepted, damaged);
	trace_rmem_shrink(c, cwnd);
	if (rx.op)
		rmem_packet_copy(d, skb, rx.op, rx.data_offset, rx.data_bytes);
	c->silent_ns = 0;
	if (last)
		settle(c, now_ns, before, &packets);
	else
		note_state(c, before);
	spin_unlock(&c->lock);

	transmit(c, &packets);
	finish(c, rx.finished, rx.result, now_ns);
}

/* The messages of a datagram. True: one at least was for us. */
static bool read_packet(struct rmem_channel *c, struct rmem_datagram *d, struct sk_buff *skb)
{
	const struct rmem_client_config *config = &c->client.config;
	bool any = false, settled = false;

	while (rmem_datagram_step(d, rmem_skb_hdrs(skb))) {
		enum rmem_wire_verdict verdict = rmem_skb_verify(d, &config->key, skb);

		if (unlikely(verdict != RMEM_WIRE_GOOD && verdict != RMEM_WIRE_DAMAGED)) {
			count_drop(c, skb, RMEM_COUNT_DROP_WIRE + verdict);
		} else if (unlikely(d->head.space != config->space ||
				    d->head.integrity != config->integrity)) {
			count_drop(c, skb, RMEM_COUNT_DROP_STRANGER);
		} else if (unlikely(d->head.integrity == RMEM_LINK && !udp_hdr(skb)->check)) {
			count_drop(c, skb, RMEM_COUNT_DROP_NO_CHECKSUM);
		} else {
			settled = d->steps == d->messages;
			receive(c, d, skb, verdict == RMEM_WIRE_DAMAGED, settled);
			any = true;
		}
	}
	/* The last one was no good: what the others changed is still to be seen to. */
	if (unlikely(any && !settled))
		pump(c);
	return any;
}

/*
 * A packet came in; its UDP checksum, if it has one, was right. It may lie in memory reserved
 * for swap (skb_pfmemalloc()), so it is used or dropped at once, and never kept.
 */
static int packet_in(struct sock *sk, struct sk_buff *skb)
{
	struct rmem_channel *c = rcu_dereference_sk_user_data(sk);
	enum rmem_wire_verdict verdict;
	struct rmem_datagram d;

	if (unlikely(!c)) {
		kfree_skb(skb);
		return 0;
	}
	verdict = rmem_packet_open(&d, skb);
	if (unlikely(verdict != RMEM_WIRE_GOOD))
		count_drop(c, skb, RMEM_COUNT_DROP_WIRE + verdict);
	if (unlikely(verdict != RMEM_WIRE_GOOD || !read_packet(c, &d, skb))) {
		kfree_skb(skb);
		return 0;
	}
	consume_skb(skb);
	rmem_socket_heard(&c->socket);
	rmem_status_heard(c->device);
	kick(c);
	return 0;
}

/* ---- life ---- */

static void config_init(struct rmem_client_config *config, const struct rmem_device *device,
			unsigned int waiter)
{
	get_random_bytes(config->client, sizeof(config->client));
	config->space = device->wish.space;
	config->integrity = device->wish.integrity;
	config->key = device->wish.key;
	config->piece_bytes = device->piece_bytes;
	config->datagram_bytes = device->datagram_bytes;
	config->fail_after_ns = device->wish.fail_after_ms * (u64)NSEC_PER_MSEC;
	config->seed = get_random_u64();
	config->waiter = waiter;
}

struct rmem_channel *rmem_channel_new(struct rmem_device *device, unsigned int index)
{
	struct rmem_channel *c = kvzalloc(sizeof(*c), GFP_KERNEL);
	int err;

	if (!c)
		return ERR_PTR(-ENOMEM);
	c->device = device;
	c->index = index;
	c->stopped = true;
	spin_lock_init(&c->lock);
	hrtimer_init(&c->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
	c->timer.function = timer_due;
	err = rmem_socket_open(&c->socket, &device->wish.address, packet_in, c);
	if (err) {
		kvfree(c);
		return ERR_PTR(err);
	}
	spin_lock_bh(&waiters_lock);
	c->waiter = waiters_next++ % RMEM_WAITERS;
	hlist_add_head_rcu(&c->waiter_entry, &waiters[c->waiter]);
	spin_unlock_bh(&waiters_lock);
	return c;
}

void rmem_channel_open(struct rmem_channel *c, u64 boot)
{
	struct rmem_client_counters count;
	struct rmem_client_config config;

	config_init(&config, c->device, c->waiter);

	spin_lock_bh(&c->lock);
	count = c->client.count;
	rmem_client_init(&c->client, &config, &c->device->remote->window, &rmem_channel_incast,
			 boot);
	c->client.count = count;
	rmem_client_open(&c->client, ktime_get_ns());
	c->silent_ns = 0;
	unfence(c);
	c->stopped = false;
	spin_unlock_bh(&c->lock);

	memzero_explicit(&config, sizeof(config));

	local_bh_disable();
	pump(c);
	local_bh_enable();
}

void rmem_channel_cancel(struct rmem_channel *c, enum rmem_client_result result)
{
	struct rmem_op *finished = NULL;

	spin_lock_bh(&c->lock);
	if (!c->stopped)
		finished = rmem_client_cancel_all(&c->client);
	let_go(finished);
	spin_unlock_bh(&c->lock);

	local_bh_disable();
	finish(c, finished, result, 0);
	if (c->client.window)
		kick(c);
	local_bh_enable();
}

bool rmem_channel_take_back(struct rmem_channel *c, struct rmem_op *op)
{
	enum rmem_client_state before;
	bool held;

	spin_lock_bh(&c->lock);
	held = op->held;
	if (held) {
		before = c->client.state;
		rmem_client_cancel(&c->client, op, ktime_get_ns());
		op->held = false;
		note_state(c, before);
	}
	spin_unlock_bh(&c->lock);
	return held;
}

void rmem_channel_taken_back(struct rmem_channel *c, struct rmem_op *op)
{
	local_bh_disable();
	finish(c, op, RMEM_CLIENT_CANCELLED, 0);
	pump(c);
	kick(c);
	local_bh_enable();
}

void rmem_channel_close(struct rmem_channel *c)
{
	enum rmem_client_state before;
	struct packets packets;
	u64 now_ns;

	packets_init(&packets);
	local_bh_disable();
	spin_lock(&c->lock);
	if (!c->stopped) {
		before = c->client.state;
		now_ns = ktime_get_ns();
		rmem_client_close(&c->client, now_ns);
		settle(c, now_ns, before, &packets);
	}
	spin_unlock(&c->lock);
	transmit(c, &packets);
	local_bh_enable();
}

void rmem_channel_stop(struct rmem_channel *c)
{
	rmem_socket_deafen(&c->socket);
	rmem_channel_cancel(c, RMEM_CLIENT_CANCELLED);

	spin_lock_bh(&waiters_lock);
	if (!hlist_unhashed(&c->waiter_entry))
		hlist_del_init_rcu(&c->waiter_entry);
	spin_unlock_bh(&waiters_lock);

	spin_lock_bh(&c->lock);
	unfence(c);
	c->stopped = true;
	spin_unlock_bh(&c->lock);
	hrtimer_cancel(&c->timer);
}

void rmem_channel_free(struct rmem_channel *c)
{
	rmem_socket_close(&c->socket);
	kvfree_sensitive(c, sizeof(*c));
}

int rmem_channel_call(struct rmem_channel *c, struct rmem_call *call, unsigned int timeout_ms)
{
	long left;

	call->op.owner = RMEM_OWNER_CALL;
	init_completion(&call->done);
	if (!rmem_channel_submit(c, &call->op, true))
		return -ESHUTDOWN;
	left = wait_for_completion_interruptible_timeout(&call->done,
							 msecs_to_jiffies(timeout_ms));
	if (left > 0)
		return 0;
	/* The signal is seen again by whoever waits next. */
	if (left < 0 && wait_for_completion_timeout(&call->done,
						    msecs_to_jiffies(CHANNEL_LINGER_MS)))
		return 0;
	rmem_channel_cancel(c, RMEM_CLIENT_CANCELLED);
	wait_for_completion(&call->done);
	return call->result == RMEM_CLIENT_CANCELLED ? -ETIMEDOUT : 0;
}
