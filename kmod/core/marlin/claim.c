// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/marlin/claim.h"

static u64 claim_permit(const struct claim *claim, const struct claim_bus *bus, void *context)
{
	/* The link might have lost the word, be it up again, and the epoch as it was. */
	if (claim->late && bus->load(context, claim->word, claim->bytes) != claim->value)
		return claim_nothing(claim->bytes);
	if (!claim->mirrored)
		return bus->load(context, claim->permit, claim->bytes);
	/* The claim word has left before: the owner's load, behind its store, pushes it. */
	base_fence();
	return base_word_load(claim->permit, claim->bytes);
}

enum claim_verdict claim_begin(const struct claim *claim, const struct claim_bus *bus,
			       void *context)
{
	u64 permit;

	bus->store(context, claim->word, claim->value, claim->bytes);
	permit = claim_permit(claim, bus, context);
	if (permit == claim->permitted && bus->epoch(context) == claim->epoch)
		return CLAIM_OK;
	bus->store(context, claim->word, 0, claim->bytes);
	base_fence(); /* the caller gives the word to another copy: this store leaves before */
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

bool claim_is_sent(const struct claim *claim, const struct claim_bus *bus, void *context)
{
	base_fence(); /* the stores have left */
	return bus->epoch(context) == claim->epoch;
}

void claim_end(const struct claim *claim, const struct claim_bus *bus, void *context)
{
	bus->store(context, claim->word, 0, claim->bytes);
	if (!claim->mirrored)
		base_fence(); /* as in claim_begin(); of a mirrored permit, in claim_is_awaited() */
}

bool claim_is_awaited(const struct claim *claim)
{
	base_fence(); /* as in claim_permit(), of the claim's end */
	return base_word_load(claim->permit, claim->bytes) != claim->permitted;
}
