// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/node/alloc.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/rmem/node/share.h"
#include "core/rmem/node/undo.h"

#define GUARD_PAGES 1

static u32 alloc_heads_for(u32 regions_max)
{
	return base_pow2_ceil(regions_max);
}

size_t rmem_alloc_bytes(u32 regions_max)
{
	return regions_max * sizeof(struct rmem_region) +
	       alloc_heads_for(regions_max) * sizeof(u32);
}

void rmem_alloc_locate(struct rmem_alloc_state *alloc, void *memory, u32 regions_max)
{
	alloc->region = memory;
	alloc->head = (u32 *)(alloc->region + regions_max);
}

void rmem_alloc_init(struct rmem_alloc_state *alloc, void *memory, u32 regions_max, u64 pages,
		     u32 page_shift, const u64 seed[2])
{
	u32 n;

	base_zero(memory, rmem_alloc_bytes(regions_max));
	base_zero(alloc, sizeof(*alloc));
	rmem_alloc_locate(alloc, memory, regions_max);
	alloc->mask = alloc_heads_for(regions_max) - 1;
	alloc->regions_max = regions_max;
	alloc->pages = pages;
	alloc->vpn_max = 1ULL << (64 - page_shift);
	alloc->seed[0] = seed[0];
	alloc->seed[1] = seed[1];
	alloc->free = 1;
	for (n = 0; n + 1 < regions_max; n++)
		alloc->region[n].next = n + 2;
}

/* Clients can choose the vpn; the seed keeps the regions of a hostile one out of one chain. */
static u32 *alloc_head_of(const struct rmem_alloc_state *alloc, u32 space_index, u64 vpn)
{
	u64 hash = base_mix64((vpn << 16 | space_index) ^ alloc->seed[0]);

	hash = base_mix64(hash ^ alloc->seed[1]);
	return &alloc->head[hash & alloc->mask];
}

struct rmem_region *rmem_alloc_find(const struct rmem_alloc_state *alloc, u32 space_index,
				    u64 vpn)
{
	u32 at = *alloc_head_of(alloc, space_index, vpn);

	while (at) {
		struct rmem_region *region = &alloc->region[at - 1];

		if (region->vpn == vpn && region->space_index == space_index)
			return region;
		at = region->next;
	}
	return NULL;
}

void rmem_alloc_rebuild(struct rmem_alloc_state *alloc, struct rmem_spaces *spaces)
{
	u32 n;

	base_zero(alloc->head, (alloc->mask + 1) * sizeof(*alloc->head));
	alloc->free = 0;
	alloc->in_use = 0;
	alloc->pages_promised = 0;
	for (n = 0; n < spaces->slots; n++) {
		spaces->slot[n].pages_promised = 0;
		spaces->slot[n].regions = 0;
	}
	for (n = alloc->regions_max; n-- > 0;) {
		struct rmem_region *region = &alloc->region[n];
		u32 *list = region->vpn ? alloc_head_of(alloc, region->space_index, region->vpn) :
					  &alloc->free;

		region->next = *list;
		*list = n + 1;
		if (!region->vpn)
			continue;
		spaces->slot[region->space_index].pages_promised += region->pages;
		spaces->slot[region->space_index].regions++;
		alloc->pages_promised += region->pages;
		alloc->in_use++;
	}
}

/* Is the range among the addresses that a space has, its guard included? */
static bool alloc_in_reach(const struct rmem_alloc_state *alloc, u64 vpn, u64 pages)
{
	return vpn < alloc->vpn_max && pages + GUARD_PAGES <= alloc->vpn_max - vpn;
}

/* The first range, from vpn on, that was never given out. */
static u64 alloc_candidate(const struct rmem_space *space, u64 vpn, u64 pages)
{
	return rmem_spans_next(&space->spans, vpn, pages + GUARD_PAGES);
}

/* Can the wanted range be the first candidate, buckets aside? */
static bool alloc_grantable(const struct rmem_alloc_state *alloc, const struct rmem_space *space,
			    const struct rmem_alloc_request *request)
{
	return request->vpn && alloc_in_reach(alloc, request->vpn, request->pages) &&
	       alloc_candidate(space, request->vpn, request->pages) == request->vpn &&
	       rmem_spans_may_add(&space->spans, request->vpn,
				  request->vpn + request->pages + GUARD_PAGES);
}

