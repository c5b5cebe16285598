// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * States of an op, and the events that move it:
 *
 *   submit -> waiting --+              +--- lost, timeout, DAMAGED ---+
 *                       v              v                             |
 *                    sending (one) -> flying (READ, WRITE) ----------+
 *                       ^   \                                        |
 *                       |    +------> slow (the others) -------------+
 *                       |                                            |
 *                  again, partly <-----------------------------------+
 *                       ^                                            |
 *                       +---- its delay passed ---- delayed <- BUSY -+
 *
 * In any place the last answer missing ends it: late answers count as well as
 * those to the last attempt. A session renewed or lost sends all of them to again.
 *
 * A part is in one of three states: not sent (in this attempt), flying, done. A
 * flying part holds one packet of cwnd; the flying bit is the debt, so it's paid back once, even if
 * an answer arrives twice. A READ's part holds its bytes of iwnd, too. The first timeout without
 * any sign of the node gives them to the READs of nodes that answer.
 *
 * flying is sorted by the time of the last packet, and one timeout holds for
 * all of it, so its head is the next to time out. slow and delayed ops have deadlines of
 * their own and share the sorted list timed; they come in nearly sorted. An ATOMIC or PUT
 * that is too far above the floor is held on its way from waiting or again to sending.
 */
#include "core/rmem/client/client.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/rmem/client/op.h"
#include "core/rmem/client/session.h"

#define BUSY_NS_FIRST (500 * BASE_NSEC_PER_USEC)
#define BUSY_NS_MAX   (10 * BASE_NSEC_PER_MSEC)
#define UNSENT_NS     BASE_NSEC_PER_MSEC

/* An op that fails that often in a row waits a growing time before it goes again. */
#define TROUBLE_TIMEOUTS 3
#define TROUBLE_NACKS	 8

#define NEVER_NS (~0ULL)

/* xorshift64*; state is never 0. */
static u64 client_random64(struct rmem_client *c)
{
	c->rng ^= c->rng >> 12;
	c->rng ^= c->rng << 25;
	c->rng ^= c->rng >> 27;
	return c->rng * 0x2545f4914f6cdd1dULL;
}

/* ---- silence and trouble ---- */

static void client_count_trouble(struct rmem_op *op)
{
	if (op->trouble < 255)
		op->trouble++;
}

static void client_update_rto(struct rmem_client *c)
{
	c->rto_ns = rmem_rtt_rto_ns(&c->rtt, c->silent, c->silent ? client_random64(c) : 0);
}

static void client_heard(struct rmem_client *c, u64 now_ns)
{
	c->heard_ns = now_ns;
	if (!c->silent)
		return;
	c->silent = 0;
	client_update_rto(c);
}

static void client_delay(struct rmem_client *c, struct rmem_op *op, u64 deadline_ns)
{
	if (op->state == RMEM_OP_DELAYED)
		return;
	rmem_op_pick(c, op);
	rmem_op_count_attempt(c, op);
	rmem_op_put_timed(c, op, RMEM_OP_DELAYED, deadline_ns);
}

/* When the whole node is silent its timeout grows; here it's the op alone. */
static void client_retry(struct rmem_client *c, struct rmem_op *op, u64 now_ns)
{
	if (op->trouble > TROUBLE_TIMEOUTS && !c->silent)
		client_delay(c, op,
			     now_ns + base_doubled(RMEM_RTO_NS_MIN, op->trouble - TROUBLE_TIMEOUTS,
						   RMEM_RTO_NS_MAX));
	else
		rmem_op_again(c, op);
}

static void client_timed_out(struct rmem_client *c, struct rmem_op *op, u64 now_ns)
{
	c->count.timeouts++;
	client_count_trouble(op);
	rmem_op_recall(c, op, 0, op->parts);
	if (c->heard_ns < op->sent_ns)
		rmem_window_timeout(&c->window, now_ns, c->rto_ns);
	client_retry(c, op, now_ns);
}

