// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The client's choice of the next message, and of the time to send it: rmem_client_next().
 *
 *   ops:  partly, held, again, waiting -> [ ids: seq ] -> [ cwnd ] -> [ iwnd ] -> packet
 *
 * One op is sent at a time, so that a large one isn't cut up by others. Where it
 * finds no room it stays the next, and so do those behind it. But where ids have run out those
 * that have some go first: ids come back as the oldest of them ends, which might have to be sent
 * again.
 *
 * An ATOMIC, PUT or CALL must be near the floor (RMEM_REPLAY). One that isn't is held, and those
 * behind it go on: one slow op that holds the floor down would otherwise stop all others. Both wait
 * within bounds. Others get ids while an op is out that was older than the one held; once the floor
 * has passed those, nobody does before the one held, which then waits for one row of answers.
 *
 * A row of rmem_client_next() ends after RMEM_ROW_MAX messages, so that neither the lock nor a
 * softirq is held for a whole window of them; the deadline brings the caller back at once.
 *
 * Small ops share datagrams where that costs little time. While some are under way, new ones
 * wait: until the next answer, until they are as many as those under way, or as many as
 * their answers share a datagram; then they go together. So the first two of them leave at
 * once; with many, each answer takes the place of a burst of ops that have come since the one
 * before. Nothing waits for a clock: ops under way are answered or time out, and either makes the
 * number fall.
 *
 * Each request says whether another follows at once, in its datagram or the next, so that the
 * node can bundle the answers to a burst: hence the look ahead.
 */
#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/rmem/client/op.h"

/* DISCARD, ZERO, FENCE, ALLOC and FREE take the node longer than the round trips measured. */
#define SLOW_NS_MIN (100 * BASE_NSEC_PER_MSEC)
#define SLOW_RTOS   4

/* OPEN and CLOSE are answered by the node's slow path, and aren't repeated faster than that. */
#define OWN_NS_MIN (50 * BASE_NSEC_PER_MSEC)

#define READ_PARTS_LEAST 8

/* cwnd first: an op in iwnd's queue lacks nothing else. */
static bool send_admit(struct rmem_client *c, struct rmem_op *op, u64 now_ns, u32 packets,
		       u32 bytes)
{
	u64 next_send_ns = c->window.next_send_ns;

	if (!rmem_window_acquire(&c->window, now_ns, packets, &c->pace_ns))
		return false;
	if (!bytes || c->silent || c->config.lossless)
		return true;
	if (rmem_incast_place_acquire(c->incast, c->share, &c->place, c->config.waiter, bytes)) {
		op->iwnd_bytes += bytes;
		return true;
	}
	rmem_window_release(&c->window, packets);
	c->window.next_send_ns = next_send_ns;
	c->starved = true;
	if (!rmem_incast_place_waits(c->share, &c->place))
		c->pace_ns = now_ns + RMEM_INCAST_RETRY_NS; /* the queue is full */
	return false;
}

/* The key pair of a sealed session's OPEN. False: not now. */
static bool send_has_pair(struct rmem_client *c)
{
	const struct rmem_cipher *cipher = c->config.cipher;

	if (!cipher || c->closing || c->has_pair)
		return true;
	c->has_pair = cipher->generate(cipher->of, c->secret, c->public_key);
	return c->has_pair;
}

static bool send_next_own(struct rmem_client *c, u64 now_ns, struct rmem_client_tx *tx)
{
	if (!c->own_due)
		return false;
	if (!send_has_pair(c)) {
		c->own_due = false;
		c->own_deadline_ns = now_ns + OWN_NS_MIN;
		return false;
	}
	c->own_due = false;
	c->own_deadline_ns = now_ns + base_max(c->rto_ns, OWN_NS_MIN);
	c->own_sent_ns = now_ns;
	c->count.sent++;

	base_zero(tx, sizeof(*tx));
	tx->head.number = ++c->departures;
	tx->head.space = c->config.space;
	tx->head.integrity = c->config.integrity;
	tx->head.attempt = c->own_attempt;
	tx->head.id = c->own_id;
	if (c->closing) {
		tx->head.type = RMEM_CLOSE;
		tx->head.session = c->session;
		tx->head.boot = c->boot;
		tx->head.floor = rmem_seq_floor(&c->seq);
		return true;
	}
	tx->head.type = RMEM_OPEN;
	tx->head.session = c->renews;
	tx->head.addr = c->challenge;
	tx->head.len = sizeof(tx->open);
	base_copy(tx->open.client, c->config.client, sizeof(tx->open.client));
	tx->open.integrity = c->config.integrity;
	base_store_le16(&tx->open.datagram_bytes, (u16)c->config.datagram_bytes);
	tx->payload_bytes = sizeof(tx->open);
	if (c->config.cipher) {
		tx->head.clear = true;
		tx->head.len = sizeof(tx->open_sealed);
		base_copy(tx->open_sealed.key, c->public_key, sizeof(tx->open_sealed.key));
		tx->payload_bytes = sizeof(tx->open_sealed);
	}
	return true;
}

