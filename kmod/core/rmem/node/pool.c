// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/node/pool.h"

static u32 dirty_cells(u32 pages)
{
	return base_pow2_ceil(pages < 2 ? 2 : pages);
}

size_t rmem_pool_bytes(u32 pages, u32 ready_pages)
{
	return base_ring_bytes(ready_pages) + base_ring_bytes(dirty_cells(pages));
}

void rmem_pool_init(struct rmem_pool *pool, void *memory, u32 pages, u32 ready_pages)
{
	base_ring_init(&pool->ready, memory, ready_pages);
	base_ring_init(&pool->dirty, (u8 *)memory + base_ring_bytes(ready_pages),
		       dirty_cells(pages));
	pool->ready_pages = ready_pages;
	pool->pages = pages;
	pool->fresh = 0;
	pool->scrubbing = 0;
}

bool rmem_pool_take(struct rmem_pool *pool, u32 *page)
{
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

/* Only the slow path changes these two; scrub_wanted() reads them anywhere. */
static u32 fresh_left(const struct rmem_pool *pool)
{
	return pool->pages - __atomic_load_n(&pool->fresh, __ATOMIC_RELAXED);
}

static void add_scrubbing(struct rmem_pool *pool, int pages)
{
	__atomic_store_n(&pool->scrubbing, pool->scrubbing + pages, __ATOMIC_RELAXED);
}

bool rmem_pool_scrub_next(struct rmem_pool *pool, u32 *page, bool *used)
{
	if (base_ring_count(&pool->ready) + pool->scrubbing >= pool->ready_pages)
		return false;
	*used = !fresh_left(pool);
	if (!*used) {
		*page = pool->fresh;
		__atomic_store_n(&pool->fresh, *page + 1, __ATOMIC_RELAXED);
	} else if (!base_ring_pop(&pool->dirty, page)) {
		return false;
	}
	add_scrubbing(pool, 1);
	return true;
}

void rmem_pool_scrub_done(struct rmem_pool *pool, u32 page)
{
	add_scrubbing(pool, -1);
	rmem_pool_untake(pool, page);
}

void rmem_pool_scrub_later(struct rmem_pool *pool, u32 page)
{
	add_scrubbing(pool, -1);
	rmem_pool_put_dirty(pool, page);
}

bool rmem_pool_scrub_wanted(const struct rmem_pool *pool)
{
	u32 coming = __atomic_load_n(&pool->scrubbing, __ATOMIC_RELAXED);

	return base_ring_count(&pool->ready) + coming <= pool->ready_pages / 2 &&
	       (fresh_left(pool) || base_ring_count(&pool->dirty));
}

u32 rmem_pool_ready(const struct rmem_pool *pool)
{
	return base_ring_count(&pool->ready);
}

u32 rmem_pool_unused(const struct rmem_pool *pool)
{
	return fresh_left(pool) + pool->scrubbing + base_ring_count(&pool->ready) +
	       base_ring_count(&pool->dirty);
}
