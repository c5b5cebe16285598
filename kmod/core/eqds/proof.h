/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Does a tunnel's path keep IP IDs? By them the receiver knows the numbers of a whole packet's
 * segments (sender.h; remora/eqds.h, "Counted numbers").
 *
 * The first part of several segments is a probe. More may follow once the peer acknowledges, or
 * says trimmed, two numbers that only IP IDs told: a path that sets IDs of its own may hit one
 * number of a part, but then others of that part are missed. Numbers in a row that had to be
 * retransmitted end the proof. The time between two probes doubles while none is answered, from 0.1
 * to 12.8 s.
 */
#ifndef REMORA_EQDS_PROOF_H
#define REMORA_EQDS_PROOF_H

#include "core/base/types.h"

/* Zero at first. */
struct eqds_proof {
	u64 probe_ns; /* not proven: no probe before */
	u8 probes;    /* in a row without an answer; bounded */
	u8 missed;    /* proven: counted numbers in a row that were sent again */
	u8 told;      /* counted numbers in a row that arrived; bounded */
	bool proven;
};

/* May several segments leave under one header? */
static inline bool eqds_proof_allows(const struct eqds_proof *proof, u64 now_ns)
{
	return proof->proven || now_ns >= proof->probe_ns;
}

/* Several segments leave so. */
void eqds_proof_left(struct eqds_proof *proof, u64 now_ns);
/* So many numbers that only IP IDs told arrived. */
void eqds_proof_told(struct eqds_proof *proof, u32 numbers);
/* One of them had to be retransmitted. */
void eqds_proof_missed(struct eqds_proof *proof);

#endif