static void client_nack(struct rmem_client *c, struct rmem_op *op, u32 first, u32 end, u64 now_ns)
{
	/* The node won't fetch its data: nothing is damaged. */
	if (op->lent && !op->single) {
		op->single = true;
		first = 0;
		end = op->parts;
	} else {
		c->count.damaged++;
	}
	if (!rmem_op_recall(c, op, first, end))
		return;
	client_count_trouble(op);
	if (op->state != RMEM_OP_FLYING && op->state != RMEM_OP_SLOW)
		rmem_op_settle(c, op); /* will be sent again anyway */
	else if (op->trouble > TROUBLE_NACKS)
		client_delay(c, op, now_ns + BUSY_NS_MAX);
	else
		rmem_op_again(c, op);
}

static void client_busy(struct rmem_client *c, struct rmem_op *op, u32 first, u32 end, u64 now_ns)
{
	c->count.busy++;
	if (!rmem_op_recall(c, op, first, end))
		return;
	client_delay(c, op, now_ns + base_doubled(BUSY_NS_FIRST, op->trouble, BUSY_NS_MAX));
	client_count_trouble(op);
}

void rmem_client_unsent(struct rmem_client *c, const struct rmem_client_tx *tx, u64 now_ns)
{
	struct rmem_op *op = tx->op;
	u32 part, end;

	if (!op) {
		c->own_deadline_ns = now_ns + UNSENT_NS;
		return;
	}
	if (tx->head.session != c->session || rmem_seq_owner(&c->seq, tx->head.id) != op)
		return; /* has ended since */
	part = tx->data_offset / op->piece;
	/* Its data might not be lent, and several parts have no room for it. */
	if (op->type == RMEM_WRITE && tx->head.piece)
		op->single = true;
	end = rmem_op_is_cut(op) && tx->head.piece ?
		      part + (tx->head.len + op->piece - 1) / op->piece :
		      part + 1;
	if (rmem_op_recall(c, op, part, end))
		client_delay(c, op, now_ns + UNSENT_NS);
}

/* ---- receiving ---- */

/* Measures if the answer is one that tells. The delay of a packet, or 0. */
static u64 client_measure(struct rmem_client *c, const struct rmem_op *op, u8 attempt, u32 part,
			  u64 now_ns)
{
	u32 sent_part = op->first_sent_part;
	u64 since_ns = op->first_sent_ns;
	bool ends = op->parts_done + 1 == op->parts;

	if (!rmem_op_has_parts(op))
		return 0;
	if (attempt == op->attempt) {
		since_ns = op->sent_ns;
		sent_part = op->sent_part;
	} else if (attempt) {
		return 0;
	}
	/* A timeout must cover a READ's last packet; congestion shows at the first already. */
	if (op->type == RMEM_READ ? ends : part == sent_part) {
		rmem_rtt_sample(&c->rtt, now_ns - since_ns);
		client_update_rto(c);
	}
	if (part != sent_part)
		return 0;
	rmem_base_sample(c->base, now_ns, now_ns - since_ns);
	return now_ns - since_ns;
}

/*
 * Tell loss.h that a part was answered, and so which packets it overtook. An op keeps the departure
 * of its last packet; for any other packet the attempt's first departure is the lower bound.
 */
static void client_overtake(struct rmem_client *c, struct rmem_op *op, u8 attempt, u32 part,
			    u64 now_ns)
{
	if (!rmem_op_has_parts(op))
		return;
	if (attempt != op->attempt) {
		if (part < op->recalled_parts)
			rmem_loss_denied(&c->loss, now_ns, c->rtt.srtt_ns);
		return;
	}
	if (part >= op->sent_part)
		rmem_loss_answered(&c->loss, op->departure, now_ns - op->sent_ns);
	else
		rmem_loss_answered(&c->loss, op->begun_departure, now_ns - op->begun_ns);
	if (part > op->ahead_part)
		op->ahead_part = part;
	if (rmem_op_first_flying(op) >= op->ahead_part)
		op->overtaken_ns = 0;
	else if (!op->overtaken_ns)
		op->overtaken_ns = now_ns;
}

