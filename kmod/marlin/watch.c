// SPDX-License-Identifier: GPL-2.0
/*
 * A thread that looks for messages while the next ones are likely to come soon, so that peers need
 * no doorbell (Orca, HPCA'23, III-B; core/ring/spin.h says how long).
 *
 *   requests sent, records taken --> marlin_watch_traffic: wakes the thread
 *     watch_spin: "I am awake" into the peers' memory
 *       | looks at the rings' words --> something came: the poll runs here
 *       v the bound is over, or the processor is wanted
 *     the poll: "I sleep", and a second look
 *
 * Invariant: while `watching` is true the thread is on a processor and looks. It runs with
 * preemption off, and gives the processor up as soon as any other task wants it.
 */
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/stat.h>

#include "marlin/marlin.h"

/* Longest look after the last message. */
#define WATCH_SPIN_US_MAX 1000U
/* Then other tasks, and RCU, have their turn, whatever the traffic is. */
#define WATCH_STINT_NS (2 * NSEC_PER_MSEC)
/* Events to skip, at most, after the processor was wanted by others all the time. */
#define WATCH_REST_MAX 64U

static unsigned int watch_spin_us = 200;
module_param_named(spin_us, watch_spin_us, uint, 0644);
MODULE_PARM_DESC(spin_us,
		 "how long to look for messages before sleeping, in microseconds; 0: not at all");

/* Records were taken, or requests were sent. BH disabled. */
void marlin_watch_traffic(struct marlin_dev *md)
{
	u64 max_ns = min(READ_ONCE(watch_spin_us), WATCH_SPIN_US_MAX) * NSEC_PER_USEC;
	struct marlin_watch *watch = &md->watch;
	u64 now_ns, spin_ns;

	if (!max_ns)
		return;
	spin_lock(&watch->lock);
	now_ns = ktime_get_ns();
	spin_ns = ring_spin_event(&watch->spin, now_ns, max_ns);
	if (spin_ns)
		WRITE_ONCE(watch->until_ns, now_ns + spin_ns);
	if (watch->rest) {
		watch->rest--;
	} else if (spin_ns && !watch->watching && !watch->asked && watch->thread) {
		WRITE_ONCE(watch->asked, true);
		wake_up_process(watch->thread);
	}
	spin_unlock(&watch->lock);
}

/* The poll runs before this returns. Preemption is off. */
static void watch_poll(struct marlin_dev *md)
{
	local_bh_disable();
	napi_schedule(&md->messages_napi);
	local_bh_enable();
}

/* True: there is something that no poll is about to serve. */
static bool watch_look(struct marlin_dev *md)
{
	bool found = false;

	if (test_bit(NAPI_STATE_SCHED, &md->messages_napi.state))
		return false;
	local_bh_disable();
	for (unsigned int i = 0; i < md->peer_count && !found; i++)
		found = marlin_messages_has_work(&md->peers[i]);
	local_bh_enable();
	return found;
}

/* No other task wants this processor. */
static bool watch_is_alone(void)
{
	return !need_resched() && single_task_running();
}

static void watch_begin(struct marlin_dev *md)
{
	struct marlin_watch *watch = &md->watch;

	spin_lock_bh(&watch->lock);
	WRITE_ONCE(watch->asked, false);
	WRITE_ONCE(watch->watching, true);
	watch->starts++;
	spin_unlock_bh(&watch->lock);
	local_bh_disable();
	for (unsigned int i = 0; i < md->peer_count; i++)
		marlin_messages_rise(&md->peers[i]);
	local_bh_enable();
}

static void watch_end(struct marlin_dev *md, u32 hits)
{
	struct marlin_watch *watch = &md->watch;
	bool alone = watch_is_alone();

	spin_lock_bh(&watch->lock);
	WRITE_ONCE(watch->watching, false);
	watch->hits += hits;
	if (hits || alone)
		watch->rest_next = 0;
	else
		watch->rest_next = clamp(2 * watch->rest_next, 1U, WATCH_REST_MAX);
	watch->rest = watch->rest_next;
	spin_unlock_bh(&watch->lock);
	/* The poll says to the peers that this machine sleeps, and looks once more. */
	watch_poll(md);
}

/* True: the time isn't over. */
static bool watch_spin(struct marlin_dev *md)
{
	struct marlin_watch *watch = &md->watch;
	u64 end_ns = ktime_get_ns() + WATCH_STINT_NS, now_ns;
	bool more;
	u32 hits = 0;

	preempt_disable();
	watch_begin(md);
	do {
		if (watch_look(md)) {
			watch_poll(md);
			hits++;
		} else {
			cpu_relax();
		}
		now_ns = ktime_get_ns();
		more = now_ns < READ_ONCE(watch->until_ns);
	} while (more && now_ns < end_ns && watch_is_alone());
	more = more && watch_is_alone();
	watch_end(md, hits);
	preempt_enable();
	return more;
}

static int watch_run(void *arg)
{
	struct marlin_dev *md = arg;

	while (!kthread_should_stop()) {
		set_current_state(TASK_IDLE);
		if (!READ_ONCE(md->watch.asked) && !kthread_should_stop())
			schedule();
		__set_current_state(TASK_RUNNING);
		if (!READ_ONCE(md->watch.asked))
			continue;
		while (watch_spin(md) && !kthread_should_stop())
			cond_resched_tasks_rcu_qs();
	}
	return 0;
}

/* ---- life ---- */

void marlin_watch_init(struct marlin_dev *md)
{
	spin_lock_init(&md->watch.lock);
}

/* The interface comes up. */
int marlin_watch_start(struct marlin_dev *md)
{
	struct marlin_watch *watch = &md->watch;
	struct task_struct *thread = kthread_run(watch_run, md, "marlin/%s", md->dev->name);

	if (IS_ERR(thread))
		return PTR_ERR(thread);
	spin_lock_bh(&watch->lock);
	watch->thread = thread;
	spin_unlock_bh(&watch->lock);
	return 0;
}

void marlin_watch_stop(struct marlin_dev *md)
{
	struct marlin_watch *watch = &md->watch;
	struct task_struct *thread = watch->thread;

	spin_lock_bh(&watch->lock);
	watch->thread = NULL; /* so that no traffic wakes the thread */
	spin_unlock_bh(&watch->lock);
	kthread_stop(thread);
	WRITE_ONCE(watch->asked, false);
}
