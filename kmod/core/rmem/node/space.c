// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/node/space.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"

static u32 space_heads_for(u32 slots)
{
	return base_pow2_ceil(slots);
}

size_t rmem_spaces_bytes(u32 slots)
{
	return slots * sizeof(struct rmem_space) + space_heads_for(slots) * sizeof(u32);
}

void rmem_spaces_locate(struct rmem_spaces *spaces, void *memory, u32 slots)
{
	spaces->slot = memory;
	spaces->head = (u32 *)(spaces->slot + slots);
}

void rmem_spaces_init(struct rmem_spaces *spaces, void *memory, u32 slots)
{
	base_zero(memory, rmem_spaces_bytes(slots));
	rmem_spaces_locate(spaces, memory, slots);
	spaces->mask = space_heads_for(slots) - 1;
	spaces->slots = slots;
	spaces->in_use = 0;
	spaces->incarnations = 0;
}

static u32 *space_head_of(const struct rmem_spaces *spaces, u32 id)
{
	return &spaces->head[base_mix64(id) & spaces->mask];
}

struct rmem_space *rmem_spaces_find(const struct rmem_spaces *spaces, u32 id)
{
	/* Pairs with rmem_spaces_add(): a slot is filled in before it is linked. */
	u32 at = __atomic_load_n(space_head_of(spaces, id), __ATOMIC_ACQUIRE);
	u32 steps;

	/* Bounded, should a slot change chains while we stand on it. */
	for (steps = 0; at && steps < spaces->slots; steps++) {
		struct rmem_space *space = &spaces->slot[at - 1];

		if (__atomic_load_n(&space->id, __ATOMIC_ACQUIRE) == id)
			return space;
		at = __atomic_load_n(&space->next, __ATOMIC_ACQUIRE);
	}
	return NULL;
}

static struct rmem_space *space_free_slot(const struct rmem_spaces *spaces)
{
	u32 n;

	for (n = 0; n < spaces->slots; n++)
		if (!spaces->slot[n].id)
			return &spaces->slot[n];
	return NULL;
}

void rmem_spaces_rebuild(struct rmem_spaces *spaces)
{
	u32 n;

	base_zero(spaces->head, (spaces->mask + 1) * sizeof(*spaces->head));
	spaces->in_use = 0;
	for (n = 0; n < spaces->slots; n++)
		spaces->slot[n].views = 0;
	for (n = 0; n < spaces->slots; n++) {
		struct rmem_space *space = &spaces->slot[n];
		u32 *head = space_head_of(spaces, space->id);

		if (!space->id)
			continue;
		space->next = *head;
		*head = n + 1;
		spaces->in_use++;
		if (space->base)
			spaces->slot[space->base - 1].views++;
	}
}

/* seen: the space that it is a view or member of, or NULL. */
static enum rmem_space_error space_add(struct rmem_spaces *spaces, u32 id,
				       const u8 key[BASE_SIPHASH_KEY_BYTES], u64 quota_pages,
				       struct rmem_space *seen, bool member)
{
	u32 *head = space_head_of(spaces, id);
	struct rmem_space *space;

	if (!id)
		return RMEM_SPACE_INVALID;
	if (rmem_spaces_find(spaces, id))
		return RMEM_SPACE_EXISTS;
	space = space_free_slot(spaces);
	if (!space)
		return RMEM_SPACE_FULL;
	base_siphash_key_load(&space->key, key);
	rmem_spans_init(&space->spans, RMEM_SPACE_FIRST_VPN);
	space->quota_pages = quota_pages;
	space->pages_promised = 0;
	space->regions = 0;
	/* Or the other space's memory would travel in the clear. */
	space->required = seen ? seen->required : 0;
	space->base = seen ? (u32)(seen - spaces->slot) + 1 : 0;
	space->member = member;
	__atomic_store_n(&space->revoked, false, __ATOMIC_RELAXED);
	space->views = 0;
	space->calls_ns = 0;
	base_zero(&space->traffic, sizeof(space->traffic));
	__atomic_store_n(&space->incarnation, ++spaces->incarnations, __ATOMIC_RELAXED);
	__atomic_store_n(&space->next, *head, __ATOMIC_RELAXED);
	__atomic_store_n(&space->id, id, __ATOMIC_RELEASE);
	/* Pairs with rmem_spaces_find(). */
	__atomic_store_n(head, (u32)(space - spaces->slot) + 1, __ATOMIC_RELEASE);
	__atomic_fetch_add(&spaces->in_use, 1, __ATOMIC_RELAXED);
	if (seen)
		seen->views++;
	return RMEM_SPACE_OK;
}