static bool alloc_permitted(const struct rmem_alloc_state *alloc, const struct rmem_spaces *spaces,
			    const struct rmem_space *space, u64 pages)
{
	if (!alloc->free || pages > alloc->pages - alloc->pages_promised)
		return false;
	if (!rmem_share_permits(alloc->regions_max, alloc->regions_max - alloc->in_use,
				spaces->in_use, space->regions))
		return false;
	return !space->quota_pages || (space->pages_promised <= space->quota_pages &&
				       pages <= space->quota_pages - space->pages_promised);
}

bool rmem_alloc_make(struct rmem_alloc_state *alloc, const struct rmem_spaces *spaces,
		     u32 space_index, const struct rmem_alloc_request *request,
		     struct rmem_alloc_work *work)
{
	const struct rmem_space *space = &spaces->slot[space_index];

	if (!request->pages || !alloc_permitted(alloc, spaces, space, request->pages))
		return false;
	base_zero(work, sizeof(*work));
	work->request = *request;
	work->space_index = space_index;
	if (!alloc_grantable(alloc, space, request))
		work->request.vpn = 0;
	work->vpn = work->request.vpn ?: alloc_candidate(space, 0, request->pages);
	work->stage = RMEM_ALLOC_RESERVING;
	return alloc_in_reach(alloc, work->vpn, request->pages);
}

void rmem_alloc_release(struct rmem_region *region, struct rmem_alloc_work *work)
{
	base_zero(work, sizeof(*work));
	work->region = region;
	work->space_index = region->space_index;
	work->vpn = region->vpn;
	work->stage = RMEM_ALLOC_REMOVING;
}

static void alloc_end(struct rmem_alloc_state *alloc, struct rmem_alloc_work *work)
{
	work->stage = RMEM_ALLOC_ENDED;
	alloc->retries += work->retries;
	if (work->retries > alloc->retries_worst)
		alloc->retries_worst = work->retries;
}

/* All entries are reserved, so the region is certain: from here on it counts. */
static void alloc_region_add(struct rmem_alloc_state *alloc, struct rmem_spaces *spaces,
			     struct rmem_alloc_work *work)
{
	struct rmem_space *space = &spaces->slot[work->space_index];
	struct rmem_region *region = &alloc->region[alloc->free - 1];
	u32 *head = alloc_head_of(alloc, work->space_index, work->vpn);
	/* Candidates that didn't fit, before it in its hole, are passed over for good. */
	u64 begin = work->request.vpn ?: rmem_spans_hole(&space->spans, work->vpn);

	rmem_undo_begin(alloc->undo, &space->spans, sizeof(space->spans));
	rmem_spans_add(&space->spans, begin, work->vpn + work->request.pages + GUARD_PAGES);
	rmem_undo_end(alloc->undo);

	alloc->free = region->next;
	region->pages = work->request.pages;
	region->session = work->request.session;
	region->id = work->request.id;
	region->space_index = work->space_index;
	rmem_undo_order();
	region->vpn = work->vpn;
	rmem_undo_order();
	region->next = *head;
	*head = (u32)(region - alloc->region) + 1;

	space->pages_promised += work->request.pages;
	space->regions++;
	alloc->pages_promised += work->request.pages;
	alloc->in_use++;

	work->region = region;
	work->stage = RMEM_ALLOC_ENTERING;
	work->done = 0;
}

static void alloc_region_drop(struct rmem_alloc_state *alloc, struct rmem_spaces *spaces,
			      struct rmem_region *region)
{
	struct rmem_space *space = &spaces->slot[region->space_index];
	u32 *link = alloc_head_of(alloc, region->space_index, region->vpn);

	while (&alloc->region[*link - 1] != region)
		link = &alloc->region[*link - 1].next;
	*link = region->next;
	rmem_undo_order();
	region->vpn = 0;
	rmem_undo_order();
	region->next = alloc->free;
	alloc->free = (u32)(region - alloc->region) + 1;

	space->pages_promised -= region->pages;
	space->regions--;
	alloc->pages_promised -= region->pages;
	alloc->in_use--;
}

/* The candidate doesn't fit: on to another one, unless there were many or none is left. */
static void alloc_retry(struct rmem_alloc_state *alloc, const struct rmem_spaces *spaces,
			struct rmem_alloc_work *work, u64 vpn)
{
	work->vpn = alloc_candidate(&spaces->slot[work->space_index], vpn, work->request.pages);
	work->done = 0;
	work->stage = RMEM_ALLOC_LOOKING;
	if (++work->retries > RMEM_ALLOC_RETRIES_MAX ||
	    !alloc_in_reach(alloc, work->vpn, work->request.pages))
		alloc_end(alloc, work);
}

