// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/receiver.h"

#include "core/base/bytes.h"

/*
 * In a slot: the number has arrived, but no packet waits here. It was delivered before earlier ones
 * (not ordered), or is in a train, which waits in the slot of its first number.
 */
#define RECEIVER_ARRIVED ((struct eqds_packet *)1)

/* A sender that uses no credit gets one pull in so many of the longest timeouts. */
#define RECEIVER_FORGIVE_RTOS 8U

static s32 receiver_seq_ahead(const struct eqds_receiver *r, u32 a, u32 b)
{
	return eqds_ahead(a, b, r->config->profile->seq_bits);
}

static u32 receiver_seq_after(const struct eqds_receiver *r, u32 seq)
{
	return eqds_add(seq, 1, r->config->profile->seq_bits);
}

/* Within a window of the expected number, on either side. */
static bool receiver_is_near(const struct eqds_receiver *r, u32 seq)
{
	s32 ahead = receiver_seq_ahead(r, seq, r->expected), window = r->config->window_packets;

	return ahead < window && ahead >= -window;
}

static struct eqds_packet **receiver_slot(const struct eqds_receiver *r, u32 seq)
{
	return &r->slot[seq & (r->config->window_packets - 1U)];
}

/* ---- what is told ---- */

static u64 receiver_sack(const struct eqds_receiver *r)
{
	u32 seq = receiver_seq_after(r, r->expected);
	u64 sack = 0;

	for (u32 i = 0; i < 64 && receiver_seq_ahead(r, seq, r->end) < 0; i++) {
		if (*receiver_slot(r, seq))
			sack |= 1ULL << i;
		seq = receiver_seq_after(r, seq);
	}
	return sack;
}

static void receiver_tell(struct eqds_receiver *r, struct eqds_head *head)
{
	base_zero(head, sizeof(*head));
	head->control = true;
	head->flags = EQDS_ACK;
	head->has_epoch = !r->config->profile->start_bits;
	head->epoch = r->epoch;
	head->marks = head->has_epoch ? EQDS_MARK_ECN | EQDS_MARK_UNNUMBERED : 0;
	head->ack = r->expected;
	head->sack = receiver_sack(r);
	head->pull = r->share.pull;
	head->sender = r->id;
	head->busy_us = eqds_asl_busy_us(r->share.asl);
	head->cookie = r->cookie;
}

/* ---- credit that came to nothing ---- */

static u32 receiver_unused_max(const struct eqds_receiver *r)
{
	return 2 * r->config->window_bytes;
}

static void receiver_set_unused(struct eqds_receiver *r, u32 bytes)
{
	r->unused_bytes = bytes;
	r->share.may_send = bytes < receiver_unused_max(r);
}

static void receiver_charge(struct eqds_receiver *r, u32 bytes)
{
	receiver_set_unused(r, r->unused_bytes + bytes);
}

static void receiver_pay(struct eqds_receiver *r, u32 bytes)
{
	receiver_set_unused(r, bytes < r->unused_bytes ? r->unused_bytes - bytes : 0);
}

struct eqds_receiver *eqds_receiver_next(struct eqds_asl *asl, u64 now_ns, struct eqds_head *head)
{
	struct eqds_share *share = eqds_asl_next(asl, now_ns);
	struct eqds_receiver *r;

	if (!share)
		return NULL;
	r = (struct eqds_receiver *)((char *)share - offsetof(struct eqds_receiver, share));
	share->pull = eqds_add(share->pull, 1, share->pull_bits);
	receiver_charge(r, r->config->mtu_bytes);
	eqds_asl_update(share, share->target, share->backlog_mtus);
	receiver_tell(r, head);
	return r;
}

/* A packet came for credit. A trimmed header counts as the cost it tells, an MTU at most. */
static void receiver_used(struct eqds_receiver *r, const struct eqds_head *head, u32 wire_bytes)
{
	const u32 mtu_bytes = r->config->mtu_bytes;
	u32 most = wire_bytes + r->config->outer_bytes;

	if (head->flags & EQDS_TRIM)
		most = mtu_bytes;
	receiver_pay(r, 2 * (head->bytes && head->bytes < most ? head->bytes : most));
}

/* A sender asks although its pulls brought nothing: they, or its packets, might be lost. */
static void receiver_forgive(struct eqds_receiver *r, u64 now_ns)
{
	if (r->share.may_send ||
	    now_ns < r->forgiven_ns + RECEIVER_FORGIVE_RTOS * r->config->rto_max_ns)
		return;
	r->forgiven_ns = now_ns;
	receiver_pay(r, r->config->mtu_bytes);
}