/* When the oldest op that flies is lost; NEVER_NS: none that left later was answered. */
static u64 client_lost_ns(const struct rmem_client *c)
{
	const struct rmem_op *op = c->flying.head;
	u64 window_ns;

	if (!op || (op->departure >= c->loss.newest && !op->overtaken_ns))
		return NEVER_NS;
	window_ns = rmem_loss_window_ns(&c->loss, rmem_base_ns(c->base), c->rtt.srtt_ns);
	if (op->departure < c->loss.newest)
		return op->sent_ns + c->loss.round_trip_ns + window_ns;
	return op->overtaken_ns + window_ns;
}

/* Send lost parts again: those that fly, or those that left before one that was answered. */
static void client_find_lost(struct rmem_client *c, u64 now_ns)
{
	struct rmem_op *op;
	u32 end;

	while (client_lost_ns(c) <= now_ns) {
		op = c->flying.head;
		end = op->departure < c->loss.newest ? op->parts : op->ahead_part;
		c->count.lost++;
		c->answered = true; /* the retransmission doesn't wait to share a datagram */
		rmem_loss_found(&c->loss);
		client_count_trouble(op);
		rmem_op_recall(c, op, 0, end);
		client_retry(c, op, now_ns);
		op->recalled_parts = end;
	}
}

/* Which part of a READ is this? op->parts: none. */
static u32 client_read_part(const struct rmem_op *op, const struct rmem_head *head)
{
	u64 from = head->addr - op->addr;
	u64 offset = from + head->offset;
	u32 part;

	if (from >= op->len || offset >= op->len)
		return op->parts;
	part = (u32)offset / op->piece;
	if (rmem_op_offset(op, part) != offset ||
	    rmem_op_offset(op, part + 1) - offset != head->len)
		return op->parts;
	return part;
}

/* ALLOC's answer is the caller's now, unless it makes no sense. */
static bool client_take_alloc(struct rmem_op *op, const void *payload)
{
	struct rmem_range range;
	u64 addr, bytes;

	base_copy(&range, payload, sizeof(range));
	addr = base_load_le64(&range.addr);
	bytes = base_load_le64(&range.bytes);
	if (!bytes || bytes < op->alloc.bytes || addr + bytes < addr)
		return false;
	op->range.addr = addr;
	op->range.bytes = bytes;
	op->range.undoes = false;
	return true;
}

/* The same of LOOKUP's. */
static bool client_take_lookup(struct rmem_op *op, const void *payload)
{
	struct rmem_range range;
	u64 addr, bytes;

	base_copy(&range, payload, sizeof(range));
	addr = base_load_le64(&range.addr);
	bytes = base_load_le64(&range.bytes);
	if (!addr || !bytes || addr + (bytes - 1) < addr)
		return false;
	op->name.addr = addr;
	op->name.bytes = bytes;
	return true;
}

/* The same of LIST's. */
static bool client_take_list(struct rmem_op *op, const void *payload)
{
	struct rmem_listed listed;
	u64 addr, bytes;
	u32 perm;

	base_copy(&listed, payload, sizeof(listed));
	addr = base_load_le64(&listed.addr);
	bytes = base_load_le64(&listed.bytes);
	perm = base_load_le32(&listed.perm);
	if ((addr | bytes) & ((1ULL << RMEM_PAGE_SHIFT_MIN) - 1))
		return false;
	if (bytes && (!addr || addr < base_load_le64(&op->name.named->addr) ||
		      addr + (bytes - 1) < addr))
		return false;
	if (bytes && perm != RMEM_PERM_READ && perm != (RMEM_PERM_READ | RMEM_PERM_WRITE))
		return false;
	op->name.addr = addr;
	op->name.bytes = bytes;
	base_copy(op->name.listed, &listed, sizeof(listed));
	return true;
}

/* Stores a sound answer in op. False: the answer isn't sound. */
static bool client_take(struct rmem_op *op, const void *payload)
{
	if (op->type == RMEM_ALLOC)
		return client_take_alloc(op, payload);
	if (op->type == RMEM_LIST)
		return client_take_list(op, payload);
	return op->type != RMEM_LOOKUP || client_take_lookup(op, payload);
}

