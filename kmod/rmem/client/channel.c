// SPDX-License-Identifier: GPL-2.0
#include "rmem/client/channel.h"

#include <linux/highmem.h>
#include <linux/random.h>
#include <linux/rculist.h>
#include <linux/slab.h>

#include "core/rmem/datagram.h"
#include "rmem/client/count.h"
#include "rmem/client/reserve.h"
#include "rmem/client/status.h"
#include "rmem/client/trace.h"
#include "rmem_seal_ops.h"

/* Silence that is not loss, where messages can be lost: the largest RTO is a second. */
#define CHANNEL_DOWN_NS (2 * NSEC_PER_SEC)
/* After a signal: longest wait for an answer under way, so that its grant is given back. */
#define CHANNEL_LINGER_MS 1000U
/* The timer's pause if a deadline stays in the past: a fault there costs little CPU time. */
#define CHANNEL_LATE_NS (10 * NSEC_PER_MSEC)

/* ---- channels by their name as waiters for the incast window ---- */

static DEFINE_SPINLOCK(waiters_lock); /* guards changes; readers are under rcu_read_lock() */
static struct hlist_head waiters[RMEM_WAITERS];
static unsigned int waiters_next;

struct rmem_incast rmem_channel_incast; /* initialised by main.c */

/* ---- actions of the core ---- */

/* Messages, no more than there is room for; returns how many. */
static u32 channel_build_row(struct rmem_channel *c, u64 now_ns, struct rmem_batch *batch, u32 room)
	__must_hold(&c->lock)
{
	struct rmem_client_tx tx;
	u32 sent = 0;

	lockdep_assert_held(&c->lock);
	rmem_client_set_room(&c->client, room);
	for (; rmem_client_next(&c->client, now_ns, &tx); sent++) {
		if (unlikely(!c->path->transport->add(c->path, batch, &tx,
						      rmem_client_row(&c->client, &tx)))) {
			/* The core sets a deadline for the part, hence the timer goes off. */
			rmem_client_unsent(&c->client, &tx, now_ns);
			trace_rmem_unsent(c, &tx.head);
			continue;
		}
		trace_rmem_send(c, &tx.head);
	}
	return sent;
}

/* Returns how many messages the core yielded. */
static u32 channel_build(struct rmem_channel *c, u64 now_ns, struct rmem_batch *batch)
	__must_hold(&c->lock)
{
	const struct rmem_transport_ops *transport = c->path->transport;
	u32 room, sent, all = 0, left = RMEM_ROW_MAX;

	lockdep_assert_held(&c->lock);
	if (transport->loans)
		rmem_client_set_lending(&c->client, transport->loans->lends(c->path));
	/* A path that went down meanwhile has room: messages are lost there. */
	do {
		room = transport->credit ? transport->credit->room(c->path, batch) : U32_MAX;
		sent = channel_build_row(c, now_ns, batch, min(room, left));
		all += sent;
		left -= min(sent, left); /* OPEN and CLOSE need no room */
	} while (left && sent >= room && (room || !transport->credit->wait(c->path)));
	if (!left)
		rmem_client_yield(&c->client, now_ns);
	trace_rmem_wait(c);
	return all;
}

/*
 * The timer is moved to an earlier deadline only. Deadlines of ops that were answered so
 * cost nothing: the timer goes off once per timeout at most, and finds the next one.
 * after_ns: the deadline must be later, or 0 if it need not.
 */
static void channel_arm(struct rmem_channel *c, u64 after_ns) __must_hold(&c->lock)
{
	u64 deadline_ns = rmem_client_deadline(&c->client);

	lockdep_assert_held(&c->lock);
	if (unlikely(deadline_ns && deadline_ns <= after_ns)) {
		rmem_count(c->device, RMEM_COUNT_TIMER_LATE);
		deadline_ns = after_ns + CHANNEL_LATE_NS;
	}
	if (!deadline_ns || (c->armed_ns && c->armed_ns <= deadline_ns))
		return;
	c->armed_ns = deadline_ns;
	hrtimer_start(&c->timer, ns_to_ktime(deadline_ns), HRTIMER_MODE_ABS_SOFT);
}

