// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/sender.h"

#include "core/base/bytes.h"
#include "core/eqds/flight.h"

/* The part of a peer's silence that passes before it is asked again. */
#define SENDER_SILENCE_PART 8

static s32 sender_pull_ahead(const struct eqds_sender *s, u32 a, u32 b)
{
	return eqds_ahead(a, b, s->config->profile->pull_bits);
}

static u64 sender_rto_ns(const struct eqds_sender *s)
{
	const struct eqds_config *c = s->config;
	u64 rto = eqds_flight_rto_base_ns(s);

	/* Shifted step by step: rto_max_ns bounds it before it can overflow. */
	for (u32 n = s->timeouts; n && rto < c->rto_max_ns; n--)
		rto *= 2;
	if (rto > c->rto_max_ns)
		rto = c->rto_max_ns;
	return rto > s->silent_ns / SENDER_SILENCE_PART ? rto : s->silent_ns / SENDER_SILENCE_PART;
}

static void sender_count_timeout(struct eqds_sender *s, u64 now_ns)
{
	s->silent_ns = now_ns - s->heard_ns;
	s->timeout_ns = now_ns;
	if (s->timeouts < s->config->timeouts_max)
		s->timeouts++;
}

/*
 * Packets that left one after another time out one after another. The sender counts that as one
 * timeout, as TCP does: only what left since the last one tells more of the path.
 */
static bool sender_timeout_counts(const struct eqds_sender *s, u64 sent_ns)
{
	return !s->timeouts || sent_ns >= s->timeout_ns;
}

/* A packet that only the peer can have sent, since it knows the epoch. */
static void sender_is_heard(struct eqds_sender *s, u64 now_ns)
{
	s->heard_ns = now_ns;
	s->silent_ns = 0;
}

/* ---- credit ---- */

static void sender_raise_target(struct eqds_sender *s)
{
	const struct eqds_config *c = s->config;
	u64 backlog = eqds_sender_backlog_bytes(s) + s->spare_bytes;
	s64 wanted = (s64)(backlog < c->window_bytes ? backlog : c->window_bytes) - s->credit_bytes;
	u32 target;

	if (wanted <= 0)
		return;
	target = eqds_add(s->pull, eqds_mtus(c, (u32)wanted), c->profile->pull_bits);
	if (sender_pull_ahead(s, target, s->target) > 0)
		s->target = target;
}

/*
 * Credit that the last pull left over stays, so a sender of small packets waits for one pull in ten
 * of them, not for a pull each. A debt stays (overdraw), too: it was asked for, and pulls that are
 * due will pay it.
 */
static void sender_drop_credit(struct eqds_sender *s)
{
	if (s->credit_bytes >= (s64)s->config->mtu_bytes)
		s->credit_bytes = s->config->mtu_bytes - 1;
}

/* Credit to start with after nothing was queued or in flight, or in a new epoch. */
static void sender_start(struct eqds_sender *s, u64 now_ns, bool burst)
{
	const struct eqds_config *c = s->config;
	s64 asked = (s64)sender_pull_ahead(s, s->target, s->pull) * c->mtu_bytes;

	s->resting = false;
	sender_drop_credit(s);
	s->target_told = s->pull; /* a control packet that came before the rest may be forgotten */
	s->progress_ns = now_ns;
	if (burst && c->trimming && (s->cookie || !c->cookies) && now_ns >= s->busy_until_ns &&
	    asked < (s64)c->window_bytes)
		s->credit_bytes = c->window_bytes - asked;
}

static void sender_rest(struct eqds_sender *s)
{
	if (s->resting || s->skipping || eqds_sender_backlog_bytes(s) || s->in_flight.count)
		return;
	s->resting = true;
	sender_drop_credit(s);
}

/* ---- epochs ---- */

/* Everything with a number loses it, and goes before what has none, in the order of numbers. */
static void sender_requeue(struct eqds_sender *s)
{
	const u8 bits = s->config->profile->seq_bits;
	struct eqds_packet *last = NULL;

	for (u32 seq = s->una; seq != s->next; seq = eqds_add(seq, 1, bits)) {
		struct eqds_packet *packet = *eqds_flight_slot(s, seq);

		*eqds_flight_slot(s, seq) = NULL;
		if (!packet || packet->seq != seq)
			continue;
		eqds_flight_list_remove(s, packet);
		packet->state = EQDS_PACKET_QUEUED;
		packet->attempt = 0;
		packet->again = false;
		packet->counted = false;
		eqds_list_insert(&s->queue, last, packet);
		last = packet;
	}
}

