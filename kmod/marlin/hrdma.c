// SPDX-License-Identifier: GPL-2.0
/*
 * Transactions between own memory and a peer's RAM: windows into that, requests, and what the CPU
 * copies (hrdma.h has the picture).
 *
 * A request never fails. The CPU copies it where there is no engine or the request is small, and
 * whatever an engine refuses, fails or is late with. Each of these is counted (ethtool -S).
 */
#include <linux/io.h>
#include <linux/moduleparam.h>

#include "marlin/hrdma.h"
#include "marlin/trace.h"

/*
 * From so many bytes on an engine pays for its set-up and its interrupt. A guess: README.md says
 * what it takes to measure it.
 */
static unsigned int hrdma_bytes_min = 32768;
module_param(hrdma_bytes_min, uint, 0644);
MODULE_PARM_DESC(hrdma_bytes_min, "the CPU copies transactions of fewer bytes (default: 32768)");

atomic_long_t hrdma_counts[HRDMA_COUNTS];

const char hrdma_count_names[HRDMA_COUNTS][ETH_GSTRING_LEN] = {
	[HRDMA_REQUESTS] = "hrdma_requests",
	[HRDMA_ENGINE_PARTS] = "hrdma_engine_parts",
	[HRDMA_ENGINE_BYTES] = "hrdma_engine_bytes",
	[HRDMA_CPU_BYTES] = "hrdma_cpu_bytes",
	[HRDMA_SMALL] = "hrdma_small",
	[HRDMA_NO_CHANNEL] = "hrdma_no_channel",
	[HRDMA_REFUSED] = "hrdma_refused",
	[HRDMA_FAILED] = "hrdma_failed",
	[HRDMA_LATE] = "hrdma_late",
	[HRDMA_UNALIGNED] = "hrdma_unaligned",
};

/* ---- windows ---- */

static DEFINE_SPINLOCK(hrdma_windows_lock); /* guards what follows; softirqs off */
static LIST_HEAD(hrdma_windows);
static DECLARE_BITMAP(hrdma_windows_used, HRDMA_WINDOWS_MAX);

int hrdma_window_add(struct hrdma_window *window)
{
	int err = -ENOSPC;

	spin_lock_init(&window->lock);
	init_waitqueue_head(&window->idle);
	spin_lock_bh(&hrdma_windows_lock);
	window->number = find_first_zero_bit(hrdma_windows_used, HRDMA_WINDOWS_MAX);
	if (window->number < HRDMA_WINDOWS_MAX) {
		__set_bit(window->number, hrdma_windows_used);
		list_add_tail(&window->link, &hrdma_windows);
		err = 0;
	}
	spin_unlock_bh(&hrdma_windows_lock);
	return err;
}

/* The window is stopped, or was never started. */
void hrdma_window_remove(struct hrdma_window *window)
{
	spin_lock_bh(&hrdma_windows_lock);
	list_del(&window->link);
	spin_unlock_bh(&hrdma_windows_lock);
	hrdma_engine_forget_window(window);
	spin_lock_bh(&hrdma_windows_lock);
	__clear_bit(window->number, hrdma_windows_used);
	spin_unlock_bh(&hrdma_windows_lock);
}

void hrdma_window_start(struct hrdma_window *window)
{
	hrdma_engine_look();
	spin_lock_irq(&window->lock);
	window->live = true;
	spin_unlock_irq(&window->lock);
}

static bool hrdma_window_is_idle(struct hrdma_window *window)
{
	bool idle;

	spin_lock_irq(&window->lock);
	idle = !window->users;
	spin_unlock_irq(&window->lock);
	return idle;
}

void hrdma_window_stop(struct hrdma_window *window)
{
	spin_lock_irq(&window->lock);
	window->live = false;
	spin_unlock_irq(&window->lock);
	/* The watchdogs of channels bound this. */
	wait_event(window->idle, hrdma_window_is_idle(window));
}

bool hrdma_enter(struct hrdma_window *window)
{
	unsigned long flags;
	bool live;

	spin_lock_irqsave(&window->lock, flags);
	live = window->live;
	if (live)
		window->users++;
	spin_unlock_irqrestore(&window->lock, flags);
	return live;
}

void hrdma_leave(struct hrdma_window *window)
{
	unsigned long flags;

	spin_lock_irqsave(&window->lock, flags);
	/* Under the lock: who waits may free the window as soon as it sees that nobody uses it. */
	if (!--window->users)
		wake_up_all(&window->idle);
	spin_unlock_irqrestore(&window->lock, flags);
}

/* ---- the CPU ---- */

void hrdma_copy_part(const struct hrdma_request *request, const struct scatter_part *part)
{
	void *local = phys_to_virt(part->local);
	void *remote = request->window->ram + part->remote;

	if (request->flags & HRDMA_WRITE)
		bus_write(request->window->bus, remote, local, part->bytes);
	else
		bus_read(request->window->bus, local, remote, part->bytes);
	hrdma_count(HRDMA_CPU_BYTES, part->bytes);
}

void hrdma_copy_failed(struct hrdma_request *request)
{
	for (u32 i = 0; i < request->count; i++) {
		if (request->slots[i].state == HRDMA_SLOT_FAILED ||
		    request->slots[i].state == HRDMA_SLOT_LATER)
			hrdma_copy_part(request, &request->slots[i].body);
		cond_resched();
	}
}

