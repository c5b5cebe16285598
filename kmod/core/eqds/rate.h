/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Congestion in the core of the network, which the paper leaves open (NSDI'22, section 5,
 * "Oversubscribed networks"): a tunnel whose packets arrive marked or late is pulled less often.
 *
 *   round of window_bytes:  F = share of packets that were marked or late
 *   alpha += (F - alpha) / 16;  share *= 1 - alpha / 2 if F > 0, else share += 1 / 32
 *
 * as DCTCP does with its window. share is the part of its turns at the list's head a tunnel
 * takes. Late is a one-way delay of more than late_ns above the least one of late; the clocks of
 * the two ends need not agree, only run equally fast.
 */
#ifndef REMORA_EQDS_RATE_H
#define REMORA_EQDS_RATE_H

#include "core/base/types.h"

#define EQDS_RATE_ONE 65536U
#define EQDS_RATE_MIN (EQDS_RATE_ONE / 64)
/* The least delay is forgotten after so many rounds, for routes change and clocks drift. */
#define EQDS_RATE_BASE_ROUNDS 1024U

struct eqds_rate {
	u32 late_16ns;	     /* 0: delay does not count */
	u32 share, alpha;    /* of EQDS_RATE_ONE */
	u32 turn;	     /* fractions of a turn saved up */
	u32 packets, marked; /* in this round */
	u32 round_bytes;     /* left of this round */
	u32 base;	     /* least difference of clocks seen, 16 ns */
	u32 base_next;	     /* the same since base was taken over */
	u16 base_rounds;
	bool has_base;
	bool base_fresh;     /* base_next starts with the next packet */
};

void eqds_rate_init(struct eqds_rate *rate, u64 late_ns);

/* A packet has arrived that cost so many bytes. stamp: the sender's, 0: none. */
void eqds_rate_arrived(struct eqds_rate *rate, u64 now_ns, u32 window_bytes, u32 bytes, bool ce,
		       u32 stamp);

/* May the tunnel take this turn? */
bool eqds_rate_turn(struct eqds_rate *rate);

#endif
