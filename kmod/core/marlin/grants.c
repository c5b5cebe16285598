// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/base/bytes.h"
#include "core/marlin/claim.h"
#include "core/marlin/grants.h"

/* Epochs have the bits of a word that its state leaves. */
#define GRANTS_EPOCH_MASK (~0ULL >> MARLIN_GRANT_EPOCH_SHIFT)
/* The bits of a copy word that are noted: its index, and as many of its sequence number. */
#define GRANTS_COPY_MASK (~0ULL >> (64 - 2 * MARLIN_COPY_SEQUENCE_SHIFT))

void grants_init(struct grants *grants, struct marlin_grant *table, const u64 *copies, u64 epoch)
{
	base_zero(grants, sizeof(*grants));
	grants->table = table;
	grants->copies = copies;
	grants->epoch = epoch & GRANTS_EPOCH_MASK;
	grants->free_count = MARLIN_GRANTS;
	for (u32 i = 0; i < MARLIN_GRANTS; i++)
		grants->free[i] = (u16)i;
}

static void grants_write(struct grants *grants, u32 index)
{
	const struct grants_slot *slot = &grants->slots[index];
	u64 word = grants_word(slot->epoch, slot->state);

	/* Release: whoever reads that it is live reads the entry as it is. */
	__atomic_store_n((u64 *)&grants->table[index].word, base_swap_le64(word),
			 __ATOMIC_RELEASE);
}

int grants_add(struct grants *grants, const struct grants_range *range)
{
	struct grants_slot *slot;
	struct marlin_grant *entry;
	u32 index;

	if (!grants->free_count)
		return -1;
	index = grants->free[grants->free_first];
	grants->free_first = (grants->free_first + 1) % MARLIN_GRANTS;
	grants->free_count--;
	slot = &grants->slots[index];
	entry = &grants->table[index];
	grants->epoch = (grants->epoch + 1) & GRANTS_EPOCH_MASK;
	slot->epoch = grants->epoch;
	slot->state = MARLIN_GRANT_LIVE;
	base_store_le64(&entry->key[0], range->key[0]);
	base_store_le64(&entry->key[1], range->key[1]);
	base_store_le64(&entry->directory, range->directory);
	base_store_le64(&entry->bytes, range->bytes);
	base_store_le32(&entry->offset, range->offset);
	base_store_le32(&entry->rights, range->rights);
	grants_write(grants, index);
	return (int)index;
}

static bool grants_names(u64 copy, u32 index)
{
	return (copy & ((1u << MARLIN_COPY_SEQUENCE_SHIFT) - 1)) == index + 1;
}

void grants_revoke(struct grants *grants, u32 index)
{
	struct grants_slot *slot = &grants->slots[index];

	slot->state = MARLIN_GRANT_REVOKED;
	claim_withdraw(&grants->table[index].word, grants_word(slot->epoch, slot->state),
		       sizeof(u64));
	slot->pending = 0;
	for (u32 i = 0; i < MARLIN_COPIES; i++) {
		u64 copy = claim_word(&grants->copies[i], sizeof(u64));

		if (!grants_names(copy, index))
			continue;
		slot->pending |= 1u << i;
		slot->seen[i] = (u16)(copy >> MARLIN_COPY_SEQUENCE_SHIFT);
	}
}

bool grants_is_quiet(struct grants *grants, u32 index)
{
	struct grants_slot *slot = &grants->slots[index];

	for (u32 i = 0; i < MARLIN_COPIES && slot->pending; i++) {
		u64 noted = grants_copy_word(slot->seen[i], index);

		if (slot->pending >> i & 1 &&
		    claim_is_quiet(&grants->copies[i], noted, GRANTS_COPY_MASK, sizeof(u64)))
			slot->pending &= ~(1u << i);
	}
	return !slot->pending;
}

void grants_end(struct grants *grants, u32 index)
{
	u32 last = (grants->free_first + grants->free_count) % MARLIN_GRANTS;

	/* The word stays: until the entry is used again, the handle is told that it was revoked. */
	grants->slots[index].state = MARLIN_GRANT_FREE;
	grants->free[last] = (u16)index;
	grants->free_count++;
}

enum grants_verdict grants_check(const struct marlin_grant *entry,
				 const struct marlin_handle *handle, u32 rights)
{
	u64 word = base_load_le64(&entry->word);
	u64 bytes = base_load_le64(&entry->bytes);
	u32 offset = base_load_le32(&entry->offset);
	u64 difference = 0;

	/* Both halves, whatever the first says: the time taken tells nothing of the key. */
	for (u32 i = 0; i < 2; i++)
		difference |= base_load_le64(&entry->key[i]) ^ base_load_le64(&handle->key[i]);
	if (word >> MARLIN_GRANT_EPOCH_SHIFT != base_load_le64(&handle->epoch))
		return GRANTS_STALE;
	if (difference)
		return GRANTS_FORGED;
	if ((word & MARLIN_GRANT_STATE_MASK) != MARLIN_GRANT_LIVE)
		return GRANTS_REVOKED;
	if (rights & ~base_load_le32(&entry->rights))
		return GRANTS_RIGHTS;
	/* A doorbell has a queue of numbers, and no pages. */
	if (rights == MARLIN_GRANT_BELL)
		return GRANTS_OK;
	if (offset >= MARLIN_PAGE_BYTES || !bytes ||
	    bytes > (u64)MARLIN_GRANT_PAGES_MAX * MARLIN_PAGE_BYTES ||
	    grants_pages(offset, bytes) > MARLIN_GRANT_PAGES_MAX)
		return GRANTS_BROKEN;
	return GRANTS_OK;
}