/* ---- answers ---- */

/* Answer to a packet; flags besides ACK are about that packet. */
static void receiver_reply(struct eqds_receiver *r, const struct eqds_head *to, u8 flags,
			   struct eqds_out *out)
{
	receiver_tell(r, &out->head);
	out->send = true;
	out->head.flags |= flags | (to->flags & EQDS_SYN);
	if (to->flags & EQDS_SYN)
		out->head.has_epoch = true;
	if (flags & (EQDS_SACK | EQDS_NACK)) {
		out->head.echo = to->seq;
		out->head.attempt = to->attempt;
	}
	if (to->ce)
		out->head.marks |= EQDS_MARK_CE;
	if (flags & EQDS_NACK && to->no_room)
		out->head.marks |= EQDS_MARK_NO_ROOM;
}

/* epoch: the receiver's, or that of the packet if there is none. */
static void receiver_head_rst(const struct eqds_head *to, u32 epoch, struct eqds_head *head)
{
	base_zero(head, sizeof(*head));
	head->control = true;
	head->flags = EQDS_RST;
	head->has_epoch = to->has_epoch;
	head->epoch = to->epoch;
	head->ack = epoch;
	head->sender = to->sender;
	head->echo = to->seq;
}

/* ---- life ---- */

/* Where the next packet to deliver goes: one event may release, skip and deliver. */
static struct eqds_packet **receiver_deliver_tail(struct eqds_out *out)
{
	struct eqds_packet **link = &out->deliver;

	while (*link)
		link = &(*link)->next;
	return link;
}

/* The reorder queue to the user; holes in it won't be filled. */
static void receiver_release(struct eqds_receiver *r, struct eqds_out *out)
{
	struct eqds_packet **link = receiver_deliver_tail(out);

	for (u32 seq = r->expected; seq != r->end; seq = receiver_seq_after(r, seq)) {
		struct eqds_packet *packet = *receiver_slot(r, seq);

		*receiver_slot(r, seq) = NULL;
		if (!packet || packet == RECEIVER_ARRIVED)
			continue;
		*link = packet;
		link = &packet->next;
	}
	*link = NULL;
	r->held = 0;
	r->held_bytes = 0;
	r->end = r->expected;
}

static void receiver_open(struct eqds_receiver *r, u32 epoch)
{
	eqds_asl_leave(&r->share);
	r->established = true;
	r->epoch = epoch;
	r->expected = eqds_epoch_start(r->config->profile, epoch);
	r->end = r->expected;
	r->share.pull = 0;
	r->share.target = 0;
	r->target_told = 0;
	r->trimmed_bytes = 0;
}

void eqds_receiver_init(struct eqds_receiver *r, const struct eqds_config *config,
			struct eqds_asl *asl, struct eqds_packet **slot, u16 id, u64 cookie)
{
	base_zero(r, sizeof(*r));
	base_zero(slot, config->window_packets * sizeof(struct eqds_packet *));
	r->config = config;
	r->slot = slot;
	r->id = id;
	r->cookie = config->profile->start_bits ? 0 : cookie; /* the paper's wire has no place */
	eqds_share_init(&r->share, asl, config->profile->pull_bits);
}

bool eqds_receiver_admit(const struct eqds_head *head, u64 cookie, struct eqds_out *out)
{
	base_zero(out, sizeof(*out));
	out->verdict = EQDS_NO_TUNNEL;
	/* Answers to control packets could go round for ever. */
	if (head->control || head->flags & EQDS_FIN)
		return false;
	if (!(head->flags & EQDS_SYN)) {
		receiver_head_rst(head, head->epoch, &out->head);
		out->send = true;
		return false;
	}
	if (!cookie || (head->cookie == cookie && !head->claims)) {
		out->verdict = EQDS_OK;
		return true;
	}
	receiver_head_rst(head, 0, &out->head);
	out->head.flags = EQDS_PAUSE | EQDS_SYN | EQDS_NACK;
	out->head.cookie = cookie;
	out->send = true;
	return false;
}

static void receiver_end(struct eqds_receiver *r, struct eqds_out *out)
{
	receiver_release(r, out);
	eqds_asl_leave(&r->share);
	r->established = false;
	out->verdict = EQDS_CLOSED;
}

