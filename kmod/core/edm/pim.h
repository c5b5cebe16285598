/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The cycle model of the paper's matcher (EDM, ASPLOS'25, 3.1.2): parallel iterative matching over
 * the queues of demand.h. For simulators; match.h is the matcher that runs.
 *
 *   cycle 0  each idle destination requests its best message from an idle source
 *   cycle 1  each source grants its best request
 *   cycle 2  both ports are busy: edm_pim_next() has the bookings
 *
 * An iteration matches at least one pair if there is any, log2(ports) iterations match nearly all.
 * Insertion into the hardware's ordered lists takes two cycles: the caller announces so much later.
 * With config.unit_bytes equal to chunk_bytes the chunks are the paper's: they are never shortened.
 */
#ifndef REMORA_EDM_PIM_H
#define REMORA_EDM_PIM_H

#include "core/edm/match.h"

#define EDM_PIM_CYCLES 3U
#define EDM_PIM_NONE 0xffffU

struct edm_pim {
	struct edm_match *m;
	u16 request[EDM_PORTS_MAX]; /* by destination: a source, or EDM_PIM_NONE */
	u16 grant[EDM_PORTS_MAX];   /* by source: a destination, or EDM_PIM_NONE */
	u32 cycle;		    /* of the iteration */
	u32 next;		    /* source whose booking comes next */
};

/* m: the caller announces to it as for edm_match_next(), which it does not call. */
void edm_pim_init(struct edm_pim *p, struct edm_match *m);

/* A clock cycle, at now_ns. Takes ports choices. */
void edm_pim_tick(struct edm_pim *p, u64 now_ns);

/* The next booking of the iteration; false until its last cycle, and when all were returned. */
bool edm_pim_next(struct edm_pim *p, u64 now_ns, struct edm_booking *booking);

#endif
