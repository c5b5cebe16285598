// SPDX-License-Identifier: GPL-2.0
/*
 * Messages between a client and a node, by the rings of core/ring in the windows.
 *
 *   marlin_message_reserve: room in the ring
 *   marlin_message_send -> the writer's copy ----------------> entry in the peer's memory
 *   marlin_message_ring -> pointer word ----------------------> does the peer sleep? one bell
 *
 *   doorbell -> marlin_messages_poll -> messages_serve, for each end of each peer in turn
 *                 | all rings are empty   ring_in_track: how many requests came
 *                 v                       ops->receive, a record at a time
 *               spin.c: looks for a while, if that has paid
 *                 |
 *               messages_doze: flags "I sleep" in the peers' memory, then a second look
 *
 * Each peer has two ends here: this machine as its client, and as its node. Rings are never shared
 * with a third machine. Both ends of all peers are served by one poll, in softirq.
 */
#include <linux/rcupdate.h>

#include "marlin/marlin.h"

/* Records of an end before the next one has its turn. */
#define MESSAGES_TURN 8

static_assert(RING_HEAD_BYTES + MARLIN_MESSAGE_BYTES_MAX == MARLIN_ENTRY_BYTES);

/* The device that serves messages: the first one bound. */
static struct marlin_dev __rcu *messages_device;
static const struct marlin_message_ops __rcu *messages_ops[MARLIN_ENDS];
static DEFINE_MUTEX(messages_lock); /* guards changes of these two */

/* ---- who uses the ends ---- */

int marlin_messages_register(enum marlin_end_kind kind, const struct marlin_message_ops *ops)
{
	int err = -EBUSY;

	mutex_lock(&messages_lock);
	if (!rcu_access_pointer(messages_ops[kind])) {
		rcu_assign_pointer(messages_ops[kind], ops);
		err = 0;
	}
	mutex_unlock(&messages_lock);
	return err;
}
EXPORT_SYMBOL_GPL(marlin_messages_register);

void marlin_messages_unregister(enum marlin_end_kind kind)
{
	mutex_lock(&messages_lock);
	RCU_INIT_POINTER(messages_ops[kind], NULL);
	mutex_unlock(&messages_lock);
	synchronize_net();
}
EXPORT_SYMBOL_GPL(marlin_messages_unregister);

/*
 * The user of an end, or NULL. It is called in one context at a time, so by one device. Under
 * rcu_read_lock().
 */
static const struct marlin_message_ops *messages_user(const struct marlin_peer *peer,
						      enum marlin_end_kind kind)
{
	return rcu_access_pointer(messages_device) == peer->md ?
		       rcu_dereference(messages_ops[kind]) :
		       NULL;
}

/* The peer at a port of the device that serves messages, or NULL. Under rcu_read_lock(). */
struct marlin_peer *marlin_messages_peer(unsigned int port)
{
	struct marlin_dev *md = rcu_dereference(messages_device);

	for (unsigned int i = 0; md && i < md->peer_count; i++)
		if (md->peers[i].port == port)
			return &md->peers[i];
	return NULL;
}

int marlin_message_peer(unsigned int port)
{
	const struct marlin_dev *md;
	int err = 0;

	rcu_read_lock();
	md = rcu_dereference(messages_device);
	if (!md)
		err = -ENODEV;
	else if (md->port == port)
		err = -EINVAL;
	else if (!marlin_messages_peer(port))
		err = -ENXIO;
	rcu_read_unlock();
	return err;
}
EXPORT_SYMBOL_GPL(marlin_message_peer);

/* ---- out ---- */

/* Room that nobody has reserved. Looks at the credit if less is known than wanted. */
static u32 messages_room(struct marlin_peer *peer, struct marlin_end *end, u32 wanted)
{
	enum ring_fault fault;

	lockdep_assert_held(&end->out_lock);
	if (ring_out_room(&end->out) < end->out_reserved + wanted) {
		fault = ring_out_learn(&end->out);
		if (fault) {
			end->out_live = false;
			marlin_link_fault(peer, ring_fault_name(fault));
			return 0;
		}
	}
	return ring_out_room(&end->out) - end->out_reserved;
}

/* Room of an earlier session is void. */
static void messages_room_check(const struct marlin_end *end, struct marlin_room *room)
{
	lockdep_assert_held(&end->out_lock);
	if (room->session != end->out_session)
		*room = (struct marlin_room){ .session = end->out_session };
}

