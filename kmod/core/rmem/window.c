// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/window.h"

/* Bounds all arithmetic below to 32 bits: * 1024 still fits. */
#define DELAY_US_MAX 4000000U

/* Swift's beta: how much of the excess is taken back, of 1024. */
#define DECREASE_GAIN 819U

#define DELAY_US_UNKNOWN 1000U

#define load(p)		 __atomic_load_n((p), __ATOMIC_RELAXED)
#define store(p, x)	 __atomic_store_n((p), (x), __ATOMIC_RELAXED)
#define load_in_order(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)

static u32 us_of(u64 ns)
{
	u32 us;

	if (ns >= (u64)DELAY_US_MAX * BASE_NSEC_PER_USEC)
		return DELAY_US_MAX;
	us = (u32)ns / (u32)BASE_NSEC_PER_USEC;
	return us ? us : 1;
}

static u32 target_us(u64 base_ns)
{
	u64 target_ns = base_ns * RMEM_TARGET_RTTS;

	if (target_ns < RMEM_TARGET_NS_MIN)
		target_ns = RMEM_TARGET_NS_MIN;
	if (target_ns > RMEM_TARGET_NS_MAX)
		target_ns = RMEM_TARGET_NS_MAX;
	return us_of(target_ns);
}

void rmem_window_init(struct rmem_window *w)
{
	w->cwnd = RMEM_CWND_START;
	w->in_flight = 0;
	w->answered = 0;
	w->waiters = 0;
	w->next_send_ns = 0;
	w->decreased_ns = 0;
	w->delay_us = 0;
	w->least_us = ~0U;
	w->period_end_ns = 0;
}

/* Below one packet of window: the time between two sends. */
static u64 gap_ns(const struct rmem_window *w, u32 cwnd, u32 packets)
{
	u32 delay_us = load(&w->delay_us);
	u64 gap;

	if (!delay_us)
		delay_us = DELAY_US_UNKNOWN;
	gap = (u64)(delay_us * RMEM_CWND_ONE / cwnd) * packets * BASE_NSEC_PER_USEC;
	return gap < RMEM_PACE_NS_MAX ? gap : RMEM_PACE_NS_MAX;
}

/* in_flight is read before cwnd: whoever makes cwnd larger gives credit back afterwards. */
static bool is_full(const struct rmem_window *w, u32 in_flight)
{
	return in_flight * RMEM_CWND_ONE >= load(&w->cwnd);
}