void eqds_receiver_close(struct eqds_receiver *r, struct eqds_out *out)
{
	base_zero(out, sizeof(*out));
	if (r->established) {
		receiver_tell(r, &out->head);
		out->head.flags = EQDS_RST;
		out->head.ack = r->epoch;
		out->head.sack = 0;
		out->head.echo = r->expected;
		out->send = true;
	}
	receiver_end(r, out);
}

u64 eqds_receiver_deadline_ns(const struct eqds_receiver *r)
{
	return r->established ? r->used_ns + r->config->idle_ns : EQDS_NEVER;
}

void eqds_receiver_expire(struct eqds_receiver *r, u64 now_ns, struct eqds_out *out)
{
	if (now_ns >= eqds_receiver_deadline_ns(r))
		eqds_receiver_close(r, out);
	else
		base_zero(out, sizeof(*out));
}

/* ---- what arrives ---- */

bool eqds_receiver_restarts(const struct eqds_receiver *r, const struct eqds_head *head)
{
	return r->established && head->has_epoch &&
	       (head->flags & (EQDS_SYN | EQDS_FIN)) == EQDS_SYN &&
	       eqds_ahead(head->epoch, r->epoch, r->config->profile->epoch_bits) > 0;
}

/* Does the packet belong to the epoch, or begin one? If not, out has what to say to it. */
static bool receiver_synchronise(struct eqds_receiver *r, const struct eqds_head *head,
				 struct eqds_out *out)
{
	s32 later = eqds_ahead(head->epoch, r->epoch, r->config->profile->epoch_bits);

	if (r->established && (!head->has_epoch || !later))
		return true;
	if (head->flags & EQDS_SYN && !(head->flags & EQDS_FIN)) {
		if (!r->established || later > 0) {
			if (r->established)
				out->verdict = EQDS_RESTARTED;
			receiver_release(r, out);
			receiver_open(r, head->epoch);
			return true;
		}
		/* Tell the sender our epoch: it has to choose a later one. */
		receiver_reply(r, head, 0, out);
		out->head.ack = eqds_epoch_start(r->config->profile, r->epoch);
		out->head.sack = 0;
		out->verdict = EQDS_OLD_EPOCH;
		return false;
	}
	out->verdict = EQDS_WRONG_EPOCH;
	if (!(head->flags & EQDS_FIN)) {
		receiver_head_rst(head, r->established ? r->epoch : head->epoch, &out->head);
		out->send = true;
	}
	return false;
}

/* The sender's demand, as far as the protocol allows it. */
static void receiver_demand(struct eqds_receiver *r, const struct eqds_head *head)
{
	const struct eqds_config *c = r->config;
	const u8 bits = c->profile->pull_bits;
	s32 most = (s32)eqds_target_max(c), asked = eqds_ahead(head->pull, r->share.pull, bits);
	u32 target = head->pull;

	/* Not the latest word, for packets overtake each other. */
	if (asked < -(s32)eqds_gift_max(c) || eqds_ahead(target, r->target_told, bits) < 0) {
		eqds_asl_update(&r->share, r->share.target, r->share.backlog_mtus);
		return;
	}
	/*
	 * A sender asks for one BDP at most. At first it may have seen pulls that an earlier
	 * receiver gave; then it gets one BDP by numbers that it takes. A sender that asks for
	 * more later lies, or has a larger window: the receiver gives it one of its own size.
	 */
	if (asked > most) {
		if (r->share.pull || r->share.target || r->target_told)
			target = eqds_add(r->share.pull, (u32)most, bits);
		else
			eqds_asl_renumber(&r->share, eqds_add(target, -(u32)most, bits));
	}
	r->target_told = target;
	if (eqds_ahead(target, r->share.target, bits) < 0)
		target = r->share.target;
	eqds_asl_update(&r->share, target, eqds_mtus(c, head->backlog_bytes));
}

/* The sender will ask for what a trimmed packet cost, once it has our NACK. */
static void receiver_expect(struct eqds_receiver *r, const struct eqds_head *head)
{
	const struct eqds_config *c = r->config;
	const u8 bits = c->profile->pull_bits;
	const u32 target = eqds_add(r->share.target, 1, bits);

	if (!c->pull_trimmed)
		return;
	r->trimmed_bytes += head->bytes && head->bytes < c->mtu_bytes ? head->bytes : c->mtu_bytes;
	if (r->trimmed_bytes <= 0)
		return;
	r->trimmed_bytes -= c->mtu_bytes;
	if (eqds_ahead(target, r->share.pull, bits) <= (s32)eqds_target_max(c) &&
	    eqds_ahead(target, r->target_told, bits) <= (s32)eqds_gift_max(c))
		eqds_asl_update(&r->share, target, r->share.backlog_mtus);
}

