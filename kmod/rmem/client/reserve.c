// SPDX-License-Identifier: GPL-2.0
#include "rmem/client/reserve.h"

#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/vmstat.h>
#include <linux/workqueue.h>

#include "compat/compat.h"
#include "rmem/client/count.h"

/*
 * Blocks of 64 KiB: free_pages() puts those of up to 32 KiB on a CPU's own list, where they don't
 * count as free.
 */
#define RESERVE_ORDER	    4
#define RESERVE_BLOCK_PAGES BIT(RESERVE_ORDER)
/*
 * 4 MiB for network cards' rings, 512 KiB for each CPU's messages; at most 1/32 of the RAM. These
 * are some 500 of 1 KiB, for their data lies in the pages that are written. A sealed one has its
 * data and its seal in memory of its own: 1.5 KiB where the MTU is 1500, or 2 KiB more.
 */
#define RESERVE_BLOCKS	    64UL
#define RESERVE_BLOCKS_CPU  8UL
#define RESERVE_BLOCKS_CPU_SEALED 16UL
#define RESERVE_BLOCKS_MAX  1024UL
#define RESERVE_RAM_SHARE   32
/* The network takes no more between two looks: the rings of a card, filled anew. */
#define RESERVE_MARGIN_PAGES 1024UL
/* The first attempt to fill it again, and the longest pause between two. */
#define RESERVE_FILL_MS	    100U
#define RESERVE_FILL_MS_MAX 10000U
#define RESERVE_IDLE	    UINT_MAX
/* Silence after which tasks get all blocks: half of them did not bring the network back. */
#define RESERVE_SILENT_NS (10 * NSEC_PER_SEC)

/* Guards reserve_users, reserve_users_sealed, and changes of reserve_wanted. */
static DEFINE_MUTEX(reserve_mutex);
static unsigned int reserve_users, reserve_users_sealed;

static DEFINE_SPINLOCK(reserve_lock);	  /* guards reserve_blocks, and changes of reserve_held */
static LIST_HEAD(reserve_blocks);	  /* struct page.lru */
static unsigned long reserve_held;	  /* blocks */
static unsigned long reserve_wanted;	  /* blocks; 0: no disk is attached */
static unsigned int reserve_pause_ms;	  /* before reserve_work's run; RESERVE_IDLE: it is full */

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
	RESERVE_NETWORK, /* GFP_ATOMIC fails soon */
	RESERVE_TASKS,	 /* GFP_KERNEL reclaims */
	RESERVE_PLENTY,	 /* nothing does */
};

/*
 * Pages that are free at a level. The page allocator adds watermark_boost, its answer to
 * fragmentation, to each watermark: up to 3/2 of the high one. A block that is given leaves less
 * than min free, so no task takes pages of it.
 */
static unsigned long reserve_level_pages(const struct zone *zone, enum reserve_level level)
{
	unsigned long boost = READ_ONCE(zone->watermark_boost);
	unsigned long least = READ_ONCE(zone->_watermark[WMARK_MIN]) + boost;

	switch (level) {
	case RESERVE_NETWORK:
		return min(least - min(least, RESERVE_BLOCK_PAGES),
			   least * 3 / 8 + RESERVE_MARGIN_PAGES);
	case RESERVE_TASKS:
		return least;
	default:
		return READ_ONCE(zone->_watermark[WMARK_LOW]) + boost + RESERVE_BLOCK_PAGES;
	}
}

/* Free pages that GFP_ATOMIC can have: none of those kept for higher orders or for CMA. */
static unsigned long reserve_free_pages(struct zone *zone)
{
	unsigned long others = compat_zone_kept(zone) + zone_page_state(zone, NR_FREE_CMA_PAGES);
	unsigned long pages = zone_page_state(zone, NR_FREE_PAGES);

	return pages > others ? pages - others : 0;
}

