// SPDX-License-Identifier: GPL-2.0
/*
 * A DMA engine's channel. A transaction is a descriptor for each part, the interrupt on the last,
 * and one issue_pending.
 *
 *   channel_hand_over: mapped, prepared, submitted       slot: RUNNING
 *       engine: channel_slot_done                        slot: DONE, or FAILED
 *         last of its request: channel_request_done --> done(), or failed_work: the CPU copies
 *   watchdog: late --> gone_work: hrdma_channel_free: the engine stops, what is RUNNING has FAILED
 *
 * Each descriptor has a callback, for the engine tells of an error by that only. So descriptors and
 * transactions may complete in any order. A transaction isn't done while the engine may touch its
 * memory: before its parts are copied anew the engine has been stopped.
 */
#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>

#include "marlin/hrdma.h"
#include "marlin/trace.h"

/* An engine that refuses so many transactions in a row, while it has none, is gone. */
#define CHANNEL_REFUSED_MAX 16
/* Parts of fewer bytes are not worth two copies. */
#define CHANNEL_HEAD_BYTES_MIN 1024

static unsigned int hrdma_timeout_ms = MARLIN_COPY_MS_MAX;
module_param(hrdma_timeout_ms, uint, 0644);
MODULE_PARM_DESC(hrdma_timeout_ms, "a slower engine is stopped (1 to 1000, default: 1000)");

static unsigned long channel_timeout(void)
{
	return msecs_to_jiffies(clamp_t(unsigned int, READ_ONCE(hrdma_timeout_ms), 1,
					MARLIN_COPY_MS_MAX));
}

static enum dma_data_direction channel_direction(const struct hrdma_request *request)
{
	return request->flags & HRDMA_WRITE ? DMA_TO_DEVICE : DMA_FROM_DEVICE;
}

/* ---- the end of requests ---- */

static void channel_unmap(struct hrdma_channel *channel, struct hrdma_request *request)
{
	for (u32 i = 0; i < request->count; i++) {
		struct hrdma_slot *slot = &request->slots[i];

		if (slot->state != HRDMA_SLOT_CPU && slot->state != HRDMA_SLOT_LATER)
			dma_unmap_page(channel->dev, slot->mapped, slot->body.bytes,
				       channel_direction(request));
	}
}

static void channel_end(struct hrdma_channel *channel, struct hrdma_request *request)
{
	u64 bytes = request->bytes;

	hrdma_end(request);
	hrdma_engine_put(channel, bytes);
}

static void channel_copy_failed(struct hrdma_channel *channel)
{
	struct hrdma_request *request;
	LIST_HEAD(failed);

	spin_lock_irq(&channel->lock);
	list_splice_init(&channel->failed, &failed);
	spin_unlock_irq(&channel->lock);
	while (!list_empty(&failed)) {
		request = list_first_entry(&failed, struct hrdma_request, link);
		list_del(&request->link);
		hrdma_copy_failed(request);
		channel_end(channel, request);
		cond_resched();
	}
}

static void channel_failed_work(struct work_struct *work)
{
	channel_copy_failed(container_of(work, struct hrdma_channel, failed_work));
}

/* All sub-transfers have ended, or the engine can't touch their memory any more. */
static void channel_request_done(struct hrdma_request *request)
{
	struct hrdma_channel *channel = request->channel;
	bool failed = false;
	unsigned long flags;

	channel_unmap(channel, request);
	for (u32 i = 0; i < request->count; i++)
		failed |= request->slots[i].state == HRDMA_SLOT_FAILED ||
			  request->slots[i].state == HRDMA_SLOT_LATER;
	spin_lock_irqsave(&channel->lock, flags);
	list_del(&request->link);
	/* Under the lock: afterwards hrdma_channel_free() may end the request and the channel. */
	if (failed) {
		list_add_tail(&request->link, &channel->failed);
		queue_work(hrdma_queue, &channel->failed_work);
	}
	spin_unlock_irqrestore(&channel->lock, flags);
	if (!failed)
		channel_end(channel, request);
}

static void channel_request_put(struct hrdma_request *request)
{
	if (atomic_dec_and_test(&request->left))
		channel_request_done(request);
}

