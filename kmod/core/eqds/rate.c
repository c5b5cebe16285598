// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/rate.h"

#include "core/base/bytes.h"

#define RATE_GAIN_SHIFT 4U
#define RATE_STEP (EQDS_RATE_ONE / 32)

void eqds_rate_init(struct eqds_rate *rate, u64 late_ns)
{
	base_zero(rate, sizeof(*rate));
	rate->late_16ns = late_ns / 16 < ~0U ? (u32)(late_ns / 16) : ~0U;
	rate->share = EQDS_RATE_ONE;
	rate->alpha = EQDS_RATE_ONE; /* the first sign of congestion counts in full */
}

/* Is this packet's delay more than late above the least one? */
static bool rate_is_late(struct eqds_rate *rate, u64 now_ns, u32 stamp)
{
	u32 difference = (u32)(now_ns / 16) - stamp;

	if (!rate->late_16ns || !stamp)
		return false;
	if (!rate->has_base)
		rate->base = difference;
	if (!rate->has_base || rate->base_fresh)
		rate->base_next = difference;
	rate->has_base = true;
	rate->base_fresh = false;
	if ((s32)(difference - rate->base) < 0)
		rate->base = difference;
	if ((s32)(difference - rate->base_next) < 0)
		rate->base_next = difference;
	return difference - rate->base > rate->late_16ns;
}

static void rate_end_round(struct eqds_rate *rate)
{
	u32 fraction = (u32)((u64)rate->marked * EQDS_RATE_ONE / rate->packets);

	if (rate->marked) {
		rate->share -= (u32)((u64)rate->share * rate->alpha / EQDS_RATE_ONE / 2);
		if (rate->share < EQDS_RATE_MIN)
			rate->share = EQDS_RATE_MIN;
	} else {
		rate->share += RATE_STEP;
		if (rate->share > EQDS_RATE_ONE)
			rate->share = EQDS_RATE_ONE;
	}
	rate->alpha -= rate->alpha >> RATE_GAIN_SHIFT;
	rate->alpha += fraction >> RATE_GAIN_SHIFT;
	if (rate->alpha > EQDS_RATE_ONE)
		rate->alpha = EQDS_RATE_ONE;
	rate->packets = 0;
	rate->marked = 0;
	if (rate->has_base && ++rate->base_rounds == EQDS_RATE_BASE_ROUNDS) {
		rate->base = rate->base_next;
		rate->base_fresh = true;
		rate->base_rounds = 0;
	}
}

void eqds_rate_arrived(struct eqds_rate *rate, u64 now_ns, u32 window_bytes, u32 bytes, bool ce,
		       u32 stamp)
{
	if (!rate->packets)
		rate->round_bytes = window_bytes;
	rate->packets++;
	if (rate_is_late(rate, now_ns, stamp) || ce)
		rate->marked++;
	if (bytes < rate->round_bytes)
		rate->round_bytes -= bytes;
	else
		rate_end_round(rate);
}

bool eqds_rate_turn(struct eqds_rate *rate)
{
	rate->turn += rate->share;
	if (rate->turn < EQDS_RATE_ONE)
		return false;
	rate->turn -= EQDS_RATE_ONE;
	return true;
}