/*
 * A change that failed for fail_after can have a copy on its way. Were the same place written
 * again by another channel, the copy could come after that. So while a channel that gave
 * such a change up waits for its session to be renewed (which makes the node refuse the copy), the
 * whole device fails all requests: the node has been silent for fail_after anyway.
 */
static void channel_fence(struct rmem_channel *c) __must_hold(&c->lock)
{
	lockdep_assert_held(&c->lock);
	if (c->fences || c->client.state != RMEM_CHANNEL_OPENING)
		return;
	c->fences = true;
	atomic_inc(&c->device->fences);
}

static void channel_unfence(struct rmem_channel *c) __must_hold(&c->lock)
{
	lockdep_assert_held(&c->lock);
	if (!c->fences)
		return;
	c->fences = false;
	atomic_dec(&c->device->fences);
}

static void channel_note_state(struct rmem_channel *c, enum rmem_client_state before)
	__must_hold(&c->lock)
{
	enum rmem_client_state state = c->client.state;

	lockdep_assert_held(&c->lock);
	if (likely(state == before))
		return;
	trace_rmem_channel_state(c, before, state);
	if (state != RMEM_CHANNEL_OPENING)
		channel_unfence(c);
	if (state == RMEM_CHANNEL_LOST)
		rmem_status_lost(c->device);
	wake_up_all(&c->device->changed);
}

/* To be called before the lock is dropped after any call of the core. */
static void channel_settle_state(struct rmem_channel *c, u64 now_ns, enum rmem_client_state before,
				 struct rmem_batch *batch) __must_hold(&c->lock)
{
	lockdep_assert_held(&c->lock);
	channel_build(c, now_ns, batch);
	channel_arm(c, 0);
	channel_note_state(c, before);
}

/*
 * The same after rmem_client_expire(). The core promises a later deadline then, unless it yielded
 * a message. A deadline in the past would start the timer again at once, for ever.
 */
static void channel_settle_expired(struct rmem_channel *c, u64 now_ns,
				   enum rmem_client_state before,
				   struct rmem_batch *batch) __must_hold(&c->lock)
{
	u32 sent = channel_build(c, now_ns, batch);

	lockdep_assert_held(&c->lock);
	channel_arm(c, sent ? 0 : now_ns);
	channel_note_state(c, before);
}

/* BH disabled; not under the lock: other CPUs' answers needn't wait for the network. */
static void channel_transmit(struct rmem_channel *c, struct rmem_batch *batch)
{
	c->path->transport->flush(c->path, batch);
	rmem_reserve_tend(c->device, 0);
}

static void channel_call_end(struct rmem_op *op, enum rmem_client_result result)
{
	struct rmem_call *call = container_of(op, struct rmem_call, op);

	call->result = result;
	complete(&call->done);
}

static const struct rmem_op_ops call_ops = { .end = channel_call_end };

/* The core has no more to do with these. */
static void channel_let_go(struct rmem_op *op)
{
	for (; op; op = op->next)
		op->held = false;
}

/* No lock held: ending a request can start another. */
static void channel_finish(struct rmem_channel *c, struct rmem_op *op,
			   enum rmem_client_result result, u64 now_ns)
{
	struct rmem_op *next;

	for (; op; op = next) {
		next = op->next;
		trace_rmem_finish(c, op, result);
		if (likely(result == RMEM_CLIENT_OK))
			rmem_count_time(c->device, op, now_ns);
		if (likely(!op->own || !c->path->transport->loans->keeps(op, result)))
			op->ops->end(op, result);
	}
}

/* ---- the incast window ---- */

static void channel_pump(struct rmem_channel *c)
{
	enum rmem_client_state before;
	struct rmem_batch batch = {};

	spin_lock(&c->lock);
	if (likely(!c->stopped)) {
		before = c->client.state;
		channel_settle_state(c, ktime_get_ns(), before, &batch);
	}
	spin_unlock(&c->lock);
	channel_transmit(c, &batch);
}

/* The device's channels whose turn it is among each other. RCU. */
static void channel_kick_share(struct rmem_device *device)
{
	struct rmem_channel *waiter;
	unsigned int n;
	int next;

	for (n = 0; n < RMEM_INCAST_SLOTS; n++) {
		next = rmem_incast_next(&device->share.queue);
		if (likely(next == RMEM_WAITER_NONE))
			return;
		hlist_for_each_entry_rcu(waiter, &waiters[next], waiter_entry) {
			if (waiter->device == device)
				channel_pump(waiter);
		}
	}
}

