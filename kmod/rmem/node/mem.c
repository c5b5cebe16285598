// SPDX-License-Identifier: GPL-2.0
/*
 * The lent memory: reserved whole at start, so that it is the kernel's own, never
 * swapped and nothing the OOM killer could take, and given back whole at stop.
 *
 * A thread zeroes pages for the core's pool. A page that was in use goes through
 *
 *   left the table --> grace period --> no packet refers to it --> zeroed --> ready
 *                   (requests ended)      '-- else put off
 *
 * One grace period is for all pages that wait when it begins. It begins when they are half the
 * pool, so that pages freed and written again at the network's rate are ready in time. When packets
 * in some queue refer to all that is left, the thread looks again after a pause that doubles up to
 * SCRUB_PAUSE_MS_MAX.
 */
#include <linux/gfp.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/vmalloc.h>

#include "compat/compat.h"
#include "rmem/node/count.h"
#include "rmem/node/mem.h"
#include "rmem/node/trace.h"
#include "rmem/node/types.h"

/* Pages zeroed before the thread looks for the end of a grace period. */
#define SCRUB_BATCH 32
#define SCRUB_PAUSE_MS_MIN 2
#define SCRUB_PAUSE_MS_MAX 1000
#define SCRUB_WANTED 0 /* bit of node_mem.wanted */

/* The reference count of a page that the node alone refers to. */
#define PAGE_BASE_REFERENCES 1

/* A sixteenth of the machine's memory stays free, and this at least. */
#define MARGIN_SHIFT 4
#define MARGIN_BYTES_MIN (32ULL << 20)

/* ---- reservation ---- */

static u64 mem_mib(u64 bytes)
{
	return bytes >> 20;
}

static int mem_check_fits(u64 memory_bytes, u64 extra_bytes, struct netlink_ext_ack *extack)
{
	u64 margin = max_t(u64, MARGIN_BYTES_MIN,
			   (u64)totalram_pages() << PAGE_SHIFT >> MARGIN_SHIFT);
	u64 free = (u64)max(si_mem_available(), 0L) << PAGE_SHIFT;
	u64 usable = free > margin + extra_bytes ? free - margin - extra_bytes : 0;

	if (memory_bytes <= usable)
		return 0;
	NL_SET_ERR_MSG_FMT_MOD(extack, "%llu MiB do not fit, %llu MiB are available; lower MEMORY",
			       mem_mib(memory_bytes), mem_mib(usable));
	return -ENOMEM;
}

static void mem_free_pages_of(struct node_mem *mem)
{
	while (mem->pages) {
		put_page(mem->page[--mem->pages]);
		cond_resched();
	}
}

static int mem_allocate_pages(struct node_mem *mem, u64 pages, struct netlink_ext_ack *extack)
{
	gfp_t gfp = GFP_KERNEL | __GFP_COMP | __GFP_NOWARN | __GFP_RETRY_MAYFAIL;
	struct page *page;

	while (mem->pages < pages) {
		if (signal_pending(current)) {
			NL_SET_ERR_MSG_MOD(extack, "interrupted while reserving memory");
			return -EINTR;
		}
		page = alloc_pages(gfp, mem->order);
		if (!page) {
			NL_SET_ERR_MSG_FMT_MOD(extack,
					       "got %llu of %llu pages: lower MEMORY or PAGE_BYTES",
					       mem->pages, pages);
			return -ENOMEM;
		}
		mem->page[mem->pages++] = page;
		cond_resched();
	}
	return 0;
}

/* extra_bytes: memory that the caller is going to allocate beside. */
int node_mem_reserve(struct node_mem *mem, const struct rmem_node_config *config, u64 extra_bytes,
		     struct netlink_ext_ack *extack)
{
	int err;

	extra_bytes += config->pages * sizeof(*mem->page);
	err = mem_check_fits(config->pages << config->page_shift, extra_bytes, extack);
	if (err)
		return err;

	mem->pages = 0;
	mem->order = config->page_shift > PAGE_SHIFT ? config->page_shift - PAGE_SHIFT : 0;
	init_waitqueue_head(&mem->wait);
	/* kvcalloc() refuses INT_MAX and more, which RMEM_NODE_PAGES_MAX pages take. */
	mem->page = vcalloc(config->pages, sizeof(*mem->page));
	if (!mem->page) {
		NL_SET_ERR_MSG_MOD(extack, "no memory for the list of pages; lower MEMORY");
		return -ENOMEM;
	}
	mem->zero = alloc_pages(GFP_KERNEL | __GFP_COMP | __GFP_ZERO,
				get_order(RMEM_PIECE_BYTES_MAX));
	if (!mem->zero) {
		NL_SET_ERR_MSG_MOD(extack, "no memory for the page of zeros");
		err = -ENOMEM;
		goto free_list;
	}
	err = mem_allocate_pages(mem, config->pages, extack);
	if (err)
		goto free_pages;
	return 0;

free_pages:
	mem_free_pages_of(mem);
	put_page(mem->zero);
free_list:
	vfree(mem->page);
	return err;
}

