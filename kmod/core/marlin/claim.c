// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/marlin/claim.h"

enum claim_verdict claim_begin(const struct claim *claim, const struct claim_bus *bus,
			       void *context)
{
	u64 permit;

	bus->store(context, claim->word, claim->value, claim->bytes);
	permit = bus->load(context, claim->permit, claim->bytes);
	if (permit == claim->permitted && bus->epoch(context) == claim->epoch)
		return CLAIM_OK;
	bus->store(context, claim->word, 0, claim->bytes);
	/* The owner might wait already: the load pushes the store. */
	permit = bus->load(context, claim->permit, claim->bytes);
	if (claim_is_nothing(permit, claim->bytes) || bus->epoch(context) != claim->epoch)
		return CLAIM_LOST;
	return CLAIM_REFUSED;
}

bool claim_is_whole(const struct claim *claim, const struct claim_bus *bus, void *context)
{
	/* The load's completion comes after the copy's stores, and the epoch after both. */
	return bus->load(context, claim->word, claim->bytes) == claim->value &&
	       bus->epoch(context) == claim->epoch;
}

bool claim_end(const struct claim *claim, const struct claim_bus *bus, void *context)
{
	bus->store(context, claim->word, 0, claim->bytes);
	return bus->load(context, claim->permit, claim->bytes) == claim->permitted;
}

void claim_withdraw(void *permit, u64 value, u32 bytes)
{
	if (bytes == sizeof(u32))
		__atomic_store_n((u32 *)permit, base_swap_le32((u32)value), __ATOMIC_RELEASE);
	else
		__atomic_store_n((u64 *)permit, base_swap_le64(value), __ATOMIC_RELEASE);
	/* Pairs with claim_begin(), whose store is done before its load. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

u64 claim_word(const void *word, u32 bytes)
{
	if (bytes == sizeof(u32))
		return base_swap_le32(__atomic_load_n((const u32 *)word, __ATOMIC_ACQUIRE));
	return base_swap_le64(__atomic_load_n((const u64 *)word, __ATOMIC_ACQUIRE));
}