/* Numbers that an epoch has. */
static u32 sender_room_first(const struct eqds_sender *s)
{
	return s->config->epoch_packets ? s->config->epoch_packets : ~0U;
}

/*
 * Begin an epoch. A tunnel that opens again and again (a peer that refuses, a path that is
 * dead) does so by RTS, whose rate timeouts bound, instead of a burst.
 */
static void sender_open(struct eqds_sender *s, u64 now_ns, u32 epoch)
{
	sender_requeue(s);
	s->state = EQDS_SENDER_SYN_SENT;
	s->epoch = epoch & eqds_mask(s->config->profile->epoch_bits);
	s->una = eqds_epoch_start(s->config->profile, s->epoch);
	s->next = s->una;
	s->room = sender_room_first(s);
	s->pull = 0;
	s->target = 0;
	s->target_told = 0;
	s->credit_bytes = 0;
	s->skipping = false;
	s->rts_due_ns = EQDS_NEVER;
	sender_start(s, now_ns, !s->timeouts);
}

/* ---- what leaves ---- */

static struct eqds_packet *sender_candidate(const struct eqds_sender *s)
{
	struct eqds_packet *packet = s->retransmit.head;

	if (packet)
		return packet;
	if (!s->room)
		return NULL;
	return eqds_flight_outstanding(s) < s->config->window_packets ? s->queue.head : NULL;
}

/* Credit that the first number of a packet costs. */
static u32 sender_first_bytes(const struct eqds_packet *packet)
{
	return packet->more ? packet->each_bytes : packet->bytes;
}

/* Is there credit for a packet's first number? */
static bool sender_can_pay(const struct eqds_sender *s, const struct eqds_packet *packet)
{
	return s->config->overdraw ? s->credit_bytes > 0
				   : s->credit_bytes >= sender_first_bytes(packet);
}

/* The packet that may leave now; NULL: none. */
static struct eqds_packet *sender_ready(const struct eqds_sender *s)
{
	struct eqds_packet *packet = sender_candidate(s);

	return packet && sender_can_pay(s, packet) ? packet : NULL;
}

bool eqds_sender_is_ready(const struct eqds_sender *s)
{
	return sender_ready(s);
}

/* Numbers of the candidate that leave at once. The sender is ready. */
static u32 sender_next_count(const struct eqds_sender *s, u64 now_ns,
			     const struct eqds_packet *packet)
{
	const struct eqds_config *c = s->config;
	u32 count = packet->more + 1U, most = c->window_packets - eqds_flight_outstanding(s);

	if (count == 1 || packet->state == EQDS_PACKET_RETRANSMIT ||
	    !eqds_proof_allows(&s->proof, now_ns))
		return 1;
	if (most > EQDS_COUNTED_MAX)
		most = EQDS_COUNTED_MAX;
	if (most > s->room)
		most = s->room;
	if (s->credit_bytes < (s64)packet->bytes) {
		/* With overdraw, one more for what is left above 0. */
		const u32 paid = c->overdraw ? ((u32)s->credit_bytes - 1) / packet->each_bytes + 1
					     : (u32)s->credit_bytes / packet->each_bytes;

		most = paid < most ? paid : most;
	}
	return count < most ? count : most;
}

u32 eqds_sender_next_bytes(const struct eqds_sender *s, u64 now_ns)
{
	const struct eqds_packet *packet = sender_ready(s);
	u32 count;

	if (!packet)
		return 0;
	count = sender_next_count(s, now_ns, packet);
	return count > packet->more ? packet->bytes : count * packet->each_bytes;
}

/* Only credit is missing, so a pull would help. */
static bool sender_lacks_credit(const struct eqds_sender *s)
{
	const struct eqds_packet *packet = sender_candidate(s);

	return packet && !sender_can_pay(s, packet);
}

/* Numbers were given up, and no packet is on its way that tells the receiver of it. */
static bool sender_owes_skip(const struct eqds_sender *s)
{
	return s->skipping && !eqds_flight_outstanding(s);
}