/* A channel that waits for its device hands the turn on when it was served. RCU. */
static void channel_kick_waiters(int name)
{
	struct rmem_channel *waiter;

	hlist_for_each_entry_rcu(waiter, &waiters[name], waiter_entry) {
		rmem_count(waiter->device, RMEM_COUNT_KICKED);
		channel_pump(waiter);
		channel_kick_share(waiter->device);
	}
}

/*
 * Bytes might have been given back, or a channel's turn might have ended: let the next one send. It
 * takes bytes or ends its turn, so this ends. No channel's lock is held, so no two are held at
 * once. BH disabled.
 */
static void channel_kick(struct rmem_channel *c)
{
	unsigned int n;
	int next;

	rcu_read_lock();
	channel_kick_share(c->device);
	for (n = 0; n < RMEM_INCAST_SLOTS; n++) {
		next = rmem_incast_next(&rmem_channel_incast);
		if (likely(next == RMEM_WAITER_NONE))
			break;
		channel_kick_waiters(next);
	}
	rcu_read_unlock();
}

/* ---- events ---- */

static bool channel_may_take(struct rmem_channel *c, const struct rmem_op *op) __must_hold(&c->lock)
{
	lockdep_assert_held(&c->lock);
	if (unlikely(c->stopped))
		return false;
	return op->ops == &call_ops ||
	       likely(!READ_ONCE(c->device->gone) && !atomic_read(&c->device->fences));
}

bool rmem_channel_submit(struct rmem_channel *c, struct rmem_op *op, bool last)
{
	struct rmem_batch batch = {};
	bool taken;
	u64 now_ns;

	/* Until the packets are out: rmem_channel_free() comes after a grace period. */
	local_bh_disable();
	spin_lock(&c->lock);
	taken = channel_may_take(c, op);
	if (likely(taken)) {
		now_ns = ktime_get_ns();
		trace_rmem_submit(c, op);
		op->held = true;
		op->own = 0;
		rmem_client_submit(&c->client, op, now_ns);
		if (last)
			channel_settle_state(c, now_ns, c->client.state, &batch);
	}
	spin_unlock(&c->lock);
	channel_transmit(c, &batch);
	channel_kick(c);
	local_bh_enable();
	return taken;
}

void rmem_channel_commit(struct rmem_channel *c)
{
	local_bh_disable();
	channel_pump(c);
	channel_kick(c);
	local_bh_enable();
}

/*
 * Writes of swap that tasks needn't wait for any more (reserve.h), linked; the caller ends them.
 * Tasks wait for tags only if the channel has them all.
 */
static struct rmem_op *channel_drop_swap_out(struct rmem_channel *c, u64 now_ns)
	__must_hold(&c->lock)
{
	struct rmem_op *op, *dropped = NULL;

	lockdep_assert_held(&c->lock);
	if (c->device->params.ops->kind != RMEM_KIND_DISK || !c->device->disk ||
	    c->client.outstanding_ops < c->device->disk->queue->nr_requests ||
	    !rmem_reserve_tasks_have_memory())
		return NULL;
	for (op = rmem_client_never_sent(&c->client); op;) {
		if (!op->ops->swaps_out || !op->ops->swaps_out(op)) {
			op = op->next;
			continue;
		}
		rmem_client_cancel(&c->client, op, now_ns);
		op->held = false;
		op->next = dropped;
		dropped = op;
		op = rmem_client_never_sent(&c->client);
	}
	return dropped;
}

