// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/flight.h"

/* Before a round trip is measured, and no longer than rto_max_ns. */
#define FLIGHT_RTO_FIRST 4

/* The packet that has the number; NULL: acknowledged, or none had it. */
static struct eqds_packet *flight_packet(const struct eqds_sender *s, u32 seq)
{
	struct eqds_packet *packet = *eqds_flight_slot(s, seq);

	if (!packet)
		return NULL;
	seq -= packet->seq;
	return (seq & eqds_mask(s->config->profile->seq_bits)) <= packet->more ? packet : NULL;
}

static struct eqds_list *flight_list(struct eqds_sender *s, const struct eqds_packet *packet)
{
	if (packet->state == EQDS_PACKET_QUEUED)
		return &s->queue;
	return packet->state == EQDS_PACKET_IN_FLIGHT ? &s->in_flight : &s->retransmit;
}

/* The packet keeps its first count numbers, 1 .. more. Returns the rest, behind it in its list. */
struct eqds_packet *eqds_flight_split(struct eqds_sender *s, struct eqds_packet *packet, u32 count)
{
	struct eqds_packet *rest = packet + count;

	*rest = *packet;
	rest->prev = packet;
	packet->next = rest;
	*(rest->next ? &rest->next->prev : &flight_list(s, packet)->tail) = rest;
	rest->nth += count;
	rest->more -= count;
	packet->more = count - 1;
	packet->bytes = count * packet->each_bytes;
	rest->bytes -= packet->bytes;
	if (packet->state == EQDS_PACKET_QUEUED)
		return rest;
	rest->counted = true;
	rest->seq = eqds_add(packet->seq, count, s->config->profile->seq_bits);
	for (u32 n = 0; n <= rest->more; n++)
		*eqds_flight_slot(s, rest->seq + n) = rest;
	return rest;
}

/* The part of a packet that has count numbers from seq on, alone. */
static struct eqds_packet *flight_isolate(struct eqds_sender *s, struct eqds_packet *packet,
					  u32 seq, u32 count)
{
	const u32 before = (seq - packet->seq) & eqds_mask(s->config->profile->seq_bits);

	if (before)
		packet = eqds_flight_split(s, packet, before);
	if (packet->more >= count)
		eqds_flight_split(s, packet, count);
	return packet;
}

/* A packet with a number leaves the list it is in. */
void eqds_flight_list_remove(struct eqds_sender *s, struct eqds_packet *packet)
{
	if (packet->state == EQDS_PACKET_IN_FLIGHT && packet->again)
		s->spare_bytes -= packet->bytes;
	eqds_list_remove(flight_list(s, packet), packet);
}

/* The timeout after an answer. */
u64 eqds_flight_rto_base_ns(const struct eqds_sender *s)
{
	const struct eqds_config *c = s->config;
	u64 rto = s->rtt_ns ? s->rtt_ns + 4 * s->rtt_var_ns : FLIGHT_RTO_FIRST * c->rto_min_ns;

	if (rto < c->rto_min_ns)
		return c->rto_min_ns;
	return rto < c->rto_max_ns ? rto : c->rto_max_ns;
}

static void flight_measure(struct eqds_sender *s, u64 rtt)
{
	u64 off;

	if (!s->rtt_ns) {
		s->rtt_ns = rtt ? rtt : 1;
		s->rtt_var_ns = rtt / 2;
		return;
	}
	off = rtt > s->rtt_ns ? rtt - s->rtt_ns : s->rtt_ns - rtt;
	s->rtt_var_ns -= s->rtt_var_ns / 4;
	s->rtt_var_ns += off / 4;
	s->rtt_ns -= s->rtt_ns / 8;
	s->rtt_ns += rtt / 8;
	if (!s->rtt_ns)
		s->rtt_ns = 1;
}

static void flight_strike(struct eqds_packet *packet, u8 strikes)
{
	const u8 room = 0xff - packet->strikes;

	packet->strikes += strikes < room ? strikes : room;
}

/* The packet is sent again: was it lost, and not because the whole path was dead? */
void eqds_flight_judge(const struct eqds_sender *s, struct eqds_packet *packet)
{
	if (packet->sent_ns && !packet->judged && s->heard_ns > packet->sent_ns)
		flight_strike(packet, EQDS_STRIKES_LOSS);
	packet->judged = false;
}

/* A packet is acknowledged, or it arrived trimmed. */
static void flight_prove(struct eqds_sender *s, const struct eqds_packet *packet)
{
	const u32 told = packet->more + packet->counted; /* by IP IDs alone */

	if (told && packet->attempt)
		eqds_proof_missed(&s->proof);
	else if (told)
		eqds_proof_told(&s->proof, told);
}

/* Of the count numbers from seq on, those that are outstanding have arrived. */
static void flight_free(struct eqds_sender *s, u64 now_ns, u32 seq, u32 count, struct eqds_out *out)
{
	const u8 bits = s->config->profile->seq_bits;
	u32 step;

	for (; count; count -= step, seq = eqds_add(seq, step, bits)) {
		struct eqds_packet *packet = flight_packet(s, seq);

		step = 1;
		if (!packet || !eqds_flight_is_outstanding(s, seq))
			continue;
		packet = flight_isolate(s, packet, seq, count);
		step = packet->more + 1U;
		for (u32 n = 0; n < step; n++)
			*eqds_flight_slot(s, seq + n) = NULL;
		eqds_flight_list_remove(s, packet);
		flight_prove(s, packet);
		packet->next = out->free;
		out->free = packet;
		s->progress_ns = now_ns;
	}
}

/*
 * The packet whose arrival a control packet tells, as a sample: the echo, or in the paper
 * profile, which does not tell the attempt, the last one before ack if it was sent once.
 */