/* Packets still on their way keep their pages; those are freed with the packets. */
void node_mem_release(struct node_mem *mem)
{
	mem_free_pages_of(mem);
	put_page(mem->zero);
	vfree(mem->page);
}

/* ---- scrubbing ---- */

/* Ends the grace period under way if it has passed, and begins one for pages that wait. */
static void mem_tend_grace(struct node_host *host)
{
	struct node_mem *mem = &host->mem;

	mutex_lock(&host->slow_lock);
	if (mem->in_grace && poll_state_synchronize_rcu(mem->grace)) {
		rmem_node_grace_end(&host->core);
		mem->in_grace = false;
	}
	if (!mem->in_grace && rmem_node_grace_begin(&host->core)) {
		mem->grace = start_poll_synchronize_rcu();
		mem->in_grace = true;
	}
	mutex_unlock(&host->slow_lock);
}

static u32 mem_next_page(struct node_host *host)
{
	u32 page;

	mutex_lock(&host->slow_lock);
	page = rmem_node_scrub_quiet(&host->core);
	mutex_unlock(&host->slow_lock);
	return page;
}

/*
 * After the grace period nobody can come upon the page any more, so its count
 * only falls: a page seen without references stays so. Returns whether it was zeroed.
 */
static bool mem_scrub_page(struct node_host *host, u32 index)
{
	struct page *page = host->mem.page[index];
	int references = page_count(page) - PAGE_BASE_REFERENCES;

	if (!references)
		memset(page_address(page), 0, PAGE_SIZE << host->mem.order);

	mutex_lock(&host->slow_lock);
	if (references)
		rmem_node_scrub_later(&host->core, index);
	else
		rmem_node_scrub_done(&host->core, index);
	mutex_unlock(&host->slow_lock);

	node_count(references ? NODE_COUNT_HELD : NODE_COUNT_SCRUBBED);
	trace_rmem_node_scrub(index, references);
	return !references;
}

static bool mem_is_wanted(const struct node_host *host)
{
	return rmem_node_scrub_wanted(&host->core) || rmem_node_grace_wanted(&host->core);
}

enum scrubbed {
	SCRUB_IDLE,  /* nothing to be had */
	SCRUB_SOME,  /* go on */
	SCRUB_STUCK, /* only pages somebody refers to */
	SCRUB_GRACE, /* only pages that wait for a grace period */
};

static enum scrubbed mem_scrub_batch(struct node_host *host)
{
	unsigned int n, zeroed = 0;
	u32 page;

	mem_tend_grace(host);
	for (n = 0; n < SCRUB_BATCH; n++) {
		page = mem_next_page(host);
		if (page == RMEM_PAGE_NONE)
			break;
		zeroed += mem_scrub_page(host, page);
		cond_resched();
	}
	if (zeroed || n == SCRUB_BATCH)
		return SCRUB_SOME;
	if (n)
		return SCRUB_STUCK;
	return mem_is_wanted(host) ? SCRUB_GRACE : SCRUB_IDLE;
}

static bool mem_is_called(const struct node_host *host)
{
	return kthread_should_stop() || test_bit(SCRUB_WANTED, &host->mem.wanted) ||
	       mem_is_wanted(host);
}

static int mem_scrub_run(void *data)
{
	struct node_host *host = data;
	struct node_mem *mem = &host->mem;
	unsigned int pause_ms = SCRUB_PAUSE_MS_MIN;

	while (!kthread_should_stop()) {
		switch (mem_scrub_batch(host)) {
		case SCRUB_SOME:
			pause_ms = SCRUB_PAUSE_MS_MIN;
			break;
		case SCRUB_STUCK:
			wait_event_idle_timeout(mem->wait, kthread_should_stop(),
						msecs_to_jiffies(pause_ms) + 1);
			pause_ms = min(2 * pause_ms, SCRUB_PAUSE_MS_MAX + 0U);
			break;
		case SCRUB_GRACE:
			wait_event_idle_timeout(mem->wait, kthread_should_stop(), 1);
			break;
		case SCRUB_IDLE:
			clear_bit(SCRUB_WANTED, &mem->wanted);
			/* Pairs with node_mem_scrub(): we see the pool low, or it sees no bit. */
			smp_mb__after_atomic();
			wait_event_idle(mem->wait, mem_is_called(host));
			break;
		}
	}
	return 0;
}

void node_mem_scrub(struct node_host *host)
{
	struct node_mem *mem = &host->mem;

	if (likely(!mem_is_wanted(host)))
		return;
	/* Pairs with mem_scrub_run(). */
	smp_mb();
	if (!test_bit(SCRUB_WANTED, &mem->wanted) && !test_and_set_bit(SCRUB_WANTED, &mem->wanted))
		wake_up(&mem->wait);
}

/* The thread begins by filling the pool. */
int node_mem_start(struct node_host *host)
{
	struct task_struct *thread = kthread_run(mem_scrub_run, host, "rmem_node/scrub");

	if (IS_ERR(thread))
		return PTR_ERR(thread);
	host->mem.scrubber = thread;
	return 0;
}

void node_mem_stop(struct node_host *host)
{
	kthread_stop(host->mem.scrubber);
}
