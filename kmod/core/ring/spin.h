/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * How long an end looks at its rings before it sleeps (Orca, HPCA'23, III-B watches by hardware):
 *
 *   traffic   |        |     |    |                              |
 *             '--gap---'     '----'-- looks for twice the gap --> sleeps: one bell
 *
 * The gap is smoothed over some events. Looking pays while the next event is likely to come within
 * the bound; an end whose traffic is rarer sleeps at once. So an idle end looks for at most the
 * bound, once.
 */
#ifndef REMORA_RING_SPIN_H
#define REMORA_RING_SPIN_H

#include "core/base/types.h"

/* A new gap's weight in the mean: a change of the traffic shows after a few events. */
#define RING_SPIN_SHIFT 2

struct ring_spin {
	u64 last_ns; /* the last event; 0: none yet */
	u64 gap_ns;  /* smoothed */
};

/*
 * Records came, or were sent. Returns how long to look for the next from now on, max_ns at most; 0:
 * not at all.
 */
static inline u64 ring_spin_event(struct ring_spin *spin, u64 now_ns, u64 max_ns)
{
	u64 gap_ns = spin->last_ns ? now_ns - spin->last_ns : 2 * max_ns;

	/* A long rest counts as twice what can be looked for: it's forgotten after a few events. */
	if (gap_ns > 2 * max_ns)
		gap_ns = 2 * max_ns;
	if (spin->gap_ns > 2 * max_ns || !spin->last_ns)
		spin->gap_ns = 2 * max_ns;
	spin->last_ns = now_ns;
	spin->gap_ns -= spin->gap_ns >> RING_SPIN_SHIFT;
	spin->gap_ns += gap_ns >> RING_SPIN_SHIFT;
	if (spin->gap_ns > max_ns)
		return 0;
	return 2 * spin->gap_ns < max_ns ? 2 * spin->gap_ns : max_ns;
}

#endif