static void sender_head(struct eqds_sender *s, u64 now_ns, struct eqds_head *head)
{
	u64 backlog = eqds_sender_backlog_bytes(s);

	base_zero(head, sizeof(*head));
	head->flags = s->state == EQDS_SENDER_SYN_SENT ? EQDS_SYN : 0;
	head->has_epoch = head->flags & EQDS_SYN || !s->config->profile->start_bits;
	head->epoch = s->epoch;
	head->seq = s->next;
	head->unacked = eqds_flight_outstanding(s);
	head->pull = s->target;
	head->sender = s->id;
	head->stamp = (u32)(now_ns / 16);
	if (!head->stamp)
		head->stamp = 1;
	if (backlog > s->config->window_bytes) {
		backlog -= s->config->window_bytes;
		head->backlog_bytes = backlog < ~0U ? (u32)backlog : ~0U;
	}
	head->cookie = s->cookie;
}

/* How long to wait for a pull before asking again. */
static u64 sender_patience_ns(const struct eqds_sender *s, u64 now_ns)
{
	u64 rto = sender_rto_ns(s);
	u64 busy = s->busy_until_ns > now_ns ? s->busy_until_ns - now_ns : 0;

	return busy > rto ? busy : rto;
}

static void sender_send_rts(struct eqds_sender *s, u64 now_ns, struct eqds_out *out)
{
	out->send = true;
	sender_head(s, now_ns, &out->head);
	out->head.flags |= EQDS_EMPTY;
	out->head.next_proto = EQDS_PROTO_NONE;
	s->target_told = s->target;
	s->rts_sent_ns = now_ns;
	s->rts_due_ns = now_ns + sender_patience_ns(s, now_ns);
}

/* The end of a tunnel without packets. */
static void sender_finish(struct eqds_sender *s, struct eqds_out *out)
{
	out->verdict = EQDS_CLOSED;
	sender_head(s, 0, &out->head);
	out->head.flags |= EQDS_FIN | EQDS_EMPTY;
	out->head.next_proto = EQDS_PROTO_NONE;
	out->send = true;
	s->state = EQDS_SENDER_CLOSED;
	/* The next epoch is later than this one, should the caller keep the state. */
	s->epoch = eqds_add(s->epoch, 1, s->config->profile->epoch_bits);
	s->rts_due_ns = EQDS_NEVER;
	s->resting = true;
	s->skipping = false;
	s->credit_bytes = 0;
	s->target = s->pull;
	s->target_told = s->pull;
}

/* The last step of every event: what is asked for, and whether the receiver has to be told. */
static void sender_settle(struct eqds_sender *s, u64 now_ns, struct eqds_out *out)
{
	u64 due;

	if (s->skipping && !s->queue.count && !eqds_flight_outstanding(s) && !s->room) {
		sender_finish(s, out);
		return;
	}
	if (s->queue.count && !eqds_flight_outstanding(s) && !s->room)
		sender_open(s, now_ns, eqds_add(s->epoch, 1, s->config->profile->epoch_bits));
	sender_raise_target(s);
	if (!sender_lacks_credit(s) && !sender_owes_skip(s)) {
		s->rts_due_ns = EQDS_NEVER;
		return;
	}
	due = now_ns + sender_patience_ns(s, now_ns);
	if (s->target != s->target_told) {
		due = s->rts_sent_ns + (s->timeouts || !s->rtt_ns ? sender_rto_ns(s) : s->rtt_ns);
		if (!s->rts_sent_ns || due < now_ns)
			due = now_ns;
	}
	if (due < s->rts_due_ns)
		s->rts_due_ns = due;
	if (s->rts_due_ns <= now_ns)
		sender_send_rts(s, now_ns, out);
}

/* Is the peer there, so that a packet alone is lost? An RTS is answered in any case. */
static void sender_probe(struct eqds_sender *s, u64 now_ns, struct eqds_out *out)
{
	const u64 due_ns = s->rts_due_ns;

	sender_send_rts(s, now_ns, out);
	if (due_ns == EQDS_NEVER)
		s->rts_due_ns = EQDS_NEVER;
}