static void send_atomic(struct rmem_client_tx *tx, const struct rmem_op_atomic *atomic)
{
	tx->head.op = atomic->op;
	base_store_le64(&tx->operands.value[0], atomic->value[0]);
	base_store_le64(&tx->operands.value[1], atomic->value[1]);
	base_store_le64(&tx->operands.compare[0], atomic->compare[0]);
	base_store_le64(&tx->operands.compare[1], atomic->compare[1]);
	tx->payload_bytes = sizeof(tx->operands);
}

static void send_put(struct rmem_client_tx *tx, const struct rmem_op_put *put)
{
	tx->head.op = put->op;
	base_store_le64(&tx->put.addr, put->addr);
	base_store_le64(&tx->put.value, put->value);
	base_store_le32(&tx->put.bytes, put->bytes);
	tx->payload_bytes = sizeof(tx->put);
}

static void send_payload(struct rmem_client_tx *tx, const struct rmem_op *op)
{
	base_zero(tx->payload, sizeof(tx->operands));
	if (op->type == RMEM_ATOMIC) {
		send_atomic(tx, &op->atomic);
		return;
	}
	if (op->type == RMEM_PUT) {
		send_put(tx, &op->put);
		return;
	}
	if (op->type == RMEM_COPY) {
		base_store_le64(&tx->copy.from, op->copy.from);
		tx->payload_bytes = sizeof(tx->copy);
		return;
	}
	tx->head.addr = 0;
	if (rmem_type_has_ranges(op->type)) {
		tx->head.op = op->vector.ranges;
		tx->payload_bytes = rmem_wire_ranges_bytes(&tx->head);
		return;
	}
	if (rmem_type_has_name(op->type)) {
		tx->payload_bytes = sizeof(*op->name.named);
	} else if (op->type == RMEM_ALLOC) {
		base_store_le64(&tx->alloc.bytes, op->alloc.bytes);
		base_store_le64(&tx->alloc.addr, op->alloc.addr);
		base_store_le32(&tx->alloc.perm, op->alloc.perm);
		tx->payload_bytes = sizeof(tx->alloc);
	} else {
		base_store_le64(&tx->range.addr, op->range.addr);
		base_store_le64(&tx->range.bytes, op->range.bytes);
		tx->payload_bytes = sizeof(tx->range);
	}
	tx->head.len = tx->payload_bytes;
}

static void send_build(const struct rmem_client *c, struct rmem_client_tx *tx, struct rmem_op *op,
		       u32 part, u32 bytes)
{
	struct rmem_head *head = &tx->head;

	head->type = op->type;
	head->integrity = c->config.integrity;
	head->status = 0;
	head->more = false;
	head->clear = false;
	head->attempt = op->attempt;
	head->space = c->config.space;
	head->session = c->session;
	head->boot = c->boot;
	head->number = op->departure;
	head->id = op->type == RMEM_WRITE ? op->id + part : op->id;
	head->floor = rmem_seq_floor(&c->seq);
	head->addr = op->addr + (u64)part * op->piece;
	head->len = bytes;
	head->offset = 0;
	head->digest = 0;
	head->piece = op->type == RMEM_READ || (op->type == RMEM_WRITE && bytes > op->piece) ?
			      op->piece : 0;
	head->op = 0;
	if (rmem_type_runs(op->type)) {
		head->op = op->call.function;
		head->piece = op->type == RMEM_QUERY ? (u16)op->call.room_bytes : 0;
	}
	tx->op = op;
	tx->data_offset = part * op->piece;
	tx->data_bytes = rmem_type_brings_data(op->type) ? bytes : 0;
	tx->payload_bytes = 0;
	if (rmem_type_table[op->type].request_bytes || rmem_type_has_ranges(op->type))
		send_payload(tx, op);
}

/* The node has a place for its result when the floor has come near. */
static bool send_is_far_ahead(const struct rmem_client *c, const struct rmem_op *op)
{
	return rmem_type_keeps_result(op->type) && rmem_seq_span(&c->seq) >= RMEM_REPLAY;
}

