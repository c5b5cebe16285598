// SPDX-License-Identifier: GPL-2.0
/*
 * When the kernel is short of memory, tunnels that were idle for SHRINK_IDLE_NS go, which costs
 * their next packet a round trip.
 */
#include "eqds/shrink.h"

#include "compat/shrinker.h"
#include "eqds/life.h"
#include "eqds/work.h"

/* A tunnel in use has packets more often than this. */
#define SHRINK_IDLE_NS NSEC_PER_SEC
/* Tunnels looked at under one lock. */
#define SHRINK_BATCH 64UL

static unsigned long shrink_count(struct shrinker *shrinker, struct shrink_control *sc)
{
	const struct eqds_dev *ed = compat_shrinker_private(shrinker);

	return READ_ONCE(ed->tx.count) + READ_ONCE(ed->rx.count) ?: SHRINK_EMPTY;
}

static unsigned long shrink_scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	struct eqds_dev *ed = compat_shrinker_private(shrinker);
	unsigned long looks = min(sc->nr_to_scan, SHRINK_BATCH);
	struct eqds_work work;
	u32 freed = 0;

	eqds_work_init(&work);
	/* RCU, while the device may be on its way down: its socket stays for what leaves here. */
	rcu_read_lock();
	spin_lock_bh(&ed->lock);
	if (ed->up)
		freed = eqds_life_shrink(ed, ktime_get_ns() - SHRINK_IDLE_NS, looks, &work);
	ed->stats.shrunk += freed;
	spin_unlock_bh(&ed->lock);
	eqds_work_run(ed, &work);
	rcu_read_unlock();
	sc->nr_scanned = looks;
	return freed ?: SHRINK_STOP;
}

int eqds_shrink_open(struct eqds_dev *ed)
{
	ed->shrinker = compat_shrinker_make("eqds", ed, shrink_count, shrink_scan);
	return ed->shrinker ? 0 : -ENOMEM;
}

void eqds_shrink_close(struct eqds_dev *ed)
{
	compat_shrinker_free(ed->shrinker);
	ed->shrinker = NULL;
}
