// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/client/window.h"

/* Bounds all arithmetic below to 32 bits: * 1024 still fits. */
#define DELAY_US_MAX 4000000U

/* Swift's beta: how much of the excess is taken back, of 1024. */
#define DECREASE_GAIN 819U

#define DELAY_US_UNKNOWN 1000U

/* Growth where less than a packet per flow makes the queue of an incast: of many a little each. */
#define CROWD_STEP (RMEM_CWND_ONE / 16)

static u32 window_us_of(u64 ns)
{
	u32 us;

	if (ns >= (u64)DELAY_US_MAX * BASE_NSEC_PER_USEC)
		return DELAY_US_MAX;
	us = (u32)ns / (u32)BASE_NSEC_PER_USEC;
	return us ? us : 1;
}

static u32 window_target_us(u64 base_ns)
{
	u64 target_ns = base_ns * RMEM_TARGET_RTTS;

	if (target_ns < RMEM_TARGET_NS_MIN)
		target_ns = RMEM_TARGET_NS_MIN;
	if (target_ns > RMEM_TARGET_NS_MAX)
		target_ns = RMEM_TARGET_NS_MAX;
	return window_us_of(target_ns);
}

void rmem_window_init(struct rmem_window *w, bool fixed)
{
	w->fixed = fixed;
	w->cwnd = fixed ? RMEM_CWND_MAX : RMEM_CWND_START;
	w->in_flight = 0;
	w->answered = 0;
	w->next_send_ns = 0;
	w->decreased_ns = 0;
	w->delay_us = 0;
	w->least_us = ~0U;
	w->period_end_ns = 0;
}

/* Below one packet of window: the time between two sends. */
static u64 window_gap_ns(const struct rmem_window *w, u32 packets)
{
	u32 delay_us = w->delay_us ? w->delay_us : DELAY_US_UNKNOWN;
	u64 gap = (u64)(delay_us * RMEM_CWND_ONE / w->cwnd) * packets * BASE_NSEC_PER_USEC;

	return gap < RMEM_PACE_NS_MAX ? gap : RMEM_PACE_NS_MAX;
}

bool rmem_window_acquire(struct rmem_window *w, u64 now_ns, u32 packets, u64 *until_ns)
{
	*until_ns = 0;
	if (!rmem_window_room(w))
		return false;
	if (w->cwnd < RMEM_CWND_ONE) {
		if (now_ns < w->next_send_ns) {
			*until_ns = w->next_send_ns;
			return false;
		}
		w->next_send_ns = now_ns + window_gap_ns(w, packets);
	}
	w->in_flight += packets;
	return true;
}

void rmem_window_release(struct rmem_window *w, u32 packets)
{
	w->in_flight -= packets;
}

/*
 * One packet more when a window full of them was answered: that's a round trip. fast: one for
 * each answer.
 */
static void window_grow(struct rmem_window *w, u32 packets, bool fast)
{
	/* A window that isn't used says nothing about the path's capacity. */
	if (w->in_flight * RMEM_CWND_ONE < w->cwnd / 2)
		return;
	if (fast) {
		w->cwnd += packets * RMEM_CWND_ONE;
		return;
	}
	w->answered += packets;
	if (w->answered * RMEM_CWND_ONE < w->cwnd || w->cwnd > RMEM_CWND_MAX - RMEM_CWND_ONE)
		return;
	w->answered = 0;
	w->cwnd += w->cwnd < RMEM_CWND_ONE ? CROWD_STEP : RMEM_CWND_ONE;
}

/* By cut / 1024 down to the floor, unless that was done less than every_ns ago. */
static void window_shrink(struct rmem_window *w, u64 now_ns, u64 every_ns, u32 cut, u32 floor)
{
	u32 lesser = w->cwnd - w->cwnd / 1024 * cut - w->cwnd % 1024 * cut / 1024;

	if (w->fixed || w->cwnd <= floor || now_ns < w->decreased_ns + every_ns)
		return;
	w->decreased_ns = now_ns;
	w->cwnd = lesser > floor ? lesser : floor;
}

/*
 * The least delay of a period: a queue that stands shows in every sample, a processor that was
 * late for a moment in some.
 */
static u32 window_filter(struct rmem_window *w, u64 now_ns, u32 sample_us)
{
	if (sample_us < w->least_us)
		w->least_us = sample_us;
	if (now_ns >= w->period_end_ns) {
		w->period_end_ns = now_ns + RMEM_DELAY_PERIOD_NS;
		w->delay_us = w->least_us;
		w->least_us = ~0U;
	} else if (sample_us < w->delay_us) {
		w->delay_us = sample_us;
	}
	return w->delay_us;
}

/*
 * Half as much again for an empty window as for one at the floor: of flows that see one delay the
 * narrower ones grow while the wider ones shrink (Swift's flow scaling).
 */
static u32 window_incast_us(const struct rmem_window *w, u32 target)
{
	u32 us = target * RMEM_TARGETS_INCAST;

	if (us < RMEM_INCAST_US_MIN)
		us = RMEM_INCAST_US_MIN;
	if (w->cwnd < RMEM_CWND_FLOOR)
		us += us / 2 * (RMEM_CWND_FLOOR - w->cwnd) / RMEM_CWND_FLOOR;
	return us;
}

void rmem_window_answered(struct rmem_window *w, u64 now_ns, u32 packets, u64 delay_ns, u64 base_ns)
{
	u32 delay_us = delay_ns ? window_filter(w, now_ns, window_us_of(delay_ns)) : w->delay_us;
	u32 target = window_target_us(base_ns);
	u32 incast = window_incast_us(w, target);
	u32 floor = RMEM_CWND_FLOOR;
	u32 cut;

	if (w->fixed)
		return;
	if (delay_us <= target) {
		window_grow(w, packets, w->cwnd < RMEM_CWND_FLOOR);
		return;
	}
	if (w->cwnd < RMEM_CWND_FLOOR && delay_us <= incast) {
		window_grow(w, packets, false);
		return;
	}
	if (delay_us > incast)
		floor = RMEM_CWND_MIN;
	if (w->cwnd <= RMEM_CWND_FLOOR)
		target = incast;
	if (delay_us <= target)
		return;
	cut = (delay_us - target) * 1024 / delay_us * DECREASE_GAIN / 1024;
	window_shrink(w, now_ns, (u64)delay_us * BASE_NSEC_PER_USEC,
		      cut < RMEM_CWND_DECREASE_MAX ? cut : RMEM_CWND_DECREASE_MAX, floor);
}

void rmem_window_lost(struct rmem_window *w, u64 now_ns, u64 base_ns)
{
	window_shrink(w, now_ns, (u64)w->delay_us * BASE_NSEC_PER_USEC, RMEM_CWND_DECREASE_MAX,
		      w->delay_us > window_target_us(base_ns) ? RMEM_CWND_MIN : RMEM_CWND_FLOOR);
}

void rmem_window_timeout(struct rmem_window *w, u64 now_ns, u64 rto_ns)
{
	window_shrink(w, now_ns, rto_ns, RMEM_CWND_DECREASE_MAX, RMEM_CWND_ONE);
}
