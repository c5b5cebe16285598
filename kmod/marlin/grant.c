// SPDX-License-Identifier: GPL-2.0
/*
 * Grants of this machine's pages to a peer (core/marlin/grants.h).
 *
 *   cmmc_grant_new, _publish --> live --cmmc_grant_revoke--> revoked --no copy--> pages free
 *                                  |                           ^
 *                                  '-- file closed: orphan ----+---- the session ended
 *
 * A peer that ends a session has ended its copies before (pair words). One that died in a copy
 * can't say so: its copy words stay. After the link was down for CMMC_DEAD they are cleared here.
 * A bridge without a link carries no stores.
 *
 * The table is in the peer's memory. A grant is loaded back, and of a revoked one the word: so what
 * the link lost is noticed, whenever its driver tells.
 */
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "compat/compat.h"
#include "marlin/cmmc.h"
#include "marlin/trace.h"

/*
 * Copies may have ended, or a device has gone. Of all devices, for a program that waits for the end
 * of its grant's copies holds none.
 */
static DECLARE_WAIT_QUEUE_HEAD(grant_quiet);
static atomic_t grant_changes;

int cmmc_grants_changes(void)
{
	return atomic_read_acquire(&grant_changes); /* pairs with grant_changed() */
}

/* Returns after a change since cmmc_grants_changes() gave that number, or -EINTR. */
int cmmc_grants_wait(int changes)
{
	return wait_event_interruptible(grant_quiet, cmmc_grants_changes() != changes) ? -EINTR : 0;
}

static void grant_changed(void)
{
	atomic_inc_return_release(&grant_changes); /* pairs with cmmc_grants_changes() */
	wake_up_all(&grant_quiet);
}

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
	free_page((unsigned long)grant->bell);
	grant->bell = NULL;
	if (grant->signal)
		eventfd_ctx_put(grant->signal);
	grant->cmmc = NULL;
}

/* A copy may be under way for ever: the pages are never used for anything else. */
static void grant_leak(struct cmmc_grant *grant)
{
	const struct marlin_peer *peer = grant->cmmc->peer;

	dev_warn(&peer->md->ntb->dev,
		 "marlin: port %u might still copy to or from %lu pages: they are lost until the next boot\n",
		 peer->port, grant->pin.count);
	if (grant->signal)
		eventfd_ctx_put(grant->signal);
	grant->lost = true;
	grant->cmmc = NULL;
}

