// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/client/loss.h"

void rmem_loss_init(struct rmem_loss *l)
{
	l->newest = 0;
	l->round_trip_ns = 0;
	l->widened_ns = 0;
	l->quarters = 1;
	l->calm = 0;
}

void rmem_loss_answered(struct rmem_loss *l, u64 departure, u64 round_trip_ns)
{
	if (departure <= l->newest)
		return;
	l->newest = departure;
	l->round_trip_ns = round_trip_ns;
}

u64 rmem_loss_window_ns(const struct rmem_loss *l, u64 base_ns, u64 srtt_ns)
{
	u64 window_ns = base_ns / 4 * l->quarters;

	return window_ns < srtt_ns ? window_ns : srtt_ns;
}

void rmem_loss_found(struct rmem_loss *l)
{
	if (l->calm && !--l->calm)
		l->quarters = 1;
}

void rmem_loss_denied(struct rmem_loss *l, u64 now_ns, u64 srtt_ns)
{
	l->calm = RMEM_LOSS_CALM;
	if (now_ns < l->widened_ns + srtt_ns || l->quarters >= RMEM_LOSS_QUARTERS_MAX)
		return;
	l->widened_ns = now_ns;
	l->quarters *= 2;
}
