/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The protocol of a copy between two machines' memories, which grants and loans share (Marlin,
 * ANCS'14, 3.2). The initiator writes a claim word into the owner's memory for as long as it
 * copies, and looks at the owner's permit, which lies in the owner's memory or in its own.
 *
 *     owner                                            initiator
 *       permit: live                                     claim_begin: claim word, then the permit
 *       permit: withdrawn, then the claim word           copy: loads, stores
 *       claim_is_quiet: the claim word  <---- store ---- claim_is_whole? claim_end: 0
 *
 * Invariants
 *   - Either the owner sees the claim, or the claim sees that the permit was withdrawn. Each end
 *     stores, and then looks. The end that looks across the bus makes this order for both: its
 *     load pushes its store, and the load's completion pushes the other end's earlier stores. The
 *     other end looks in own memory, behind a full barrier.
 *   - A claim word counts only if the link was not down since the session began. A store that was
 *     on its way then is lost, and the next ones of the same copy can arrive.
 *   - Where the epoch can come late, a claim counts once its word has been loaded back.
 *   - A copy is whole only if the link carried all of it. A link that is down loses stores and
 *     gives all ones for loads, and it can be up again by the end of the copy. So the link has an
 *     epoch, which is another one after each time that it was down.
 *   - All ones are never a permit.
 * Each change of the epoch restarts the session, and then the owner cleans lost claim words.
 *
 * Which end loads: the one whose turn is rarer. A grant's permit is in the initiator's memory, for
 * many copies use it and it is withdrawn once; a loan's is in the owner's, for it has one copy.
 */
#ifndef REMORA_MARLIN_CLAIM_H
#define REMORA_MARLIN_CLAIM_H

#include "core/base/fence.h"
#include "core/base/types.h"

/*
 * The way to the other end's memory. Loads and stores are done in the order of the calls, after all
 * earlier accesses of the copy to that memory and before all later ones. bytes: 4 or 8.
 */
struct claim_bus {
	u64 (*load)(void *context, const void *word, u32 bytes); /* all ones without a link */
	void (*store)(void *context, void *word, u64 value, u32 bytes); /* lost without a link */
	u32 (*epoch)(void *context); /* of the link */
};

/* ---- initiator ---- */

/* A copy's claim. */
struct claim {
	void *word; /* in the owner's memory; 0 before and after the copy */
	const void *permit;
	u64 value; /* of the word during the copy; not 0 */
	u64 permitted; /* value of the permit that permits the copy */
	u32 bytes; /* of either word: 4 or 8 */
	u32 epoch; /* of the link, as the session began with it */
	bool mirrored; /* the permit is in own memory, and the owner writes it across the bus */
	bool late; /* the epoch can become another only after the link is up again */
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
 * Likewise of stores that might still be on their way, without a load: they arrive before all later
 * stores, or the link's epoch becomes another.
 */
bool claim_is_sent(const struct claim *claim, const struct claim_bus *bus, void *context);
/* Ends it, when its last load or store has been done. */
void claim_end(const struct claim *claim, const struct claim_bus *bus, void *context);
/*
 * After that, and before another copy has the word, of a mirrored permit: it was withdrawn, so the
 * owner might wait for the end and needs its doorbell.
 */
bool claim_is_awaited(const struct claim *claim);

/* A link that is down gives this for a load. */
static inline u64 claim_nothing(u32 bytes)
{
	return ~0ULL >> (64 - 8 * bytes);
}

static inline bool claim_is_nothing(u64 value, u32 bytes)
{
	return value == claim_nothing(bytes);
}

/* ---- owner ---- */

/* Writes a permit of own memory. A claim that missed the withdrawal is visible to the owner. */
static inline void claim_withdraw(void *permit, u64 value, u32 bytes)
{
	base_word_store(permit, value, bytes);
	base_fence(); /* pairs with the initiator's load, which comes behind its claim word */
}

/* The copy that had the word at `noted` has ended. mask: the bits that tell copies apart. */
static inline bool claim_is_quiet(const void *word, u64 noted, u64 mask, u32 bytes)
{
	return (base_word_load(word, bytes) & mask) != (noted & mask);
}

#endif
