/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Which ops of a channel are lost, told by the answers to others (RACK, RFC 8985).
 *
 *   departures   A   B   C   D        the order of packets; one number each
 *   answers              |            C's answer: newest = C, round_trip_ns = C's
 *   A and B are overtaken: each is lost when its departure + round_trip_ns + window is past
 *
 * The window allows for packets that overtake each other: a quarter of the base round trip, and
 * twice as much whenever an op taken for lost was answered after all, up to a smoothed round trip.
 * It is a quarter again after RMEM_LOSS_CALM losses in a row without that.
 *
 * An op sent again departs anew, so it is taken for lost again only when something that left later
 * was answered: at most once per round trip. Ops of the node's slow path neither overtake nor are
 * overtaken (client_answered()): they have deadlines of their own.
 *
 * The channel's lock is held around all calls.
 */
#ifndef REMORA_RMEM_LOSS_H
#define REMORA_RMEM_LOSS_H

#include "core/base/types.h"

#define RMEM_LOSS_QUARTERS_MAX 128
#define RMEM_LOSS_CALM 16

struct rmem_loss {
	u64 newest;	   /* departure answered, the latest; 0: none */
	u64 round_trip_ns; /* its */
	u64 widened_ns;	   /* when the window last grew */
	u8 quarters;	   /* of the base round trip: the window */
	u8 calm;	   /* losses left until it is one quarter again */
};

void rmem_loss_init(struct rmem_loss *l);

/* The packet with this departure number was answered after round_trip_ns. */
void rmem_loss_answered(struct rmem_loss *l, u64 departure, u64 round_trip_ns);

/* Longest time that an answer can come after one to a packet that left later. */
u64 rmem_loss_window_ns(const struct rmem_loss *l, u64 base_ns, u64 srtt_ns);

/* An op was taken for lost. */
void rmem_loss_found(struct rmem_loss *l);

/* An op taken for lost was answered late. */
void rmem_loss_denied(struct rmem_loss *l, u64 now_ns, u64 srtt_ns);

#endif