/* Called by the engine's driver, which may hold its locks. */
static void channel_slot_done(void *context, const struct dmaengine_result *result)
{
	struct hrdma_slot *slot = context;

	if (result->result == DMA_TRANS_NOERROR) {
		WRITE_ONCE(slot->state, HRDMA_SLOT_DONE);
		hrdma_count(HRDMA_ENGINE_PARTS, 1);
		hrdma_count(HRDMA_ENGINE_BYTES, slot->body.bytes);
	} else {
		WRITE_ONCE(slot->state, HRDMA_SLOT_FAILED);
		hrdma_count(HRDMA_FAILED, 1);
	}
	channel_request_put(slot->request);
}

/* ---- handing over ---- */

/* A window's address for the engine. */
static int channel_window(struct hrdma_channel *channel, const struct hrdma_window *window,
			  dma_addr_t *address)
{
	lockdep_assert_held(&channel->submit_lock);
	if (!test_bit(window->number, channel->mapped)) {
		dma_addr_t mapped = dma_map_resource(channel->dev, window->address, window->bytes,
						     DMA_BIDIRECTIONAL, 0);

		if (dma_mapping_error(channel->dev, mapped))
			return -EIO;
		channel->windows[window->number].address = mapped;
		channel->windows[window->number].bytes = window->bytes;
		__set_bit(window->number, channel->mapped);
	}
	*address = channel->windows[window->number].address;
	return 0;
}

void hrdma_channel_unmap_window(struct hrdma_channel *channel, unsigned int number)
{
	spin_lock_bh(&channel->submit_lock);
	if (__test_and_clear_bit(number, channel->mapped))
		dma_unmap_resource(channel->dev, channel->windows[number].address,
				   channel->windows[number].bytes, DMA_BIDIRECTIONAL, 0);
	spin_unlock_bh(&channel->submit_lock);
}

/*
 * The piece of a part that the engine moves. Where both sides are skewed alike, its start is
 * brought to a multiple of SCATTER_ALIGN: by the bytes before, if the caller allows that; otherwise
 * the CPU copies the first bytes.
 */
static struct scatter_part channel_body(const struct hrdma_request *request,
					const struct scatter_part *part)
{
	struct scatter_part body = *part, head = *part;

	if (request->flags & HRDMA_HEADROOM) {
		scatter_widen(&body);
	} else if (part->bytes >= CHANNEL_HEAD_BYTES_MIN && !(request->flags & HRDMA_LATER)) {
		head.bytes = scatter_head(part);
		if (head.bytes)
			hrdma_copy_part(request, &head);
		body.local += head.bytes;
		body.remote += head.bytes;
		body.bytes -= head.bytes;
	}
	return body;
}

static struct dma_async_tx_descriptor *channel_prepare(struct hrdma_channel *channel,
						       const struct hrdma_request *request,
						       const struct hrdma_slot *slot,
						       unsigned long flags)
{
	bool write = request->flags & HRDMA_WRITE;
	dma_addr_t remote, to, from;

	if (channel_window(channel, request->window, &remote))
		return ERR_PTR(-EIO);
	remote += slot->body.remote;
	to = write ? remote : slot->mapped;
	from = write ? slot->mapped : remote;
	if (!is_dma_copy_aligned(channel->dma->device, from, to, slot->body.bytes))
		return ERR_PTR(-EIO);
	return dmaengine_prep_dma_memcpy(channel->dma, to, from, slot->body.bytes, flags) ?:
		ERR_PTR(-ENOSPC);
}

