/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Remote address spaces (Clio, ASPLOS'22, section 3.1): which clients may use the node, and the
 * quota of each space.
 *
 *      id --hash--> head --> slot --> slot        slot: id, key, quota, spans
 *                              ^       |
 *                              `-base--'          a view or a member: id, key; memory is its base's
 *
 * A message names its space before it is known to be genuine, so the way to a
 * key is short, bounded, and takes no lock.
 *
 * A slot's spans are the addresses given out so far; they only grow while
 * the space lives. A space deleted and added again starts over, as another
 * incarnation: sessions belong to one incarnation, so none outlives its space.
 *
 * Views and members are spaces without memory of their own. A holder of a view's key reads
 * everything in its base, at the same addresses, and changes nothing. A holder of a member's key
 * does all that one of the base's key does. Their base has memory of its own, and can't be deleted
 * as long as it has any, so a session's memory lives as long as its space.
 *
 * So each client can have a key of its own for the memory that they share, and a key can be revoked
 * without a loss of memory: a member or view is deleted, and a space with memory has no key from
 * then on. The caller has ended its sessions before (rmem_node_call_revoke()).
 *
 * Locking: find anywhere, no lock; add and del under the slow lock. Between a del and the
 * next add there must be a grace period: a slot is used again at once.
 */
#ifndef REMORA_RMEM_SPACE_H
#define REMORA_RMEM_SPACE_H

#include "core/base/siphash.h"
#include "core/base/types.h"
#include "core/rmem/node/session.h"
#include "core/rmem/node/span.h"
#include "core/rmem/node/table.h"
#include "core/rmem/node/traffic.h"

#define RMEM_SPACES_MAX RMEM_TABLE_SPACES_MAX
#define RMEM_SPACE_FIRST_VPN 1 /* address 0 is nobody's */

enum rmem_space_error {
	RMEM_SPACE_OK = 0,
	RMEM_SPACE_EXISTS = -1,	 /* id is in use */
	RMEM_SPACE_FULL = -2,	 /* spaces_max in use */
	RMEM_SPACE_UNKNOWN = -3, /* no space of that id */
	RMEM_SPACE_BUSY = -4,	 /* regions are left */
	RMEM_SPACE_INVALID = -5, /* id 0 */
	RMEM_SPACE_QUOTA = -6,	 /* less than a page */
	RMEM_SPACE_VIEWED = -7,	 /* the space has views or members */
	RMEM_SPACE_NO_BASE = -8, /* a view's or member's: no space of that id */
	RMEM_SPACE_IS_VIEW = -9, /* a view's or member's base is one itself */
	/* A view's key opens more than the view; or a member's is another client's. */
	RMEM_SPACE_SAME_KEY = -10,
	RMEM_SPACE_PERSISTENT = -11, /* rmem_node_add_persistent()'s */
	RMEM_SPACE_NO_CIPHER = -12,  /* can't require a level that the node doesn't have */
	RMEM_SPACE_REVOKED = -13,    /* its key already was */
};

struct rmem_space {
	u32 id;	  /* 0: slot is free; atomic */
	u32 next; /* in the hash chain, index + 1; atomic */
	u64 incarnation;
	struct base_siphash_key key;
	/* The slow path's. */
	u8 required; /* level of its sessions: rmem_node_space_require() */
	bool revoked; /* the key opens nothing; atomic */
	bool member;
	u32 base;  /* a view's or member's: index + 1 of its base's slot; else 0 */
	u32 views; /* number of its views and members */
	struct rmem_spans spans;
	u64 quota_pages; /* 0: none */
	u64 pages_promised;
	u32 regions;
	struct rmem_traffic traffic; /* its clients', as far as it is settled */
	u64 calls_ns; /* time of its clients' calls (offload/run.h); atomic */
};

struct rmem_spaces {
	struct rmem_space *slot;
	u32 *head; /* index + 1 of a chain's first slot; atomic */
	u32 mask;
	u32 slots;
	u32 in_use; /* atomic, as the fast path reads it */
	u64 incarnations;
};

size_t rmem_spaces_bytes(u32 slots);
void rmem_spaces_init(struct rmem_spaces *spaces, void *memory, u32 slots);

/* For spaces that outlive their process (store.h): where they are, and all but them anew. */
void rmem_spaces_locate(struct rmem_spaces *spaces, void *memory, u32 slots);
void rmem_spaces_rebuild(struct rmem_spaces *spaces);

enum rmem_space_error rmem_spaces_add(struct rmem_spaces *spaces, u32 id,
				      const u8 key[BASE_SIPHASH_KEY_BYTES], u64 quota_pages);
/* The same, of a view, or a member, of the space with the id base. */
enum rmem_space_error rmem_spaces_add_view(struct rmem_spaces *spaces, u32 id,
					   const u8 key[BASE_SIPHASH_KEY_BYTES], u32 base,
					   bool member);
enum rmem_space_error rmem_spaces_del(struct rmem_spaces *spaces, u32 id);

/* See above. Its memory stays; rmem_spaces_wipe() is due as after a del. */
enum rmem_space_error rmem_spaces_revoke(struct rmem_spaces *spaces, u32 id);
static inline bool rmem_space_is_revoked(const struct rmem_space *space)
{
	return __atomic_load_n(&space->revoked, __ATOMIC_RELAXED);
}

/* Forget keys deleted or revoked, once no request that found one runs any more. */
void rmem_spaces_wipe(struct rmem_spaces *spaces);

/* The space of that id, or NULL. */
struct rmem_space *rmem_spaces_find(const struct rmem_spaces *spaces, u32 id);

/* The id of the space that this one is a view or member of; 0: it is none. Slow lock. */
u32 rmem_spaces_base(const struct rmem_spaces *spaces, const struct rmem_space *space);

/* A space as sessions remember it, and whether it is still there. */
void rmem_spaces_place(const struct rmem_spaces *spaces, const struct rmem_space *space,
		       struct rmem_place *place);
bool rmem_spaces_has(const struct rmem_spaces *spaces, const struct rmem_place *place);

#endif