static void channel_expire(struct rmem_channel *c)
{
	enum rmem_client_result result = RMEM_CLIENT_OK;
	enum rmem_client_state before;
	struct rmem_op *finished = NULL, *dropped = NULL;
	struct rmem_batch batch = {};
	u64 now_ns = 0, silent_ns = 0;
	bool silent = false;

	spin_lock(&c->lock);
	c->armed_ns = 0;
	if (likely(!c->stopped)) {
		u32 cwnd = c->client.window.cwnd;

		before = c->client.state;
		now_ns = ktime_get_ns();
		finished = rmem_client_expire(&c->client, now_ns, &result);
		channel_let_go(finished);
		if (unlikely(finished && result == RMEM_CLIENT_TIMEOUT)) {
			channel_fence(c);
			silent = true;
		}
		trace_rmem_expire(c);
		trace_rmem_shrink(c, cwnd);
		if (!c->client.silent)
			c->silent_ns = 0;
		else if (!c->silent_ns)
			c->silent_ns = now_ns;
		/* Under the lock, or an answer that comes just now would be overruled. */
		silent |= c->silent_ns &&
			  (now_ns - c->silent_ns >= CHANNEL_DOWN_NS ||
			   !c->device->limits.may_lose);
		if (unlikely(silent)) {
			rmem_status_silent(c->device);
			silent_ns = c->silent_ns ? now_ns - c->silent_ns + 1 : 1;
			dropped = channel_drop_swap_out(c, now_ns);
		}
		channel_settle_expired(c, now_ns, before, &batch);
	}
	spin_unlock(&c->lock);
	channel_transmit(c, &batch);
	if (unlikely(silent_ns) && c->device->params.ops->kind == RMEM_KIND_DISK)
		rmem_reserve_tend(c->device, silent_ns);
	channel_finish(c, finished, result, now_ns);
	channel_finish(c, dropped, RMEM_CLIENT_CANCELLED, now_ns);
	channel_kick(c);
}

static enum hrtimer_restart channel_timer_due(struct hrtimer *timer)
{
	struct rmem_channel *c = container_of(timer, struct rmem_channel, timer);

	rcu_read_lock();
	channel_expire(c);
	rcu_read_unlock();
	return HRTIMER_NORESTART;
}

static void channel_drop(struct rmem_channel *c, enum rmem_path_count reason, u32 bytes)
{
	rmem_count(c->device, RMEM_COUNT_PATH + reason);
	trace_rmem_drop(c, bytes, RMEM_COUNT_PATH + reason);
}

/* The payload of an answer that carries no data. */
union answer {
	struct rmem_opened opened;
	struct rmem_opened_sealed opened_sealed;
	struct rmem_range range;
	struct rmem_found found;
	struct rmem_listed listed;
};

static const void *channel_answer_take(const struct rmem_record *record, union answer *answer)
{
	u8 type = record->head->type & ~RMEM_RESPONSE;

	if (record->damaged || !record->payload->bytes || !rmem_type_table[type].answer_bytes)
		return NULL;
	memset(answer, 0, sizeof(*answer));
	record->payload->copy(record->payload, 0, answer,
			      min_t(u32, record->payload->bytes, sizeof(*answer)));
	return answer;
}

struct copy_out {
	const struct rmem_payload *payload;
	u32 from;
};

static bool channel_copy_out(void *arg, struct page *page, u32 at, u32 bytes)
{
	struct copy_out *c = arg;
	u8 *to = kmap_local_page(page);

	c->payload->copy(c->payload, c->from, to + at, bytes);
	flush_dcache_page(page);
	kunmap_local(to);
	c->from += bytes;
	return true;
}

static void channel_receive(struct rmem_channel *c, const struct rmem_record *record)
{
	struct copy_out data = { .payload = record->payload };
	struct rmem_client_rx rx = {};
	enum rmem_client_state before;
	struct rmem_batch batch = {};
	union answer room;
	const void *answer = channel_answer_take(record, &room);
	u64 now_ns;
	u32 cwnd;

	spin_lock(&c->lock);
	if (unlikely(c->stopped)) {
		spin_unlock(&c->lock);
		rmem_count(c->device, RMEM_COUNT_DROP_STOPPED);
		trace_rmem_drop(c, RMEM_HEADS_BYTES(1) + record->payload->bytes,
				RMEM_COUNT_DROP_STOPPED);
		return;
	}
	before = c->client.state;
	cwnd = c->client.window.cwnd;
	now_ns = ktime_get_ns();
	rmem_client_receive(&c->client, now_ns, record->head, answer, record->damaged, &rx);
	channel_let_go(rx.finished);
	trace_rmem_receive(c, record->head, rx.accepted, record->damaged);
	trace_rmem_shrink(c, cwnd);
	if (rx.op)
		rx.op->ops->walk(rx.op, rx.data_offset, min(rx.data_bytes, record->payload->bytes),
				 channel_copy_out, &data);
	c->silent_ns = 0;
	if (record->last)
		channel_settle_state(c, now_ns, before, &batch);
	else
		channel_note_state(c, before);
	spin_unlock(&c->lock);

	channel_transmit(c, &batch);
	channel_finish(c, rx.finished, rx.result, now_ns);
}

