/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Loans of memory to a node, which copies the data of READs there and that of WRITEs from there, at
 * the client (include/remora/marlin.h, "Loans").
 *
 *     FREE --loans_lend--> LENT --loans_take_back--> TAKEN --loans_end, once quiet--> FREE
 *
 * Invariants, whatever the node writes:
 *   - the client never reads lent[], which the node could change; what it needs is in epochs[];
 *   - an epoch is used once, until 2^32 loans have been made;
 *   - once loans_is_quiet() has returned true, no copy of an honest node touches the memory.
 * The caller serialises the calls for one struct loans.
 *
 * Barriers, by their partners: claim.h, of a permit in the client's memory. A loan that is used
 * again has another epoch, which a late request does not have; and the node has one copy of a loan
 * at a time, so the end of a copy is that of the copy whose epoch the client sees.
 */
#ifndef REMORA_MARLIN_LOANS_H
#define REMORA_MARLIN_LOANS_H

#include "core/base/types.h"
#include "remora/marlin.h"

struct loans {
	u32 *lent;	   /* own memory; the node reads it. NULL before the first session */
	const u32 *copies; /* own memory; the node writes it */
	u32 epochs[MARLIN_LOANS];
	u64 used; /* bits: LENT or TAKEN */
	u64 taken;
};

/*
 * Sets the place of the words, which are 0 there: the node has ended all copies. Writes the words
 * of all loans that are LENT.
 */
void loans_place(struct loans *loans, u32 *lent, const u32 *copies);

/* A loan under an epoch that isn't 0, or -1: all are in use. */
int loans_lend(struct loans *loans, u32 epoch);

/* Is there a loan of that epoch? number: any. */
bool loans_has(const struct loans *loans, u32 number, u32 epoch);

/* From now on copies that begin see it. The loan is LENT or TAKEN. */
void loans_take_back(struct loans *loans, u32 number);

/* No copy is under way. The loan is TAKEN. */
bool loans_is_quiet(const struct loans *loans, u32 number);

/* The loan is FREE. It is TAKEN, and quiet. */
void loans_end(struct loans *loans, u32 number);

#endif