/*
 * From the candidate's end, for the next one begins behind the last page without room: full
 * buckets come in rows, and one by one they would be many candidates.
 */
static void alloc_look(struct rmem_alloc_state *alloc, const struct rmem_table *table,
		       const struct rmem_spaces *spaces, struct rmem_alloc_work *work,
		       u64 pages_max)
{
	u64 stop = work->done + base_min(work->request.pages - work->done, pages_max);

	for (; work->done < stop; work->done++) {
		u64 vpn = work->vpn + work->request.pages - 1 - work->done;

		if (!rmem_table_has_room(table, work->space_index, vpn)) {
			alloc_retry(alloc, spaces, work, vpn + 1);
			return;
		}
	}
	if (work->done == work->request.pages) {
		work->done = 0;
		work->stage = RMEM_ALLOC_RESERVING;
	}
}

static void alloc_reserve(struct rmem_alloc_state *alloc, struct rmem_table *table,
			  struct rmem_spaces *spaces, struct rmem_alloc_work *work, u64 pages_max)
{
	u64 pages = base_min(work->request.pages - work->done, pages_max);
	u64 fit = rmem_table_reserve(table, work->space_index, work->vpn + work->done, pages);

	if (fit == pages)
		work->done += pages;
	if (work->done == work->request.pages) {
		alloc_region_add(alloc, spaces, work);
	} else if (fit < pages) {
		/* A wanted place is tried once, then all there are from the first hole on. */
		work->next = work->request.vpn ? 0 : work->vpn + work->done + fit + 1;
		work->request.vpn = 0;
		work->stage = RMEM_ALLOC_RETREATING;
	}
}

static void alloc_retreat(struct rmem_alloc_state *alloc, struct rmem_table *table,
			  const struct rmem_spaces *spaces, struct rmem_alloc_work *work,
			  u64 pages_max)
{
	u64 pages = base_min(work->done, pages_max);

	work->done -= pages;
	rmem_table_unreserve(table, work->space_index, work->vpn + work->done, pages);
	if (!work->done)
		alloc_retry(alloc, spaces, work, work->next);
}

static void alloc_enter(struct rmem_alloc_state *alloc, struct rmem_table *table,
			struct rmem_alloc_work *work, u64 pages_max)
{
	u64 stop = work->done + base_min(work->request.pages - work->done, pages_max);

	for (; work->done < stop; work->done++)
		rmem_table_insert(table, work->space_index, work->vpn + work->done,
				  work->request.perm);
	if (work->done == work->request.pages)
		alloc_end(alloc, work);
}

static void alloc_remove(struct rmem_alloc_state *alloc, struct rmem_table *table,
			 struct rmem_spaces *spaces, struct rmem_pool *pool,
			 struct rmem_alloc_work *work, u64 pages_max)
{
	u64 stop = work->done + base_min(work->region->pages - work->done, pages_max);

	for (; work->done < stop; work->done++) {
		u32 pte = rmem_table_remove(table, work->space_index, work->vpn + work->done);

		if (pte & RMEM_PTE_BACKED)
			rmem_pool_put_dirty(pool, pte & RMEM_PTE_PAGE);
	}
	if (work->done < work->region->pages)
		return;
	alloc_region_drop(alloc, spaces, work->region);
	work->region = NULL;
	work->stage = RMEM_ALLOC_ENDED;
}

bool rmem_alloc_step(struct rmem_alloc_state *alloc, struct rmem_table *table,
		     struct rmem_spaces *spaces, struct rmem_pool *pool,
		     struct rmem_alloc_work *work, u64 pages_max)
{
	switch (work->stage) {
	case RMEM_ALLOC_LOOKING:
		alloc_look(alloc, table, spaces, work, pages_max);
		break;
	case RMEM_ALLOC_RESERVING:
		alloc_reserve(alloc, table, spaces, work, pages_max);
		break;
	case RMEM_ALLOC_RETREATING:
		alloc_retreat(alloc, table, spaces, work, pages_max);
		break;
	case RMEM_ALLOC_ENTERING:
		alloc_enter(alloc, table, work, pages_max);
		break;
	case RMEM_ALLOC_REMOVING:
		alloc_remove(alloc, table, spaces, pool, work, pages_max);
		break;
	case RMEM_ALLOC_ENDED:
		break;
	}
	return work->stage != RMEM_ALLOC_ENDED;
}