/* ---- requests without an engine whose caller can't wait for the CPU ---- */

static DEFINE_SPINLOCK(hrdma_later_lock); /* guards the list; interrupts off */
static LIST_HEAD(hrdma_later_requests);

static void hrdma_later_work(struct work_struct *work)
{
	struct hrdma_request *request;

	for (;;) {
		spin_lock_irq(&hrdma_later_lock);
		request = list_first_entry_or_null(&hrdma_later_requests, struct hrdma_request,
						   link);
		if (request)
			list_del(&request->link);
		spin_unlock_irq(&hrdma_later_lock);
		if (!request)
			return;
		for (u32 i = 0; i < request->count; i++) {
			hrdma_copy_part(request, &request->parts[i]);
			cond_resched();
		}
		hrdma_end(request);
	}
}

static DECLARE_WORK(hrdma_later, hrdma_later_work);

static void hrdma_leave_for_later(struct hrdma_request *request)
{
	unsigned long flags;

	spin_lock_irqsave(&hrdma_later_lock, flags);
	list_add_tail(&request->link, &hrdma_later_requests);
	spin_unlock_irqrestore(&hrdma_later_lock, flags);
	queue_work(hrdma_queue, &hrdma_later);
}

/* ---- requests ---- */

void hrdma_end(struct hrdma_request *request)
{
	struct hrdma_window *window = request->window;
	bool entered = request->entered;

	trace_hrdma_done(request);
	request->done(request);
	if (entered)
		hrdma_leave(window);
}

static int hrdma_check(const struct hrdma_window *window, struct hrdma_request *request)
{
	request->bytes = 0;
	if (request->count > SCATTER_PARTS)
		return -EINVAL;
	for (u32 i = 0; i < request->count; i++) {
		const struct scatter_part *part = &request->parts[i];

		if (part->bytes > window->bytes || part->remote > window->bytes - part->bytes)
			return -EINVAL;
		request->bytes += part->bytes;
	}
	return 0;
}

void hrdma_posted(struct hrdma_window *window)
{
	atomic_inc_return_release(&window->posted); /* pairs with hrdma_push() */
}

/* An engine's accesses don't wait for the CPU's stores. A load by the CPU returns behind them. */
static void hrdma_push(struct hrdma_window *window)
{
	int posted = atomic_read_acquire(&window->posted); /* pairs with hrdma_posted() */

	if (posted == READ_ONCE(window->pushed))
		return;
	mb(); /* as in marlin_flush() */
	bus_load32(window->bus, window->word);
	mb(); /* the engine begins behind it */
	WRITE_ONCE(window->pushed, posted);
}

static void hrdma_begin(struct hrdma_request *request)
{
	request->channel = NULL;
	request->swept = false;
	request->quiet = false;
	request->cookie = 0;
	trace_hrdma_start(request);
	hrdma_count(HRDMA_REQUESTS, 1);
	/* One without parts, as for a signal, must not count as refused by an engine. */
	if (!request->count || (request->bytes < READ_ONCE(hrdma_bytes_min) &&
				!(request->flags & HRDMA_ENGINE))) {
		hrdma_count(HRDMA_SMALL, 1);
	} else {
		request->channel = hrdma_engine_get(request->bytes);
		if (!request->channel)
			hrdma_count(HRDMA_NO_CHANNEL, 1);
	}
	if (request->channel) {
		hrdma_push(request->window);
		hrdma_channel_submit(request->channel, request);
		return;
	}
	if (request->flags & HRDMA_LATER) {
		hrdma_leave_for_later(request);
		return;
	}
	for (u32 i = 0; i < request->count; i++)
		hrdma_copy_part(request, &request->parts[i]);
	hrdma_end(request);
}

int hrdma_start(struct hrdma_window *window, struct hrdma_request *request)
{
	int err = hrdma_check(window, request);

	if (err)
		return err;
	request->window = window;
	request->entered = false;
	hrdma_begin(request);
	return 0;
}

/* The live window of a port, entered, or NULL. */
static struct hrdma_window *hrdma_window_enter(unsigned int port)
{
	struct hrdma_window *window, *found = NULL;

	spin_lock_bh(&hrdma_windows_lock);
	list_for_each_entry(window, &hrdma_windows, link) {
		if (window->port == port && hrdma_enter(window)) {
			found = window;
			break;
		}
	}
	spin_unlock_bh(&hrdma_windows_lock);
	return found;
}

int marlin_hrdma_start(unsigned int port, struct hrdma_request *request)
{
	struct hrdma_window *window = hrdma_window_enter(port);
	int err;

	if (!window)
		return -ENOTCONN;
	err = hrdma_check(window, request);
	if (err) {
		hrdma_leave(window);
		return err;
	}
	request->window = window;
	request->entered = true;
	hrdma_begin(request);
	return 0;
}
EXPORT_SYMBOL_GPL(marlin_hrdma_start);

u32 marlin_hrdma_cut(struct scatter_part *parts, struct scatter_pages *local,
		     struct scatter_pages *remote, u64 bytes, u64 *cut)
{
	return scatter_cut(parts, SCATTER_PARTS, local, remote, bytes, cut);
}
EXPORT_SYMBOL_GPL(marlin_hrdma_cut);