/* Is less free in each node? Then an allocation finds nothing in another node either. */
static bool reserve_is_below(enum reserve_level level)
{
	struct zone *zone;
	int node;

	for_each_online_node(node) {
		zone = reserve_zone(node);
		if (zone && reserve_free_pages(zone) >= reserve_level_pages(zone, level))
			return false;
	}
	return true;
}

bool rmem_reserve_tasks_have_memory(void)
{
	return !reserve_is_below(RESERVE_TASKS);
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

static bool reserve_take(gfp_t gfp)
{
	struct page *page = alloc_pages(gfp | __GFP_NOMEMALLOC | __GFP_NOWARN, RESERVE_ORDER);

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

static void reserve_fill_later(unsigned int pause_ms)
{
	WRITE_ONCE(reserve_pause_ms, pause_ms);
	mod_delayed_work(system_wq, &reserve_work, msecs_to_jiffies(pause_ms));
}

/* Takes free blocks, without reclaim: kswapd and kcompactd are woken. */
static void reserve_fill(struct work_struct *work)
{
	while (READ_ONCE(reserve_held) < READ_ONCE(reserve_wanted)) {
		if (!reserve_is_below(RESERVE_PLENTY) && reserve_take(GFP_NOWAIT))
			continue;
		reserve_fill_later(min(2 * reserve_pause_ms, RESERVE_FILL_MS_MAX));
		return;
	}
	WRITE_ONCE(reserve_pause_ms, RESERVE_IDLE);
}

/* In blocks. */
static unsigned long reserve_need(void)
{
	unsigned long cpu = RESERVE_BLOCKS_CPU, most;

	lockdep_assert_held(&reserve_mutex);
	if (!reserve_users)
		return 0;
	if (reserve_users_sealed)
		cpu += RESERVE_BLOCKS_CPU_SEALED;
	most = min(totalram_pages() / RESERVE_RAM_SHARE / RESERVE_BLOCK_PAGES, RESERVE_BLOCKS_MAX);
	return min(RESERVE_BLOCKS + num_online_cpus() * cpu, most);
}

void rmem_reserve_get(bool sealed)
{
	unsigned long before;

	mutex_lock(&reserve_mutex);
	before = reserve_wanted;
	reserve_users++;
	reserve_users_sealed += sealed;
	WRITE_ONCE(reserve_wanted, reserve_need());
	if (reserve_wanted > before) {
		while (reserve_held < reserve_wanted && reserve_take(GFP_KERNEL | __GFP_NORETRY))
			;
		reserve_fill_later(RESERVE_FILL_MS);
	}
	mutex_unlock(&reserve_mutex);
}

void rmem_reserve_put(bool sealed)
{
	mutex_lock(&reserve_mutex);
	reserve_users--;
	reserve_users_sealed -= sealed;
	WRITE_ONCE(reserve_wanted, reserve_need());
	if (!reserve_users)
		cancel_delayed_work_sync(&reserve_work);
	while (reserve_held > reserve_wanted && reserve_give())
		;
	mutex_unlock(&reserve_mutex);
}

void rmem_reserve_stop(void)
{
	cancel_delayed_work_sync(&reserve_work);
}

void rmem_reserve_tend(struct rmem_device *device, u64 silent_ns)
{
	enum reserve_level level = silent_ns ? RESERVE_TASKS : RESERVE_NETWORK;
	unsigned long kept = 0;

	if (unlikely(silent_ns) && silent_ns < RESERVE_SILENT_NS)
		kept = READ_ONCE(reserve_wanted) / 2;

	while (READ_ONCE(reserve_held) > kept && unlikely(reserve_is_below(level)) &&
	       reserve_give())
		rmem_count(device, RMEM_COUNT_RESERVE);
	/* The work's pauses grow while memory is short: a long one ends once there is plenty. */
	if (unlikely(READ_ONCE(reserve_held) < READ_ONCE(reserve_wanted)) &&
	    READ_ONCE(reserve_pause_ms) > RESERVE_FILL_MS && !reserve_is_below(RESERVE_PLENTY))
		reserve_fill_later(RESERVE_FILL_MS);
}
