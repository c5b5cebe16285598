// SPDX-License-Identifier: GPL-2.0
/*
 * The channels of DMA engines that transactions use: up to hrdma_channels, for all peers.
 *
 *   link up, parameter written, a while after one was dropped --> hrdma_engine_look: taken
 *   hrdma_engine_get: the least loaded
 *   late, refuses all, parameter written, module goes --> gone_work: hrdma_channel_free
 *
 * A channel that is held keeps its driver's module loaded. Write 0 to the parameter to unload that.
 */
#include <linux/dmaengine.h>
#include <linux/module.h>
#include <linux/mutex.h>

#include "marlin/hrdma.h"

#define ENGINE_CHANNELS_MAX 16
/* A channel that was dropped is taken again after so long: its engine may have recovered. */
#define ENGINE_REST (10 * HZ)

struct workqueue_struct *hrdma_queue;

static DEFINE_MUTEX(engine_mutex); /* guards changes of the set, and what follows */
static unsigned int engine_wanted = 4; /* the paper's engine has four */
static bool engine_ready;

static DEFINE_SPINLOCK(engine_lock); /* guards what follows; interrupts off */
static struct hrdma_channel *engine_channels[ENGINE_CHANNELS_MAX];
static unsigned int engine_turn;

static DECLARE_WAIT_QUEUE_HEAD(engine_idle); /* a channel has no users any more, or is freed */
static atomic_t engine_dropped; /* channels that their works free */

/* ---- use ---- */

struct hrdma_channel *hrdma_engine_get(u64 bytes)
{
	struct hrdma_channel *best = NULL;
	unsigned long flags;

	spin_lock_irqsave(&engine_lock, flags);
	engine_turn++;
	for (unsigned int i = 0; i < ENGINE_CHANNELS_MAX; i++) {
		struct hrdma_channel *channel =
			engine_channels[(engine_turn + i) % ENGINE_CHANNELS_MAX];

		if (channel && (!best || atomic_long_read(&channel->load) <
						 atomic_long_read(&best->load)))
			best = channel;
	}
	if (best) {
		best->users++;
		atomic_long_add(bytes, &best->load);
	}
	spin_unlock_irqrestore(&engine_lock, flags);
	return best;
}

void hrdma_engine_put(struct hrdma_channel *channel, u64 bytes)
{
	unsigned long flags;

	spin_lock_irqsave(&engine_lock, flags);
	atomic_long_sub(bytes, &channel->load);
	/* Under the lock: who waits frees the channel as soon as it sees that nobody uses it. */
	if (!--channel->users)
		wake_up_all(&engine_idle);
	spin_unlock_irqrestore(&engine_lock, flags);
}

bool hrdma_engine_is_there(void)
{
	bool found = false;
	unsigned long flags;

	spin_lock_irqsave(&engine_lock, flags);
	for (unsigned int i = 0; i < ENGINE_CHANNELS_MAX; i++)
		found = found || engine_channels[i];
	spin_unlock_irqrestore(&engine_lock, flags);
	return found;
}

static bool engine_is_idle(struct hrdma_channel *channel)
{
	bool idle;

	spin_lock_irq(&engine_lock);
	idle = !channel->users;
	spin_unlock_irq(&engine_lock);
	return idle;
}

void hrdma_engine_wait(struct hrdma_channel *channel, unsigned long timeout)
{
	wait_event_timeout(engine_idle, engine_is_idle(channel), timeout);
}

/* ---- the set ---- */

static void engine_look_work(struct work_struct *work);

/* In a queue of its own: engines allocate memory, for which hrdma_queue must not wait. */
static DECLARE_DELAYED_WORK(engine_look_later, engine_look_work);

/* Takes a channel out of the set; false: it isn't in it. */
static bool engine_remove(struct hrdma_channel *channel)
{
	bool found = false;
	unsigned long flags;

	spin_lock_irqsave(&engine_lock, flags);
	for (unsigned int i = 0; i < ENGINE_CHANNELS_MAX; i++) {
		if (engine_channels[i] == channel) {
			engine_channels[i] = NULL;
			found = true;
		}
	}
	spin_unlock_irqrestore(&engine_lock, flags);
	return found;
}

static void engine_drop_end(void)
{
	if (atomic_dec_and_test(&engine_dropped))
		wake_up_all(&engine_idle);
}

static void engine_gone_work(struct work_struct *work)
{
	struct hrdma_channel *channel = container_of(work, struct hrdma_channel, gone_work);

	pr_warn_ratelimited("marlin: channel %u of a DMA engine is late or gone; the CPU makes its copies\n",
			    channel->number);
	hrdma_channel_free(channel);
	engine_drop_end();
}

