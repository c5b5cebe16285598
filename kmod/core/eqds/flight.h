/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Packets of a sender that have numbers: which packet has a number, what an acknowledgement or a
 * NACK does to it, its strikes, and how long to wait for an answer. For sender.c, whose header says
 * what the lists and strikes mean.
 *
 * Locking: as sender.h.
 */
#ifndef REMORA_EQDS_FLIGHT_H
#define REMORA_EQDS_FLIGHT_H

#include "core/eqds/sender.h"

static inline s32 eqds_flight_seq_ahead(const struct eqds_sender *s, u32 a, u32 b)
{
	return eqds_ahead(a, b, s->config->profile->seq_bits);
}

static inline struct eqds_packet **eqds_flight_slot(const struct eqds_sender *s, u32 seq)
{
	return &s->slot[seq & (s->config->window_packets - 1U)];
}

static inline u32 eqds_flight_outstanding(const struct eqds_sender *s)
{
	return (s->next - s->una) & eqds_mask(s->config->profile->seq_bits);
}

static inline bool eqds_flight_is_outstanding(const struct eqds_sender *s, u32 seq)
{
	return eqds_flight_seq_ahead(s, seq, s->una) >= 0 &&
	       eqds_flight_seq_ahead(s, seq, s->next) < 0;
}

/* The packet keeps its first count numbers, 1 .. more. Returns the rest, behind it in its list. */
struct eqds_packet *eqds_flight_split(struct eqds_sender *s, struct eqds_packet *packet, u32 count);
/* The packet, which has a number, leaves the list it is in. */
void eqds_flight_list_remove(struct eqds_sender *s, struct eqds_packet *packet);

/* The timeout after an answer. */
u64 eqds_flight_rto_base_ns(const struct eqds_sender *s);

/* The packet is sent again: a strike if the peer was heard meanwhile. */
void eqds_flight_judge(const struct eqds_sender *s, struct eqds_packet *packet);
/* True if the packet has config.strikes_max strikes, and that isn't 0. */
bool eqds_flight_is_hopeless(const struct eqds_sender *s, const struct eqds_packet *packet);
/* To be sent again, in the order of numbers. */
void eqds_flight_retransmit(struct eqds_sender *s, struct eqds_packet *packet);
/* The receiver must not wait for it any more; it comes back in out->lost. */
void eqds_flight_give_up(struct eqds_sender *s, struct eqds_packet *packet, struct eqds_out *out);

/* Frees the packets that a control packet acknowledges, in out->free. */
void eqds_flight_acked(struct eqds_sender *s, u64 now_ns, const struct eqds_head *head,
		       struct eqds_out *out);
/* A NACK: the packet is sent again, or given up. */
void eqds_flight_nacked(struct eqds_sender *s, const struct eqds_head *head, struct eqds_out *out);
/* una passes numbers that have no packet any more. */
void eqds_flight_advance(struct eqds_sender *s);

#endif