bool rmem_window_acquire(struct rmem_window *w, u64 now_ns, u32 packets, u64 *until_ns)
{
	u32 in_flight = load_in_order(&w->in_flight);
	u32 cwnd;

	*until_ns = 0;
	do {
		if (is_full(w, in_flight))
			return false;
		cwnd = load(&w->cwnd);
		if (cwnd < RMEM_CWND_ONE && now_ns < load(&w->next_send_ns)) {
			*until_ns = load(&w->next_send_ns);
			return false;
		}
	} while (!__atomic_compare_exchange_n(&w->in_flight, &in_flight, in_flight + packets, false,
					      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	if (cwnd < RMEM_CWND_ONE)
		store(&w->next_send_ns, now_ns + gap_ns(w, cwnd, packets));
	return true;
}

void rmem_window_release(struct rmem_window *w, u32 packets)
{
	__atomic_fetch_sub(&w->in_flight, packets, __ATOMIC_SEQ_CST);
}

/*
 * One packet more when a window full of them was answered: that's a round trip. Below the floor
 * one for each answer: what made it that small is over.
 */
static void grow(struct rmem_window *w, u32 packets)
{
	u32 cwnd = load(&w->cwnd);
	u32 answered;

	/* A window that isn't used says nothing about what the path would take. */
	if (load(&w->in_flight) * RMEM_CWND_ONE < cwnd / 2)
		return;
	if (cwnd < RMEM_CWND_FLOOR) {
		__atomic_fetch_add(&w->cwnd, packets * RMEM_CWND_ONE, __ATOMIC_RELAXED);
		return;
	}
	answered = __atomic_add_fetch(&w->answered, packets, __ATOMIC_RELAXED);
	if (answered * RMEM_CWND_ONE < cwnd || cwnd > RMEM_CWND_MAX - RMEM_CWND_ONE)
		return;
	if (!__atomic_compare_exchange_n(&w->answered, &answered, 0, false, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED))
		return;
	__atomic_fetch_add(&w->cwnd, RMEM_CWND_ONE, __ATOMIC_RELAXED);
}

/* By cut / 1024 down to the floor, unless that was done less than every_ns ago. */
static void shrink(struct rmem_window *w, u64 now_ns, u64 every_ns, u32 cut, u32 floor)
{
	u64 before_ns = load(&w->decreased_ns);
	u32 cwnd = load(&w->cwnd);
	u32 lesser;

	if (cwnd <= floor || now_ns < before_ns + every_ns)
		return;
	if (!__atomic_compare_exchange_n(&w->decreased_ns, &before_ns, now_ns, false,
					 __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return;
	do {
		lesser = cwnd - cwnd / 1024 * cut - cwnd % 1024 * cut / 1024;
		if (lesser < floor)
			lesser = floor;
	} while (!__atomic_compare_exchange_n(&w->cwnd, &cwnd, lesser, false, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
}

/*
 * The least delay of a period: a queue that stands shows in every sample, a processor that was
 * late for a moment in some. An update lost to another CPU's is one sample less: harmless.
 */
static u32 filter(struct rmem_window *w, u64 now_ns, u32 sample_us)
{
	u32 least_us = load(&w->least_us);

	if (sample_us < least_us)
		least_us = sample_us;
	if (now_ns >= load(&w->period_end_ns)) {
		store(&w->period_end_ns, now_ns + RMEM_DELAY_PERIOD_NS);
		store(&w->delay_us, least_us);
		least_us = ~0U;
	} else if (sample_us < load(&w->delay_us)) {
		store(&w->delay_us, sample_us);
	}
	store(&w->least_us, least_us);
	return load(&w->delay_us);
}

static bool is_incast(u32 delay_us, u32 target)
{
	return delay_us > target * RMEM_TARGETS_INCAST && delay_us > RMEM_INCAST_US_MIN;
}

void rmem_window_answered(struct rmem_window *w, u64 now_ns, u32 packets, u64 delay_ns, u64 base_ns)
{
	u32 delay_us = delay_ns ? filter(w, now_ns, us_of(delay_ns)) : load(&w->delay_us);
	u32 target = target_us(base_ns);
	u32 cut;

	if (delay_us <= target) {
		grow(w, packets);
		return;
	}
	cut = (delay_us - target) * 1024 / delay_us * DECREASE_GAIN / 1024;
	shrink(w, now_ns, delay_us * BASE_NSEC_PER_USEC,
	       cut < RMEM_CWND_DECREASE_MAX ? cut : RMEM_CWND_DECREASE_MAX,
	       is_incast(delay_us, target) ? RMEM_CWND_MIN : RMEM_CWND_FLOOR);
}

void rmem_window_lost(struct rmem_window *w, u64 now_ns, u64 base_ns)
{
	u32 delay_us = load(&w->delay_us);

	shrink(w, now_ns, delay_us * BASE_NSEC_PER_USEC, RMEM_CWND_DECREASE_MAX,
	       delay_us > target_us(base_ns) ? RMEM_CWND_MIN : RMEM_CWND_FLOOR);
}

void rmem_window_timeout(struct rmem_window *w, u64 now_ns, u64 rto_ns)
{
	shrink(w, now_ns, rto_ns, RMEM_CWND_DECREASE_MAX, RMEM_CWND_ONE);
}

static void wait(u64 *waiters, unsigned int waiter)
{
	__atomic_fetch_or(waiters, 1ULL << (waiter % RMEM_WAITERS), __ATOMIC_SEQ_CST);
}

void rmem_window_wait(struct rmem_window *w, unsigned int waiter)
{
	wait(&w->waiters, waiter);
}

/*
 * A window that is still full keeps its waiters: there is credit out, and who
 * gives the last of it back finds the window open.
 */
u64 rmem_window_waiting(struct rmem_window *w)
{
	if (!load_in_order(&w->waiters) || is_full(w, load_in_order(&w->in_flight)))
		return 0;
	return __atomic_exchange_n(&w->waiters, 0, __ATOMIC_SEQ_CST);
}

u32 rmem_window_cwnd(const struct rmem_window *w)
{
	return load(&w->cwnd);
}

u32 rmem_window_in_flight(const struct rmem_window *w)
{
	return load(&w->in_flight);
}

void rmem_incast_init(struct rmem_incast *i, u64 limit_bytes)
{
	i->used_bytes = 0;
	i->waiters = 0;
	i->limit_bytes = limit_bytes;
}

bool rmem_incast_acquire(struct rmem_incast *i, u32 bytes)
{
	u64 used = load_in_order(&i->used_bytes);

	do {
		if (used && used + bytes > i->limit_bytes)
			return false;
	} while (!__atomic_compare_exchange_n(&i->used_bytes, &used, used + bytes, false,
					      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	return true;
}

void rmem_incast_release(struct rmem_incast *i, u32 bytes)
{
	__atomic_fetch_sub(&i->used_bytes, bytes, __ATOMIC_SEQ_CST);
}

void rmem_incast_wait(struct rmem_incast *i, unsigned int waiter)
{
	wait(&i->waiters, waiter);
}

/* Wakes when any op would fit, or none is out: a few READs at a time, not one packet each. */
u64 rmem_incast_waiting(struct rmem_incast *i)
{
	u64 used;

	if (!load_in_order(&i->waiters))
		return 0;
	used = load_in_order(&i->used_bytes);
	if (used && used + RMEM_IWND_ROOM_BYTES > i->limit_bytes)
		return 0;
	return __atomic_exchange_n(&i->waiters, 0, __ATOMIC_SEQ_CST);
}

u64 rmem_incast_used_bytes(const struct rmem_incast *i)
{
	return load(&i->used_bytes);
}
