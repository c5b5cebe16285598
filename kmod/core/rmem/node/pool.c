// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/node/pool.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"

/* A WRITE takes up to two pages at once, or none. */
#define PART_MIN 2U

static u32 pool_dirty_cells(u32 pages)
{
	return base_pow2_ceil(pages < 2 ? 2 : pages);
}

size_t rmem_pool_bytes(u32 pages, u32 ready_pages, u32 spaces_max)
{
	return base_ring_bytes(ready_pages) + base_ring_bytes(pool_dirty_cells(pages)) +
	       spaces_max * sizeof(u64);
}

void rmem_pool_locate(struct rmem_pool *pool, void *memory, u32 pages, u32 ready_pages)
{
	u8 *dirty = (u8 *)memory + base_ring_bytes(ready_pages);

	pool->ready.cell = memory;
	pool->dirty.cell = (struct base_ring_cell *)dirty;
	pool->taken = (u64 *)(dirty + base_ring_bytes(pool_dirty_cells(pages)));
}

void rmem_pool_init(struct rmem_pool *pool, void *memory, u32 pages, u32 ready_pages,
		    u32 spaces_max)
{
	u8 *dirty = (u8 *)memory + base_ring_bytes(ready_pages);

	rmem_pool_locate(pool, memory, pages, ready_pages);
	base_ring_init(&pool->ready, memory, ready_pages);
	base_ring_init(&pool->dirty, dirty, pool_dirty_cells(pages));
	base_zero(pool->taken, spaces_max * sizeof(*pool->taken));
	pool->round = 0;
	pool->ready_pages = ready_pages;
	pool->pages = pages;
	pool->fresh = 0;
	pool->scrubbing = 0;
	pool->marked = base_ring_head(&pool->dirty);
	pool->quiet = pool->marked;
}

/* Only the slow path changes these two; scrub_wanted() reads them anywhere. */
static u32 pool_fresh_left(const struct rmem_pool *pool)
{
	return pool->pages - __atomic_load_n(&pool->fresh, __ATOMIC_RELAXED);
}

static u32 pool_kept(const struct rmem_pool *pool)
{
	return pool->ready_pages / 4;
}

/*
 * Whether spaces have to share: part of the quarter is gone, and it can be whole again. Once the
 * node has no more pages than that, those left are promised to their spaces anyway.
 */
static bool pool_is_short(const struct rmem_pool *pool)
{
	return base_ring_count(&pool->ready) <= pool_kept(pool) &&
	       rmem_pool_unused(pool) > pool_kept(pool);
}