/* Ids of this session; those of parts done in an earlier one are never sent. */
static bool send_take_ids(struct rmem_client *c, struct rmem_op *op)
{
	u32 part;

	if (op->piece != c->piece)
		rmem_op_cut(op, c->piece);
	if (send_is_far_ahead(c, op))
		return false;
	op->id = rmem_seq_take(&c->seq, rmem_op_ids(op), op);
	if (!op->id)
		return false;
	for (part = 0; op->parts_done && part < op->parts; part++) {
		if (op->type == RMEM_WRITE && rmem_op_bit_is_set(op->done, part))
			rmem_seq_put(&c->seq, op->id + part);
	}
	return true;
}

static u32 send_payload_bytes(const struct rmem_op *op)
{
	struct rmem_head head = { .type = op->type, .len = op->len };

	if (rmem_type_has_ranges(op->type))
		head.op = op->vector.ranges;
	return rmem_wire_payload_bytes(&head);
}

/* How many ops like this one a datagram takes. */
static u32 send_datagram_ops(const struct rmem_client *c, const struct rmem_op *op)
{
	u32 bytes = c->config.datagram_bytes;
	u32 ops = bytes > RMEM_HDR_BYTES ?
			  (bytes - RMEM_HDR_BYTES) / (RMEM_MSG_BYTES + send_payload_bytes(op)) : 0;

	return ops < RMEM_BUNDLE_MAX ? ops : RMEM_BUNDLE_MAX;
}

/* True if op, the first that waits, should wait until more ops do. */
static bool send_gathers(struct rmem_client *c, const struct rmem_op *op)
{
	u32 waiting = c->again.ops + c->waiting.ops;

	if (c->burst_ops)
		return false;
	if (!c->answered && waiting < c->flying.ops && waiting < RMEM_BUNDLE_MAX &&
	    rmem_op_has_parts(op) && send_datagram_ops(c, op) > 1)
		return true;
	c->answered = false;
	c->burst_ops = waiting;
	return false;
}

/* The next op that waits, if the windows permit it to leave. */
static struct rmem_op *send_next_waiting(struct rmem_client *c)
{
	struct rmem_op *op = c->again.head ? c->again.head : c->waiting.head;

	if (!op) {
		c->burst_ops = 0;
		c->answered = false;
		return NULL;
	}
	if (send_gathers(c, op))
		return NULL;
	c->burst_ops--;
	return op;
}

static struct rmem_op *send_next_with_ids(struct rmem_client *c)
{
	struct rmem_op *op = c->again.head;

	while (op && !op->id)
		op = op->next;
	return op;
}

static void send_hold(struct rmem_client *c, struct rmem_op *op)
{
	if (!c->held.head)
		c->held_until = c->seq.next;
	rmem_op_pick(c, op);
	rmem_op_put(c, op, RMEM_OP_HELD);
}

static struct rmem_op *send_next_held(struct rmem_client *c)
{
	struct rmem_op *op = c->held.head;

	if (!op || !send_take_ids(c, op))
		return NULL;
	c->held_until = c->seq.next; /* of the one held next */
	return op;
}

/* The next of the ops that were never sent in this session, or are sent again. */
static struct rmem_op *send_next_free(struct rmem_client *c)
{
	struct rmem_op *op;

	while ((op = send_next_waiting(c))) {
		if (op->id)
			return op;
		if (send_is_far_ahead(c, op)) {
			send_hold(c, op);
			continue;
		}
		if (c->held.head && rmem_seq_floor(&c->seq) >= c->held_until)
			return send_next_with_ids(c);
		return send_take_ids(c, op) ? op : send_next_with_ids(c);
	}
	return NULL;
}

/* The op whose turn it is; NULL: none, or the window of ids is full. */
static struct rmem_op *send_turn(struct rmem_client *c)
{
	struct rmem_op *op = c->sending;

	if (op)
		return op;
	op = c->partly.head;
	if (!op)
		op = send_next_held(c);
	if (!op)
		op = send_next_free(c);
	if (!op)
		return NULL;
	rmem_op_pick(c, op);
	op->state = RMEM_OP_SENDING;
	op->begun_departure = 0;
	op->overtaken_ns = 0;
	op->ahead_part = 0;
	c->sending = op;
	return op;
}

/* All that the op wants sent is sent. */
static void send_note(struct rmem_client *c, struct rmem_op *op, u64 now_ns)
{
	c->sending = NULL;
	if (rmem_op_has_parts(op))
		rmem_op_put(c, op, RMEM_OP_FLYING);
	else
		rmem_op_put_timed(c, op, RMEM_OP_SLOW,
				  now_ns + base_max(SLOW_RTOS * c->rto_ns, SLOW_NS_MIN));
}

