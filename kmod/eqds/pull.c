// SPDX-License-Identifier: GPL-2.0
/*
 * Credit at the rate of the link: the core's active sender list says which tunnel gets the next
 * MTU, and when. A pull that is due leaves with the packet that asked for it; else a timer waits
 * for its time. Pulls that are late, because the timer was, follow each other, up to a burst.
 */
#include "eqds/pull.h"

#include "eqds/reply.h"
#include "eqds/trace.h"
#include "eqds/work.h"

/* Late pulls are made up for as far as timers of a busy machine are late. */
#define PULL_BURST_NS  (100 * NSEC_PER_USEC)
#define PULL_BURST_MIN 4U
#define PULL_BURST_MAX 64U
/* The timer's pause if turns of the list take no time: a fault there costs little CPU time. */
#define PULL_LATE_NS   (10 * NSEC_PER_MSEC)

/* mbits: of the ingress link. Takes effect with the next pull. Lock, or the device is down. */
int eqds_pull_set_rate(struct eqds_dev *ed, u32 mbits)
{
	struct eqds_asl fresh;
	u64 burst;

	if (!mbits || mbits > EQDS_MBITS_MAX)
		return -EINVAL;
	burst = div_u64((u64)mbits * PULL_BURST_NS / 1000, ed->config.mtu_bytes * 8);
	eqds_asl_init(&fresh, EQDS_ASL_PIFO, ed->config.mtu_bytes, (u64)mbits * 1000000,
		      clamp_t(u64, burst, PULL_BURST_MIN, PULL_BURST_MAX));
	if (!ed->up) {
		ed->asl = fresh;
		return 0;
	}
	ed->asl.mtu_time_q16 = fresh.mtu_time_q16;
	ed->asl.burst_mtus = fresh.burst_mtus;
	return 0;
}

/* after_ns: the deadline must be later, or 0 if it need not. */
static void pull_arm(struct eqds_dev *ed, u64 after_ns)
{
	u64 deadline_ns = eqds_asl_deadline_ns(&ed->asl);

	if (unlikely(deadline_ns <= after_ns)) {
		ed->stats.timer_late++;
		deadline_ns = after_ns + PULL_LATE_NS;
	}
	if (!ed->up || deadline_ns >= ed->pull_ns)
		return;
	ed->pull_ns = deadline_ns;
	hrtimer_start(&ed->pull_timer, ns_to_ktime(deadline_ns), HRTIMER_MODE_ABS_PINNED_SOFT);
}

/* Send the pulls that are due, and wait for the next one. */
void eqds_pull_run(struct eqds_dev *ed, u64 now_ns, struct eqds_work *work)
{
	struct eqds_receiver *r;
	struct eqds_head head;
	u32 sent = 0;

	lockdep_assert_held(&ed->lock);
	for (u32 n = 0; n < PULL_BURST_MAX && eqds_asl_deadline_ns(&ed->asl) <= now_ns; n++) {
		r = eqds_receiver_next(&ed->asl, now_ns, &head);
		if (!r)
			continue; /* all who were asked let their turns pass */
		sent++;
		eqds_reply(ed, container_of(r, struct eqds_rx, core), &head, work);
	}
	ed->stats.pulls += sent;
	pull_arm(ed, sent ? 0 : now_ns);
}

enum hrtimer_restart eqds_pull_fire(struct hrtimer *timer)
{
	struct eqds_dev *ed = container_of(timer, struct eqds_dev, pull_timer);
	struct eqds_work work;
	u64 now_ns, late_ns;

	eqds_work_init(&work);
	spin_lock_bh(&ed->lock);
	now_ns = ktime_get_ns();
	trace_eqds_turn(ed, EQDS_TURN_PULL, now_ns);
	if (ed->up && now_ns >= ed->pull_ns) {
		late_ns = now_ns - ed->pull_ns;
		ed->stats.pull_timers++;
		ed->stats.pull_late_ns_sum += late_ns;
		ed->stats.pull_late[min_t(u32, fls64(late_ns / NSEC_PER_USEC),
					  EQDS_LATE_BUCKETS - 1)]++;
		if (late_ns > ed->stats.pull_late_ns_max)
			ed->stats.pull_late_ns_max = late_ns;
	}
	ed->pull_ns = EQDS_NEVER;
	if (ed->up)
		eqds_pull_run(ed, now_ns, &work);
	eqds_reply_flush(ed, &work);
	spin_unlock_bh(&ed->lock);
	eqds_work_run(ed, &work);
	return HRTIMER_NORESTART;
}