static void client_take_found(struct rmem_op *op, const void *payload)
{
	struct rmem_found found;

	base_copy(&found, payload, sizeof(found));
	if (op->type == RMEM_CALL) {
		op->call.found[0] = base_load_le64(&found.value[0]);
		op->call.found[1] = base_load_le64(&found.value[1]);
		op->call.result_bytes = sizeof(found);
		return;
	}
	if (op->type == RMEM_PUT) {
		op->put.found = base_load_le64(&found.value[0]);
		return;
	}
	op->atomic.found[0] = base_load_le64(&found.value[0]);
	op->atomic.found[1] = base_load_le64(&found.value[1]);
}

static void client_finish(struct rmem_client *c, struct rmem_op *op, struct rmem_client_rx *rx)
{
	rx->result = op->status == RMEM_OK ? RMEM_CLIENT_OK : RMEM_CLIENT_REFUSED;
	rx->finished = rmem_op_end(c, op, NULL);
}

/* The part won't be sent again. */
static void client_part_ends(struct rmem_client *c, struct rmem_op *op, u8 attempt, u32 part,
			     u64 now_ns, struct rmem_client_rx *rx)
{
	c->progress_ns = now_ns;
	rmem_op_recall(c, op, part, part + 1);
	client_overtake(c, op, attempt, part, now_ns);
	rmem_op_bit_set(op->done, part);
	op->parts_done++;
	op->trouble = 0;
	if (op->type == RMEM_WRITE)
		rmem_seq_put(&c->seq, op->id + part);
	if (op->parts_done == op->parts)
		client_finish(c, op, rx);
	else
		rmem_op_settle(c, op);
}

static void client_answered(struct rmem_client *c, struct rmem_op *op, u32 part, u64 now_ns,
			    const struct rmem_head *head, struct rmem_client_rx *rx)
{
	u64 delay_ns = client_measure(c, op, head->attempt, part, now_ns);

	rx->accepted = true;
	rmem_window_answered(&c->window, now_ns, 1, delay_ns, rmem_base_ns(c->base));
	/* Were the attempt before only late, its answer would have come before this one. */
	if (op->attempt && head->attempt == op->attempt)
		rmem_window_lost(&c->window, now_ns, rmem_base_ns(c->base));
	if (rmem_type_answers_data(op->type)) {
		rx->op = op;
		rx->data_offset = rmem_op_offset(op, part);
		rx->data_bytes = head->len;
	}
	client_part_ends(c, op, head->attempt, part, now_ns, rx);
}

/*
 * A READ is refused as a whole. A WRITE whose other parts might be on their way ends when all are
 * answered: a part that came after the op's end could overwrite data written since.
 */
static void client_refused(struct rmem_client *c, struct rmem_op *op, u32 part, u64 now_ns,
			   const struct rmem_head *head, u8 status, struct rmem_client_rx *rx)
{
	op->status = status;
	if (rmem_type_runs(op->type))
		op->call.part = head->offset;
	if (op->type == RMEM_WRITE) {
		client_part_ends(c, op, head->attempt, part, now_ns, rx);
		return;
	}
	c->progress_ns = now_ns;
	client_finish(c, op, rx);
}

static void client_receive_ok(struct rmem_client *c, struct rmem_op *op, u64 now_ns,
			      const struct rmem_head *head, const void *payload, bool damaged,
			      struct rmem_client_rx *rx)
{
	u32 part = op->type == RMEM_WRITE ? head->id - op->id : 0;

	if (op->type == RMEM_READ)
		part = client_read_part(op, head);
	if ((op->type == RMEM_READV && head->len != op->len) ||
	    (op->type == RMEM_QUERY && head->len > op->call.room_bytes))
		part = op->parts;
	if (part >= op->parts || (damaged && !rmem_type_answers_data(op->type))) {
		c->count.bad++;
		return;
	}
	if (rmem_op_bit_is_set(op->done, part)) {
		c->count.ignored++;
		return;
	}
	if (damaged) {
		client_nack(c, op, part, part + 1, now_ns);
		return;
	}
	if (!client_take(op, payload)) {
		c->count.bad++;
		rx->accepted = true;
		client_refused(c, op, part, now_ns, head, RMEM_INVALID, rx);
		return;
	}
	if (rmem_type_keeps_result(op->type))
		client_take_found(op, payload);
	else if (rmem_type_runs(op->type))
		op->call.result_bytes = head->len;
	client_answered(c, op, part, now_ns, head, rx);
}

