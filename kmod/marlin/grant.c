// SPDX-License-Identifier: GPL-2.0
/*
 * Grants of this machine's pages to a peer (core/marlin/grants.h).
 *
 *   cmmc_grant_make --> live --cmmc_grant_revoke--> revoked --no copy is under way--> pages free
 *                         |                           ^
 *                         '-- file closed: orphan ----+---- the session ended
 *
 * A peer that ends a session has ended its copies before (pair words). One that died in a copy
 * can't say so: its copy words stay. After the link was down for GRANT_DEAD they are cleared here.
 * A bridge without a link carries no stores.
 */
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "compat/compat.h"
#include "marlin/cmmc.h"

/*
 * In the lab a pulled cable carries stores on. A live peer ends its copies as soon as it hears of
 * the cable, and clears its copy words then; this is far longer.
 */
#define GRANT_DEAD (2 * HZ)

/* ---- page lists ---- */

static u64 grant_lists(unsigned long count)
{
	return DIV_ROUND_UP(count, MARLIN_LIST_PAGES);
}

static void grant_directory_free(__le64 *directory, unsigned long count)
{
	for (u64 i = 0; i < grant_lists(count) && directory[i]; i++)
		free_page((unsigned long)phys_to_virt(le64_to_cpu(directory[i])));
	free_page((unsigned long)directory);
}