/* Gives part i to the engine. -EIO: the CPU must copy it; -ENOSPC: and those that follow. */
static int channel_hand_over(struct hrdma_channel *channel, struct hrdma_request *request, u32 i)
{
	bool interrupt = channel->unordered || i == request->count - 1;
	struct hrdma_slot *slot = &request->slots[i];
	struct dma_async_tx_descriptor *tx;
	dma_cookie_t cookie;

	slot->body = channel_body(request, &request->parts[i]);
	slot->mapped = dma_map_page(channel->dev, pfn_to_page(PHYS_PFN(slot->body.local)),
				    offset_in_page(slot->body.local), slot->body.bytes,
				    channel_direction(request));
	if (dma_mapping_error(channel->dev, slot->mapped))
		return -EIO;
	tx = channel_prepare(channel, request, slot,
			     DMA_CTRL_ACK | (interrupt ? DMA_PREP_INTERRUPT : 0));
	if (IS_ERR(tx))
		goto unmap;
	tx->callback_result = channel_slot_done;
	tx->callback_param = slot;
	/* The callback may come before submit returns. */
	WRITE_ONCE(slot->state, HRDMA_SLOT_RUNNING);
	atomic_inc(&request->left);
	cookie = dmaengine_submit(tx);
	if (dma_submit_error(cookie)) {
		atomic_dec(&request->left);
		WRITE_ONCE(slot->state, HRDMA_SLOT_CPU);
		tx = ERR_PTR(-ENOSPC);
		goto unmap;
	}
	if (!scatter_is_aligned(&slot->body))
		hrdma_count(HRDMA_UNALIGNED, 1);
	request->cookie = cookie;
	request->quiet = !interrupt;
	return 0;

unmap:
	dma_unmap_page(channel->dev, slot->mapped, slot->body.bytes, channel_direction(request));
	return PTR_ERR(tx);
}

/* Returns how many parts the engine has. */
static u32 channel_hand_over_all(struct hrdma_channel *channel, struct hrdma_request *request)
{
	u32 given = 0;

	lockdep_assert_held(&channel->submit_lock);
	for (u32 i = 0; i < request->count; i++) {
		int err = channel_hand_over(channel, request, i);

		if (err == -ENOSPC)
			break;
		given += !err;
	}
	if (given)
		dma_async_issue_pending(channel->dma);
	return given;
}

/* Adds a transaction; true: the channel has no other. */
static bool channel_add(struct hrdma_channel *channel, struct hrdma_request *request)
{
	unsigned long flags;
	bool alone;

	spin_lock_irqsave(&channel->lock, flags);
	list_add_tail(&request->link, &channel->running);
	alone = list_is_singular(&channel->running);
	spin_unlock_irqrestore(&channel->lock, flags);
	return alone;
}

void hrdma_channel_submit(struct hrdma_channel *channel, struct hrdma_request *request)
{
	unsigned long timeout = channel_timeout();
	bool alone;
	u32 given = 0;

	for (u32 i = 0; i < request->count; i++) {
		request->slots[i].request = request;
		request->slots[i].body = request->parts[i];
		request->slots[i].state = HRDMA_SLOT_CPU;
	}
	atomic_set(&request->left, 1);
	request->deadline = jiffies + timeout;
	spin_lock_bh(&channel->submit_lock);
	alone = channel_add(channel, request);
	if (!channel->gone) {
		given = channel_hand_over_all(channel, request);
		channel->refused = given || !alone ? 0 : channel->refused + 1;
		if (channel->refused >= CHANNEL_REFUSED_MAX)
			hrdma_engine_drop(channel);
		if (given && request->quiet)
			mod_delayed_work(hrdma_queue, &channel->watchdog, 1);
		else if (given)
			queue_delayed_work(hrdma_queue, &channel->watchdog, timeout);
	}
	spin_unlock_bh(&channel->submit_lock);
	trace_hrdma_issue(request);
	hrdma_count(HRDMA_REFUSED, request->count - given);
	for (u32 i = 0; i < request->count; i++) {
		struct hrdma_slot *slot = &request->slots[i];

		if (READ_ONCE(slot->state) != HRDMA_SLOT_CPU)
			continue;
		if (request->flags & HRDMA_LATER)
			slot->state = HRDMA_SLOT_LATER;
		else
			hrdma_copy_part(request, &slot->body);
	}
	channel_request_put(request);
}

/* ---- time limits ---- */

/* When the watchdog has to look at the transactions of a channel. */
struct channel_need {
	unsigned long deadline; /* of the oldest */
	dma_cookie_t cookie; /* likewise */
	bool quiet; /* one, be it the oldest or not, ends without an interrupt */
};

/* False: there is no transaction. */
static bool channel_needs(struct hrdma_channel *channel, struct channel_need *need)
{
	struct hrdma_request *request;
	bool any;

	need->quiet = false;
	spin_lock_irq(&channel->lock);
	any = !list_empty(&channel->running);
	list_for_each_entry_reverse(request, &channel->running, link) {
		need->deadline = request->deadline;
		need->cookie = request->cookie;
		need->quiet |= request->quiet;
	}
	spin_unlock_irq(&channel->lock);
	return any;
}