/* The node refuses; a READ as a whole, of a WRITE this part. */
static void client_receive_error(struct rmem_client *c, struct rmem_op *op, u64 now_ns,
				 const struct rmem_head *head, struct rmem_client_rx *rx)
{
	u32 first = op->type == RMEM_WRITE ? head->id - op->id : 0;
	u32 end = op->type == RMEM_WRITE ? first + 1 : op->parts;

	rx->accepted = true;
	switch (head->status) {
	case RMEM_DAMAGED:
		client_nack(c, op, first, end, now_ns);
		break;
	case RMEM_BUSY:
		client_busy(c, op, first, end, now_ns);
		break;
	/*
	 * The session can have ended; or an attacker sent a copy of the request from another
	 * address. The answer to OPEN tells. Until then the operations keep their ids.
	 */
	case RMEM_NO_SESSION:
		rmem_client_unknown(c, now_ns);
		break;
	case RMEM_STALE: /* of an id that is outstanding: this client was rolled back */
		rmem_client_reopen(c, now_ns, 0);
		rx->finished = rmem_client_lose_ids(c);
		rx->result = RMEM_CLIENT_UNKNOWN;
		break;
	default:
		client_refused(c, op, first, now_ns, head, head->status, rx);
	}
}

/*
 * While a renewal is pending, accept RMEM_OK responses that carry the old session's name: the node
 * did execute those operations. So one op that is cancelled all the time doesn't stop the others.
 */
static bool client_is_of_before(const struct rmem_client *c, const struct rmem_head *head)
{
	return c->renews && head->session == c->renews && head->status == RMEM_OK;
}

void rmem_client_receive(struct rmem_client *c, u64 now_ns, const struct rmem_head *head,
			 const void *payload, bool damaged, struct rmem_client_rx *rx)
{
	bool before = client_is_of_before(c, head);
	struct rmem_op *op;
	bool rebooted, same_boot;

	rx->accepted = false;
	rx->op = NULL;
	rx->finished = NULL;
	rx->result = RMEM_CLIENT_OK;
	c->count.received++;
	if (head->space != c->config.space || head->integrity != c->config.integrity) {
		c->count.bad++;
		return;
	}
	if (head->clear && head->type == (RMEM_CLOSE | RMEM_RESPONSE)) {
		rmem_client_receive_notice(c, now_ns, head, rx);
		if (rx->accepted)
			client_heard(c, now_ns);
		return;
	}
	if ((c->state != RMEM_CHANNEL_OPEN && !before) || c->closing) {
		if (rmem_client_receive_own(c, now_ns, head, payload, damaged, rx))
			client_heard(c, now_ns);
		return;
	}
	op = before || head->session == c->session ? rmem_seq_owner(&c->seq, head->id) : NULL;
	if (!op) {
		c->count.ignored++;
		return;
	}
	rebooted = head->status == RMEM_REBOOTED;
	/* A plain answer names a boot only if it isn't its session's. */
	same_boot = head->boot == c->boot || (head->plain && !head->boot);
	if (head->type != (op->type | RMEM_RESPONSE) || rebooted == same_boot) {
		c->count.bad++;
		return;
	}
	client_heard(c, now_ns);
	c->answered = true;
	if (head->status == RMEM_OK)
		client_receive_ok(c, op, now_ns, head, payload, damaged, rx);
	else if (rebooted)
		rmem_client_lose(c, rx);
	else
		client_receive_error(c, op, now_ns, head, rx);
	client_find_lost(c, now_ns);
}

/* ---- time ---- */

/* Renewed, a sealed session has other keys. */
static void client_expire_keys(struct rmem_client *c, u64 now_ns)
{
	if (c->config.cipher && now_ns >= c->opened_ns + RMEM_REKEY_NS)
		rmem_client_renew(c, now_ns);
}

static void client_expire_own(struct rmem_client *c, u64 now_ns)
{
	if ((c->state != RMEM_CHANNEL_OPENING && !c->closing) || c->own_due ||
	    now_ns < c->own_deadline_ns)
		return;
	c->own_due = true;
	c->own_attempt++;
	/* After a pause that the node asked for, nothing is owed. */
	if (c->heard_ns < c->own_sent_ns && c->silent < 255)
		c->silent++;
	client_update_rto(c);
}