static u16 sender_path(struct eqds_sender *s, u64 now_ns, const struct eqds_packet *packet)
{
	if (!s->paths)
		return 0;
	if (packet->attempt)
		return eqds_paths_pick(s->paths);
	if (s->train_left > packet->more && s->train_ns == now_ns) {
		s->train_left -= packet->more + 1;
		return eqds_paths_pick_again(s->paths, s->train_path, packet->more + 1U);
	}
	s->train_path = eqds_paths_pick(s->paths);
	s->train_left = s->config->train_packets - 1;
	s->train_left -= packet->more < s->train_left ? packet->more : s->train_left;
	s->train_ns = now_ns;
	return eqds_paths_pick_again(s->paths, s->train_path, packet->more);
}

struct eqds_packet *eqds_sender_next(struct eqds_sender *s, u64 now_ns, struct eqds_head *head)
{
	struct eqds_packet *packet = sender_ready(s);
	u32 count;

	if (!packet)
		return NULL;
	count = sender_next_count(s, now_ns, packet);
	if (count <= packet->more)
		eqds_flight_split(s, packet, count);
	if (count > 1)
		eqds_proof_left(&s->proof, now_ns);
	if (packet->state == EQDS_PACKET_QUEUED) {
		eqds_list_remove(&s->queue, packet);
		packet->seq = s->next;
		packet->attempt = 0;
		for (u32 n = 0; n < count; n++)
			*eqds_flight_slot(s, packet->seq + n) = packet;
		s->next = eqds_add(s->next, count, s->config->profile->seq_bits);
		if (s->config->epoch_packets)
			s->room -= count;
	} else {
		eqds_list_remove(&s->retransmit, packet);
		packet->attempt++;
		packet->again = s->config->pull_trimmed;
	}
	packet->state = EQDS_PACKET_IN_FLIGHT;
	eqds_flight_judge(s, packet);
	packet->path = sender_path(s, now_ns, packet);
	packet->sent_ns = now_ns;
	eqds_list_append(&s->in_flight, packet);
	s->credit_bytes -= packet->bytes;
	if (packet->again)
		s->spare_bytes += packet->bytes;
	sender_raise_target(s);
	s->target_told = s->target;
	s->rts_due_ns =
		sender_lacks_credit(s) ? now_ns + sender_patience_ns(s, now_ns) : EQDS_NEVER;
	sender_head(s, now_ns, head);
	head->seq = packet->seq;
	head->unacked = (packet->seq - s->una) & eqds_mask(s->config->profile->seq_bits);
	head->attempt = packet->attempt;
	head->path = packet->path;
	head->bytes = sender_first_bytes(packet);
	head->counted = packet->more;
	head->next_proto = packet->next_proto;
	return packet;
}

bool eqds_sender_unnumbered(struct eqds_sender *s, u64 now_ns, u32 bytes, u8 next_proto,
			    struct eqds_head *head)
{
	if (!s->unnumbered || s->state != EQDS_SENDER_ESTABLISHED || s->skipping ||
	    eqds_sender_backlog_bytes(s) || s->credit_bytes < (s64)bytes ||
	    eqds_flight_outstanding(s) >= s->config->window_packets)
		return false;
	s->credit_bytes -= bytes;
	s->used_ns = now_ns;
	sender_head(s, now_ns, head);
	head->unnumbered = true;
	head->bytes = bytes;
	head->next_proto = next_proto;
	/* On one path, acknowledgements of one connection rarely overtake each other. */
	head->path = s->train_path;
	return true;
}

/* ---- a later epoch ---- */

static void sender_open_again(struct eqds_sender *s, u64 now_ns, u32 after_epoch,
			      struct eqds_out *out)
{
	out->verdict = EQDS_RESTARTED;
	s->translated = false;
	sender_open(s, now_ns, eqds_add(after_epoch, 1, s->config->profile->epoch_bits));
	sender_count_timeout(s, now_ns);
	if (s->queue.count)
		return;
	s->state = EQDS_SENDER_CLOSED;
	s->resting = true;
	s->credit_bytes = 0;
	s->timeouts = 0;
	out->verdict = EQDS_CLOSED;
}

/* ---- what arrives ---- */