/* The packets from the expected number on, as far as there is no hole. */
static void receiver_deliver(struct eqds_receiver *r, struct eqds_out *out)
{
	struct eqds_packet **link = receiver_deliver_tail(out), *packet;

	while ((packet = *receiver_slot(r, r->expected))) {
		*receiver_slot(r, r->expected) = NULL;
		r->expected = receiver_seq_after(r, r->expected);
		if (packet == RECEIVER_ARRIVED)
			continue;
		r->held--;
		r->held_bytes -= packet->bytes;
		*link = packet;
		link = &packet->next;
	}
	*link = NULL;
}

/*
 * The sender knows that all before una have arrived. If we don't, a copy of an old SYN has brought
 * us back into an epoch that we forgot: the hole will not be filled.
 */
static void receiver_skip(struct eqds_receiver *r, u32 una, struct eqds_out *out)
{
	struct eqds_packet **link = receiver_deliver_tail(out);

	if (receiver_seq_ahead(r, una, r->expected) <= 0)
		return;
	if (receiver_seq_ahead(r, una, r->end) >= 0) {
		receiver_release(r, out);
		r->expected = una;
		r->end = una;
		return;
	}
	for (; r->expected != una; r->expected = receiver_seq_after(r, r->expected)) {
		struct eqds_packet *packet = *receiver_slot(r, r->expected);

		*receiver_slot(r, r->expected) = NULL;
		if (!packet || packet == RECEIVER_ARRIVED)
			continue;
		r->held--;
		r->held_bytes -= packet->bytes;
		*link = packet;
		link = &packet->next;
	}
	*link = NULL;
	receiver_deliver(r, out);
}

static u32 receiver_seq_last(const struct eqds_receiver *r, const struct eqds_head *head)
{
	return eqds_add(head->seq, head->more, r->config->profile->seq_bits);
}

/* Are the numbers after the first one, which is new and within the window, such, too? */
static bool receiver_train_is_new(const struct eqds_receiver *r, const struct eqds_head *head)
{
	const u32 first = (u32)receiver_seq_ahead(r, head->seq, r->expected);

	if (head->more >= r->config->window_packets - first)
		return false;
	for (u32 n = 1; n <= head->more; n++)
		if (*receiver_slot(r, head->seq + n))
			return false;
	return true;
}

static void receiver_take(struct eqds_receiver *r, const struct eqds_head *head,
			  struct eqds_packet *packet, struct eqds_out *out)
{
	packet->seq = head->seq;
	packet->bytes = head->bytes;
	packet->next_proto = head->next_proto;
	packet->path = head->path;
	packet->next = NULL;
	for (u32 n = 1; n <= head->more; n++)
		*receiver_slot(r, head->seq + n) = RECEIVER_ARRIVED;
	if (receiver_seq_ahead(r, receiver_seq_last(r, head), r->end) >= 0)
		r->end = receiver_seq_after(r, receiver_seq_last(r, head));
	if (r->config->ordered) {
		*receiver_slot(r, head->seq) = packet;
		r->held++;
		r->held_bytes += packet->bytes;
	} else {
		*receiver_slot(r, head->seq) = RECEIVER_ARRIVED;
		*receiver_deliver_tail(out) = packet;
	}
	receiver_deliver(r, out);
}

static void receiver_data(struct eqds_receiver *r, u64 now_ns, const struct eqds_head *head,
			  struct eqds_packet *packet, struct eqds_out *out)
{
	const struct eqds_config *c = r->config;
	s32 ahead = receiver_seq_ahead(r, head->seq, r->expected);
	u8 flags = 0;