/* True: the node gave no sign since op was sent. */
static bool client_expire_op(struct rmem_client *c, struct rmem_op *op, u64 now_ns)
{
	bool silent = c->heard_ns < op->sent_ns;

	client_timed_out(c, op, now_ns);
	return silent;
}

static bool client_is_late(const struct rmem_client *c, const struct rmem_op *op, u64 now_ns)
{
	return op && op->flying_parts && now_ns >= op->sent_ns + c->rto_ns;
}

/* True: the node gave no sign since one of those that are late was sent. */
static bool client_expire_late(struct rmem_client *c, u64 now_ns)
{
	struct rmem_op *op, *next;
	bool silent = false;

	if (client_is_late(c, c->sending, now_ns))
		silent |= client_expire_op(c, c->sending, now_ns);
	/* All of them, since rmem_client_next() takes the first away, and partly isn't sorted. */
	for (op = c->partly.head; op; op = next) {
		next = op->next;
		if (client_is_late(c, op, now_ns))
			silent |= client_expire_op(c, op, now_ns);
	}
	while (client_is_late(c, c->flying.head, now_ns))
		silent |= client_expire_op(c, c->flying.head, now_ns);
	return silent;
}

/* At its maximum the next RTO can be shorter than the last one, by its jitter: more are late. */
static void client_expire_flying(struct rmem_client *c, u64 now_ns)
{
	while (client_expire_late(c, now_ns)) {
		if (!c->silent)
			rmem_op_give_back(c);
		if (c->silent < 255)
			c->silent++;
		client_update_rto(c);
	}
}

static void client_expire_timed(struct rmem_client *c, u64 now_ns)
{
	struct rmem_op *op;

	while ((op = c->timed.head) && now_ns >= op->deadline_ns) {
		if (op->state == RMEM_OP_SLOW)
			client_timed_out(c, op, now_ns);
		else
			rmem_op_put_again(c, op);
	}
}

/*
 * If the op ends now, can a copy of it still change something? Not if it was answered. The floor
 * doesn't help, for an older op can hold it down. Another name of the session does: nothing is sent
 * under it before the node has forgotten the old one.
 */
static bool client_op_may_come_late(const struct rmem_op *op)
{
	return op->may_be_done && rmem_type_changes(op->type);
}

/*
 * Too old, with the channel stuck? Looked at once per fail_after at most. If a copy of an op that
 * ends here can still arrive, its session is renewed.
 */
static struct rmem_op *client_fail(struct rmem_client *c, u64 now_ns)
{
	struct rmem_op *const lists[RMEM_OP_LISTS + 1] = {c->waiting.head, c->again.head,
							  c->timed.head,   c->flying.head,
							  c->partly.head,  c->held.head,
							  c->sending};
	u64 after_ns = c->config.fail_after_ns;
	u64 oldest_ns = NEVER_NS;
	struct rmem_op *chain = NULL;
	struct rmem_op *op, *next;
	bool late = false;
	unsigned int i;

	if (now_ns < c->progress_ns + after_ns) {
		c->fail_ns = c->progress_ns + after_ns;
		return NULL;
	}
	for (i = 0; i < RMEM_OP_LISTS + 1; i++) {
		for (op = lists[i]; op; op = next) {
			next = op == c->sending ? NULL : op->next;
			if (now_ns < op->submitted_ns + after_ns) {
				oldest_ns = base_min(oldest_ns, op->submitted_ns);
				continue;
			}
			late |= client_op_may_come_late(op);
			chain = rmem_op_end(c, op, chain);
		}
	}
	c->fail_ns = oldest_ns == NEVER_NS ? 0 : oldest_ns + after_ns;
	if (late || c->abandons)
		rmem_client_renew(c, now_ns);
	return chain;
}

