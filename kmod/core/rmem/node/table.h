/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The page table: one flat hash table over all spaces, which never overflows
 * (Clio, ASPLOS'22, section 4.2). A translation reads exactly one bucket.
 *
 *      space, virtual page --hash--> bucket of 16 entries
 *
 *      +--------+--------+- -+---------+ +-------+-- -+--------+
 *      | key 0  | key 1  |   | key 15  | | pte 0 |    | pte 15 |    192 bytes
 *      +--------+--------+- -+---------+ +-------+-- -+--------+
 *        vpn:48 | space:16                 flags:4 | page:28
 *
 * There are twice as many entries as pages, or up to four times for the power
 * of two. Consecutive pages go to consecutive buckets, beginning at a place
 * that the seed makes unforeseeable: so a range of any length loads all the
 * buckets it meets alike, and one region can take nearly all memory.
 *
 * A page's life in the table:
 *
 *      none --insert--> allocated --back (first write)--> backed --remove--> none
 *                           ^-------- unback (DISCARD, ZERO) ---'
 *
 * Locking: reserve, insert and remove are the slow path's, one at a time; find, back
 * and unback can run anywhere at any moment, without a lock.
 *
 * Invariants:
 *   - a bucket never holds more than its 16 entries: an address range is given out only
 *     after all its entries are reserved;
 *   - a key is removed once and never inserted again (addresses aren't given out twice, and a
 *     deleted space's readers are waited for), so a key seen before and after its
 *     pte was read belongs to that pte;
 *   - a page is in one entry at most, and leaves it by the exchange of one caller.
 */
#ifndef REMORA_RMEM_TABLE_H
#define REMORA_RMEM_TABLE_H

#include "core/base/types.h"

#define RMEM_BUCKET_ENTRIES 16
#define RMEM_TABLE_SPACES_MAX 65536U /* as many as a key has room for */

#define RMEM_PTE_ALLOCATED 0x80000000U
#define RMEM_PTE_BACKED 0x40000000U
#define RMEM_PTE_WRITE 0x20000000U
#define RMEM_PTE_READ 0x10000000U
#define RMEM_PTE_PAGE 0x0fffffffU

#define RMEM_TABLE_PAGES_MAX (1U << 28)

struct rmem_bucket {
	u64 key[RMEM_BUCKET_ENTRIES];
	u32 pte[RMEM_BUCKET_ENTRIES];
} __attribute__((aligned(64)));

struct rmem_table {
	struct rmem_bucket *bucket;
	u64 mask; /* buckets - 1 */
	unsigned int shift;
	u64 seed[2];
	u8 *load; /* entries reserved per bucket; the slow path's */
};

size_t rmem_table_bytes(u64 pages);
void rmem_table_init(struct rmem_table *table, void *memory, u64 pages, const u64 seed[2]);

/*
 * For a table that outlives its process (store.h). locate: where it is now. drop: removes a page's
 * entry, which can lack its pte, or be missing. recount: the loads anew, from
 * the entries; backed() is called for each page in one. Returns the number of entries.
 */
void rmem_table_locate(struct rmem_table *table, void *memory, u64 pages);
void rmem_table_drop(struct rmem_table *table, u32 space_index, u64 vpn);
u64 rmem_table_recount(struct rmem_table *table, void (*backed)(void *of, u32 page), void *of);

/* Where a translation was found. */
struct rmem_entry {
	u64 key;
	const u64 *key_at;
	u32 *pte_at;
};

/* The pte of a page, or 0: not allocated. */
u32 rmem_table_find(const struct rmem_table *table, u32 space_index, u64 vpn,
		    struct rmem_entry *entry);

/*
 * Put a zeroed page into an entry whose pte was read as seen, not backed. Returns
 * the pte the address has then: backed by this page, or by another that a request put there first,
 * or 0 if it was freed. *placed: the table has the page, else the caller still. (Freed and placed
 * is possible: another address got the entry meanwhile, and a zeroed page with it, which it can't
 * tell from none.)
 */
u32 rmem_table_back(const struct rmem_entry *entry, u32 seen, u32 page, bool *placed);

/* Take the page out of an entry whose pte was read as seen, backed. True: it's the caller's. */
bool rmem_table_unback(const struct rmem_entry *entry, u32 seen);

/* Could an entry of that page be reserved? */
bool rmem_table_has_room(const struct rmem_table *table, u32 space_index, u64 vpn);

/*
 * Reserve the entries of a range. Returns pages, or n < pages when the n-th of them has
 * no room: nothing is reserved then.
 */
u64 rmem_table_reserve(struct rmem_table *table, u32 space_index, u64 vpn, u64 pages);

/* Give back entries that are reserved and not entered. */
void rmem_table_unreserve(struct rmem_table *table, u32 space_index, u64 vpn, u64 pages);

/* Enter one page of a reserved range, with RMEM_PTE_READ and _WRITE as permitted. */
void rmem_table_insert(struct rmem_table *table, u32 space_index, u64 vpn, u32 perm);

/* Remove an entered page. Its last pte: if backed, the page is the caller's. */
u32 rmem_table_remove(struct rmem_table *table, u32 space_index, u64 vpn);

#endif
