// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/node/table.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/rmem/node/undo.h"

#define ENTRIES_PER_PAGE 2
#define KEY_SPACE_BITS 16

static u64 table_buckets_for(u64 pages)
{
	return base_pow2_ceil((pages * ENTRIES_PER_PAGE + RMEM_BUCKET_ENTRIES - 1) /
			      RMEM_BUCKET_ENTRIES);
}

size_t rmem_table_bytes(u64 pages)
{
	return table_buckets_for(pages) * (sizeof(struct rmem_bucket) + sizeof(u8));
}

void rmem_table_locate(struct rmem_table *table, void *memory, u64 pages)
{
	u64 buckets = table_buckets_for(pages);

	table->bucket = memory;
	table->load = (u8 *)(table->bucket + buckets);
	table->mask = buckets - 1;
	table->shift = base_pow2_log(buckets);
}

void rmem_table_init(struct rmem_table *table, void *memory, u64 pages, const u64 seed[2])
{
	base_zero(memory, rmem_table_bytes(pages));
	rmem_table_locate(table, memory, pages);
	table->seed[0] = seed[0];
	table->seed[1] = seed[1];
}

/* The vpn is given out, so neither it nor the key is 0: 0 marks a free entry. */
static u64 table_key_of(u32 space_index, u64 vpn)
{
	return vpn << KEY_SPACE_BITS | space_index;
}

/* A run of as many pages as there are buckets, aligned, meets each once, in turn. */
static u64 table_bucket_of(const struct rmem_table *table, u32 space_index, u64 vpn)
{
	u64 run = table_key_of(space_index, vpn >> table->shift);

	return (base_mix64(base_mix64(run ^ table->seed[0]) ^ table->seed[1]) + vpn) & table->mask;
}

/* Does the pte that was read after key_at belong to the entry's key? */
static bool table_still_there(const struct rmem_entry *entry)
{
	return __atomic_load_n(entry->key_at, __ATOMIC_RELAXED) == entry->key;
}

u32 rmem_table_find(const struct rmem_table *table, u32 space_index, u64 vpn,
		    struct rmem_entry *entry)
{
	struct rmem_bucket *bucket = &table->bucket[table_bucket_of(table, space_index, vpn)];
	u64 key = table_key_of(space_index, vpn);
	int n;

	/* The first space's key of page 0 is that of free entries, also while they're filled in. */
	if (!vpn)
		return 0;
	for (n = 0; n < RMEM_BUCKET_ENTRIES; n++) {
		u32 pte;

		/* Pairs with rmem_table_insert(): pte before key. */
		if (__atomic_load_n(&bucket->key[n], __ATOMIC_ACQUIRE) != key)
			continue;
		entry->key = key;
		entry->key_at = &bucket->key[n];
		entry->pte_at = &bucket->pte[n];
		/*
		 * Pairs with rmem_table_insert(): if this is the pte of a page that
		 * took the entry over, then the old key is seen to be gone below. And with
		 * rmem_table_back(): a page is seen zeroed.
		 */
		pte = __atomic_load_n(entry->pte_at, __ATOMIC_ACQUIRE);
		return table_still_there(entry) ? pte : 0;
	}
	return 0;
}

u32 rmem_table_back(const struct rmem_entry *entry, u32 seen, u32 page, bool *placed)
{
	u32 backed = seen | RMEM_PTE_BACKED | page;

	/*
	 * Release pairs with rmem_table_find(): the page is zeroed. Acquire pairs with
	 * rmem_table_insert(), as in find.
	 */
	*placed = __atomic_compare_exchange_n(entry->pte_at, &seen, backed, false,
					      __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	if (!table_still_there(entry))
		return 0;
	return *placed ? backed : seen;
}

/*
 * The entry needs no second look at the key: a page in hand of a request isn't
 * used again before that ends, so a pte with this page is the one that was seen.
 */
bool rmem_table_unback(const struct rmem_entry *entry, u32 seen)
{
	return __atomic_compare_exchange_n(entry->pte_at, &seen,
					   seen & ~(RMEM_PTE_BACKED | RMEM_PTE_PAGE), false,
					   __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

bool rmem_table_has_room(const struct rmem_table *table, u32 space_index, u64 vpn)
{
	return table->load[table_bucket_of(table, space_index, vpn)] < RMEM_BUCKET_ENTRIES;
}

u64 rmem_table_reserve(struct rmem_table *table, u32 space_index, u64 vpn, u64 pages)
{
	u64 n;

	for (n = 0; n < pages; n++) {
		u8 *load = &table->load[table_bucket_of(table, space_index, vpn + n)];

		if (*load == RMEM_BUCKET_ENTRIES)
			break;
		++*load;
	}
	if (n < pages)
		rmem_table_unreserve(table, space_index, vpn, n);
	return n;
}

void rmem_table_unreserve(struct rmem_table *table, u32 space_index, u64 vpn, u64 pages)
{
	u64 n;

	for (n = 0; n < pages; n++)
		table->load[table_bucket_of(table, space_index, vpn + n)]--;
}

void rmem_table_insert(struct rmem_table *table, u32 space_index, u64 vpn, u32 perm)
{
	struct rmem_bucket *bucket = &table->bucket[table_bucket_of(table, space_index, vpn)];
	int n = 0;

	while (bucket->key[n])
		n++; /* ends: the entry is reserved */
	/*
	 * Both pair with rmem_table_find(): a reader that sees this pte also sees the old key
	 * removed, and one that sees the new key also sees this pte.
	 */
	__atomic_store_n(&bucket->pte[n], RMEM_PTE_ALLOCATED | perm, __ATOMIC_RELEASE);
	__atomic_store_n(&bucket->key[n], table_key_of(space_index, vpn), __ATOMIC_RELEASE);
}

u32 rmem_table_remove(struct rmem_table *table, u32 space_index, u64 vpn)
{
	u64 at = table_bucket_of(table, space_index, vpn);
	struct rmem_bucket *bucket = &table->bucket[at];
	u64 key = table_key_of(space_index, vpn);
	int n = 0;
	u32 pte;

	while (bucket->key[n] != key)
		n++; /* ends: the page was entered */
	pte = __atomic_exchange_n(&bucket->pte[n], 0, __ATOMIC_ACQ_REL);
	rmem_undo_order();
	/* The next pte stored here is released after this: see rmem_table_insert(). */
	__atomic_store_n(&bucket->key[n], 0, __ATOMIC_RELAXED);
	table->load[at]--;
	return pte;
}

void rmem_table_drop(struct rmem_table *table, u32 space_index, u64 vpn)
{
	struct rmem_bucket *bucket = &table->bucket[table_bucket_of(table, space_index, vpn)];
	u64 key = table_key_of(space_index, vpn);
	int n;

	for (n = 0; n < RMEM_BUCKET_ENTRIES; n++) {
		if (bucket->key[n] != key)
			continue;
		bucket->pte[n] = 0;
		rmem_undo_order();
		bucket->key[n] = 0;
		return;
	}
}

u64 rmem_table_recount(struct rmem_table *table, void (*backed)(void *of, u32 page), void *of)
{
	u64 entries = 0, at;
	int n;

	for (at = 0; at <= table->mask; at++) {
		const struct rmem_bucket *bucket = &table->bucket[at];

		table->load[at] = 0;
		for (n = 0; n < RMEM_BUCKET_ENTRIES; n++) {
			if (!bucket->key[n])
				continue;
			table->load[at]++;
			entries++;
			if (bucket->pte[n] & RMEM_PTE_BACKED)
				backed(of, bucket->pte[n] & RMEM_PTE_PAGE);
		}
	}
	return entries;
}
