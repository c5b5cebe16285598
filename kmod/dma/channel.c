// SPDX-License-Identifier: GPL-2.0
/*
 * A channel's descriptors.
 *
 *   idle --prep--> the client's --submit--> submitted --issue_pending--> issued
 *    ^                                                                     | the thread begins
 *    |                                                                     v
 *    '--softdma_reap: callbacks-- finished <--interrupt, or transaction's end-- running
 *
 * A descriptor without DMA_PREP_INTERRUPT stays finished, and its client isn't told, until a later
 * one has an interrupt or the client asks for a status: as hardware does. terminate_all brings all
 * of them back to idle without callbacks; synchronize waits for the thread to leave their memory.
 */
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "dma/softdma.h"

static struct softdma_desc *channel_desc_of(struct dma_async_tx_descriptor *tx)
{
	return container_of(tx, struct softdma_desc, tx);
}

/* ---- a client's calls ---- */

static dma_cookie_t channel_submit(struct dma_async_tx_descriptor *tx)
{
	struct softdma_channel *channel = softdma_channel_of(tx->chan);
	struct softdma_desc *desc = channel_desc_of(tx);
	unsigned long flags;

	spin_lock_irqsave(&channel->lock, flags);
	if (channel->engine->dead) {
		list_add_tail(&desc->link, &channel->idle);
		tx->cookie = -ENODEV;
	} else {
		/* Cookies are positive, and wrap. */
		if (++tx->chan->cookie < DMA_MIN_COOKIE)
			tx->chan->cookie = DMA_MIN_COOKIE;
		tx->cookie = tx->chan->cookie;
		list_add_tail(&desc->link, &channel->submitted);
	}
	spin_unlock_irqrestore(&channel->lock, flags);
	return tx->cookie;
}

struct dma_async_tx_descriptor *softdma_prepare(struct dma_chan *chan, dma_addr_t to,
						dma_addr_t from, size_t bytes, unsigned long flags)
{
	struct softdma_channel *channel = softdma_channel_of(chan);
	struct softdma_desc *desc = NULL;
	unsigned long irq;

	spin_lock_irqsave(&channel->lock, irq);
	if (!channel->engine->dead)
		desc = list_first_entry_or_null(&channel->idle, struct softdma_desc, link);
	if (desc)
		list_del(&desc->link);
	spin_unlock_irqrestore(&channel->lock, irq);
	if (!desc)
		return NULL;
	dma_async_tx_descriptor_init(&desc->tx, chan);
	desc->tx.tx_submit = channel_submit;
	desc->tx.flags = flags;
	desc->tx.callback = NULL;
	desc->tx.callback_result = NULL;
	desc->tx.unmap = NULL;
	desc->to = to;
	desc->from = from;
	desc->bytes = bytes;
	desc->first = false;
	desc->result = DMA_TRANS_NOERROR;
	return &desc->tx;
}

void softdma_issue(struct dma_chan *chan)
{
	struct softdma_channel *channel = softdma_channel_of(chan);
	struct softdma_desc *first;
	unsigned long flags;

	spin_lock_irqsave(&channel->lock, flags);
	first = list_first_entry_or_null(&channel->submitted, struct softdma_desc, link);
	if (first) {
		first->first = true;
		first->issued_ns = ktime_get_ns();
		list_splice_tail_init(&channel->submitted, &channel->issued);
	}
	spin_unlock_irqrestore(&channel->lock, flags);
	wake_up(&channel->work);
}

int softdma_terminate(struct dma_chan *chan)
{
	struct softdma_channel *channel = softdma_channel_of(chan);
	unsigned long flags;

	spin_lock_irqsave(&channel->lock, flags);
	channel->generation++;
	list_splice_tail_init(&channel->submitted, &channel->idle);
	list_splice_tail_init(&channel->issued, &channel->idle);
	list_splice_tail_init(&channel->finished, &channel->idle);
	spin_unlock_irqrestore(&channel->lock, flags);
	wake_up(&channel->work);
	return 0;
}

static bool channel_is_quiet(struct softdma_channel *channel)
{
	unsigned long flags;
	bool quiet;

	spin_lock_irqsave(&channel->lock, flags);
	quiet = !channel->busy;
	spin_unlock_irqrestore(&channel->lock, flags);
	return quiet;
}

void softdma_synchronize(struct dma_chan *chan)
{
	struct softdma_channel *channel = softdma_channel_of(chan);

	wait_event(channel->quiet, channel_is_quiet(channel));
}

enum dma_status softdma_status(struct dma_chan *chan, dma_cookie_t cookie,
			       struct dma_tx_state *state)
{
	struct softdma_channel *channel = softdma_channel_of(chan);
	dma_cookie_t used, completed;
	unsigned long flags;

	softdma_reap(channel);
	spin_lock_irqsave(&channel->lock, flags);
	used = chan->cookie;
	completed = chan->completed_cookie;
	spin_unlock_irqrestore(&channel->lock, flags);
	dma_set_tx_state(state, completed, used, 0);
	return softdma_shuffle ? DMA_OUT_OF_ORDER : dma_async_is_complete(cookie, completed, used);
}