	if (!receiver_is_near(r, head->seq)) {
		out->verdict = EQDS_BEYOND;
	} else if (ahead < 0 || *receiver_slot(r, head->seq)) {
		out->verdict = EQDS_DUPLICATE;
		flags = EQDS_SACK;
	} else if (!packet) {
		out->verdict = EQDS_TRIMMED;
		flags = EQDS_NACK;
		receiver_expect(r, head);
	} else if (!receiver_train_is_new(r, head)) {
		/* No SACK: it would tell that the first number is here. */
		out->verdict = EQDS_DUPLICATE;
	} else {
		eqds_rate_arrived(&r->share.rate, now_ns, c->window_bytes,
				  head->bytes ? head->bytes : c->mtu_bytes, head->ce, head->stamp);
		receiver_take(r, head, packet, out);
		packet = NULL;
		flags = EQDS_SACK;
	}
	if (packet) {
		packet->next = NULL;
		out->free = packet;
	}
	receiver_reply(r, head, flags, out);
}

/* packet is in out->free. */
static void receiver_unnumbered(struct eqds_receiver *r, u64 now_ns, const struct eqds_head *head,
				u32 wire_bytes, struct eqds_packet *packet, struct eqds_out *out)
{
	if (!receiver_is_near(r, head->seq)) {
		out->verdict = EQDS_BEYOND;
		return;
	}
	receiver_used(r, head, wire_bytes);
	receiver_demand(r, head);
	if (!packet)
		return;
	eqds_rate_arrived(&r->share.rate, now_ns, r->config->window_bytes,
			  head->bytes ? head->bytes : r->config->mtu_bytes, head->ce, head->stamp);
	packet->bytes = head->bytes;
	packet->next_proto = head->next_proto;
	packet->path = head->path;
	out->free = NULL;
	out->deliver = packet;
}

void eqds_receiver_receive(struct eqds_receiver *r, u64 now_ns, const struct eqds_head *head,
			   u32 wire_bytes, struct eqds_packet *packet, struct eqds_out *out)
{
	base_zero(out, sizeof(*out));
	if (packet)
		packet->next = NULL;
	out->free = packet;
	if (head->control) {
		out->verdict = EQDS_NO_TUNNEL;
		return;
	}
	if (!receiver_synchronise(r, head, out))
		return;
	r->used_ns = now_ns;
	if (head->unnumbered) {
		receiver_unnumbered(r, now_ns, head, wire_bytes, packet, out);
		return;
	}
	if (head->flags & EQDS_FIN) {
		/* Without an epoch, its number has at least to be near. */
		if (receiver_is_near(r, head->seq))
			receiver_end(r, out);
		return;
	}
	if (head->flags & EQDS_EMPTY)
		receiver_forgive(r, now_ns);
	else
		receiver_used(r, head, wire_bytes);
	receiver_demand(r, head);
	if (!r->config->profile->start_bits)
		receiver_skip(r, eqds_add(head->seq, -(u32)head->unacked,
					  r->config->profile->seq_bits), out);
	if (head->flags & EQDS_EMPTY) {
		receiver_reply(r, head, 0, out);
		return;
	}
	out->free = NULL;
	receiver_data(r, now_ns, head, head->flags & EQDS_TRIM ? NULL : packet, out);
	if (head->flags & EQDS_TRIM)
		out->free = packet;
}

const char *eqds_receiver_check(const struct eqds_receiver *r)
{
	const struct eqds_config *c = r->config;
	s32 asked = eqds_ahead(r->share.target, r->share.pull, c->profile->pull_bits);
	u32 held = 0, bytes = 0, filled = 0;

	if (asked < 0 || asked > (s32)eqds_target_max(c))
		return "the pull number is beyond the target, or more than one BDP behind";
	if (((r->end - r->expected) & eqds_mask(c->profile->seq_bits)) > c->window_packets)
		return "the reorder queue is larger than its window";
	if (*receiver_slot(r, r->expected))
		return "a packet that could be delivered is held";
	for (u32 i = 0; i < c->window_packets; i++) {
		filled += !!r->slot[i];
		if (r->slot[i] && r->slot[i] != RECEIVER_ARRIVED) {
			held++;
			bytes += r->slot[i]->bytes;
		}
	}
	if (held != r->held || bytes != r->held_bytes)
		return "the reorder queue is counted wrong";
	if (r->unused_bytes < receiver_unused_max(r) ? !r->share.may_send : r->share.may_send)
		return "the pulls don't know whether credit is left unused";
	if (!r->established && (filled || r->share.active))
		return "a closed tunnel holds packets or asks for credit";
	if (r->established && asked && !r->share.active && r->share.may_send)
		return "a tunnel with demand is not in the list";
	return r->share.active && !asked ? "a tunnel without demand is in the list" : NULL;
}
