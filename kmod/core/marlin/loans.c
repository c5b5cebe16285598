// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/marlin/claim.h"
#include "core/marlin/loans.h"

static void loans_write(struct loans *loans, u32 number, u32 epoch)
{
	base_word_store(&loans->lent[number], epoch, sizeof(u32));
}

void loans_place(struct loans *loans, u32 *lent, const u32 *copies)
{
	loans->lent = lent;
	loans->copies = copies;
	for (u32 i = 0; i < MARLIN_LOANS; i++)
		if ((loans->used & ~loans->taken) >> i & 1)
			loans_write(loans, i, loans->epochs[i]);
}

int loans_lend(struct loans *loans, u32 epoch)
{
	u32 number;

	if (!~loans->used)
		return -1;
	number = (u32)__builtin_ctzll(~loans->used);
	loans->used |= 1ULL << number;
	loans->epochs[number] = epoch;
	loans_write(loans, number, epoch);
	return (int)number;
}

bool loans_has(const struct loans *loans, u32 number, u32 epoch)
{
	return number < MARLIN_LOANS && loans->used >> number & 1 &&
	       loans->epochs[number] == epoch;
}

void loans_take_back(struct loans *loans, u32 number)
{
	loans->taken |= 1ULL << number;
	claim_withdraw(&loans->lent[number], 0, sizeof(u32));
}

bool loans_is_quiet(const struct loans *loans, u32 number)
{
	return claim_is_quiet(&loans->copies[number], loans->epochs[number], ~0U, sizeof(u32));
}

void loans_end(struct loans *loans, u32 number)
{
	loans->used &= ~(1ULL << number);
	loans->taken &= ~(1ULL << number);
}