u32 marlin_message_reserve(enum marlin_end_kind kind, unsigned int port, u32 wanted, u32 keep,
			   struct marlin_room *room)
{
	struct marlin_peer *peer;
	struct marlin_end *end;
	u32 got = U32_MAX, room_free;

	rcu_read_lock();
	peer = marlin_messages_peer(port);
	if (!peer)
		goto unlock;
	end = &peer->ends[kind];
	spin_lock(&end->out_lock);
	if (end->out_live) {
		messages_room_check(end, room);
		if (room->records < wanted) {
			wanted -= room->records;
			room_free = messages_room(peer, end, wanted + keep);
			got = room_free > keep ? min(wanted, room_free - keep) : 0;
			room->records += got;
			end->out_reserved += got;
		}
		got = room->records;
	}
	spin_unlock(&end->out_lock);
unlock:
	rcu_read_unlock();
	return got;
}
EXPORT_SYMBOL_GPL(marlin_message_reserve);

int marlin_message_send(enum marlin_end_kind kind, unsigned int port, struct marlin_room *room,
			u32 (*write)(void *arg, u8 *record), void *arg)
{
	struct marlin_peer *peer;
	struct marlin_end *end;
	int err = -ENOTCONN;
	u32 bytes;

	rcu_read_lock();
	peer = marlin_messages_peer(port);
	if (!peer)
		goto unlock;
	end = &peer->ends[kind];
	spin_lock(&end->out_lock);
	if (!end->out_live)
		goto unlock_end;
	err = -ENOSPC;
	messages_room_check(end, room);
	if (!room->records)
		goto unlock_end;
	err = -EFAULT;
	bytes = write(arg, ring_out_record(&end->out));
	if (!bytes)
		goto unlock_end;
	wmb(); /* stores may be combined on the way to the window */
	if (bus_carries(&peer->bus))
		ring_out_post(&end->out, bytes);
	else
		end->out.posted++;
	/* Another processor may write the pointer, and can't empty this one's buffer. */
	wmb();
	room->records--;
	end->out_reserved--;
	end->out_unrung = true;
	end->stats.out++;
	err = 0;
unlock_end:
	spin_unlock(&end->out_lock);
unlock:
	rcu_read_unlock();
	return err;
}
EXPORT_SYMBOL_GPL(marlin_message_send);

/* True if the waiter's request can be met, or the link has gone. */
static bool messages_wait_is_over(struct marlin_peer *peer, struct marlin_end *end)
{
	u32 wanted = end->out_wanted;

	lockdep_assert_held(&end->out_lock);
	return wanted && (!end->out_live || messages_room(peer, end, wanted) >= wanted);
}

bool marlin_message_wait(enum marlin_end_kind kind, unsigned int port, u32 wanted)
{
	struct marlin_peer *peer;
	struct marlin_end *end;
	bool waits = false, over = false;

	rcu_read_lock();
	peer = marlin_messages_peer(port);
	if (peer) {
		end = &peer->ends[kind];
		spin_lock(&end->out_lock);
		/* A live end that stops has marlin_messages_stop() schedule the poll. */
		waits = end->out_live;
		if (waits) {
			end->out_wanted = wanted;
			smp_mb(); /* pairs with the second look of messages_doze() */
			/* Room may have come meanwhile. */
			over = messages_wait_is_over(peer, end);
		}
		spin_unlock(&end->out_lock);
		if (over)
			napi_schedule(&peer->md->messages.napi);
	}
	rcu_read_unlock();
	return waits;
}
EXPORT_SYMBOL_GPL(marlin_message_wait);

void marlin_message_again(void)
{
	struct marlin_dev *md;

	rcu_read_lock();
	md = rcu_dereference(messages_device);
	if (md)
		napi_schedule(&md->messages.napi);
	rcu_read_unlock();
}
EXPORT_SYMBOL_GPL(marlin_message_again);

/* Wakes the peer if it sleeps. It was written to. */
static void messages_wake(struct marlin_peer *peer)
{
	mb(); /* pairs with messages_doze(), whose load pushes what was written if it comes later */
	if (ring_must_wake(marlin_word(&marlin_own_messages(peer)->message_sleeps))) {
		atomic64_inc(&peer->message_bells);
		marlin_ring(peer);
	}
}

/* True: a wait for room is over by that. */
static bool messages_release(struct marlin_peer *peer, struct marlin_end *end,
			     struct marlin_room *room)
{
	bool any;