static void sender_pulled(struct eqds_sender *s, u64 now_ns, const struct eqds_head *head)
{
	s32 gained = sender_pull_ahead(s, head->pull, s->pull);

	if (gained <= 0)
		return; /* overtaken by a later one */
	s->pull = head->pull;
	s->credit_bytes += (s64)gained * s->config->mtu_bytes;
	s->progress_ns = now_ns;
	if (sender_pull_ahead(s, s->pull, s->target) <= 0)
		return;
	/* pull_trimmed: it overtook the NACK, or the NACK was lost. */
	s->target = s->pull;
	s->target_told = s->pull;
	if (s->credit_bytes > (s64)s->config->window_bytes)
		s->credit_bytes = s->config->window_bytes;
}

/*
 * Does the packet answer a tunnel that had the same epoch before this one? Its numbers then lie
 * where this tunnel has not been. The first packet of an epoch is checked exactly, since nothing
 * of this tunnel can have overtaken it. Later, a number that is half the space or more behind is
 * one ahead: what the receiver takes for old (receiver_demand()) must not pass for old here, too,
 * or neither end would ever give way.
 */
static enum eqds_verdict sender_refutes(const struct eqds_sender *s, const struct eqds_head *head,
					bool opening)
{
	const u32 seq_mask = eqds_mask(s->config->profile->seq_bits);
	const u32 pull_mask = eqds_mask(s->config->profile->pull_bits);
	u32 acked = (head->ack - s->una) & seq_mask, gift = eqds_gift_max(s->config);
	u32 most = ((s->target - s->pull) & pull_mask) + gift;

	if (opening ? ((head->pull - s->pull) & pull_mask) > most
		    : sender_pull_ahead(s, s->target, head->pull) < -(s32)gift)
		return EQDS_BAD_PULL;
	if (head->flags & EQDS_ACK && (opening ? acked > eqds_flight_outstanding(s)
					       : eqds_flight_seq_ahead(s, head->ack, s->next) > 0))
		return EQDS_BAD_ACK;
	if (head->flags & EQDS_SACK && eqds_flight_seq_ahead(s, head->echo, s->next) >= 0)
		return EQDS_BAD_ACK;
	return EQDS_OK;
}

/*
 * An RST tells the epoch that its receiver is in. The one after our own may be just that, and its
 * numbers would meet the state of an earlier tunnel.
 */
static u32 sender_epoch_to_pass(const struct eqds_sender *s, const struct eqds_head *rst)
{
	if (rst->has_epoch && eqds_ahead(rst->ack, s->epoch, s->config->profile->epoch_bits) > 0)
		return rst->ack;
	return s->epoch;
}

/*
 * RST, PAUSE, and SYN-ACKs of other epochs. Returns true if that was all, false if the packet is
 * of this tunnel's epoch and goes on.
 */
static bool sender_synchronise(struct eqds_sender *s, u64 now_ns, const struct eqds_head *head,
			       struct eqds_out *out)
{
	const u8 bits = s->config->profile->epoch_bits;
	bool other = head->epoch != s->epoch;

	out->verdict = EQDS_WRONG_EPOCH;
	if (head->flags & EQDS_FIN) {
		/* Without an epoch, it has at least to name a number that may be under way. */
		if (head->has_epoch ? !other
				    : s->state == EQDS_SENDER_ESTABLISHED &&
					      (eqds_flight_is_outstanding(s, head->echo) ||
					       head->echo == s->next)) {
			sender_is_heard(s, now_ns);
			sender_open_again(s, now_ns, sender_epoch_to_pass(s, head), out);
		}
		return true;
	}
	if (s->state == EQDS_SENDER_ESTABLISHED) {
		if ((head->has_epoch && other) || head->flags & EQDS_PAUSE)
			return true;
		out->verdict = EQDS_OK;
		return false;
	}
	if (!head->has_epoch)
		return true;
	if (head->flags & EQDS_PAUSE) {
		if (other)
			return true;
		s->translated |= !!(head->marks & EQDS_MARK_TRANSLATED);
		if (!head->cookie || head->cookie == s->cookie)
			return true;
		s->cookie = head->cookie;
		sender_is_heard(s, now_ns);
		sender_open_again(s, now_ns, s->epoch, out);
		out->verdict = EQDS_OK; /* so each tunnel to a new peer opens */
		return true;
	}
	if (other) {
		/* As the receiver sees it: half the space ahead of it counts as behind. */
		if (head->flags & EQDS_SYN && eqds_ahead(s->epoch, head->epoch, bits) < 0) {
			/* The receiver may want it before it gives its epoch up. */
			if (head->cookie)
				s->cookie = head->cookie;
			sender_open_again(s, now_ns, head->epoch, out);
		}
		return true;
	}
	s->state = EQDS_SENDER_ESTABLISHED;
	out->verdict = EQDS_OK;
	return false;
}