static void channel_watchdog(struct work_struct *work)
{
	struct hrdma_channel *channel = container_of(to_delayed_work(work), struct hrdma_channel,
						     watchdog);
	struct channel_need need;

	if (!channel_needs(channel, &need))
		return;
	/* An engine whose interrupt didn't come, or was not asked for, looks at its descriptors. */
	dma_async_is_tx_complete(channel->dma, need.cookie, NULL, NULL);
	if (!channel_needs(channel, &need))
		return;
	if (time_after_eq(jiffies, need.deadline))
		hrdma_engine_drop(channel);
	else
		queue_delayed_work(hrdma_queue, &channel->watchdog,
				   need.quiet ? 1 : need.deadline - jiffies);
}

/* Waits until the engine has ended all transactions, or is late with one. */
static void channel_drain(struct hrdma_channel *channel)
{
	struct channel_need need;

	while (channel_needs(channel, &need) && time_before(jiffies, need.deadline))
		hrdma_engine_wait(channel, need.deadline - jiffies);
}

/* A transaction that the stopped engine had, with a share in its `left`; NULL: there is none. */
static struct hrdma_request *channel_unswept(struct hrdma_channel *channel)
{
	struct hrdma_request *request, *found = NULL;

	spin_lock_irq(&channel->lock);
	list_for_each_entry(request, &channel->running, link) {
		if (!request->swept && atomic_inc_not_zero(&request->left)) {
			request->swept = true;
			found = request;
			break;
		}
	}
	spin_unlock_irq(&channel->lock);
	return found;
}

/* The engine calls back no more, and touches nothing. */
static void channel_sweep(struct hrdma_channel *channel)
{
	struct hrdma_request *request;

	while ((request = channel_unswept(channel)) != NULL) {
		for (u32 i = 0; i < request->count; i++) {
			struct hrdma_slot *slot = &request->slots[i];

			if (slot->state != HRDMA_SLOT_RUNNING)
				continue;
			slot->state = HRDMA_SLOT_FAILED;
			hrdma_count(HRDMA_LATE, 1);
			channel_request_put(request);
		}
		channel_request_put(request);
	}
}

/* ---- a channel's life ---- */

struct hrdma_channel *hrdma_channel_make(struct dma_chan *dma, unsigned int number)
{
	struct hrdma_channel *channel = kzalloc(sizeof(*channel), GFP_KERNEL);

	if (!channel)
		return NULL;
	channel->dma = dma;
	channel->dev = get_device(dma->device->dev);
	channel->number = number;
	channel->unordered = dma_has_cap(DMA_COMPLETION_NO_ORDER, dma->device->cap_mask);
	spin_lock_init(&channel->submit_lock);
	spin_lock_init(&channel->lock);
	INIT_LIST_HEAD(&channel->running);
	INIT_LIST_HEAD(&channel->failed);
	INIT_DELAYED_WORK(&channel->watchdog, channel_watchdog);
	INIT_WORK(&channel->failed_work, channel_failed_work);
	return channel;
}

void hrdma_channel_free(struct hrdma_channel *channel)
{
	spin_lock_bh(&channel->submit_lock);
	channel->gone = true;
	spin_unlock_bh(&channel->submit_lock);
	channel_drain(channel);
	cancel_delayed_work_sync(&channel->watchdog);
	if (!dmaengine_terminate_sync(channel->dma))
		channel_sweep(channel);
	/* An engine that can't be stopped by itself stops here: the channel loses its resources. */
	dma_release_channel(channel->dma);
	channel_sweep(channel);
	/* Here, as the queue may have one thread left, for this work. */
	channel_copy_failed(channel);
	hrdma_engine_wait(channel, MAX_SCHEDULE_TIMEOUT);
	cancel_work_sync(&channel->failed_work);
	for (unsigned int i = 0; i < HRDMA_WINDOWS_MAX; i++)
		hrdma_channel_unmap_window(channel, i);
	put_device(channel->dev);
	kfree(channel);
}