	lockdep_assert_held(&end->out_lock);
	messages_room_check(end, room);
	any = room->records;
	end->out_reserved -= room->records;
	room->records = 0;
	return any && messages_wait_is_over(peer, end);
}

/* The peer learns of the records that were posted. */
static void messages_signal(struct marlin_peer *peer, enum marlin_end_kind kind)
{
	struct marlin_end *end = &peer->ends[kind];

	lockdep_assert_held(&end->out_lock);
	wmb(); /* the entries, before the pointer */
	if (kind == MARLIN_CLIENT)
		ring_out_signal(&end->out,
				bus_word(&peer->bus, &peer->out_messages->request_pointer));
	messages_wake(peer);
	end->out_unrung = false;
}

static void messages_end_batch(enum marlin_end_kind kind, unsigned int port,
			       struct marlin_room *room, bool signals)
{
	struct marlin_peer *peer;
	struct marlin_end *end;
	bool over;

	rcu_read_lock();
	peer = marlin_messages_peer(port);
	if (!peer)
		goto unlock;
	end = &peer->ends[kind];
	spin_lock(&end->out_lock);
	signals = signals && end->out_live && end->out_unrung;
	if (signals) {
		messages_signal(peer, kind);
		marlin_spin_sent(&peer->message_spin, false);
	}
	over = messages_release(peer, end, room);
	spin_unlock(&end->out_lock);
	if (over || (signals && marlin_spin_is_due(peer->md, &peer->message_spin)))
		napi_schedule(&peer->md->messages.napi);
unlock:
	rcu_read_unlock();
}

void marlin_message_ring(enum marlin_end_kind kind, unsigned int port, struct marlin_room *room)
{
	messages_end_batch(kind, port, room, true);
}
EXPORT_SYMBOL_GPL(marlin_message_ring);

void marlin_message_release(enum marlin_end_kind kind, unsigned int port, struct marlin_room *room)
{
	messages_end_batch(kind, port, room, false);
}
EXPORT_SYMBOL_GPL(marlin_message_release);

/* ---- in ---- */

/* The next record, or NULL. The node's tracker tells how many there are. */
static const u8 *messages_next(struct marlin_end *end, enum marlin_end_kind kind, u32 *bytes,
			       enum ring_fault *fault)
{
	const u8 *record;

	lockdep_assert_held(&end->in_lock);
	*fault = RING_OK;
	if (kind == MARLIN_NODE && !ring_in_waiting(&end->in)) {
		*fault = ring_in_track(&end->in, end->pointer);
		if (*fault || !ring_in_waiting(&end->in))
			return NULL;
	}
	record = ring_in_record(&end->in, bytes, fault);
	/* A client makes its entries visible before the pointer. */
	if (kind == MARLIN_NODE && !record && !*fault)
		*fault = RING_FAULT_ABSENT;
	return record;
}

/* The records that this end took, in the peer's memory. */
static u32 *messages_credit(struct marlin_peer *peer, enum marlin_end_kind kind)
{
	struct marlin_messages *other = peer->out_messages;

	return bus_word(&peer->bus, kind == MARLIN_CLIENT ? &other->response_credit :
							    &other->request_credit);
}

/* A turn of an end; returns how much of one it used. Under rcu_read_lock(). */
static unsigned int messages_serve(struct marlin_peer *peer, enum marlin_end_kind kind)
{
	const struct marlin_message_ops *ops = messages_user(peer, kind);
	struct marlin_end *end = &peer->ends[kind];
	const char *rule = NULL;
	unsigned int taken = 0;
	bool told = false;

	spin_lock(&end->in_lock);
	end->in_held = false;
	while (end->in_live && taken < MESSAGES_TURN) {
		enum marlin_verdict verdict = MARLIN_TAKEN;
		enum ring_fault fault;
		const u8 *record;
		u32 bytes;

		record = messages_next(end, kind, &bytes, &fault);
		if (fault)
			rule = ring_fault_name(fault);
		if (!record)
			break;
		if (ops)
			verdict = ops->receive(peer->port, record, bytes);
		else
			end->stats.dropped++;
		if (verdict == MARLIN_LATER) {
			end->in_held = true;
			break;
		}
		if (verdict == MARLIN_BROKEN) {
			rule = "a record is no message";
			break;
		}
		ring_in_take(&end->in);
		end->in.credit = messages_credit(peer, kind);
		told |= ring_in_tell(&end->in);
		end->stats.in++;
		marlin_spin_got(peer->md, &peer->message_spin);
		taken = verdict == MARLIN_TAKEN_LONG ? MESSAGES_TURN : taken + 1;
	}
	if (rule) {
		end->in_live = false;
		marlin_link_fault(peer, rule);
	}
	if (told)
		messages_wake(peer);
	spin_unlock(&end->in_lock);
	if (taken && ops)
		ops->settle(peer->port);
	return taken;
}

