/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hardware-based remote DMA (Marlin, ANCS'14, 5.1): transactions between this machine's memory and
 * the RAM of a peer. ../marlin_ops.h has the request, and the entry for other modules.
 *
 *   hrdma.c          windows, requests, and what the CPU copies
 *   hrdma_channel.c  a DMA engine's channel: descriptors, completions, time limits
 *   hrdma_engine.c   which channels there are
 *
 *   hrdma_start --too small, or no channel-------------> CPU, or its work -----------> done()
 *        |                                                ^
 *   hrdma_channel_submit --no room, not mapped: a part----+
 *        |                                                |
 *     engine: completions in any order --error: a part----+
 *        '------no completion in time: all that was left--'
 *
 * Locks, each after those above it
 *   channel->submit_lock  one transaction at a time is handed to the engine; softirqs off
 *   engine_lock           the set of channels, and which is chosen; interrupts off
 *   window->lock          a window's state; interrupts off
 *   channel->lock         transactions that the engine has; interrupts off
 */
#ifndef REMORA_MARLIN_HRDMA_H
#define REMORA_MARLIN_HRDMA_H

#include <linux/dmaengine.h>
#include <linux/ethtool.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "marlin/bus.h"
#include "marlin_ops.h"

/* Windows that all peers of all devices may have: as many as main.c serves ports. */
#define HRDMA_WINDOWS_MAX 64

/* A peer's whole RAM, as this machine sees it. */
struct hrdma_window {
	struct list_head link; /* of all windows */
	unsigned int port;
	unsigned int number; /* below HRDMA_WINDOWS_MAX */
	phys_addr_t address; /* of the BAR */
	struct marlin_bus *bus; /* the way there */
	void *ram; /* where the CPU has it mapped */
	u64 bytes;
	const __le32 *word; /* of the peer's, for loads that push stores */
	atomic_t posted; /* copies by the CPU whose bytes can be on their way */
	int pushed; /* of those, so many have arrived */

	spinlock_t lock; /* guards what follows */
	bool live;
	u32 users; /* transactions under way */
	wait_queue_head_t idle; /* the last of them has ended */
};

enum hrdma_slot_state {
	HRDMA_SLOT_CPU, /* no engine has it */
	HRDMA_SLOT_LATER, /* likewise, and a work copies it */
	HRDMA_SLOT_RUNNING,
	HRDMA_SLOT_DONE,
	HRDMA_SLOT_FAILED, /* the CPU must copy it */
};

struct hrdma_channel {
	struct dma_chan *dma;
	struct device *dev; /* the engine's, for mappings */
	unsigned int number; /* for traces */
	bool unordered; /* descriptors complete in any order, so each needs its interrupt */
	atomic_long_t load; /* bytes under way */
	u32 users; /* requests; guarded by engine_lock */

	spinlock_t submit_lock; /* guards what follows */
	bool gone; /* the channel is being released, and the CPU copies */
	unsigned int refused; /* transactions in a row that got no descriptor */
	/* Windows as this engine sees them. Bit: mapped. */
	DECLARE_BITMAP(mapped, HRDMA_WINDOWS_MAX);
	struct {
		dma_addr_t address;
		u64 bytes;
	} windows[HRDMA_WINDOWS_MAX];

	spinlock_t lock; /* guards what follows */
	struct list_head running; /* by deadline */
	struct list_head failed; /* parts of these are the CPU's to copy */

	struct delayed_work watchdog;
	struct work_struct failed_work;
	struct work_struct gone_work;
};

enum hrdma_count {
	HRDMA_REQUESTS,
	HRDMA_ENGINE_PARTS, /* descriptors that an engine completed */
	HRDMA_ENGINE_BYTES,
	HRDMA_CPU_BYTES,
	HRDMA_SMALL, /* requests below hrdma_bytes_min */
	HRDMA_NO_CHANNEL, /* requests that found no channel to serve them */
	HRDMA_REFUSED, /* parts that no engine took: its ring was full, or it can't reach them */
	HRDMA_FAILED, /* descriptors that an engine completed with an error */
	HRDMA_LATE, /* descriptors that were not completed in time */
	HRDMA_UNALIGNED, /* descriptors of which a side is no multiple of SCATTER_ALIGN */
	HRDMA_COUNTS
};

extern atomic_long_t hrdma_counts[HRDMA_COUNTS];
extern const char hrdma_count_names[HRDMA_COUNTS][ETH_GSTRING_LEN];

static inline void hrdma_count(enum hrdma_count which, long count)
{
	atomic_long_add(count, &hrdma_counts[which]);
}

/* ---- hrdma.c ---- */

int hrdma_window_add(struct hrdma_window *window);
void hrdma_window_remove(struct hrdma_window *window);
void hrdma_window_start(struct hrdma_window *window);
/* Returns when no transaction is under way. */
void hrdma_window_stop(struct hrdma_window *window);
/* False: the window isn't live. Each true has its hrdma_leave(). */
bool hrdma_enter(struct hrdma_window *window);
void hrdma_leave(struct hrdma_window *window);
/* The CPU's stores of a copy have left. Engines begin later requests after they have arrived. */
void hrdma_posted(struct hrdma_window *window);
/* As marlin_hrdma_start(). The caller has entered the window, and leaves it after done(). */
int hrdma_start(struct hrdma_window *window, struct hrdma_request *request);
/* Copies a part, or the body of one. */
void hrdma_copy_part(const struct hrdma_request *request, const struct scatter_part *part);
/* Copies the parts that an engine failed to, and those that were left for later. */
void hrdma_copy_failed(struct hrdma_request *request);
void hrdma_end(struct hrdma_request *request);

/* ---- hrdma_channel.c ---- */

struct hrdma_channel *hrdma_channel_make(struct dma_chan *dma, unsigned int number);
/*
 * Gives the channel back, which nobody can get any more. The CPU copies requests that the engine
 * doesn't end in time.
 */
void hrdma_channel_free(struct hrdma_channel *channel);
void hrdma_channel_submit(struct hrdma_channel *channel, struct hrdma_request *request);
void hrdma_channel_unmap_window(struct hrdma_channel *channel, unsigned int number);

/* ---- hrdma_engine.c ---- */

extern struct workqueue_struct *hrdma_queue;

int hrdma_engine_init(void);
void hrdma_engine_exit(void);
/* Takes channels, as many as are wanted and free: a work does, which allocates memory. */
void hrdma_engine_look(void);
/* The least loaded channel, or NULL. Each has its put. */
struct hrdma_channel *hrdma_engine_get(u64 bytes);
void hrdma_engine_put(struct hrdma_channel *channel, u64 bytes);
/* Has hrdma_engine_get() any? */
bool hrdma_engine_is_there(void);
/* Waits until no request uses the channel, or for `timeout` jiffies. */
void hrdma_engine_wait(struct hrdma_channel *channel, unsigned long timeout);
/* Releases a channel that misses deadlines or serves nobody any more. Any context. */
void hrdma_engine_drop(struct hrdma_channel *channel);
void hrdma_engine_forget_window(const struct hrdma_window *window);

#endif