enum rmem_space_error rmem_spaces_add(struct rmem_spaces *spaces, u32 id,
				      const u8 key[BASE_SIPHASH_KEY_BYTES], u64 quota_pages)
{
	return space_add(spaces, id, key, quota_pages, NULL, false);
}

static bool space_same_key(const struct base_siphash_key *a, const u8 b[BASE_SIPHASH_KEY_BYTES])
{
	return a->k[0] == base_load_le64(b) && a->k[1] == base_load_le64(b + 8);
}

/*
 * True if another client of the base has the key. A reader with it could write, and a revoked
 * client could go on. Views can share one: it gives them nothing more.
 */
static bool space_key_is_taken(const struct rmem_spaces *spaces, const struct rmem_space *base,
			       const u8 key[BASE_SIPHASH_KEY_BYTES], bool member)
{
	u32 n;

	for (n = 0; n < spaces->slots; n++) {
		const struct rmem_space *other = &spaces->slot[n];

		if (other->id && (other == base || (other->base == base - spaces->slot + 1 &&
						    (member || other->member))) &&
		    space_same_key(&other->key, key))
			return true;
	}
	return false;
}

enum rmem_space_error rmem_spaces_add_view(struct rmem_spaces *spaces, u32 id,
					   const u8 key[BASE_SIPHASH_KEY_BYTES], u32 base,
					   bool member)
{
	struct rmem_space *seen = base ? rmem_spaces_find(spaces, base) : NULL;

	if (!seen)
		return RMEM_SPACE_NO_BASE;
	if (seen->base)
		return RMEM_SPACE_IS_VIEW;
	if (space_key_is_taken(spaces, seen, key, member))
		return RMEM_SPACE_SAME_KEY;
	return space_add(spaces, id, key, 0, seen, member);
}

void rmem_spaces_wipe(struct rmem_spaces *spaces)
{
	u32 n;

	for (n = 0; n < spaces->slots; n++)
		if (!spaces->slot[n].id || rmem_space_is_revoked(&spaces->slot[n]))
			base_zero(&spaces->slot[n].key, sizeof(spaces->slot[n].key));
}

enum rmem_space_error rmem_spaces_del(struct rmem_spaces *spaces, u32 id)
{
	struct rmem_space *space = id ? rmem_spaces_find(spaces, id) : NULL;
	u32 *link = space_head_of(spaces, id);

	if (!space)
		return RMEM_SPACE_UNKNOWN;
	if (space->views)
		return RMEM_SPACE_VIEWED;
	if (space->regions)
		return RMEM_SPACE_BUSY;
	while (&spaces->slot[*link - 1] != space)
		link = &spaces->slot[*link - 1].next;
	/* Keep its link: a lockless reader at this slot must still reach the rest of the chain. */
	__atomic_store_n(link, space->next, __ATOMIC_RELEASE);
	__atomic_store_n(&space->id, 0, __ATOMIC_RELEASE);
	if (space->base)
		spaces->slot[space->base - 1].views--;
	__atomic_fetch_sub(&spaces->in_use, 1, __ATOMIC_RELAXED);
	return RMEM_SPACE_OK;
}

enum rmem_space_error rmem_spaces_revoke(struct rmem_spaces *spaces, u32 id)
{
	struct rmem_space *space = id ? rmem_spaces_find(spaces, id) : NULL;

	if (!space)
		return RMEM_SPACE_UNKNOWN;
	if (space->base)
		return rmem_spaces_del(spaces, id);
	if (rmem_space_is_revoked(space))
		return RMEM_SPACE_REVOKED;
	__atomic_store_n(&space->revoked, true, __ATOMIC_RELAXED);
	return RMEM_SPACE_OK;
}

u32 rmem_spaces_base(const struct rmem_spaces *spaces, const struct rmem_space *space)
{
	return space->base ? spaces->slot[space->base - 1].id : 0;
}

void rmem_spaces_place(const struct rmem_spaces *spaces, const struct rmem_space *space,
		       struct rmem_place *place)
{
	place->space = space->id;
	place->index = space - spaces->slot;
	place->memory = space->base ? space->base - 1 : place->index;
	place->read_only = space->base && !space->member;
	place->incarnation = space->incarnation;
}

bool rmem_spaces_has(const struct rmem_spaces *spaces, const struct rmem_place *place)
{
	const struct rmem_space *space = &spaces->slot[place->index];

	/* Pairs with rmem_spaces_add(): incarnation before id. */
	return __atomic_load_n(&space->id, __ATOMIC_ACQUIRE) == place->space &&
	       __atomic_load_n(&space->incarnation, __ATOMIC_RELAXED) == place->incarnation;
}