/* A packet of this tunnel's epoch; opening: the first one. */
static void sender_heard(struct eqds_sender *s, u64 now_ns, const struct eqds_head *head,
			 bool opening, struct eqds_out *out)
{
	s->used_ns = now_ns;
	s->ecn = head->marks & EQDS_MARK_ECN;
	s->unnumbered = head->marks & EQDS_MARK_UNNUMBERED;
	s->busy_until_ns = now_ns + head->busy_us * BASE_NSEC_PER_USEC;
	if (head->cookie)
		s->cookie = head->cookie;
	out->verdict = sender_refutes(s, head, opening);
	if (out->verdict != EQDS_OK) {
		/* Paper: it may be a late one of an earlier epoch. Timeouts go on being counted. */
		if (head->has_epoch)
			sender_open_again(s, now_ns, s->epoch, out);
		return;
	}
	sender_is_heard(s, now_ns);
	sender_pulled(s, now_ns, head);
	eqds_flight_acked(s, now_ns, head, out);
	if (head->flags & EQDS_NACK)
		eqds_flight_nacked(s, head, out);
	s->timeouts = 0;
	s->rts_due_ns = EQDS_NEVER;
	eqds_flight_advance(s);
	sender_rest(s);
}

void eqds_sender_receive(struct eqds_sender *s, u64 now_ns, const struct eqds_head *head,
			 struct eqds_out *out)
{
	const bool opening = s->state == EQDS_SENDER_SYN_SENT;

	base_zero(out, sizeof(*out));
	if (s->state == EQDS_SENDER_CLOSED || !head->control) {
		out->verdict = EQDS_NO_TUNNEL;
		return;
	}
	if (!sender_synchronise(s, now_ns, head, out))
		sender_heard(s, now_ns, head, opening, out);
	sender_settle(s, now_ns, out);
}

void eqds_sender_enqueue_whole(struct eqds_sender *s, u64 now_ns, struct eqds_packet *packet,
			       u16 more, u32 each_bytes, struct eqds_out *out)
{
	base_zero(out, sizeof(*out));
	packet->more = more;
	packet->nth = 0;
	packet->each_bytes = each_bytes;
	packet->state = EQDS_PACKET_QUEUED;
	packet->attempt = 0;
	packet->again = false;
	packet->counted = false;
	packet->judged = false;
	packet->strikes = 0;
	packet->sent_ns = 0;
	if (s->resting)
		sender_is_heard(s, now_ns);
	if (s->state == EQDS_SENDER_CLOSED)
		sender_open(s, now_ns, s->epoch);
	else if (s->resting)
		sender_start(s, now_ns, true);
	s->used_ns = now_ns;
	eqds_list_append(&s->queue, packet);
	sender_settle(s, now_ns, out);
}

void eqds_sender_enqueue(struct eqds_sender *s, u64 now_ns, struct eqds_packet *packet,
			 struct eqds_out *out)
{
	eqds_sender_enqueue_whole(s, now_ns, packet, 0, packet->bytes, out);
}

/* ---- time ---- */

u64 eqds_sender_deadline_ns(const struct eqds_sender *s)
{
	u64 deadline = s->rts_due_ns, other = EQDS_NEVER;

	if (s->in_flight.head)
		other = s->in_flight.head->sent_ns + sender_rto_ns(s);
	else if (s->resting && s->state != EQDS_SENDER_CLOSED)
		other = s->used_ns + s->config->idle_ns;
	return other < deadline ? other : deadline;
}