static void channel_settle(struct rmem_channel *c)
{
	rmem_status_heard(c->device);
	channel_kick(c);
}

static void channel_room(struct rmem_channel *c)
{
	channel_pump(c);
	channel_kick(c);
}

static const struct rmem_seal_key *channel_sealing_key(struct rmem_channel *c)
	__must_hold(&c->lock)
{
	lockdep_assert_held(&c->lock);
	return &c->client.keys.from_client;
}

static bool channel_opening_key(struct rmem_channel *c, u64 session, struct rmem_seal_key *key)
{
	const struct rmem_seal_key *found;

	spin_lock(&c->lock);
	found = c->stopped ? NULL : rmem_client_opening_key(&c->client, session);
	if (found)
		*key = *found;
	spin_unlock(&c->lock);
	return found;
}

static const struct rmem_receiver_ops channel_receiver = {
	.sealing_key = channel_sealing_key,
	.opening_key = channel_opening_key,
	.room = channel_room,
	.receive = channel_receive,
	.settle = channel_settle,
	.drop = channel_drop,
};

/* ---- life ---- */

static void channel_config_init(struct rmem_client_config *config, const struct rmem_device *device,
				unsigned int waiter)
{
	const struct rmem_session *session = &device->params.session;

	*config = (struct rmem_client_config){
		.space = session->space,
		.integrity = session->integrity,
		.key = session->key,
		.piece_bytes = device->piece_bytes,
		.datagram_bytes = device->limits.batch_bytes,
		.fail_after_ns = session->fail_after_ms * (u64)NSEC_PER_MSEC,
		.seed = get_random_u64(),
		.waiter = waiter,
		.lossless = device->limits.has_credit,
		.cipher = session->integrity == RMEM_SEALED ? rmem_cipher() : NULL,
	};
	get_random_bytes(config->client, sizeof(config->client));
}

static struct rmem_path *channel_path_new(struct rmem_channel *c)
{
	const struct rmem_attach_params *params = &c->device->params;
	struct rmem_path *path = kzalloc(params->transport->path_bytes, GFP_KERNEL);

	if (!path)
		return NULL;
	path->transport = params->transport;
	path->to = &channel_receiver;
	path->session = &params->session;
	path->channel = c;
	path->counts = &c->device->counts->count[RMEM_COUNT_PATH];
	return path;
}

struct rmem_channel *rmem_channel_new(struct rmem_device *device, unsigned int index)
{
	struct rmem_channel *c = kvzalloc(sizeof(*c), GFP_KERNEL);
	int err = -ENOMEM;

