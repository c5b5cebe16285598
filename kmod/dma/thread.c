// SPDX-License-Identifier: GPL-2.0
/*
 * A channel at work: a transaction is what one issue_pending brought.
 *
 *        issued                                                          told
 *          |<- transaction ->|<- descriptor, link ->|<- ... ->|<- interrupt ->|
 *
 * The copy is done first. Then the thread sleeps until the time at which an engine of that cost
 * would be done. The channel's own clock counts from there, so that a thread that wakes late
 * doesn't make the engine slower. All channels share the link and the interrupt: each takes its
 * turn when it begins a transaction. Bytes take their time on the link, longer if a side is no
 * multiple of THREAD_ALIGN_BYTES (Marlin, ANCS'14, Figure 7).
 */
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/string.h>

#include "dma/softdma.h"

#define THREAD_ALIGN_BYTES 64
/* So much time is spent waiting actively: a timer takes as long. */
#define THREAD_SPIN_NS 5000

struct thread_transaction {
	unsigned int generation;
	u64 clock_ns; /* when the engine is done with what was looked at */
};

/* Whether the transaction was terminated, or the thread must end. Its clients are not told then. */
static bool thread_is_over(struct softdma_channel *channel, const struct thread_transaction *ta)
{
	return READ_ONCE(channel->generation) != ta->generation || kthread_should_stop();
}

/* ---- time ---- */

static u64 thread_link(struct softdma_channel *channel, const struct softdma_desc *desc, u64 ns)
{
	u64 bits_ns = (u64)desc->bytes * 8 * 1000, mbps = READ_ONCE(softdma_cost.mbps);
	struct softdma *engine = channel->engine;
	u64 takes_ns;

	ns += READ_ONCE(softdma_cost.descriptor_ns);
	if (!mbps)
		return ns;
	takes_ns = div64_u64(bits_ns, mbps);
	if ((desc->to | desc->from) % THREAD_ALIGN_BYTES)
		takes_ns += div64_u64(takes_ns * READ_ONCE(softdma_cost.unaligned_percent), 100);
	spin_lock_irq(&engine->clock_lock);
	ns = max(ns, engine->link_free_ns) + takes_ns;
	engine->link_free_ns = ns;
	spin_unlock_irq(&engine->clock_lock);
	return ns;
}

static u64 thread_interrupt(struct softdma_channel *channel, u64 ns)
{
	struct softdma *engine = channel->engine;

	spin_lock_irq(&engine->clock_lock);
	ns = max(ns, engine->interrupt_free_ns) + READ_ONCE(softdma_cost.interrupt_ns);
	engine->interrupt_free_ns = ns;
	spin_unlock_irq(&engine->clock_lock);
	return ns;
}

/* Until the engine is done. */
static void thread_sleep(struct softdma_channel *channel, const struct thread_transaction *ta)
{
	u64 now = ktime_get_ns();

	if (now + THREAD_SPIN_NS < ta->clock_ns)
		wait_event_interruptible_hrtimeout(channel->work, thread_is_over(channel, ta),
						   ns_to_ktime(ta->clock_ns - now));
	while (ktime_get_ns() < ta->clock_ns && !thread_is_over(channel, ta))
		cpu_relax();
}

/* ---- copies ---- */

static enum dmaengine_tx_result thread_copy(struct softdma_channel *channel,
					    const struct softdma_desc *desc)
{
	for (size_t done = 0; done < desc->bytes;) {
		size_t bytes = desc->bytes - done;
		void *to, *from;

		from = softdma_memory(channel, desc->from + done, &bytes);
		if (!from)
			return DMA_TRANS_READ_FAILED;
		to = softdma_memory(channel, desc->to + done, &bytes);
		if (!to)
			return DMA_TRANS_WRITE_FAILED;
		memcpy(to, from, bytes);
		done += bytes;
	}
	wmb(); /* stores can be combined on their way beyond RAM */
	return DMA_TRANS_NOERROR;
}

static bool thread_is_nth(u32 count, unsigned int every)
{
	return every && count % every == 0;
}

/* Copies, or does what an engine with faults does. False: the descriptor never ends. */
static bool thread_do(struct softdma_channel *channel, struct softdma_desc *desc)
{
	channel->count++;
	if (thread_is_nth(channel->count, READ_ONCE(softdma_faults.hang_every)))
		return false;
	if (thread_is_nth(channel->count, READ_ONCE(softdma_faults.fail_every)))
		desc->result = DMA_TRANS_READ_FAILED;
	else
		desc->result = thread_copy(channel, desc);
	return true;
}