/* Room for who waits for it, at this end. Under rcu_read_lock(). */
static void messages_let_go(struct marlin_peer *peer, enum marlin_end_kind kind)
{
	const struct marlin_message_ops *ops = messages_user(peer, kind);
	struct marlin_end *end = &peer->ends[kind];
	bool over;

	if (!READ_ONCE(end->out_wanted))
		return;
	spin_lock(&end->out_lock);
	over = messages_wait_is_over(peer, end);
	if (over)
		end->out_wanted = 0;
	spin_unlock(&end->out_lock);
	if (over && ops && ops->room)
		ops->room(peer->port);
}

/*
 * Is there anything for an end to do? BH disabled. Another processor may have found the room that a
 * wait is for, so it's asked for room, not for news of it. A record that is held has made the end
 * wait.
 */
static bool messages_end_has_work(struct marlin_peer *peer, enum marlin_end_kind kind)
{
	struct marlin_end *end = &peer->ends[kind];
	bool over = false;

	if (READ_ONCE(end->out_wanted)) {
		spin_lock(&end->out_lock);
		over = messages_wait_is_over(peer, end);
		spin_unlock(&end->out_lock);
	}
	if (over)
		return true;
	if (READ_ONCE(end->in_held))
		return false;
	if (kind == MARLIN_CLIENT)
		return ring_in_has_record(&end->in);
	return READ_ONCE(*end->pointer) != base_swap_le32(READ_ONCE(end->in.taken));
}

bool marlin_messages_has_work(struct marlin_peer *peer)
{
	for (unsigned int kind = 0; kind < MARLIN_ENDS; kind++)
		if (READ_ONCE(peer->ends[kind].in_live) &&
		    messages_end_has_work(peer, kind))
			return true;
	return false;
}

/* Says to the peer that this machine sleeps; true: there is something to do after all. */
static bool messages_doze(struct marlin_peer *peer)
{
	struct marlin_end *end = &peer->ends[MARLIN_CLIENT];
	bool has_work = false;

	spin_lock(&end->in_lock);
	if (end->in_live) {
		peer->message_sleeps++;
		ring_doze(bus_word(&peer->bus, &peer->out_messages->message_sleeps));
		marlin_flush(peer);
		has_work = marlin_messages_has_work(peer);
	}
	spin_unlock(&end->in_lock);
	return has_work;
}

/* Says to the peer that this machine is awake: a bell too many is all that a late word costs. */
void marlin_messages_rise(struct marlin_peer *peer)
{
	struct marlin_end *end = &peer->ends[MARLIN_CLIENT];

	spin_lock(&end->in_lock);
	if (end->in_live)
		ring_rise(bus_word(&peer->bus, &peer->out_messages->message_sleeps));
	spin_unlock(&end->in_lock);
}

/* Rounds over both ends of all peers, until the budget is used or every one was idle. */
static int messages_rounds(struct marlin_queue *queue, int budget)
{
	struct marlin_dev *md = queue->md;
	unsigned int ends = md->peer_count * MARLIN_ENDS, idle = 0;
	int done = 0;

	while (done < budget && idle < ends) {
		unsigned int turn = queue->turn;
		struct marlin_peer *peer = &md->peers[turn / MARLIN_ENDS];
		unsigned int taken;

		messages_let_go(peer, turn % MARLIN_ENDS);
		taken = messages_serve(peer, turn % MARLIN_ENDS);
		queue->turn = (turn + 1) % ends;
		idle = taken ? 0 : idle + 1;
		done += taken;
	}
	return min(done, budget);
}

/* Copies share the bell, which is masked while the poll goes on. */
static void messages_look_at_bell(struct marlin_dev *md)
{
	u64 bell = marlin_bell_messages(md);

	if (!(ntb_db_read(md->ntb) & bell))
		return;
	ntb_db_clear(md->ntb, bell);
	marlin_cmmc_bell(md);
}

