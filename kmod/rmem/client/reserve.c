// SPDX-License-Identifier: GPL-2.0
#include "rmem/client/reserve.h"

#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/vmstat.h>
#include <linux/workqueue.h>

#include "compat/compat.h"
#include "rmem/client/device.h"

/*
 * Blocks of 64 KiB: free_pages() puts those of up to 32 KiB on a CPU's own list, where they don't
 * count as free.
 */
#define RESERVE_ORDER	    4
#define RESERVE_BLOCK_PAGES BIT(RESERVE_ORDER)
/* 4 MiB for network cards' rings, 512 KiB for what each CPU sends; at most 1/64 of the RAM. */
#define RESERVE_BLOCKS	    64UL
#define RESERVE_BLOCKS_CPU  8UL
#define RESERVE_RAM_SHARE   64
#define RESERVE_FILL_MS	    100U

static DEFINE_MUTEX(reserve_mutex); /* guards reserve_users */
static unsigned int reserve_users;

static DEFINE_SPINLOCK(reserve_lock);	  /* guards reserve_blocks, and changes of reserve_held */
static LIST_HEAD(reserve_blocks);	  /* struct page.lru */
static unsigned long reserve_held;	  /* blocks */
static unsigned long reserve_wanted;	  /* blocks; 0: no disk is attached */

static void reserve_fill(struct work_struct *work);
static DECLARE_DELAYED_WORK(reserve_work, reserve_fill);

/* ---- how much is free ---- */

/* Where GFP_ATOMIC finds a node's memory first. */
static struct zone *reserve_zone(int node)
{
	struct zone *zone = &NODE_DATA(node)->node_zones[ZONE_NORMAL];

	while (zone > NODE_DATA(node)->node_zones && !populated_zone(zone))
		zone--;
	return populated_zone(zone) ? zone : NULL;
}

enum reserve_level {
	RESERVE_NETWORK, /* GFP_ATOMIC is about to fail */
	RESERVE_TASKS,	 /* GFP_KERNEL reclaims */
	RESERVE_PLENTY,	 /* kswapd sleeps */
};

/* Pages that are free at a level. watermark_boost is the kernel's answer to fragmentation. */
static unsigned long reserve_level_pages(const struct zone *zone, enum reserve_level level)
{
	switch (level) {
	case RESERVE_NETWORK:
		return READ_ONCE(zone->_watermark[WMARK_MIN]) * 3 / 4;
	case RESERVE_TASKS:
		return READ_ONCE(zone->_watermark[WMARK_MIN]) + READ_ONCE(zone->watermark_boost);
	default:
		return READ_ONCE(zone->_watermark[WMARK_HIGH]) + READ_ONCE(zone->watermark_boost) +
		       RESERVE_BLOCK_PAGES;
	}
}

/* Is less free in each node? Then an allocation finds nothing in another node either. */
static bool reserve_is_below(enum reserve_level level)
{
	struct zone *zone;
	int node;

	for_each_online_node(node) {
		zone = reserve_zone(node);
		if (zone && zone_page_state(zone, NR_FREE_PAGES) >=
				    reserve_level_pages(zone, level) + compat_zone_kept(zone))
			return false;
	}
	return true;
}

unsigned long rmem_reserve_min_free_kib(void)
{
	unsigned long pages = 0;
	struct zone *zone;
	int node;

	for_each_online_node(node) {
		for (zone = NODE_DATA(node)->node_zones;
		     zone <= &NODE_DATA(node)->node_zones[ZONE_NORMAL]; zone++)
			pages += zone->_watermark[WMARK_MIN];
	}
	return pages << (PAGE_SHIFT - 10);
}

/* ---- blocks ---- */

static bool reserve_take(void)
{
	struct page *page = alloc_pages(GFP_NOIO | __GFP_NORETRY | __GFP_NOMEMALLOC |
					__GFP_NOWARN, RESERVE_ORDER);

	if (!page)
		return false;
	spin_lock_bh(&reserve_lock);
	list_add(&page->lru, &reserve_blocks);
	WRITE_ONCE(reserve_held, reserve_held + 1);
	spin_unlock_bh(&reserve_lock);
	return true;
}

static bool reserve_give(void)
{
	struct page *page;

	spin_lock_bh(&reserve_lock);
	page = list_first_entry_or_null(&reserve_blocks, struct page, lru);
	if (page) {
		list_del(&page->lru);
		WRITE_ONCE(reserve_held, reserve_held - 1);
	}
	spin_unlock_bh(&reserve_lock);
	if (page)
		__free_pages(page, RESERVE_ORDER);
	return page;
}

static void reserve_fill_later(void)
{
	queue_delayed_work(system_wq, &reserve_work, msecs_to_jiffies(RESERVE_FILL_MS));
}

static void reserve_fill(struct work_struct *work)
{
	while (READ_ONCE(reserve_held) < READ_ONCE(reserve_wanted)) {
		if (!reserve_is_below(RESERVE_PLENTY) && reserve_take())
			continue;
		reserve_fill_later();
		return;
	}
}

void rmem_reserve_get(void)
{
	unsigned long most = totalram_pages() / RESERVE_RAM_SHARE / RESERVE_BLOCK_PAGES;

	mutex_lock(&reserve_mutex);
	if (!reserve_users++) {
		WRITE_ONCE(reserve_wanted,
			   min(RESERVE_BLOCKS + num_online_cpus() * RESERVE_BLOCKS_CPU, most));
		reserve_fill(NULL);
	}
	mutex_unlock(&reserve_mutex);
}

void rmem_reserve_put(void)
{
	mutex_lock(&reserve_mutex);
	if (!--reserve_users) {
		WRITE_ONCE(reserve_wanted, 0);
		cancel_delayed_work_sync(&reserve_work);
		while (reserve_give())
			;
	}
	mutex_unlock(&reserve_mutex);
}

void rmem_reserve_stop(void)
{
	cancel_delayed_work_sync(&reserve_work);
}

void rmem_reserve_tend(struct rmem_device *device, bool silent)
{
	enum reserve_level level = silent ? RESERVE_TASKS : RESERVE_NETWORK;
	bool given = false;

	while (READ_ONCE(reserve_held) && unlikely(reserve_is_below(level)) && reserve_give()) {
		rmem_count(device, RMEM_COUNT_RESERVE);
		given = true;
	}
	if (unlikely(given) && READ_ONCE(reserve_wanted))
		reserve_fill_later();
}