/* Counts a page of those kept; false: the space has its part of this round. */
static bool pool_take_kept(struct rmem_pool *pool, u32 space_index, u32 spaces)
{
	u64 round = (u64)__atomic_load_n(&pool->round, __ATOMIC_RELAXED) << 32;
	u64 *taken = &pool->taken[space_index];
	u64 was = __atomic_load_n(taken, __ATOMIC_RELAXED), now;

	do {
		now = was >> 32 == round >> 32 ? was : round;
		if ((u32)now >= base_max(pool_kept(pool) / spaces, PART_MIN))
			return false;
	} while (!__atomic_compare_exchange_n(taken, &was, now + 1, true, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	return true;
}

bool rmem_pool_take(struct rmem_pool *pool, u32 space_index, u32 spaces, u32 *page)
{
	if (spaces > 1 && pool_is_short(pool) && !pool_take_kept(pool, space_index, spaces))
		return false;
	return base_ring_pop(&pool->ready, page);
}

void rmem_pool_untake(struct rmem_pool *pool, u32 page)
{
	/* Refilled meanwhile: it is zeroed once more, in its turn. */
	if (!base_ring_push(&pool->ready, page))
		rmem_pool_put_dirty(pool, page);
}

void rmem_pool_put_dirty(struct rmem_pool *pool, u32 page)
{
	base_ring_push(&pool->dirty, page);
}

static void pool_add_scrubbing(struct rmem_pool *pool, int pages)
{
	__atomic_store_n(&pool->scrubbing, pool->scrubbing + pages, __ATOMIC_RELAXED);
}

bool rmem_pool_scrub_next(struct rmem_pool *pool, u32 *page, bool *used)
{
	if (base_ring_count(&pool->ready) + pool->scrubbing >= pool->ready_pages)
		return false;
	*used = !pool_fresh_left(pool);
	if (!*used) {
		*page = pool->fresh;
		__atomic_store_n(&pool->fresh, *page + 1, __ATOMIC_RELAXED);
	} else if (!base_ring_pop(&pool->dirty, page)) {
		return false;
	}
	pool_add_scrubbing(pool, 1);
	return true;
}

void rmem_pool_scrub_done(struct rmem_pool *pool, u32 page)
{
	bool was_whole = base_ring_count(&pool->ready) > pool_kept(pool);

	pool_add_scrubbing(pool, -1);
	rmem_pool_untake(pool, page);
	if (!was_whole && base_ring_count(&pool->ready) > pool_kept(pool))
		__atomic_fetch_add(&pool->round, 1, __ATOMIC_RELAXED);
}

void rmem_pool_scrub_later(struct rmem_pool *pool, u32 page)
{
	pool_add_scrubbing(pool, -1);
	rmem_pool_put_dirty(pool, page);
}

bool rmem_pool_scrub_wanted(const struct rmem_pool *pool)
{
	u32 coming = __atomic_load_n(&pool->scrubbing, __ATOMIC_RELAXED);

	return base_ring_count(&pool->ready) + coming <= pool->ready_pages / 2 &&
	       (pool_fresh_left(pool) || base_ring_count(&pool->dirty));
}

bool rmem_pool_scrub_quiet(struct rmem_pool *pool, u32 *page)
{
	bool used;

	/* Only the slow path takes pages out, so the first one stays the first. */
	if (!pool_fresh_left(pool) && (s32)(pool->quiet - base_ring_tail(&pool->dirty)) <= 0)
		return false;
	return rmem_pool_scrub_next(pool, page, &used);
}

bool rmem_pool_grace_begin(struct rmem_pool *pool)
{
	u32 head = base_ring_head(&pool->dirty);

	if (head == pool->marked)
		return false;
	__atomic_store_n(&pool->marked, head, __ATOMIC_RELAXED);
	return true;
}

void rmem_pool_grace_end(struct rmem_pool *pool)
{
	pool->quiet = pool->marked;
}

bool rmem_pool_grace_wanted(const struct rmem_pool *pool)
{
	u32 marked = __atomic_load_n(&pool->marked, __ATOMIC_RELAXED);

	return base_ring_head(&pool->dirty) - marked >= pool->ready_pages / 2;
}

u32 rmem_pool_ready(const struct rmem_pool *pool)
{
	return base_ring_count(&pool->ready);
}

u32 rmem_pool_unused(const struct rmem_pool *pool)
{
	return pool_fresh_left(pool) + __atomic_load_n(&pool->scrubbing, __ATOMIC_RELAXED) +
	       base_ring_count(&pool->ready) + base_ring_count(&pool->dirty);
}

/*
 * The dirty ring's cells serve as one flag for each page until the end, which fills the cells in
 * order, none before it has read the flag there.
 */
void rmem_pool_rebuild_begin(struct rmem_pool *pool)
{
	u32 n;

	for (n = 0; n < pool->pages; n++)
		pool->dirty.cell[n].value = 0;
}

bool rmem_pool_rebuild_taken(struct rmem_pool *pool, u32 page)
{
	return page < pool->fresh && !pool->dirty.cell[page].value++;
}

void rmem_pool_rebuild_end(struct rmem_pool *pool, u32 spaces_max)
{
	struct base_ring *dirty = &pool->dirty;
	u32 cells = pool_dirty_cells(pool->pages), head = 0, n;

	for (n = 0; n < pool->fresh; n++) {
		if (dirty->cell[n].value)
			continue;
		dirty->cell[head].value = n;
		head++;
	}
	for (n = 0; n < cells; n++)
		dirty->cell[n].turn = n < head ? n + 1 : n;
	dirty->mask = cells - 1;
	dirty->head = head;
	dirty->tail = 0;
	base_ring_init(&pool->ready, pool->ready.cell, pool->ready_pages);
	base_zero(pool->taken, spaces_max * sizeof(*pool->taken));
	pool->round = 0;
	pool->scrubbing = 0;
	pool->marked = head;
	pool->quiet = head;
}