struct rmem_op *rmem_client_expire(struct rmem_client *c, u64 now_ns,
				   enum rmem_client_result *result)
{
	*result = RMEM_CLIENT_TIMEOUT;
	if (c->state == RMEM_CHANNEL_LOST) {
		*result = RMEM_CLIENT_LOST;
		return rmem_op_end_all(c);
	}
	client_expire_keys(c, now_ns);
	client_expire_own(c, now_ns);
	client_find_lost(c, now_ns);
	/* Before the next: an op that was delayed can have parts that are late. */
	client_expire_timed(c, now_ns);
	client_expire_flying(c, now_ns);
	client_find_lost(c, now_ns); /* the oldest that flies can be another now */
	if (!c->fail_ns || now_ns < c->fail_ns)
		return NULL;
	return client_fail(c, now_ns);
}

u64 rmem_client_deadline(const struct rmem_client *c)
{
	const struct rmem_op *const sent[3] = {c->flying.head, c->partly.head, c->sending};
	u64 at_ns = NEVER_NS;
	unsigned int i;

	/* Times of operations that have ended mean nothing any more. */
	if (c->state == RMEM_CHANNEL_LOST)
		return c->outstanding_ops ? 1 : 0;
	if (c->own_due)
		return 1;
	if (c->state == RMEM_CHANNEL_OPENING || c->closing)
		at_ns = c->own_deadline_ns;
	for (i = 0; i < 3; i++) {
		if (sent[i] && sent[i]->flying_parts)
			at_ns = base_min(at_ns, sent[i]->sent_ns + c->rto_ns);
	}
	at_ns = base_min(at_ns, client_lost_ns(c));
	if (c->timed.head)
		at_ns = base_min(at_ns, c->timed.head->deadline_ns);
	if (c->yield_ns)
		at_ns = base_min(at_ns, c->yield_ns);
	if (c->pace_ns)
		at_ns = base_min(at_ns, c->pace_ns);
	if (c->fail_ns)
		at_ns = base_min(at_ns, c->fail_ns);
	if (c->config.cipher && c->state == RMEM_CHANNEL_OPEN && !c->closing)
		at_ns = base_min(at_ns, c->opened_ns + RMEM_REKEY_NS);
	return at_ns == NEVER_NS ? 0 : at_ns;
}

/* ---- begin and end ---- */

void rmem_client_init(struct rmem_client *c, const struct rmem_client_config *config,
		      struct rmem_base *base, struct rmem_incast *incast, u64 boot)
{
	base_zero(c, sizeof(*c));
	c->config = *config;
	if (c->config.piece_bytes < RMEM_PIECE_BYTES_MIN)
		c->config.piece_bytes = RMEM_PIECE_BYTES_MIN;
	c->base = base;
	c->incast = incast;
	c->boot = boot;
	c->rng = config->seed ? config->seed : 1;
	c->nonce = client_random64(c) >> 1;
	rmem_seq_init(&c->seq, c->owner, RMEM_WINDOW);
	rmem_rtt_init(&c->rtt);
	rmem_loss_init(&c->loss);
	rmem_window_init(&c->window, config->lossless);
	c->room = ~0U;
	client_update_rto(c);
}

void rmem_client_submit(struct rmem_client *c, struct rmem_op *op, u64 now_ns)
{
	op->status = RMEM_OK;
	op->attempt = 0;
	op->trouble = 0;
	op->recalled_parts = 0;
	op->parts = 0;
	op->flying_parts = 0;
	op->piece = 0;
	op->iwnd_bytes = 0;
	op->id = 0;
	op->may_be_done = false;
	op->sent_before = false;
	op->lent = false;
	op->single = false;
	op->parts_done = 0;
	op->submitted_ns = now_ns;
	c->outstanding_ops++;
	if (c->config.fail_after_ns && !c->fail_ns)
		c->fail_ns = now_ns + c->config.fail_after_ns;
	rmem_op_put(c, op, RMEM_OP_WAITING);
}

void rmem_client_cancel(struct rmem_client *c, struct rmem_op *op, u64 now_ns)
{
	bool late = client_op_may_come_late(op);

	rmem_op_end(c, op, NULL);
	if (late || c->abandons)
		rmem_client_renew(c, now_ns);
}

struct rmem_op *rmem_client_cancel_all(struct rmem_client *c)
{
	return rmem_op_end_all(c);
}