void eqds_sender_expire(struct eqds_sender *s, u64 now_ns, struct eqds_out *out)
{
	const u64 rto = sender_rto_ns(s);
	bool late = false, counts = false, again = false;

	base_zero(out, sizeof(*out));
	if (s->state == EQDS_SENDER_CLOSED)
		return;
	if (s->resting) {
		if (now_ns >= s->used_ns + s->config->idle_ns)
			eqds_sender_close(s, out);
		return;
	}
	while (s->in_flight.head && now_ns >= s->in_flight.head->sent_ns + rto) {
		struct eqds_packet *packet = s->in_flight.head;

		for (u32 n = 0; s->paths && n <= packet->more; n++)
			eqds_paths_lost(s->paths, packet->path);
		late = true;
		again |= packet->attempt != 0;
		counts |= sender_timeout_counts(s, packet->sent_ns);
		if (eqds_flight_is_hopeless(s, packet))
			eqds_flight_give_up(s, packet, out);
		else
			eqds_flight_retransmit(s, packet);
	}
	/* An RTS, or the pull it asked for, did not arrive. */
	if (s->rts_due_ns <= now_ns && s->target == s->target_told) {
		late = true;
		counts |= sender_timeout_counts(s, s->rts_sent_ns);
	}
	if ((counts && s->timeouts == s->config->timeouts_max) ||
	    (late && now_ns >= s->progress_ns + s->config->idle_ns))
		sender_open_again(s, now_ns, s->epoch, out);
	else if (counts)
		sender_count_timeout(s, now_ns);
	sender_settle(s, now_ns, out);
	if (again && s->config->strikes_max && !out->send && s->state != EQDS_SENDER_CLOSED)
		sender_probe(s, now_ns, out);
}

void eqds_sender_init(struct eqds_sender *s, const struct eqds_config *config,
		      struct eqds_packet **slot, struct eqds_paths *paths, u16 id, u32 epoch,
		      u64 cookie)
{
	base_zero(s, sizeof(*s));
	base_zero(slot, config->window_packets * sizeof(struct eqds_packet *));
	s->config = config;
	s->slot = slot;
	s->paths = paths;
	s->id = id;
	s->epoch = epoch & eqds_mask(config->profile->epoch_bits);
	s->cookie = cookie;
	s->resting = true;
	s->room = sender_room_first(s);
	s->rts_due_ns = EQDS_NEVER;
}

void eqds_sender_close(struct eqds_sender *s, struct eqds_out *out)
{
	base_zero(out, sizeof(*out));
	out->verdict = EQDS_CLOSED;
	if (s->state == EQDS_SENDER_CLOSED)
		return;
	sender_requeue(s);
	out->free = s->queue.head;
	eqds_list_init(&s->queue);
	sender_finish(s, out);
}

const char *eqds_sender_check(const struct eqds_sender *s)
{
	const struct eqds_config *c = s->config;
	s64 backlog = (s64)eqds_sender_backlog_bytes(s), window = c->window_bytes;
	s32 asked = sender_pull_ahead(s, s->target, s->pull);
	s64 sum = s->credit_bytes + (s64)asked * c->mtu_bytes;
	const u32 used = (s->next - eqds_epoch_start(c->profile, s->epoch)) &
			 eqds_mask(c->profile->seq_bits);
	u32 numbered = 0, spare = 0;

	if (s->state != EQDS_SENDER_CLOSED && c->epoch_packets &&
	    used + s->room != c->epoch_packets)
		return "the numbers left in the epoch are counted wrong";
	if (asked < 0 || sender_pull_ahead(s, s->target, s->target_told) < 0)
		return "the pull target is behind what it was";
	if (sum >= window + c->mtu_bytes)
		return "credit held and asked for is more than one BDP";
	if (s->state != EQDS_SENDER_CLOSED && sum < (backlog < window ? backlog : window))
		return "credit is lost: what is queued is not asked for";
	if (!c->overdraw && s->credit_bytes < 0)
		return "credit is negative";
	if (eqds_flight_outstanding(s) > c->window_packets)
		return "more numbers in use than the window has";
	for (u32 i = 0; i < c->window_packets; i++) {
		const struct eqds_packet *packet = s->slot[i];

		numbered += !!packet;
		if (packet && packet->state == EQDS_PACKET_IN_FLIGHT && packet->again)
			spare += packet->bytes;
	}
	if (spare != s->spare_bytes)
		return "the bytes sent again are counted wrong";
	if (numbered != s->in_flight.count + s->retransmit.count)
		return "a packet is in no list, or in a list without its number";
	if (s->state == EQDS_SENDER_CLOSED && (numbered || s->queue.count))
		return "a closed tunnel holds packets";
	if (s->resting && (numbered || s->queue.count))
		return "a resting tunnel holds packets";
	return NULL;
}
