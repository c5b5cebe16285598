/* SPDX-License-Identifier: GPL-2.0 */
/*
 * softdma.ko: a DMA engine made of kernel threads, as a provider of Linux' dmaengine. Shared
 * declarations of its files.
 *
 *   main.c     the device, its life, and its parameters
 *   channel.c  descriptors, from prep to completion
 *   thread.c   a channel at work: copies, and how long that takes
 *   map.c      the memory behind a DMA address
 *
 * Locks
 *   channel->lock  lists of descriptors; interrupts off
 *   clock_lock     when the link and the interrupt are free; interrupts off
 */
#ifndef REMORA_DMA_SOFTDMA_H
#define REMORA_DMA_SOFTDMA_H

#include <linux/dmaengine.h>
#include <linux/list.h>
#include <linux/platform_device.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

/* A piece of memory beyond RAM that a channel has mapped: naturally aligned, of that size. */
#define SOFTDMA_MAP_BYTES (2UL << 20)
#define SOFTDMA_MAPS 16

/* Costs of the engine. Each may change while the engine works. */
struct softdma_cost {
	unsigned int transaction_ns; /* before the first descriptor after issue_pending */
	unsigned int descriptor_ns; /* for each descriptor */
	unsigned int interrupt_ns; /* of all channels one at a time */
	unsigned int mbps; /* of all channels together; 0: as fast as the copy */
	unsigned int unaligned_percent; /* of a descriptor's time on the link, off 64 bytes */
};

/* Faults that the engine injects. 0: never. */
struct softdma_faults {
	unsigned int fail_every; /* every n-th descriptor ends with an error */
	unsigned int hang_every; /* every n-th descriptor, and what follows it, never ends */
};

extern struct softdma_cost softdma_cost;
extern struct softdma_faults softdma_faults;

struct softdma_desc {
	struct dma_async_tx_descriptor tx;
	struct list_head link; /* of one list of the channel */
	dma_addr_t to, from;
	size_t bytes;
	bool first; /* of a transaction */
	u64 issued_ns; /* of its first */
	enum dmaengine_tx_result result;
};

struct softdma_map {
	phys_addr_t address;
	void *memory; /* NULL: unused */
	u64 used; /* by channel->map_clock */
};

struct softdma_channel {
	struct dma_chan chan;
	struct softdma *engine;
	struct task_struct *thread;
	wait_queue_head_t work; /* of the thread */
	wait_queue_head_t quiet; /* of synchronize */

	spinlock_t lock; /* guards what follows */
	struct softdma_desc *descs; /* NULL: no client has the channel */
	struct list_head idle;
	struct list_head submitted; /* not issued yet */
	struct list_head issued; /* the thread's to begin */
	struct list_head running; /* of the transaction that the thread has */
	struct list_head finished; /* completed, but no interrupt has told of it */
	unsigned int busy; /* threads that use descriptors which are in no list but running */
	unsigned int generation; /* of terminate_all: what began before is not told of */

	/* The thread's. */
	u64 free_ns; /* when the channel is done with what it has begun */
	u32 count; /* descriptors, for faults */
	u64 map_clock;
	struct softdma_map maps[SOFTDMA_MAPS];
};

struct softdma {
	struct dma_device dma;
	struct device *dev;
	bool dead; /* unbound, though clients may hold channels. Set under each channel's lock */
	unsigned int count;
	struct work_struct free_work;
	spinlock_t clock_lock; /* guards what follows */
	u64 link_free_ns, interrupt_free_ns;
	struct softdma_channel channels[];
};

extern unsigned int softdma_ring;
extern bool softdma_shuffle;

static inline struct softdma_channel *softdma_channel_of(struct dma_chan *chan)
{
	return container_of(chan, struct softdma_channel, chan);
}

/* ---- channel.c ---- */

void softdma_channel_init(struct softdma *engine, struct softdma_channel *channel);
int softdma_alloc(struct dma_chan *chan);
void softdma_free(struct dma_chan *chan);
struct dma_async_tx_descriptor *softdma_prepare(struct dma_chan *chan, dma_addr_t to,
						dma_addr_t from, size_t bytes, unsigned long flags);
void softdma_issue(struct dma_chan *chan);
int softdma_terminate(struct dma_chan *chan);
void softdma_synchronize(struct dma_chan *chan);
enum dma_status softdma_status(struct dma_chan *chan, dma_cookie_t cookie,
			       struct dma_tx_state *state);
/* Calls back for finished descriptors, as after an interrupt. */
void softdma_reap(struct softdma_channel *channel);
/* The engine goes: its thread ends, and all descriptors as aborted. There are no new ones. */
void softdma_unbind(struct softdma_channel *channel);

/* ---- thread.c ---- */

int softdma_thread(void *context);

/* ---- map.c ---- */

/*
 * The memory at a DMA address; NULL: there is none, or it can't be mapped. *bytes: in, how many are
 * wanted; out, how many of them lie there in one piece. Of the channel's thread.
 */
void *softdma_memory(struct softdma_channel *channel, dma_addr_t address, size_t *bytes);
void softdma_maps_free(struct softdma_channel *channel);

#endif