/* A READ for parts in a row that are wanted, and such a WRITE if the node fetches its data. */
static u32 send_parts_end(const struct rmem_client *c, const struct rmem_op *op, u32 part)
{
	u32 end;

	if (op->type != RMEM_READ && !rmem_client_lends(c, op))
		return part + 1;
	end = rmem_op_find_part(op, part, false);
	return op->type == RMEM_READ ? end : base_min(end, part + RMEM_LENT_PARTS_MAX);
}

/* Data that the answer can bring, for so many bytes of the op. */
static u32 send_answer_bytes(const struct rmem_op *op, u32 bytes)
{
	if (!rmem_type_answers_data(op->type))
		return 0;
	return rmem_type_runs(op->type) ? op->call.room_bytes : bytes;
}

/*
 * One packet: parts of a READ or WRITE, or the other op. One request asks for as many parts as fit
 * into cwnd, but READ_PARTS_LEAST at least: a request for each packet would cost more. While the
 * node is silent, one part is out, and takes nothing of iwnd.
 */
static bool send_op(struct rmem_client *c, struct rmem_op *op, u32 part, u64 now_ns,
		    struct rmem_client_tx *tx)
{
	u32 end = send_parts_end(c, op, part);
	u32 most = c->silent ? 1 : base_max(rmem_window_room(&c->window), READ_PARTS_LEAST);
	u32 bytes, i;

	if (c->silent && c->window.in_flight)
		return false;
	if (end > part + most)
		end = part + most;
	bytes = rmem_op_bytes(op, part, end);
	if (!send_admit(c, op, now_ns, end - part, send_answer_bytes(op, bytes)))
		return false;
	op->lent |= rmem_client_lends(c, op);
	for (i = part; i < end; i++)
		rmem_op_bit_set(op->flying, i);
	op->flying_parts += end - part;
	op->may_be_done = true;
	op->sent_part = part;
	op->sent_ns = now_ns;
	op->departure = ++c->departures;
	if (!op->begun_departure) {
		op->begun_departure = op->departure;
		op->begun_ns = now_ns;
	}
	if (!op->attempt) {
		op->first_sent_part = part;
		op->first_sent_ns = now_ns;
	}
	c->count.sent++;
	send_build(c, tx, op, part, bytes);
	if (rmem_op_find_part(op, 0, true) == op->parts)
		send_note(c, op, now_ns);
	return true;
}

u32 rmem_client_put_bytes(const struct rmem_client *c)
{
	return c->piece ? c->piece - sizeof(struct rmem_put) : 0;
}

u32 rmem_client_vector_bytes(const struct rmem_client *c)
{
	return c->piece;
}

u32 rmem_client_row(const struct rmem_client *c, const struct rmem_client_tx *tx)
{
	u32 row = 1 + c->burst_ops + c->has_ahead, most;

	if (!tx->op || !rmem_op_has_parts(tx->op))
		return 1;
	most = send_datagram_ops(c, tx->op);
	if (row > most)
		row = most;
	return row ? row : 1;
}

static bool send_next(struct rmem_client *c, u64 now_ns, struct rmem_client_tx *tx)
{
	struct rmem_op *op;
	u32 part;

	if (c->state != RMEM_CHANNEL_OPEN || c->closing)
		return send_next_own(c, now_ns, tx);
	if (c->row >= c->room)
		return false;
	while ((op = send_turn(c))) {
		part = rmem_op_find_part(op, 0, true);
		if (part < op->parts)
			return send_op(c, op, part, now_ns, tx);
		op->sent_ns = now_ns;
		send_note(c, op, now_ns);
	}
	return false;
}

/* A channel that isn't kept from sending by iwnd lets others have its turn there. */
static bool send_end_row(struct rmem_client *c)
{
	c->row = 0;
	if (!c->starved)
		rmem_incast_place_pass(c->incast, c->share, &c->place);
	c->starved = false;
	return false;
}

bool rmem_client_next(struct rmem_client *c, u64 now_ns, struct rmem_client_tx *tx)
{
	c->pace_ns = 0;
	c->yield_ns = c->row < RMEM_ROW_MAX ? 0 : now_ns;
	if (c->yield_ns)
		return send_end_row(c);
	if (c->has_ahead)
		*tx = c->ahead;
	else if (!send_next(c, now_ns, tx))
		return send_end_row(c);
	c->row++;
	c->has_ahead = c->row < RMEM_ROW_MAX && send_next(c, now_ns, &c->ahead);
	tx->head.more = c->has_ahead && tx->op;
	return true;
}
