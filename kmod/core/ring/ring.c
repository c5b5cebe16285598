// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/ring/ring.h"

const char *ring_fault_name(enum ring_fault fault)
{
	static const char *const names[RING_FAULTS] = {
		[RING_OK] = "ok",
		[RING_FAULT_POINTER] = "its pointer ran backwards, or beyond the ring",
		[RING_FAULT_CREDIT] = "its credit ran backwards, or beyond the entries posted",
		[RING_FAULT_WORD] = "an entry is not the one that is due",
		[RING_FAULT_BYTES] = "a record is longer than an entry",
		[RING_FAULT_ABSENT] = "an entry was signalled and is not there",
	};

	return fault < RING_FAULTS ? names[fault] : "unknown";
}

bool ring_shape_is_valid(u32 entries, u32 entry_bytes)
{
	return base_is_pow2(entries) && entries >= RING_ENTRIES_MIN &&
	       entries <= RING_ENTRIES_MAX && entry_bytes && entry_bytes % RING_LINE_BYTES == 0 &&
	       entry_bytes <= RING_ENTRY_BYTES_MAX;
}

void ring_out_init(struct ring_out *out, void *entries, u32 count, u32 entry_bytes,
		   const u32 *credit)
{
	out->entries = (u8 *)entries;
	out->credit = credit;
	out->mask = count - 1;
	out->entry_bytes = entry_bytes;
	out->posted = 0;
	out->freed = 0;
}

void ring_in_init(struct ring_in *in, void *entries, u32 count, u32 entry_bytes, u32 *credit)
{
	in->entries = (u8 *)entries;
	in->credit = credit;
	in->mask = count - 1;
	in->entry_bytes = entry_bytes;
	in->taken = 0;
	in->told = 0;
	in->signalled = 0;
}