void hrdma_engine_drop(struct hrdma_channel *channel)
{
	/* First: a channel is in the set or counted, for hrdma_engine_forget_window(). */
	atomic_inc(&engine_dropped);
	if (!engine_remove(channel)) {
		engine_drop_end();
		return;
	}
	queue_work(hrdma_queue, &channel->gone_work);
	mod_delayed_work(system_long_wq, &engine_look_later, ENGINE_REST);
}

static bool engine_filter(struct dma_chan *chan, void *context)
{
	return chan->device->device_prep_dma_memcpy;
}

/* A channel for a place of the set; false: there is none. Caller holds engine_mutex. */
static bool engine_take(unsigned int number)
{
	struct hrdma_channel *channel;
	struct dma_chan *chan;
	dma_cap_mask_t mask;

	dma_cap_zero(mask);
	dma_cap_set(DMA_MEMCPY, mask);
	chan = dma_request_channel(mask, engine_filter, NULL);
	if (!chan)
		return false;
	channel = hrdma_channel_make(chan, number);
	if (!channel) {
		dma_release_channel(chan);
		return false;
	}
	INIT_WORK(&channel->gone_work, engine_gone_work);
	spin_lock_irq(&engine_lock);
	engine_channels[number] = channel;
	spin_unlock_irq(&engine_lock);
	return true;
}

/* Takes and gives back channels, until as many are held as are wanted, or there are no more. */
static void engine_look(void)
{
	for (unsigned int i = 0; i < ENGINE_CHANNELS_MAX; i++) {
		struct hrdma_channel *channel;

		spin_lock_irq(&engine_lock);
		channel = engine_channels[i];
		spin_unlock_irq(&engine_lock);
		if (i < engine_wanted) {
			if (!channel && !engine_take(i))
				return;
		} else if (channel && engine_remove(channel)) {
			hrdma_channel_free(channel);
		}
	}
}

/* A link that starts must not wait for the mutex, since reclaim may wait for the link. */
void hrdma_engine_look(void)
{
	mod_delayed_work(system_long_wq, &engine_look_later, 0);
}

static void engine_look_work(struct work_struct *work)
{
	mutex_lock(&engine_mutex);
	if (engine_ready)
		engine_look();
	mutex_unlock(&engine_mutex);
}

void hrdma_engine_forget_window(const struct hrdma_window *window)
{
	mutex_lock(&engine_mutex);
	for (unsigned int i = 0; i < ENGINE_CHANNELS_MAX; i++) {
		struct hrdma_channel *channel;

		spin_lock_irq(&engine_lock);
		channel = engine_channels[i];
		/* A user, so that it is not freed. */
		if (channel)
			channel->users++;
		spin_unlock_irq(&engine_lock);
		if (channel) {
			hrdma_channel_unmap_window(channel, window->number);
			hrdma_engine_put(channel, 0);
		}
	}
	mutex_unlock(&engine_mutex);
	/* A dropped channel unmaps it, too, before the number is used again. */
	wait_event(engine_idle, !atomic_read(&engine_dropped));
}

/* ---- the parameter ---- */

static int engine_wanted_set(const char *text, const struct kernel_param *param)
{
	unsigned int wanted;
	int err = kstrtouint(text, 0, &wanted);

	if (err)
		return err;
	if (wanted > ENGINE_CHANNELS_MAX)
		return -ERANGE;
	mutex_lock(&engine_mutex);
	engine_wanted = wanted;
	if (engine_ready)
		engine_look();
	mutex_unlock(&engine_mutex);
	return 0;
}

static const struct kernel_param_ops engine_wanted_ops = {
	.set = engine_wanted_set,
	.get = param_get_uint,
};

module_param_cb(hrdma_channels, &engine_wanted_ops, &engine_wanted, 0644);
MODULE_PARM_DESC(hrdma_channels, "channels of DMA engines to use, 0 to 16 (default: 4); writing 0 gives them back");

/* ---- the module's life ---- */

int hrdma_engine_init(void)
{
	hrdma_queue = alloc_workqueue("marlin_hrdma", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	if (!hrdma_queue)
		return -ENOMEM;
	mutex_lock(&engine_mutex);
	engine_ready = true;
	engine_look();
	mutex_unlock(&engine_mutex);
	return 0;
}

/* No window is left. */
void hrdma_engine_exit(void)
{
	mutex_lock(&engine_mutex);
	engine_wanted = 0;
	engine_look();
	engine_ready = false;
	mutex_unlock(&engine_mutex);
	/* A channel that is being dropped asks for the look. */
	flush_workqueue(hrdma_queue);
	cancel_delayed_work_sync(&engine_look_later);
	destroy_workqueue(hrdma_queue);
}