int marlin_messages_poll(struct napi_struct *napi, int budget)
{
	struct marlin_queue *queue = container_of(napi, struct marlin_queue, napi);
	struct marlin_dev *md = queue->md;
	bool again = false;
	int done;

	rcu_read_lock();
	done = messages_rounds(queue, budget);
	if (!done && marlin_spin(queue))
		done = messages_rounds(queue, budget);
	rcu_read_unlock();
	messages_look_at_bell(md);
	if (done >= budget || !napi_complete_done(napi, done))
		return done;
	marlin_bells_rise(md, marlin_bell_messages(md));
	for (unsigned int i = 0; i < md->peer_count; i++)
		again |= messages_doze(&md->peers[i]);
	if (again)
		napi_schedule(napi);
	return done;
}

/* ---- a link's life: all of link_work ---- */

void marlin_messages_init(struct marlin_peer *peer)
{
	for (unsigned int kind = 0; kind < MARLIN_ENDS; kind++) {
		spin_lock_init(&peer->ends[kind].out_lock);
		spin_lock_init(&peer->ends[kind].in_lock);
	}
	marlin_loans_init(peer->port);
}

void marlin_messages_clean(struct marlin_peer *peer)
{
	struct marlin_messages *own = marlin_own_messages(peer);

	memset(own, 0, offsetof(struct marlin_messages, lent));
	marlin_loans_clean(peer);
	for (unsigned int i = 0; i < MARLIN_REQUESTS; i++)
		memset(own->request[i], 0, RING_HEAD_BYTES);
	for (unsigned int i = 0; i < MARLIN_RESPONSES; i++)
		memset(own->response[i], 0, RING_HEAD_BYTES);
}

static void messages_go_live(struct marlin_end *end)
{
	spin_lock_bh(&end->out_lock);
	end->out_session++;
	end->out_reserved = 0;
	end->out_live = true;
	spin_unlock_bh(&end->out_lock);
	spin_lock_bh(&end->in_lock);
	end->in_held = false;
	end->in_live = true;
	spin_unlock_bh(&end->in_lock);
}

void marlin_messages_start(struct marlin_peer *peer, size_t out_area_bytes)
{
	struct marlin_messages *own = marlin_own_messages(peer);
	struct marlin_messages *other =
		peer->out_memory + MARLIN_RING_OFFSET + out_area_bytes;
	struct marlin_end *client = &peer->ends[MARLIN_CLIENT], *node = &peer->ends[MARLIN_NODE];

	/* Not live: nobody looks at these. */
	peer->out_messages = other;
	marlin_loans_measure(peer);
	client->pointer = marlin_word(&other->request_pointer);
	ring_out_init(&client->out, other->request, MARLIN_REQUESTS, MARLIN_ENTRY_BYTES,
		      marlin_word(&own->request_credit));
	ring_in_init(&client->in, own->response, MARLIN_RESPONSES, MARLIN_ENTRY_BYTES,
		     marlin_word(&other->response_credit));
	node->pointer = marlin_word(&own->request_pointer);
	ring_out_init(&node->out, other->response, MARLIN_RESPONSES, MARLIN_ENTRY_BYTES,
		      marlin_word(&own->response_credit));
	ring_in_init(&node->in, own->request, MARLIN_REQUESTS, MARLIN_ENTRY_BYTES,
		     marlin_word(&other->request_credit));
	messages_go_live(client);
	messages_go_live(node);
}

void marlin_messages_stop(struct marlin_peer *peer)
{
	for (unsigned int kind = 0; kind < MARLIN_ENDS; kind++) {
		struct marlin_end *end = &peer->ends[kind];

		spin_lock_bh(&end->out_lock);
		end->out_live = false;
		end->out_unrung = false;
		spin_unlock_bh(&end->out_lock);
		spin_lock_bh(&end->in_lock);
		end->in_live = false;
		spin_unlock_bh(&end->in_lock);
	}
	/* The poll ends the wait of senders for room: their records are lost from now on. */
	local_bh_disable();
	napi_schedule(&peer->md->messages.napi);
	local_bh_enable();
}

void marlin_messages_attach(struct marlin_dev *md)
{
	mutex_lock(&messages_lock);
	if (!rcu_access_pointer(messages_device))
		rcu_assign_pointer(messages_device, md);
	else
		dev_info(&md->ntb->dev,
			 "marlin: another NTB device serves messages already\n");
	mutex_unlock(&messages_lock);
}

void marlin_messages_detach(struct marlin_dev *md)
{
	mutex_lock(&messages_lock);
	if (rcu_access_pointer(messages_device) == md)
		RCU_INIT_POINTER(messages_device, NULL);
	mutex_unlock(&messages_lock);
	synchronize_net();
}
