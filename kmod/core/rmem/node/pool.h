/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The fault pool: zeroed pages kept ready, so that the first write to an
 * address takes one without waiting (Clio, ASPLOS'22, section 4.3).
 *
 *      fresh --.                        take                     put_dirty
 *               >-- scrub_next --> zeroing --> ready ----> table ----> dirty --.
 *      dirty --'                     |  scrub_done                             |
 *        ^---------- scrub_later ----'                                         |
 *        '---------------------------------------------------------------------'
 *
 * fresh: never used, not yet zeroed; a number that counts up. ready and dirty are rings.
 *
 * Spaces share the ready pages. A quarter of them is kept: a space takes no more than its equal
 * part of it, two pages at least, until the quarter was whole again. So a space finds its part
 * ready once in the time that the quarter takes to refill, however much others take.
 *
 * Invariants:
 *   - a page is at one of these places at a time;
 *   - a page in ready is zeroed, and nobody refers to it any more;
 *   - dirty has a cell for every page, so putting one there can't fail.
 *
 * Locking: take, untake and put_dirty anywhere, no lock; scrub_* under the slow lock.
 */
#ifndef REMORA_RMEM_POOL_H
#define REMORA_RMEM_POOL_H

#include "core/base/ring.h"
#include "core/base/types.h"

struct rmem_pool {
	struct base_ring ready;
	struct base_ring dirty;
	u64 *taken;	 /* by space: of the kept pages; round 32, pages 32; atomic */
	u32 round;	 /* counts the times that the quarter was whole; atomic */
	u32 ready_pages; /* wanted in ready */
	u32 pages;
	u32 fresh;     /* first page never handed out; atomic, as scrub_wanted() reads it */
	u32 scrubbing; /* handed out to be zeroed */
	/* Positions in dirty. */
	u32 marked; /* of the first page too late for the last grace period; atomic */
	u32 quiet;  /* the same of the last one that has passed */
};

/* ready_pages: a power of two, >= 2. */
size_t rmem_pool_bytes(u32 pages, u32 ready_pages, u32 spaces_max);
void rmem_pool_init(struct rmem_pool *pool, void *memory, u32 pages, u32 ready_pages,
		    u32 spaces_max);

/*
 * For a pool whose pages outlive its process (store.h). locate: where it is now. Then it is built
 * anew: begin, taken for each page in the table, end. A page that was ever lent is dirty. False:
 * the page can't be in the table, or was there twice.
 */
void rmem_pool_locate(struct rmem_pool *pool, void *memory, u32 pages, u32 ready_pages);
void rmem_pool_rebuild_begin(struct rmem_pool *pool);
bool rmem_pool_rebuild_taken(struct rmem_pool *pool, u32 page);
void rmem_pool_rebuild_end(struct rmem_pool *pool, u32 spaces_max);

/*
 * A zeroed page for the space with that index, one of so many. False: none is ready, or the space
 * has taken its part. Concurrent calls can together take a page more for each CPU.
 */
bool rmem_pool_take(struct rmem_pool *pool, u32 space_index, u32 spaces, u32 *page);

/* Give back a page that was taken and not touched. It still counts as taken. */
void rmem_pool_untake(struct rmem_pool *pool, u32 page);

/* A page that left the table; requests under way can still refer to it. */
void rmem_pool_put_dirty(struct rmem_pool *pool, u32 page);

/* As rmem_node_scrub_*(); false: nothing to be zeroed now. */
bool rmem_pool_scrub_next(struct rmem_pool *pool, u32 *page, bool *used);
void rmem_pool_scrub_done(struct rmem_pool *pool, u32 page);
void rmem_pool_scrub_later(struct rmem_pool *pool, u32 page);
bool rmem_pool_scrub_wanted(const struct rmem_pool *pool);

/* As rmem_node_scrub_quiet() and rmem_node_grace_*(). */
bool rmem_pool_scrub_quiet(struct rmem_pool *pool, u32 *page);
bool rmem_pool_grace_begin(struct rmem_pool *pool);
void rmem_pool_grace_end(struct rmem_pool *pool);
bool rmem_pool_grace_wanted(const struct rmem_pool *pool);

/* Pages ready, and pages in no entry of the table; exact while the fast path is still. */
u32 rmem_pool_ready(const struct rmem_pool *pool);
u32 rmem_pool_unused(const struct rmem_pool *pool);

#endif
