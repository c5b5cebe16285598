/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Grants of pages to a peer, and their revocation (include/remora/marlin_grants.h; Marlin,
 * ANCS'14, 3.2).
 *
 *     FREE --grants_add--> LIVE --grants_revoke--> REVOKED --grants_end, once quiet--> FREE
 *
 * The table lies in the peer's memory, so that its copies look at it without a load across the bus.
 *
 * Invariants, whatever the peer writes:
 *   - the owner never reads its table, which the peer could change; what it needs is in the slots;
 *   - an entry's epoch is used once; a slot that became free is used again after all others;
 *   - once grants_is_quiet() has returned true, no copy of an honest peer touches the pages.
 * Each call is bounded: grants_note() and grants_is_quiet() look at MARLIN_COPIES words. The
 * caller serialises the calls for one struct grants.
 *
 * Why a revocation ends: grants_note() notes the copies that were under way. A copy that begins
 * later reads the revoked word, and its sequence number tells it from those that were noted. So a
 * peer that tries again and again does not prolong the wait. If the link went meanwhile, the wait
 * ends when the peer has ended its session, or is dead.
 *
 * Barriers, by their partners: claim.h, of a mirrored permit. The owner's load is grants_pull().
 */
#ifndef REMORA_MARLIN_GRANTS_CORE_H
#define REMORA_MARLIN_GRANTS_CORE_H

#include "core/base/types.h"
#include "core/marlin/claim.h"
#include "remora/marlin_grants.h"

struct grants_slot {
	u64 epoch;
	u32 state;
	u32 pending; /* bits of copy words that are to change */
	bool blind; /* the link went, so there might be copies without a word */
	u16 seen[MARLIN_COPIES]; /* sequence numbers of those copies, the lowest bits */
};

struct grants {
	struct marlin_grant *table; /* in the peer's memory */
	const u64 *copies; /* own memory; the peer writes it */
	const struct claim_bus *bus; /* to the peer's memory */
	void *context;
	u32 link_epoch; /* of the bus, as the session began with it */
	bool lost; /* a store of this session didn't arrive, whatever the bus's epoch says */
	u64 epoch;
	u32 free_first, free_count;
	u16 free[MARLIN_GRANTS]; /* a queue */
	struct grants_slot slots[MARLIN_GRANTS];
};

struct grants_range {
	u64 directory;
	u64 bytes;
	u32 offset;
	u32 rights;
	u64 key[2];
};

/* An initiator's verdict on a handle. */
enum grants_verdict {
	GRANTS_OK,
	GRANTS_STALE,	/* of another epoch of the entry */
	GRANTS_FORGED,	/* its key is wrong */
	GRANTS_REVOKED, /* its owner has revoked it */
	GRANTS_RIGHTS,	/* the copy needs a right that it lacks */
	GRANTS_BROKEN,	/* the entry makes no sense */
};

/* ---- owner ---- */

/* epoch: at random, so that a handle of the machine's last life has another. */
void grants_init(struct grants *grants, struct marlin_grant *table, const u64 *copies,
		 const struct claim_bus *bus, void *context, u64 epoch);

/* A session begins: the table is zero. No grant is live, and no copy of the peer under way. */
void grants_begin(struct grants *grants, u32 link_epoch);

/* The peer has ended the session, and so its copies; or it is dead. Its words are 0. */
void grants_ended(struct grants *grants);

/* The entry's index, or -1: all are in use. Its epoch is that of the slot. */
int grants_add(struct grants *grants, const struct grants_range *range);

/*
 * Loads the entry that grants_add() wrote: the peer has all of it. False: the link lost a part. The
 * handle is to be given to nobody then, so the entry is revoked and ended.
 */
bool grants_has_arrived(struct grants *grants, u32 index, const struct grants_range *range);

/*
 * Revocation, in these steps. After grants_pull() copies that begin are refused, or the withdrawal
 * was lost, which it notices. The entry is live.
 */
void grants_withdraw(struct grants *grants, u32 index);
void grants_pull(struct grants *grants, u32 index);
void grants_note(struct grants *grants, u32 index);

static inline void grants_revoke(struct grants *grants, u32 index)
{
	grants_withdraw(grants, index);
	grants_pull(grants, index);
	grants_note(grants, index);
}

/* No copy that began before the revocation is under way. The entry is revoked. */
bool grants_is_quiet(struct grants *grants, u32 index);

/* The entry is free. It is revoked, and quiet. */
void grants_end(struct grants *grants, u32 index);

/* ---- initiator ---- */

static inline u64 grants_word(u64 epoch, u32 state)
{
	return epoch << MARLIN_GRANT_EPOCH_SHIFT | state;
}

static inline u64 grants_copy_word(u64 sequence, u32 index)
{
	return sequence << MARLIN_COPY_SEQUENCE_SHIFT | (index + 1);
}

/* entry: a copy of the owner's; handle: in range; rights: what the copy needs. */
enum grants_verdict grants_check(const struct marlin_grant *entry,
				 const struct marlin_handle *handle, u32 rights);

/* Pages that a grant of so many bytes at an offset takes. */
static inline u64 grants_pages(u32 offset, u64 bytes)
{
	return (offset + bytes + MARLIN_PAGE_BYTES - 1) / MARLIN_PAGE_BYTES;
}

/* A range of bytes within a grant, without overflow. */
static inline bool grants_contain(u64 grant_bytes, u64 offset, u64 bytes)
{
	return offset <= grant_bytes && bytes <= grant_bytes - offset;
}

#endif