/* A doorbell has no pages of the program. */
static int grant_prepare_bell(struct cmmc_grant *grant)
{
	static_assert(sizeof(*grant->bell) <= PAGE_SIZE);
	grant->bell = (struct marlin_bell *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
	if (!grant->bell)
		return -ENOMEM;
	/* Its share of the grants is its user's. */
	grant->pin.user = get_uid(current_user());
	return 0;
}

static int grant_prepare_pages(struct cmmc_grant *grant, const struct cmmc_translate *in)
{
	int err = cmmc_pin_start(&grant->pin, in->address, in->bytes,
				 in->flags & CMMC_GRANT_WRITE);

	if (err)
		return err;
	grant->directory = grant_directory(&grant->pin);
	if (grant->directory)
		return 0;
	cmmc_pin_end(&grant->pin);
	return -ENOMEM;
}

/* Pages or a doorbell, and the eventfd. */
static int grant_prepare(struct cmmc_grant *grant, const struct cmmc_translate *in)
{
	int err;

	if (in->flags & CMMC_GRANT_EVENTFD) {
		grant->signal = eventfd_ctx_fdget(in->eventfd);
		if (IS_ERR(grant->signal))
			return PTR_ERR(grant->signal);
	}
	err = in->flags & CMMC_GRANT_BELL ? grant_prepare_bell(grant) :
					    grant_prepare_pages(grant, in);
	if (err && grant->signal)
		eventfd_ctx_put(grant->signal);
	return err;
}

/* A grant that no peer knows yet. Waits for the program's pages, so the caller holds no device. */
struct cmmc_grant *cmmc_grant_new(const struct cmmc_translate *in)
{
	struct cmmc_grant *grant = kzalloc(sizeof(*grant), GFP_KERNEL_ACCOUNT);
	int err;

	if (!grant)
		return ERR_PTR(-ENOMEM);
	grant->rights = in->flags & CMMC_GRANT_BELL ?
		MARLIN_GRANT_BELL : in->flags & (CMMC_GRANT_READ | CMMC_GRANT_WRITE);
	err = grant_prepare(grant, in);
	if (err) {
		kfree(grant);
		return ERR_PTR(err);
	}
	return grant;
}

/* A grant that wasn't published. */
void cmmc_grant_drop(struct cmmc_grant *grant)
{
	grant_release(grant);
	kfree(grant);
}

static phys_addr_t grant_directory_address(const struct cmmc_grant *grant)
{
	return grant->bell ? virt_to_phys(grant->bell) : virt_to_phys(grant->directory);
}

/* Whether the peer's window shows all that it is told of. */
static bool grant_is_shown(const struct marlin_cmmc *cmmc, const struct cmmc_grant *grant)
{
	const unsigned long count = grant->pin.count;

	if (grant_directory_address(grant) >= cmmc->own_bytes)
		return false;
	for (u64 i = 0; i < grant_lists(count); i++)
		if (le64_to_cpu(grant->directory[i]) >= cmmc->own_bytes)
			return false;
	for (unsigned long n = 0; n < count; n++)
		if (page_to_phys(grant->pin.pages[n]) >= cmmc->own_bytes)
			return false;
	return true;
}

/*
 * A user has no more of the grants to a peer than are left for others: n greedy users get
 * 1 / (n + 1) of them each, and as much is free for one more.
 */
static bool grant_has_share(const struct marlin_cmmc *cmmc, const struct cmmc_grant *grant)
{
	const struct cmmc_grant *other;
	u32 count = 0;

	lockdep_assert_held(&cmmc->lock);
	list_for_each_entry(other, &cmmc->grants, link)
		count += other->pin.user == grant->pin.user;
	return count < cmmc->core.free_count;
}

/* An entry that the peer has, or an error. */
static int grant_add(struct marlin_cmmc *cmmc, const struct grants_range *range)
{
	int index = grants_add(&cmmc->core, range);

	/* The handle can come to the peer by another way than the entry. */
	if (index < 0)
		return -ENOSPC;
	if (grants_has_arrived(&cmmc->core, index, range))
		return index;
	grants_revoke(&cmmc->core, index);
	grants_end(&cmmc->core, index);
	marlin_link_lost(cmmc->peer);
	return -ENOLINK;
}

/* Makes the pages known to the peer. Caller holds the device. */
int cmmc_grant_publish(struct marlin_cmmc *cmmc, struct cmmc_grant *grant)
{
	struct grants_range range = {
		.directory = grant_directory_address(grant),
		.bytes = grant->pin.bytes,
		.offset = grant->pin.offset,
		.rights = grant->rights,
	};
	int index = -ENOLINK;

	if (!grant_is_shown(cmmc, grant))
		return -EOPNOTSUPP;
	get_random_bytes(grant->key, sizeof(grant->key));
	memcpy(range.key, grant->key, sizeof(range.key));
	mutex_lock(&cmmc->lock);
	if (cmmc->open)
		index = grant_has_share(cmmc, grant) ? grant_add(cmmc, &range) : -ENOSPC;
	if (index >= 0) {
		grant->cmmc = cmmc;
		grant->index = index;
		grant->epoch = cmmc->core.slots[index].epoch;
		grant->signals = le32_to_cpu(READ_ONCE(cmmc_own_window(cmmc)->signal[index]));
		grant->live = true;
		list_add_tail(&grant->link, &cmmc->grants);
	}
	mutex_unlock(&cmmc->lock);
	return min(index, 0);
}

/* Copies that a revocation waits for. */
static unsigned int grant_copies(const struct cmmc_grant *grant)
{
	return hweight32(grant->cmmc->core.slots[grant->index].pending);
}

static void grant_end_locked(struct cmmc_grant *grant)
{
	struct marlin_cmmc *cmmc = grant->cmmc;

	trace_cmmc_free(cmmc->peer->port, grant->index, grant_copies(grant));
	list_del(&grant->link);
	grants_end(&cmmc->core, grant->index);
}

static void grant_revoked_locked(struct cmmc_grant *grant)
{
	struct marlin_cmmc *cmmc = grant->cmmc;

	grants_note(&cmmc->core, grant->index);
	grant->live = false;
	trace_cmmc_revoke(cmmc->peer->port, grant->index, grant_copies(grant));
}

static void grant_revoke_locked(struct cmmc_grant *grant)
{
	struct grants *core = &grant->cmmc->core;

	if (!grant->live)
		return;
	grants_withdraw(core, grant->index);
	grants_pull(core, grant->index);
	if (core->lost)
		marlin_link_lost(grant->cmmc->peer);
	grant_revoked_locked(grant);
}

/* 0: no copy is under way. -EAGAIN: ask again after the next change. -EBUSY: none will come. */
int cmmc_grant_revoke(struct cmmc_grant *grant)
{
	struct marlin_cmmc *cmmc = grant->cmmc;
	bool quiet;

	if (!cmmc)
		return grant->lost ? -EBUSY : 0;
	mutex_lock(&cmmc->lock);
	grant_revoke_locked(grant);
	quiet = grants_is_quiet(&cmmc->core, grant->index);
	mutex_unlock(&cmmc->lock);
	return quiet ? 0 : -EAGAIN;
}

/* The grant is revoked and quiet. */
void cmmc_grant_free(struct cmmc_grant *grant)
{
	struct marlin_cmmc *cmmc = grant->cmmc;

	if (cmmc) {
		mutex_lock(&cmmc->lock);
		grant_end_locked(grant);
		mutex_unlock(&cmmc->lock);
		grant_release(grant);
	}
	kfree(grant);
}

/* Its file was closed. Copies may be under way, so the device ends it: by cmmc_grants_look(). */
void cmmc_grant_orphan(struct cmmc_grant *grant)
{
	struct marlin_cmmc *cmmc = grant->cmmc;

	if (!cmmc) {
		kfree(grant);
		return;
	}
	mutex_lock(&cmmc->lock);
	grant_revoke_locked(grant);
	grant->orphan = true;
	mutex_unlock(&cmmc->lock);
}

/* The peer broke a rule. Of a revoked grant's memory no later session has to answer. */
static void grant_blame(struct cmmc_grant *grant)
{
	struct marlin_cmmc *cmmc = grant->cmmc;

	if (!cmmc)
		return;
	mutex_lock(&cmmc->lock);
	if (grant->live)
		marlin_link_fault(cmmc->peer, CMMC_FAULT);
	mutex_unlock(&cmmc->lock);
}

/*
 * The oldest number of a doorbell, and its place. It stays the oldest until cmmc_grant_taken().
 * Caller holds the device and the file's lock.
 */
int cmmc_grant_peek(struct cmmc_grant *grant, u64 *number, u32 *place)
{
	struct marlin_bell *bell = grant->bell;
	u32 held;

	if (grant->rights != MARLIN_GRANT_BELL)
		return -EINVAL;
	if (!bell)
		return -ENOLINK;
	held = le32_to_cpu(READ_ONCE(bell->rung)) - grant->taken;
	if (!held)
		return -EAGAIN;
	if (held > MARLIN_BELL_NUMBERS) {
		grant_blame(grant);
		return -EREMOTEIO;
	}
	rmb(); /* pairs with copy_ring(): the number came before the count */
	*number = le64_to_cpu(READ_ONCE(bell->number[grant->taken % MARLIN_BELL_NUMBERS]));
	*place = grant->taken;
	return 0;
}

/* The program has the number of that place. False: another thread of it was first. As above. */
bool cmmc_grant_taken(struct cmmc_grant *grant, u32 place)
{
	if (grant->taken != place)
		return false;
	grant->taken++;
	if (!grant->bell)
		return true;
	mb(); /* the peer may use its place again */
	WRITE_ONCE(grant->bell->taken, cpu_to_le32(grant->taken));
	return true;
}

/* ---- all grants to a peer ---- */

static void grant_look_signal(struct marlin_cmmc *cmmc, struct cmmc_grant *grant)
{
	u32 signals = le32_to_cpu(READ_ONCE(cmmc_own_window(cmmc)->signal[grant->index]));
	struct marlin_peer *peer = cmmc->peer;

	if (!grant->live || !grant->signal || signals == grant->signals)
		return;
	rmb(); /* the epoch is no older than the signal: a link that went can have lost the data */
	if (cmmc->core.lost || bus_epoch(&peer->bus) != READ_ONCE(peer->epoch))
		return;
	grant->signals = signals;
	compat_eventfd_signal(grant->signal);
}

/* A call of this machine waits for a word that the peer writes: a copy's end or a signal. */
static bool grant_waits(const struct cmmc_grant *grant)
{
	return grant->live ? !!grant->signal : !!grant_copies(grant);
}

/*
 * The doorbell may have come before the word. The owner that it woke sleeps again, so it loads, as
 * each end that sleeps: the completion comes behind the word.
 */
static void grants_look_behind(struct marlin_cmmc *cmmc)
{
	struct cmmc_grant *grant;

	lockdep_assert_held(&cmmc->lock);
	if (!cmmc->open)
		return;
	list_for_each_entry(grant, &cmmc->grants, link) {
		if (grant_waits(grant)) {
			grants_pull(&cmmc->core, grant->index);
			if (cmmc->core.lost)
				marlin_link_lost(cmmc->peer);
			return;
		}
	}
}

/* The peer may have ended copies, or signalled. */
void cmmc_grants_look(struct marlin_cmmc *cmmc)
{
	struct cmmc_grant *grant, *next;
	LIST_HEAD(ended);

	mutex_lock(&cmmc->lock);
	grants_look_behind(cmmc);
	list_for_each_entry_safe(grant, next, &cmmc->grants, link) {
		grant_look_signal(cmmc, grant);
		if (grant->orphan && grants_is_quiet(&cmmc->core, grant->index)) {
			grant_end_locked(grant);
			list_add(&grant->link, &ended);
		}
	}
	mutex_unlock(&cmmc->lock);
	list_for_each_entry_safe(grant, next, &ended, link) {
		grant_release(grant);
		kfree(grant);
	}
	grant_changed();
}

/* The session began: the peer has cleaned the table. */
void cmmc_grants_start(struct marlin_cmmc *cmmc)
{
	struct marlin_peer *peer = cmmc->peer;

	/* The work clears copy words. From now on the peer may begin copies. */
	cancel_delayed_work_sync(&cmmc->dead_work);
	mutex_lock(&cmmc->lock);
	if (!cmmc->core.table)
		grants_init(&cmmc->core, cmmc_peer_table(cmmc),
			    (const u64 *)cmmc_own_window(cmmc)->copy, &marlin_claim_bus, &peer->bus,
			    get_random_u64());
	grants_begin(&cmmc->core, peer->epoch);
	cmmc->open = true;
	mutex_unlock(&cmmc->lock);
}

/* As its pair word has it; without a link, none of the stages. */
static u32 grant_peer_stage(struct marlin_peer *peer)
{
	u32 word = ntb_peer_spad_read(peer->md->ntb, peer->index,
				      MARLIN_SPAD_PAIR + peer->md->port);

	return word >> MARLIN_STAGE_SHIFT & MARLIN_STAGE_MASK;
}

/* After the session: has the peer said that it ended it, and so its copies? */
static void grant_look_ended(struct marlin_cmmc *cmmc)
{
	lockdep_assert_held(&cmmc->lock);
	if (cmmc->core.table && !cmmc->open &&
	    grant_peer_stage(cmmc->peer) < MARLIN_STAGE_READY)
		grants_ended(&cmmc->core);
}

/* Likewise, when the peer may have said so since. A program may wait for it. */
void cmmc_grants_look_ended(struct marlin_cmmc *cmmc)
{
	bool open;

	mutex_lock(&cmmc->lock);
	open = cmmc->open;
	grant_look_ended(cmmc);
	mutex_unlock(&cmmc->lock);
	if (!open)
		cmmc_grants_look(cmmc);
}

/* The session ended. The peer's memory gets no store after the caller has flushed. */
void cmmc_grants_stop(struct marlin_cmmc *cmmc)
{
	struct cmmc_grant *grant;

	mutex_lock(&cmmc->lock);
	cmmc->open = false;
	list_for_each_entry(grant, &cmmc->grants, link)
		if (grant->live)
			grants_withdraw(&cmmc->core, grant->index);
	list_for_each_entry(grant, &cmmc->grants, link)
		if (grant->live)
			grants_pull(&cmmc->core, grant->index);
	list_for_each_entry(grant, &cmmc->grants, link)
		if (grant->live)
			grant_revoked_locked(grant);
	grant_look_ended(cmmc);
	mutex_unlock(&cmmc->lock);
	cmmc_grants_look(cmmc);
	cmmc->down = false;
	cmmc_peer_is_dead(cmmc->peer, &cmmc->down);
	mod_delayed_work(system_wq, &cmmc->dead_work, CMMC_DEAD);
}

/* The peer has ended its copies, and what it wrote is zeroed. */
void cmmc_grants_clean(struct marlin_cmmc *cmmc)
{
	cancel_delayed_work(&cmmc->dead_work);
	mutex_lock(&cmmc->lock);
	grants_ended(&cmmc->core);
	mutex_unlock(&cmmc->lock);
	cmmc_grants_look(cmmc);
}

/*
 * Whether a peer whose session ended is dead, so that its copies have ended though it didn't say
 * so. To be asked each CMMC_DEAD. *down: the link was, the last time; false at first.
 */
bool cmmc_peer_is_dead(struct marlin_peer *peer, bool *down)
{
	bool was_down = *down;

	*down = !(ntb_link_is_up(peer->md->ntb, NULL, NULL) & BIT_ULL(peer->index));
	if (!*down || !was_down)
		return false;
	/* Our interface is down, which says nothing of the peer. It may be copying still. */
	return READ_ONCE(peer->md->open) || grant_peer_stage(peer) != MARLIN_STAGE_READY;
}

static void grant_dead_work(struct work_struct *work)
{
	struct marlin_cmmc *cmmc = container_of(to_delayed_work(work), struct marlin_cmmc,
						dead_work);
	bool dead = cmmc_peer_is_dead(cmmc->peer, &cmmc->down);

	mutex_lock(&cmmc->lock);
	/* A session's start waits for this work, so no copy of a new session has begun. */
	if (dead && cmmc->core.table && !cmmc->open) {
		memset(cmmc_own_window(cmmc)->copy, 0, sizeof(cmmc_own_window(cmmc)->copy));
		grants_ended(&cmmc->core);
	}
	grant_look_ended(cmmc);
	mutex_unlock(&cmmc->lock);
	if (!dead)
		schedule_delayed_work(&cmmc->dead_work, CMMC_DEAD);
	cmmc_grants_look(cmmc);
}

void cmmc_grant_init(struct marlin_cmmc *cmmc)
{
	mutex_init(&cmmc->lock);
	INIT_LIST_HEAD(&cmmc->grants);
	INIT_DELAYED_WORK(&cmmc->dead_work, grant_dead_work);
}

/* No copy of the peer is under way. The session has ended. */
bool cmmc_grants_are_quiet(struct marlin_cmmc *cmmc)
{
	struct cmmc_grant *grant;
	bool quiet = true;

	mutex_lock(&cmmc->lock);
	grant_look_ended(cmmc);
	list_for_each_entry(grant, &cmmc->grants, link)
		quiet &= grants_is_quiet(&cmmc->core, grant->index);
	mutex_unlock(&cmmc->lock);
	return quiet;
}

static void grants_wait_quiet(struct marlin_cmmc *cmmc)
{
	long left = CMMC_DEAD;
	int changes;

	do {
		changes = cmmc_grants_changes();
		if (cmmc_grants_are_quiet(cmmc))
			return;
		left = wait_event_timeout(grant_quiet, cmmc_grants_changes() != changes, left);
	} while (left);
}

/* The device goes, and its links are down. No call of a program runs. */
void cmmc_grant_exit(struct marlin_cmmc *cmmc)
{
	struct cmmc_grant *grant, *next;

	grants_wait_quiet(cmmc);
	cancel_delayed_work_sync(&cmmc->dead_work);
	list_for_each_entry_safe(grant, next, &cmmc->grants, link) {
		list_del(&grant->link);
		if (grants_is_quiet(&cmmc->core, grant->index))
			grant_release(grant);
		else
			grant_leak(grant);
		if (grant->orphan)
			kfree(grant);
	}
	grant_changed();
}