	if (!c)
		return ERR_PTR(-ENOMEM);
	c->device = device;
	c->index = index;
	c->stopped = true;
	spin_lock_init(&c->lock);
	hrtimer_init(&c->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
	c->timer.function = channel_timer_due;
	c->path = channel_path_new(c);
	if (!c->path)
		goto free;
	err = c->path->transport->open(c->path, &device->params.address);
	if (err)
		goto free;
	spin_lock_bh(&waiters_lock);
	c->waiter = waiters_next++ % RMEM_WAITERS;
	hlist_add_head_rcu(&c->waiter_entry, &waiters[c->waiter]);
	spin_unlock_bh(&waiters_lock);
	return c;

free:
	kfree(c->path);
	kvfree(c);
	return ERR_PTR(err);
}

void rmem_channel_open(struct rmem_channel *c, u64 boot)
{
	struct rmem_client_counters count;
	struct rmem_client_config config;

	channel_config_init(&config, c->device, c->waiter);

	spin_lock_bh(&c->lock);
	count = c->client.count;
	rmem_client_init(&c->client, &config, &c->device->remote->base, &rmem_channel_incast,
			 boot);
	rmem_client_set_share(&c->client, &c->device->share);
	c->client.count = count;
	c->path->batch_bytes = config.datagram_bytes;
	rmem_client_open(&c->client, ktime_get_ns());
	c->silent_ns = 0;
	channel_unfence(c);
	c->stopped = false;
	spin_unlock_bh(&c->lock);

	memzero_explicit(&config, sizeof(config));

	local_bh_disable();
	channel_pump(c);
	channel_kick(c);
	local_bh_enable();
}

/* stops: for good. A channel that is stopped holds no turn in the incast window, nor gets one. */
static void channel_cancel(struct rmem_channel *c, enum rmem_client_result result, bool stops)
{
	struct rmem_op *finished = NULL;

	spin_lock_bh(&c->lock);
	if (!c->stopped)
		finished = rmem_client_cancel_all(&c->client);
	channel_let_go(finished);
	if (stops) {
		channel_unfence(c);
		c->stopped = true;
	}
	spin_unlock_bh(&c->lock);

	local_bh_disable();
	channel_finish(c, finished, result, 0);
	channel_kick(c);
	local_bh_enable();
}

void rmem_channel_cancel(struct rmem_channel *c, enum rmem_client_result result)
{
	channel_cancel(c, result, false);
}

void rmem_channel_rolled_back(struct rmem_channel *c)
{
	struct rmem_op *finished = NULL;
	enum rmem_client_state before;

	spin_lock_bh(&c->lock);
	before = c->client.state;
	if (!c->stopped && before != RMEM_CHANNEL_CLOSED) {
		finished = rmem_client_rolled_back(&c->client);
		channel_let_go(finished);
		channel_note_state(c, before);
	}
	spin_unlock_bh(&c->lock);

	local_bh_disable();
	channel_finish(c, finished, RMEM_CLIENT_LOST, 0);
	channel_kick(c);
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
		channel_note_state(c, before);
	}
	spin_unlock_bh(&c->lock);
	return held;
}

void rmem_channel_taken_back(struct rmem_channel *c, struct rmem_op *op)
{
	local_bh_disable();
	channel_finish(c, op, RMEM_CLIENT_CANCELLED, 0);
	channel_pump(c);
	channel_kick(c);
	local_bh_enable();
}

void rmem_channel_close(struct rmem_channel *c)
{
	enum rmem_client_state before;
	struct rmem_batch batch = {};
	u64 now_ns;

	local_bh_disable();
	spin_lock(&c->lock);
	if (!c->stopped) {
		before = c->client.state;
		now_ns = ktime_get_ns();
		rmem_client_close(&c->client, now_ns);
		channel_settle_state(c, now_ns, before, &batch);
	}
	spin_unlock(&c->lock);
	channel_transmit(c, &batch);
	local_bh_enable();
}

void rmem_channel_stop(struct rmem_channel *c)
{
	c->path->transport->quiesce(c->path);
	channel_cancel(c, RMEM_CLIENT_CANCELLED, true);

	spin_lock_bh(&waiters_lock);
	if (!hlist_unhashed(&c->waiter_entry))
		hlist_del_init_rcu(&c->waiter_entry);
	spin_unlock_bh(&waiters_lock);
	hrtimer_cancel(&c->timer);
}

void rmem_channel_free(struct rmem_channel *c)
{
	c->path->transport->close(c->path);
	kfree(c->path);
	kvfree_sensitive(c, sizeof(*c));
}

int rmem_channel_call(struct rmem_channel *c, struct rmem_call *call, unsigned int timeout_ms)
{
	long left;

	call->op.ops = &call_ops;
	init_completion(&call->done);
	if (!rmem_channel_submit(c, &call->op, true))
		return -ESHUTDOWN;
	left = wait_for_completion_interruptible_timeout(&call->done,
							 msecs_to_jiffies(timeout_ms));
	if (left > 0)
		return 0;
	/* The next wait sees the signal again. */
	if (left < 0 && wait_for_completion_timeout(&call->done,
						    msecs_to_jiffies(CHANNEL_LINGER_MS)))
		return 0;
	rmem_channel_cancel(c, RMEM_CLIENT_CANCELLED);
	wait_for_completion(&call->done);
	return call->result == RMEM_CLIENT_CANCELLED ? -ETIMEDOUT : 0;
}