/* ---- completion ---- */

static void channel_call_back(struct dma_async_tx_descriptor *tx, enum dmaengine_tx_result result)
{
	const struct dmaengine_result told = { .result = result };

	dma_descriptor_unmap(tx);
	if (tx->callback_result)
		tx->callback_result(tx->callback_param, &told);
	else if (tx->callback)
		tx->callback(tx->callback_param);
}

/* Calls back for all of a list, without locks, and makes them idle. The caller is `busy`. */
static void channel_call_back_all(struct softdma_channel *channel, struct list_head *list)
{
	struct softdma_desc *desc;

	local_bh_disable();
	list_for_each_entry(desc, list, link)
		channel_call_back(&desc->tx, desc->result);
	local_bh_enable();
	spin_lock_irq(&channel->lock);
	list_splice_tail(list, &channel->idle);
	if (!--channel->busy)
		wake_up_all(&channel->quiet);
	spin_unlock_irq(&channel->lock);
}

void softdma_reap(struct softdma_channel *channel)
{
	struct softdma_desc *desc;
	unsigned long flags;
	LIST_HEAD(list);

	spin_lock_irqsave(&channel->lock, flags);
	list_splice_init(&channel->finished, &list);
	list_for_each_entry(desc, &list, link)
		channel->chan.completed_cookie = desc->tx.cookie;
	channel->busy += !list_empty(&list);
	spin_unlock_irqrestore(&channel->lock, flags);
	if (!list_empty(&list))
		channel_call_back_all(channel, &list);
}

/* All descriptors end as aborted; finished ones as they did. The thread has ended. */
static void channel_abort(struct softdma_channel *channel)
{
	struct softdma_desc *desc;
	LIST_HEAD(list);

	softdma_reap(channel);
	spin_lock_irq(&channel->lock);
	list_splice_tail_init(&channel->running, &list);
	list_splice_tail_init(&channel->issued, &list);
	list_splice_tail_init(&channel->submitted, &list);
	list_for_each_entry(desc, &list, link)
		desc->result = DMA_TRANS_ABORTED;
	channel->busy++;
	spin_unlock_irq(&channel->lock);
	channel_call_back_all(channel, &list);
}

/* ---- a channel's life: under dmaengine's mutex ---- */

int softdma_alloc(struct dma_chan *chan)
{
	struct softdma_channel *channel = softdma_channel_of(chan);
	struct softdma_desc *descs;
	struct task_struct *thread;

	descs = kvcalloc(softdma_ring, sizeof(*descs), GFP_KERNEL);
	if (!descs)
		return -ENOMEM;
	thread = kthread_create(softdma_thread, channel, "softdma/%d", chan->chan_id);
	if (IS_ERR(thread)) {
		kvfree(descs);
		return PTR_ERR(thread);
	}
	spin_lock_irq(&channel->lock);
	chan->cookie = DMA_MIN_COOKIE;
	chan->completed_cookie = DMA_MIN_COOKIE;
	channel->descs = descs;
	for (unsigned int i = 0; i < softdma_ring; i++)
		list_add_tail(&descs[i].link, &channel->idle);
	channel->thread = thread;
	spin_unlock_irq(&channel->lock);
	wake_up_process(thread);
	return softdma_ring;
}

/* The thread ends, and leaves its transaction in `running`. Once, whoever calls first. */
static void channel_thread_stop(struct softdma_channel *channel)
{
	struct task_struct *thread;

	spin_lock_irq(&channel->lock);
	thread = channel->thread;
	channel->thread = NULL;
	spin_unlock_irq(&channel->lock);
	if (thread)
		kthread_stop(thread);
}

void softdma_free(struct dma_chan *chan)
{
	struct softdma_channel *channel = softdma_channel_of(chan);
	struct softdma_desc *descs;

	softdma_terminate(chan);
	channel_thread_stop(channel);
	softdma_synchronize(chan);
	spin_lock_irq(&channel->lock);
	INIT_LIST_HEAD(&channel->idle);
	INIT_LIST_HEAD(&channel->running);
	descs = channel->descs;
	channel->descs = NULL;
	spin_unlock_irq(&channel->lock);
	softdma_maps_free(channel);
	kvfree(descs);
}

void softdma_unbind(struct softdma_channel *channel)
{
	spin_lock_irq(&channel->lock);
	channel->engine->dead = true;
	spin_unlock_irq(&channel->lock);
	channel_thread_stop(channel);
	channel_abort(channel);
}

void softdma_channel_init(struct softdma *engine, struct softdma_channel *channel)
{
	channel->engine = engine;
	channel->chan.device = &engine->dma;
	init_waitqueue_head(&channel->work);
	init_waitqueue_head(&channel->quiet);
	spin_lock_init(&channel->lock);
	INIT_LIST_HEAD(&channel->idle);
	INIT_LIST_HEAD(&channel->submitted);
	INIT_LIST_HEAD(&channel->issued);
	INIT_LIST_HEAD(&channel->running);
	INIT_LIST_HEAD(&channel->finished);
	list_add_tail(&channel->chan.device_node, &engine->dma.channels);
}
