// SPDX-License-Identifier: GPL-2.0
/*
 * A poll looks for an answer before it sleeps (ethtool -C eop0 rx-usecs), after Orca (HPCA'23,
 * III-B), which watches by hardware.
 *
 *   a small frame or a message is sent, alone   -> spin_sent: asked
 *   one comes back by the same ring             -> spin_got: a turn
 *   SPIN_TURNS of these in a row                -> the sender schedules the poll, which takes
 *                                                  "I sleep" back and looks for the answer
 *   none in rx-usecs                            -> turns = 0, and the poll sleeps
 *
 * A machine that asks one question at a time has nothing else to do until the answer comes. If the
 * poll finds the answer, neither machine needs an interrupt, and the poll runs where the question
 * was asked. A machine that answers one question at a time waits for the next one alike. Bulk data
 * never comes to that, for there the sender has more to send. So a poll that looks in vain follows
 * SPIN_TURNS answers at least. It ends at once if anything else wants the processor.
 *
 * Turns are counted without a lock common to senders and the poll: a lost update costs or saves one
 * look.
 */
#include <linux/interrupt.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/stat.h>

#include "marlin/marlin.h"

/* Exchanges in a row, each one out and one in, before a poll looks for the next answer. */
#define SPIN_TURNS 3

static u64 spin_limit_ns(const struct marlin_dev *md)
{
	return (u64)READ_ONCE(md->spin_usecs) * NSEC_PER_USEC;
}

/* Something was sent. bulk: it is no question. */
void marlin_spin_sent(struct marlin_spin *spin, bool bulk)
{
	if (bulk || READ_ONCE(spin->asked))
		WRITE_ONCE(spin->turns, 0);
	WRITE_ONCE(spin->asked_at_ns, local_clock());
	WRITE_ONCE(spin->asked, true);
}

/* Something was received. */
void marlin_spin_got(const struct marlin_dev *md, struct marlin_spin *spin)
{
	/* An answer that took an interrupt may take twice as long as one that is looked for. */
	if (READ_ONCE(spin->asked) &&
	    local_clock() - READ_ONCE(spin->asked_at_ns) < 2 * spin_limit_ns(md))
		WRITE_ONCE(spin->turns, READ_ONCE(spin->turns) + 1);
	else
		WRITE_ONCE(spin->turns, 0);
	WRITE_ONCE(spin->asked, false);
}

/* The answer is worth looking for. */
bool marlin_spin_is_due(const struct marlin_dev *md, const struct marlin_spin *spin)
{
	return READ_ONCE(md->spin_usecs) && READ_ONCE(spin->asked) &&
	       READ_ONCE(spin->turns) >= SPIN_TURNS;
}

/* ---- the poll ---- */

static struct marlin_spin *spin_of(const struct marlin_queue *queue, struct marlin_peer *peer)
{
	return queue->number == MARLIN_QUEUE_MESSAGES ? &peer->message_spin :
							&peer->in[queue->number].spin;
}

static void spin_rise(const struct marlin_queue *queue, struct marlin_peer *peer)
{
	if (queue->number == MARLIN_QUEUE_MESSAGES)
		marlin_messages_rise(peer);
	else
		marlin_recv_rise(&peer->in[queue->number]);
}

static bool spin_found(const struct marlin_queue *queue)
{
	struct marlin_dev *md = queue->md;
	bool found = false;

	for (unsigned int i = 0; i < md->peer_count && !found; i++)
		found = queue->number == MARLIN_QUEUE_MESSAGES ?
				marlin_messages_has_work(&md->peers[i]) :
				marlin_recv_has_frame(&md->peers[i].in[queue->number]);
	return found;
}

/* Something else wants this processor, or the poll. */
static bool spin_is_disturbed(const struct marlin_queue *queue)
{
	return need_resched() || !(is_idle_task(current) || single_task_running()) ||
	       local_softirq_pending() ||
	       READ_ONCE(queue->napi.state) & (NAPIF_STATE_MISSED | NAPIF_STATE_DISABLE);
}

/* When to stop looking; 0: there is no answer to wait for. */
static u64 spin_begin(struct marlin_queue *queue)
{
	struct marlin_dev *md = queue->md;
	u64 limit_ns = spin_limit_ns(md), now_ns = local_clock(), until_ns = 0;

	for (unsigned int i = 0; i < md->peer_count; i++) {
		struct marlin_peer *peer = &md->peers[i];
		struct marlin_spin *spin = spin_of(queue, peer);
		u64 its_ns = READ_ONCE(spin->asked_at_ns) + limit_ns;

		if (!READ_ONCE(peer->up) || !marlin_spin_is_due(md, spin) || its_ns <= now_ns)
			continue;
		spin_rise(queue, peer);
		until_ns = max(until_ns, its_ns);
	}
	wmb(); /* the stores of spin_rise() may be combined on their way to the window */
	return until_ns;
}

/* Looks at the poll's rings while that is worth it. True: there is something. By the poll. */
bool marlin_spin(struct marlin_queue *queue)
{
	u64 until_ns = spin_begin(queue);

	if (!until_ns)
		return false;
	queue->spins++;
	do {
		if (spin_found(queue))
			return true;
		if (spin_is_disturbed(queue))
			return false;
		cpu_relax();
	} while (local_clock() < until_ns);
	queue->spins_failed++;
	for (unsigned int i = 0; i < queue->md->peer_count; i++)
		WRITE_ONCE(spin_of(queue, &queue->md->peers[i])->turns, 0);
	return false;
}
