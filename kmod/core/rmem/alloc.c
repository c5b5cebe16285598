// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/alloc.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"

#define GUARD_PAGES 1

static u32 heads_for(u32 regions_max)
{
	return base_pow2_ceil(regions_max);
}

size_t rmem_alloc_bytes(u32 regions_max)
{
	return regions_max * sizeof(struct rmem_region) + heads_for(regions_max) * sizeof(u32);
}

void rmem_alloc_init(struct rmem_alloc_state *alloc, void *memory, u32 regions_max, u64 pages,
		     u32 page_shift)
{
	u32 n;

	base_zero(memory, rmem_alloc_bytes(regions_max));
	base_zero(alloc, sizeof(*alloc));
	alloc->region = memory;
	alloc->head = (u32 *)(alloc->region + regions_max);
	alloc->mask = heads_for(regions_max) - 1;
	alloc->regions_max = regions_max;
	alloc->pages = pages;
	alloc->vpn_max = 1ULL << (64 - page_shift);
	alloc->free = 1;
	for (n = 0; n + 1 < regions_max; n++)
		alloc->region[n].next = n + 2;
}

static u32 *head_of(const struct rmem_alloc_state *alloc, u32 space_index, u64 vpn)
{
	return &alloc->head[base_mix64(vpn << 16 | space_index) & alloc->mask];
}

struct rmem_region *rmem_alloc_find(const struct rmem_alloc_state *alloc, u32 space_index,
				    u64 vpn)
{
	u32 at = *head_of(alloc, space_index, vpn);

	while (at) {
		struct rmem_region *region = &alloc->region[at - 1];

		if (region->vpn == vpn && region->space_index == space_index)
			return region;
		at = region->next;
	}
	return NULL;
}

struct rmem_region *rmem_alloc_made_by(const struct rmem_alloc_state *alloc, u64 session, u64 id)
{
	u32 n;

	for (n = 0; n < alloc->regions_max; n++) {
		struct rmem_region *region = &alloc->region[n];

		if (region->vpn && region->session == session && region->id == id)
			return region;
	}
	return NULL;
}

/* Is the range among the addresses a space has and hasn't given out, its guard included? */
static bool in_reach(const struct rmem_alloc_state *alloc, const struct rmem_space *space, u64 vpn,
		     u64 pages)
{
	return vpn >= space->cursor_vpn && vpn < alloc->vpn_max &&
	       pages + GUARD_PAGES <= alloc->vpn_max - vpn;
}

/* Where the range goes, its entries reserved; or 0. */
static u64 find_room(struct rmem_alloc_state *alloc, struct rmem_table *table,
		     const struct rmem_space *space, u32 space_index,
		     const struct rmem_alloc_wish *wish)
{
	u64 vpn = space->cursor_vpn;
	u32 retries = 0;
	u64 fit = 0;

	if (wish->vpn && in_reach(alloc, space, wish->vpn, wish->pages)) {
		if (rmem_table_reserve(table, space_index, wish->vpn, wish->pages) == wish->pages)
			return wish->vpn;
		retries++;
	}
	for (; retries <= RMEM_ALLOC_RETRIES_MAX; retries++) {
		if (!in_reach(alloc, space, vpn, wish->pages))
			break;
		fit = rmem_table_reserve(table, space_index, vpn, wish->pages);
		if (fit == wish->pages)
			break;
		vpn += fit + 1;
	}
	alloc->retries += retries;
	if (retries > alloc->retries_worst)
		alloc->retries_worst = retries;
	return fit == wish->pages ? vpn : 0;
}

static bool permitted(const struct rmem_alloc_state *alloc, const struct rmem_space *space,
		      u64 pages)
{
	if (!alloc->free || pages > alloc->pages - alloc->pages_promised)
		return false;
	return !space->quota_pages || (space->pages_promised <= space->quota_pages &&
				       pages <= space->quota_pages - space->pages_promised);
}

struct rmem_region *rmem_alloc_region(struct rmem_alloc_state *alloc, struct rmem_table *table,
				      struct rmem_spaces *spaces, u32 space_index,
				      const struct rmem_alloc_wish *wish)
{
	struct rmem_space *space = &spaces->slot[space_index];
	struct rmem_region *region;
	u64 vpn, n;
	u32 *head;

	if (!wish->pages || !permitted(alloc, space, wish->pages))
		return NULL;
	vpn = find_room(alloc, table, space, space_index, wish);
	if (!vpn)
		return NULL;
	for (n = 0; n < wish->pages; n++)
		rmem_table_insert(table, space_index, vpn + n, wish->perm);

	region = &alloc->region[alloc->free - 1];
	alloc->free = region->next;
	head = head_of(alloc, space_index, vpn);
	region->vpn = vpn;
	region->pages = wish->pages;
	region->session = wish->session;
	region->id = wish->id;
	region->space_index = space_index;
	region->next = *head;
	*head = (u32)(region - alloc->region) + 1;

	space->cursor_vpn = vpn + wish->pages + GUARD_PAGES;
	space->pages_promised += wish->pages;
	space->regions++;
	alloc->pages_promised += wish->pages;
	alloc->in_use++;
	return region;
}

void rmem_alloc_release(struct rmem_alloc_state *alloc, struct rmem_table *table,
			struct rmem_spaces *spaces, struct rmem_pool *pool,
			struct rmem_region *region)
{
	struct rmem_space *space = &spaces->slot[region->space_index];
	u32 *link = head_of(alloc, region->space_index, region->vpn);
	u64 n;

	for (n = 0; n < region->pages; n++) {
		u32 pte = rmem_table_remove(table, region->space_index, region->vpn + n);

		if (pte & RMEM_PTE_BACKED)
			rmem_pool_put_dirty(pool, pte & RMEM_PTE_PAGE);
	}
	while (&alloc->region[*link - 1] != region)
		link = &alloc->region[*link - 1].next;
	*link = region->next;
	region->vpn = 0;
	region->next = alloc->free;
	alloc->free = (u32)(region - alloc->region) + 1;

	space->pages_promised -= region->pages;
	space->regions--;
	alloc->pages_promised -= region->pages;
	alloc->in_use--;
}