/* The lists that tell the peer of the pages. Only this machine reads what it wrote itself. */
static __le64 *grant_directory(const struct cmmc_pin *pin)
{
	__le64 *directory = (__le64 *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
	__le64 *list = NULL;

	if (!directory)
		return NULL;
	for (unsigned long n = 0; n < pin->count; n++) {
		if (n % MARLIN_LIST_PAGES == 0) {
			list = (__le64 *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
			if (!list) {
				grant_directory_free(directory, pin->count);
				return NULL;
			}
			directory[n / MARLIN_LIST_PAGES] = cpu_to_le64(virt_to_phys(list));
		}
		list[n % MARLIN_LIST_PAGES] = cpu_to_le64(page_to_phys(pin->pages[n]));
	}
	return directory;
}

/* ---- life of a grant ---- */

/* No copy can be under way: the pages are the program's alone again. */
static void grant_release(struct cmmc_grant *grant)
{
	grant_directory_free(grant->directory, grant->pin.count);
	cmmc_pin_end(&grant->pin);
	if (grant->signal)
		eventfd_ctx_put(grant->signal);
	grant->cmmc = NULL;
}

/* Pages, their lists, and the eventfd. */
static int grant_prepare(struct cmmc_grant *grant, const struct cmmc_translate *in)
{
	int err;

	if (in->flags & CMMC_GRANT_EVENTFD) {
		grant->signal = eventfd_ctx_fdget(in->eventfd);
		if (IS_ERR(grant->signal))
			return PTR_ERR(grant->signal);
	}
	err = cmmc_pin_start(&grant->pin, in->address, in->bytes, in->flags & CMMC_GRANT_WRITE);
	if (err)
		goto put_signal;
	grant->directory = grant_directory(&grant->pin);
	if (grant->directory)
		return 0;
	err = -ENOMEM;
	cmmc_pin_end(&grant->pin);
put_signal:
	if (grant->signal)
		eventfd_ctx_put(grant->signal);
	return err;
}

/* Makes the pages known to the peer. */
static int grant_publish(struct marlin_cmmc *cmmc, struct cmmc_grant *grant, u32 rights)
{
	struct grants_range range = {
		.directory = virt_to_phys(grant->directory),
		.bytes = grant->pin.bytes,
		.offset = grant->pin.offset,
		.rights = rights,
	};
	int index = -ENOLINK;

	get_random_bytes(grant->key, sizeof(grant->key));
	memcpy(range.key, grant->key, sizeof(range.key));
	spin_lock(&cmmc->lock);
	if (cmmc->open) {
		index = grants_add(&cmmc->core, &range);
		if (index < 0)
			index = -ENOSPC;
	}
	if (index >= 0) {
		grant->cmmc = cmmc;
		grant->index = index;
		grant->epoch = cmmc->core.slots[index].epoch;
		grant->signals = le32_to_cpu(READ_ONCE(cmmc_own_window(cmmc)->signal[index]));
		grant->live = true;
		list_add_tail(&grant->link, &cmmc->grants);
	}
	spin_unlock(&cmmc->lock);
	return min(index, 0);
}

struct cmmc_grant *cmmc_grant_make(struct marlin_cmmc *cmmc, const struct cmmc_translate *in)
{
	struct cmmc_grant *grant = kzalloc(sizeof(*grant), GFP_KERNEL_ACCOUNT);
	int err;

	if (!grant)
		return ERR_PTR(-ENOMEM);
	err = grant_prepare(grant, in);
	if (!err) {
		err = grant_publish(cmmc, grant, in->flags & (CMMC_GRANT_READ | CMMC_GRANT_WRITE));
		if (err)
			grant_release(grant);
	}
	if (err) {
		kfree(grant);
		return ERR_PTR(err);
	}
	return grant;
}

static void grant_end_locked(struct cmmc_grant *grant)
{
	list_del(&grant->link);
	grants_end(&grant->cmmc->core, grant->index);
}

static void grant_revoke_locked(struct cmmc_grant *grant)
{
	if (grant->live)
		grants_revoke(&grant->cmmc->core, grant->index);
	grant->live = false;
}

static bool grant_is_quiet(struct cmmc_grant *grant)
{
	bool quiet;

	spin_lock(&grant->cmmc->lock);
	quiet = grants_is_quiet(&grant->cmmc->core, grant->index);
	spin_unlock(&grant->cmmc->lock);
	return quiet;
}

/* Returns when no copy is under way, or -EINTR: the grant is revoked, but there may be copies. */
int cmmc_grant_revoke(struct cmmc_grant *grant)
{
	struct marlin_cmmc *cmmc = grant->cmmc;

	if (!cmmc)
		return 0;
	spin_lock(&cmmc->lock);
	grant_revoke_locked(grant);
	spin_unlock(&cmmc->lock);
	return wait_event_interruptible(cmmc->quiet, grant_is_quiet(grant)) ? -EINTR : 0;
}

/* The grant is revoked and quiet. */
void cmmc_grant_free(struct cmmc_grant *grant)
{
	struct marlin_cmmc *cmmc = grant->cmmc;

	if (cmmc) {
		spin_lock(&cmmc->lock);
		grant_end_locked(grant);
		spin_unlock(&cmmc->lock);
		grant_release(grant);
	}
	kfree(grant);
}

/* Its file was closed. Copies may be under way, so the device ends it. */
void cmmc_grant_orphan(struct cmmc_grant *grant)
{
	struct marlin_cmmc *cmmc = grant->cmmc;

	if (!cmmc) {
		kfree(grant);
		return;
	}
	spin_lock(&cmmc->lock);
	grant_revoke_locked(grant);
	grant->orphan = true;
	spin_unlock(&cmmc->lock);
	cmmc_grants_look(cmmc);
}

/* ---- all grants to a peer ---- */

static void grant_look_signal(struct marlin_cmmc *cmmc, struct cmmc_grant *grant)
{
	u32 signals = le32_to_cpu(READ_ONCE(cmmc_own_window(cmmc)->signal[grant->index]));

	if (!grant->live || !grant->signal || signals == grant->signals)
		return;
	grant->signals = signals;
	compat_eventfd_signal(grant->signal);
}

/* The peer may have ended copies, or signalled. */
void cmmc_grants_look(struct marlin_cmmc *cmmc)
{
	struct cmmc_grant *grant, *next;
	LIST_HEAD(ended);

	spin_lock(&cmmc->lock);
	list_for_each_entry_safe(grant, next, &cmmc->grants, link) {
		grant_look_signal(cmmc, grant);
		if (grant->orphan && grants_is_quiet(&cmmc->core, grant->index)) {
			grant_end_locked(grant);
			list_add(&grant->link, &ended);
		}
	}
	spin_unlock(&cmmc->lock);
	list_for_each_entry_safe(grant, next, &ended, link) {
		grant_release(grant);
		kfree(grant);
	}
	wake_up_all(&cmmc->quiet);
}

/* The session began: the peer may learn of the table. */
void cmmc_grants_start(struct marlin_cmmc *cmmc)
{
	spin_lock(&cmmc->lock);
	if (!cmmc->core.table)
		grants_init(&cmmc->core, cmmc->table, (const u64 *)cmmc_own_window(cmmc)->copy,
			    get_random_u64());
	cmmc->open = true;
	spin_unlock(&cmmc->lock);
	WRITE_ONCE(cmmc_peer_window(cmmc)->table, cpu_to_le64(virt_to_phys(cmmc->table)));
}

/* The session ended. */
void cmmc_grants_stop(struct marlin_cmmc *cmmc)
{
	struct cmmc_grant *grant;

	spin_lock(&cmmc->lock);
	cmmc->open = false;
	list_for_each_entry(grant, &cmmc->grants, link)
		grant_revoke_locked(grant);
	spin_unlock(&cmmc->lock);
	cmmc_grants_look(cmmc);
	mod_delayed_work(system_wq, &cmmc->dead_work, GRANT_DEAD);
}

static void grant_dead_work(struct work_struct *work)
{
	struct marlin_cmmc *cmmc = container_of(to_delayed_work(work), struct marlin_cmmc,
						dead_work);
	struct marlin_peer *peer = cmmc->peer;

	/* With a link the peer says by its pair word when its copies have ended. */
	if (ntb_link_is_up(peer->md->ntb, NULL, NULL) & BIT_ULL(peer->index))
		return;
	spin_lock(&cmmc->lock);
	/* Before it is open, no peer has the table, so none has begun a copy of a new session. */
	if (cmmc->core.table && !cmmc->open)
		memset(cmmc_own_window(cmmc)->copy, 0, sizeof(cmmc_own_window(cmmc)->copy));
	spin_unlock(&cmmc->lock);
	cmmc_grants_look(cmmc);
}

int cmmc_grant_init(struct marlin_cmmc *cmmc)
{
	spin_lock_init(&cmmc->lock);
	INIT_LIST_HEAD(&cmmc->grants);
	init_waitqueue_head(&cmmc->quiet);
	INIT_DELAYED_WORK(&cmmc->dead_work, grant_dead_work);
	cmmc->table = alloc_pages_exact(MARLIN_GRANTS * sizeof(*cmmc->table),
					GFP_KERNEL | __GFP_ZERO);
	return cmmc->table ? 0 : -ENOMEM;
}

static bool grant_all_quiet(struct marlin_cmmc *cmmc)
{
	struct cmmc_grant *grant;
	bool quiet = true;

	spin_lock(&cmmc->lock);
	list_for_each_entry(grant, &cmmc->grants, link)
		quiet &= grants_is_quiet(&cmmc->core, grant->index);
	spin_unlock(&cmmc->lock);
	return quiet;
}

/* The device goes, and its links are down. No call of a program runs. */
void cmmc_grant_exit(struct marlin_cmmc *cmmc)
{
	struct cmmc_grant *grant, *next;

	wait_event_timeout(cmmc->quiet, grant_all_quiet(cmmc), GRANT_DEAD);
	cancel_delayed_work_sync(&cmmc->dead_work);
	list_for_each_entry_safe(grant, next, &cmmc->grants, link) {
		list_del(&grant->link);
		grant_release(grant);
		if (grant->orphan)
			kfree(grant);
	}
	free_pages_exact(cmmc->table, MARLIN_GRANTS * sizeof(*cmmc->table));
}
