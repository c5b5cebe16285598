/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The allocator of addresses (Clio, ASPLOS'22, section 4.2, "VA allocation").
 *
 *      a space:  0 | region | region |      | region |   hole   | region |   hole   2^64
 *                  ^guard            ^guard, freed   ^          ^ a wanted one's span
 *
 *      ALLOC: candidate range from a hole's begin --> room in every bucket it meets?
 *                  ^---- no: begin behind the last page without room ---'  | yes
 *                                                                          v
 *                                            entries in the table, a region, a span to its end
 *
 * The page table doesn't overflow because a range that would make it is not
 * given out. Clio searches a tree of ranges again; here an address is never
 * given out twice, so a few spans (span.h) are all there is to search, and a request that still
 * names an old address finds nothing there. A guard page behind each region does the same for a
 * request that runs over its end.
 *
 * A wanted address is granted wherever its range, with its guard, was never given out and has room
 * in the table. A region that would be in one place too many for span.h is moved, as one without a
 * wanted address would be placed.
 *
 * A region remembers the session and id that asked for it: that is how a
 * repeated ALLOC is answered as it was the first time, and how one is undone that
 * nobody was told of.
 *
 * Invariants:
 *   - no overcommit: the regions' pages are never more than the node's;
 *   - regions of one space don't overlap, and lie in its spans, their guards, too;
 *   - the table holds the entries of the regions and no others, between works.
 *
 * A large region takes long to enter and to remove. Both are done a step at a time, of as
 * many pages as the caller says; between steps, others can have the slow lock.
 *
 * Locking: slow lock, all of it; one struct rmem_alloc_work under way at a time.
 */
#ifndef REMORA_RMEM_ALLOC_H
#define REMORA_RMEM_ALLOC_H

#include "core/base/types.h"
#include "core/rmem/node/pool.h"
#include "core/rmem/node/space.h"
#include "core/rmem/node/table.h"

#define RMEM_REGIONS_MAX (1U << 20)
#define RMEM_ALLOC_RETRIES_MAX 256 /* candidates per ALLOC, beyond the first */

struct rmem_region {
	u64 vpn; /* first page; 0: slot is free */
	u64 pages;
	u64 session; /* the ALLOC that made it */
	u64 id;
	u32 space_index;
	u32 next; /* in its hash chain or the list of free slots, index + 1 */
};

struct rmem_undo;

struct rmem_alloc_state {
	struct rmem_region *region;
	u32 *head; /* index + 1 of a chain's first region, by space and vpn */
	u32 mask;
	u64 seed[2]; /* of the hash of those */
	u32 regions_max;
	u32 free; /* first free slot, index + 1 */
	u32 in_use;
	u64 pages;
	u64 pages_promised;
	u64 vpn_max;	   /* pages a space has addresses for */
	u64 retries;	   /* candidates that didn't fit, in all */
	u32 retries_worst; /* in one ALLOC */
	u64 undone;	   /* regions taken back, as nobody knew of them */
	struct rmem_undo *undo; /* of the spaces' spans; NULL: the state ends with the process */
};

size_t rmem_alloc_bytes(u32 regions_max);
void rmem_alloc_init(struct rmem_alloc_state *alloc, void *memory, u32 regions_max, u64 pages,
		     u32 page_shift, const u64 seed[2]);

/* For regions that outlive their process (store.h): where they are, and all but them anew. */
void rmem_alloc_locate(struct rmem_alloc_state *alloc, void *memory, u32 regions_max);
void rmem_alloc_rebuild(struct rmem_alloc_state *alloc, struct rmem_spaces *spaces);

struct rmem_alloc_request {
	u64 pages;
	u64 vpn;  /* wanted, or 0; see above */
	u32 perm; /* RMEM_PTE_READ, RMEM_PTE_WRITE */
	u64 session, id;
};

enum rmem_alloc_stage {
	RMEM_ALLOC_LOOKING,   /* at a further candidate: has each of its pages room? */
	RMEM_ALLOC_RESERVING, /* and have all together? */
	RMEM_ALLOC_RETREATING, /* no room: the candidate's reserved pages go back */
	RMEM_ALLOC_ENTERING,
	RMEM_ALLOC_REMOVING,
	RMEM_ALLOC_ENDED,
};

/* A region being made, or being given back. */
struct rmem_alloc_work {
	struct rmem_region *region; /* made: once ended, NULL if there is no room for it */
	struct rmem_alloc_request request; /* vpn: 0 unless the candidate is the wanted range */
	enum rmem_alloc_stage stage;
	u32 space_index;
	u32 retries;
	u64 vpn;  /* of the candidate, or the region */
	u64 done; /* pages of it looked at, reserved, entered or removed */
	u64 next; /* RETREATING: the candidate after this one */
};

/* Begin a region. False: no memory, no quota or no slot left for it. */
bool rmem_alloc_make(struct rmem_alloc_state *alloc, const struct rmem_spaces *spaces,
		     u32 space_index, const struct rmem_alloc_request *request,
		     struct rmem_alloc_work *work);
/* Begin to give a region back; its pages go to the pool as dirty ones. */
void rmem_alloc_release(struct rmem_region *region, struct rmem_alloc_work *work);

/* At most pages_max pages of the work, which is more than 0. True: there is more to do. */
bool rmem_alloc_step(struct rmem_alloc_state *alloc, struct rmem_table *table,
		     struct rmem_spaces *spaces, struct rmem_pool *pool,
		     struct rmem_alloc_work *work, u64 pages_max);

/* The region that begins at vpn, or NULL. */
struct rmem_region *rmem_alloc_find(const struct rmem_alloc_state *alloc, u32 space_index,
				    u64 vpn);

/* The region in a slot below regions_max, or NULL: for walks over all of them. */
static inline struct rmem_region *rmem_alloc_at(const struct rmem_alloc_state *alloc, u32 slot)
{
	return alloc->region[slot].vpn ? &alloc->region[slot] : NULL;
}

#endif
