/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The protocol of a copy between two machines' memories, which grants and loans share (Marlin,
 * ANCS'14, 3.2). The initiator writes a claim word into the owner's memory for as long as it
 * copies, and reads the owner's permit there.
 *
 *     owner                                            initiator
 *       permit: live <------------------- load ------- claim_begin: claim word, then the permit
 *       claim_withdraw: permit, full barrier             copy: loads, stores
 *       claim_is_quiet: the claim word  <---- store ---- claim_is_whole? claim_end: 0
 *
 * Invariants
 *   - Either the owner sees the claim, or the claim sees that the permit was withdrawn: each end
 *     has a full barrier between its store and its load. Over a bus the load itself is the
 *     initiator's, since its completion pushes the store.
 *   - A copy is whole only if the link carried all of it. A link that is down loses stores and
 *     gives all ones for loads, and it can be up again by the end of the copy. So the link has an
 *     epoch, which is another one after each time that it was down.
 *   - All ones are never a permit.
 * Each change of the epoch restarts the session, and then the owner cleans lost claim words.
 */
#ifndef REMORA_MARLIN_CLAIM_H
#define REMORA_MARLIN_CLAIM_H

#include "core/base/types.h"

/* ---- initiator ---- */

/*
 * The way to the owner's memory. Loads and stores are done in the order of the calls, after all
 * earlier accesses of the copy to that memory and before all later ones. bytes: 4 or 8.
 */
struct claim_bus {
	u64 (*load)(void *context, const void *word, u32 bytes); /* all ones without a link */
	void (*store)(void *context, void *word, u64 value, u32 bytes); /* lost without a link */
	u32 (*epoch)(void *context); /* of the link */
};

/* A copy's claim. */
struct claim {
	void *word; /* in the owner's memory; 0 before and after the copy */
	const void *permit; /* likewise */
	u64 value; /* of the word during the copy; not 0 */
	u64 permitted; /* value of the permit that permits the copy */
	u32 bytes; /* of either word: 4 or 8 */
	u32 epoch; /* of the link, as the session began with it */
};

enum claim_verdict {
	CLAIM_OK,
	CLAIM_REFUSED, /* the permit is another: the owner has withdrawn it */
	CLAIM_LOST, /* there is no link, or it was down since the session began */
};

/* Without CLAIM_OK the claim has ended. */
enum claim_verdict claim_begin(const struct claim *claim, const struct claim_bus *bus,
			       void *context);
/* After the copy, and before claim_end(). False: its bytes might be lost, or no data. */
bool claim_is_whole(const struct claim *claim, const struct claim_bus *bus, void *context);
/*
 * Ends it, when its last load or store has been done. False: the permit has been withdrawn, so the
 * owner might wait for the end and needs its doorbell.
 */
bool claim_end(const struct claim *claim, const struct claim_bus *bus, void *context);

/* Might a value have come from a link that is down? */
static inline bool claim_is_nothing(u64 value, u32 bytes)
{
	return value == ~0ULL >> (64 - 8 * bytes);
}

/* ---- owner, in its own memory ---- */

/* Writes the permit. Claims that begin later see it; the owner sees those that don't. */
void claim_withdraw(void *permit, u64 value, u32 bytes);
/* A claim word; what its copy did before it wrote the word has been done. */
u64 claim_word(const void *word, u32 bytes);
/* The copy that had the word at `noted` has ended. mask: the bits that tell copies apart. */
static inline bool claim_is_quiet(const void *word, u64 noted, u64 mask, u32 bytes)
{
	return (claim_word(word, bytes) & mask) != (noted & mask);
}

#endif
