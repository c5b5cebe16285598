// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/base/bytes.h"
#include "core/marlin/grants.h"
#include "remora/marlin.h"

_Static_assert(MARLIN_TABLE_OFFSET + MARLIN_GRANTS * sizeof(struct marlin_grant) <=
		       MARLIN_RING_OFFSET,
	       "the rings begin there");

/* Epochs have the bits of a word that its state leaves. */
#define GRANTS_EPOCH_MASK (~0ULL >> MARLIN_GRANT_EPOCH_SHIFT)
/* The bits of a copy word that are noted: its index, and as many of its sequence number. */
#define GRANTS_COPY_MASK (~0ULL >> (64 - 2 * MARLIN_COPY_SEQUENCE_SHIFT))

void grants_init(struct grants *grants, struct marlin_grant *table, const u64 *copies,
		 const struct claim_bus *bus, void *context, u64 epoch)
{
	base_zero(grants, sizeof(*grants));
	grants->table = table;
	grants->copies = copies;
	grants->bus = bus;
	grants->context = context;
	grants->epoch = epoch & GRANTS_EPOCH_MASK;
	grants->free_count = MARLIN_GRANTS;
	for (u32 i = 0; i < MARLIN_GRANTS; i++)
		grants->free[i] = (u16)i;
}

static void grants_store(struct grants *grants, void *word, u64 value, u32 bytes)
{
	grants->bus->store(grants->context, word, value, bytes);
}

static void grants_write(struct grants *grants, u32 index)
{
	const struct grants_slot *slot = &grants->slots[index];

	grants_store(grants, &grants->table[index].word, grants_word(slot->epoch, slot->state),
		     sizeof(u64));
}

/* Fields of an entry, but for its word. */
#define GRANTS_FIELDS 6

struct grants_field {
	void *word;
	u64 value;
	u32 bytes;
};

static void grants_fields(struct marlin_grant *entry, const struct grants_range *range,
			  struct grants_field field[GRANTS_FIELDS])
{
	field[0] = (struct grants_field){ &entry->key[0], range->key[0], sizeof(u64) };
	field[1] = (struct grants_field){ &entry->key[1], range->key[1], sizeof(u64) };
	field[2] = (struct grants_field){ &entry->directory, range->directory, sizeof(u64) };
	field[3] = (struct grants_field){ &entry->bytes, range->bytes, sizeof(u64) };
	field[4] = (struct grants_field){ &entry->offset, range->offset, sizeof(u32) };
	field[5] = (struct grants_field){ &entry->rights, range->rights, sizeof(u32) };
}

int grants_add(struct grants *grants, const struct grants_range *range)
{
	struct grants_field field[GRANTS_FIELDS];
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
	grants_fields(entry, range, field);
	for (u32 i = 0; i < GRANTS_FIELDS; i++)
		grants_store(grants, field[i].word, field[i].value, field[i].bytes);
	/* Last: an initiator that finds it live finds the entry as it is. */
	grants_write(grants, index);
	return (int)index;
}

bool grants_has_arrived(struct grants *grants, u32 index, const struct grants_range *range)
{
	struct grants_field field[GRANTS_FIELDS];

	grants_fields(&grants->table[index], range, field);
	grants_pull(grants, index);
	for (u32 i = 0; i < GRANTS_FIELDS && !grants->lost; i++)
		grants->lost = grants->bus->load(grants->context, field[i].word, field[i].bytes) !=
			       field[i].value;
	return !grants->lost;
}

static bool grants_names(u64 copy, u32 index)
{
	return (copy & ((1u << MARLIN_COPY_SEQUENCE_SHIFT) - 1)) == index + 1;
}

void grants_withdraw(struct grants *grants, u32 index)
{
	grants->slots[index].state = MARLIN_GRANT_REVOKED;
	grants_write(grants, index);
}

void grants_pull(struct grants *grants, u32 index)
{
	const struct grants_slot *slot = &grants->slots[index];

	/* Once is enough: without a link each load can take a bus's time limit. */
	if (!grants->lost)
		grants->lost = grants->bus->load(grants->context, &grants->table[index].word,
						 sizeof(u64)) !=
			       grants_word(slot->epoch, slot->state);
}

void grants_note(struct grants *grants, u32 index)
{
	struct grants_slot *slot = &grants->slots[index];

	slot->pending = 0;
	for (u32 i = 0; i < MARLIN_COPIES; i++) {
		u64 copy = base_word_load(&grants->copies[i], sizeof(u64));

		if (!grants_names(copy, index))
			continue;
		slot->pending |= 1u << i;
		slot->seen[i] = (u16)(copy >> MARLIN_COPY_SEQUENCE_SHIFT);
	}
	/* A word that was on its way when the link went is lost, and its copy can go on. */
	slot->blind = grants->lost || grants->bus->epoch(grants->context) != grants->link_epoch;
}

void grants_begin(struct grants *grants, u32 link_epoch)
{
	grants->link_epoch = link_epoch;
	grants->lost = false;
}

void grants_ended(struct grants *grants)
{
	for (u32 i = 0; i < MARLIN_GRANTS; i++) {
		grants->slots[i].pending = 0;
		grants->slots[i].blind = false;
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
	return !slot->pending && !slot->blind;
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

	/* The owner has used no such entry in this session, so the handle is of an earlier one. */
	if (!word)
		return GRANTS_REVOKED;
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