/* ---- transactions ---- */

/* Moves descriptors from the head of `running` to `finished`, up to and with the last. */
static void thread_finish(struct softdma_channel *channel, const struct thread_transaction *ta,
			  struct softdma_desc *last)
{
	LIST_HEAD(done);

	spin_lock_irq(&channel->lock);
	list_cut_position(&done, &channel->running, &last->link);
	list_splice_tail(&done, channel->generation == ta->generation ? &channel->finished :
									&channel->idle);
	spin_unlock_irq(&channel->lock);
}

/* Does what is in `running`; leaves there what it doesn't end. */
static void thread_run(struct softdma_channel *channel, struct thread_transaction *ta)
{
	struct softdma_desc *desc, *next;

	list_for_each_entry_safe(desc, next, &channel->running, link) {
		bool last = list_is_last(&desc->link, &channel->running);

		if (!thread_do(channel, desc)) {
			wait_event_interruptible(channel->work, thread_is_over(channel, ta));
			return;
		}
		ta->clock_ns = thread_link(channel, desc, ta->clock_ns);
		if (desc->tx.flags & DMA_PREP_INTERRUPT)
			ta->clock_ns = thread_interrupt(channel, ta->clock_ns);
		else if (!last)
			continue;
		thread_sleep(channel, ta);
		if (thread_is_over(channel, ta))
			return;
		if (desc->tx.flags & DMA_PREP_INTERRUPT) {
			thread_finish(channel, ta, desc);
			softdma_reap(channel);
		} else {
			thread_finish(channel, ta, desc);
		}
	}
}

/* An engine without order: descriptors of a transaction end in any. */
static void thread_shuffle(struct list_head *list)
{
	struct softdma_desc *desc, *next;
	LIST_HEAD(shuffled);

	list_for_each_entry_safe(desc, next, list, link) {
		if (get_random_u32() & 1)
			list_move(&desc->link, &shuffled);
		else
			list_move_tail(&desc->link, &shuffled);
	}
	list_splice(&shuffled, list);
}

/* The next transaction, into `running`. */
static void thread_begin(struct softdma_channel *channel, struct thread_transaction *ta)
{
	struct softdma_desc *desc, *end = NULL;
	LIST_HEAD(rest);

	lockdep_assert_held(&channel->lock);
	desc = list_first_entry(&channel->issued, struct softdma_desc, link);
	ta->generation = channel->generation;
	ta->clock_ns = max(desc->issued_ns, channel->free_ns) +
		       READ_ONCE(softdma_cost.transaction_ns);
	list_for_each_entry_continue(desc, &channel->issued, link) {
		if (desc->first) {
			end = desc;
			break;
		}
	}
	if (end)
		list_cut_before(&channel->running, &channel->issued, &end->link);
	else
		list_splice_init(&channel->issued, &channel->running);
	if (softdma_shuffle)
		thread_shuffle(&channel->running);
	channel->busy++;
}

/*
 * Terminated descriptors become idle. Descriptors that the thread's end interrupts stay in
 * `running`, for channel_abort().
 */
static void thread_end(struct softdma_channel *channel, const struct thread_transaction *ta)
{
	channel->free_ns = ta->clock_ns;
	spin_lock_irq(&channel->lock);
	if (channel->generation != ta->generation)
		list_splice_tail_init(&channel->running, &channel->idle);
	if (!--channel->busy)
		wake_up_all(&channel->quiet);
	spin_unlock_irq(&channel->lock);
}

static bool thread_has_work(struct softdma_channel *channel)
{
	return !list_empty_careful(&channel->issued) || kthread_should_stop();
}

int softdma_thread(void *context)
{
	struct softdma_channel *channel = context;
	struct thread_transaction ta;

	/* A device doesn't wait for its turn, and its timers have no slack. */
	set_user_nice(current, MIN_NICE);
	current->timer_slack_ns = 1;
	while (!kthread_should_stop()) {
		bool begun;

		wait_event_interruptible(channel->work, thread_has_work(channel));
		spin_lock_irq(&channel->lock);
		begun = !list_empty(&channel->issued);
		if (begun)
			thread_begin(channel, &ta);
		spin_unlock_irq(&channel->lock);
		if (!begun)
			continue;
		thread_run(channel, &ta);
		thread_end(channel, &ta);
	}
	return 0;
}