static void flight_sample(struct eqds_sender *s, u64 now_ns, const struct eqds_head *head)
{
	const u8 bits = s->config->profile->seq_bits;
	u32 seq = head->flags & EQDS_SACK ? head->echo : eqds_add(head->ack, ~0U, bits);
	const struct eqds_packet *packet = flight_packet(s, seq);

	if (!eqds_flight_is_outstanding(s, seq) || !packet || now_ns < packet->sent_ns)
		return;
	if (packet->attempt != head->attempt) {
		/*
		 * An earlier transmission wasn't lost, but took longer than the timeout. Without
		 * this sample all packets of a slow path would be sent again, and none measured.
		 */
		if (!s->config->profile->start_bits)
			flight_measure(s, now_ns - packet->sent_ns + eqds_flight_rto_base_ns(s));
		return;
	}
	if (packet->state == EQDS_PACKET_IN_FLIGHT) {
		if (s->paths)
			eqds_paths_acked(s->paths, packet->path, now_ns - packet->sent_ns);
		flight_measure(s, now_ns - packet->sent_ns);
	}
	if (s->paths && head->marks & EQDS_MARK_CE)
		eqds_paths_marked(s->paths, packet->path);
}

void eqds_flight_acked(struct eqds_sender *s, u64 now_ns, const struct eqds_head *head,
		       struct eqds_out *out)
{
	const u8 bits = s->config->profile->seq_bits;
	u64 sack = head->sack;

	if (head->flags & (EQDS_SACK | (s->config->profile->start_bits ? EQDS_ACK : 0)))
		flight_sample(s, now_ns, head);
	if (head->flags & EQDS_SACK)
		flight_free(s, now_ns, head->echo, 1, out);
	if (!(head->flags & EQDS_ACK))
		return;
	while (sack) {
		const u32 i = (u32)__builtin_ctzll(sack);
		const u64 holes = ~(sack >> i);
		const u32 count = holes ? (u32)__builtin_ctzll(holes) : 64;

		/* Adding the lowest bit carries over the run of ones that it begins. */
		sack &= sack + (1ULL << i);
		flight_free(s, now_ns, eqds_add(head->ack, 1 + i, bits), count, out);
	}
	if (s->skipping && eqds_flight_seq_ahead(s, head->ack, s->skip) >= 0)
		s->skipping = false;
	if (eqds_flight_seq_ahead(s, head->ack, s->una) > 0) {
		flight_free(s, now_ns, s->una, (u32)eqds_flight_seq_ahead(s, head->ack, s->una),
			    out);
		s->una = head->ack;
	}
}

/* To be sent again, in the order of numbers. */
void eqds_flight_retransmit(struct eqds_sender *s, struct eqds_packet *packet)
{
	struct eqds_packet *after = s->retransmit.tail;

	eqds_flight_list_remove(s, packet);
	packet->state = EQDS_PACKET_RETRANSMIT;
	while (after && eqds_flight_seq_ahead(s, after->seq, packet->seq) > 0)
		after = after->prev;
	eqds_list_insert(&s->retransmit, after, packet);
}

void eqds_flight_advance(struct eqds_sender *s)
{
	while (s->una != s->next && !*eqds_flight_slot(s, s->una))
		s->una = eqds_add(s->una, 1, s->config->profile->seq_bits);
}

bool eqds_flight_is_hopeless(const struct eqds_sender *s, const struct eqds_packet *packet)
{
	return s->config->strikes_max && packet->strikes >= s->config->strikes_max;
}

/* The packet has a number, which the receiver must not wait for any more. */
void eqds_flight_give_up(struct eqds_sender *s, struct eqds_packet *packet, struct eqds_out *out)
{
	const u32 after = eqds_add(packet->seq, packet->more + 1U, s->config->profile->seq_bits);

	for (u32 n = 0; n <= packet->more; n++)
		*eqds_flight_slot(s, packet->seq + n) = NULL;
	eqds_flight_list_remove(s, packet);
	packet->next = out->lost;
	out->lost = packet;
	/* Paper: no header tells of the hole, but the end of the epoch does: sender_settle(). */
	if (s->config->profile->start_bits)
		s->room = 0;
	if (!s->skipping || eqds_flight_seq_ahead(s, after, s->skip) > 0)
		s->skip = after;
	s->skipping = true;
	eqds_flight_advance(s);
}

void eqds_flight_nacked(struct eqds_sender *s, const struct eqds_head *head, struct eqds_out *out)
{
	const bool no_room = head->marks & EQDS_MARK_NO_ROOM;
	struct eqds_packet *packet = flight_packet(s, head->echo);

	/* One per transmission: a copy of an older one, or a second one, is ignored. */
	if (!packet || packet->state != EQDS_PACKET_IN_FLIGHT ||
	    (!s->config->profile->start_bits && packet->attempt != head->attempt)) {
		out->verdict = EQDS_BAD_NACK;
		return;
	}
	if (s->paths && !no_room)
		eqds_paths_trimmed(s->paths, packet->path);
	packet = flight_isolate(s, packet, head->echo, 1);
	if (!packet->attempt)
		flight_prove(s, packet);
	/* Its number was told. */
	packet->counted = false;
	/*
	 * Receivers that don't know the mark report lack of memory as a trim, for later packets
	 * only: no strike for those.
	 */
	if (packet->seq == s->una && !no_room)
		flight_strike(packet, 1);
	packet->judged = true;
	/* Strikes of earlier transmissions don't count either: this one has arrived. */
	if (!no_room && eqds_flight_is_hopeless(s, packet))
		eqds_flight_give_up(s, packet, out);
	else
		eqds_flight_retransmit(s, packet);
}
