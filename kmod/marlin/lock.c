// SPDX-License-Identifier: GPL-2.0
/*
 * Locks across machines, for programs (include/remora/marlin_locks.h, core/marlin/locks.h).
 *
 *   cmmc_lock: a locker is made --> waits in its seat's list --> holds, in its file's list
 *                                        | lock_locker_fail          | lock_seats_end
 *                                        v                           v
 *                                 the call fails            the unlock tells of it
 *
 *   seat       this machine's place at a lock, of this home or another:
 *              IDLE --want word--> WANTED --grant word--> HELD --want word--> IDLE
 *   locks_lock a lock of this machine, whose requesters are all machines, itself too
 *
 * A seat serves its lockers first come, first served. It gives the lock back after each, so a
 * machine with many lockers goes to the home's queue behind others. A locker that no longer waits
 * leaves the seat as it is: a lock that is granted and wanted by no locker goes back at once.
 *
 * Locks across machines are those of the device of /dev/cmmc. They need no window into whole RAM.
 */
#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/sched/user.h>
#include <linux/slab.h>

#include "core/marlin/locks.h"
#include "marlin/cmmc.h"

enum lock_seat_state { LOCK_IDLE, LOCK_WANTED, LOCK_HELD };

struct lock_seat {
	enum lock_seat_state state;
	u32 word; /* as it was written to the home */
	struct list_head lockers; /* programs that wait */
	struct cmmc_locker *holder;
};

/* One machine's words, and the seats at its locks. */
struct lock_peer {
	struct marlin_locks_dev *locks;
	struct marlin_peer *peer; /* NULL: this machine */
	u32 port;
	bool live;
	u32 told; /* last number written to `changed` in the peer's memory */
	u32 seen; /* last number read from the own `changed` */
	struct delayed_work dead_work; /* looks whether the link stays down */
	bool down; /* as it found the link */
	struct lock_seat seats[MARLIN_LOCKS];
};

struct marlin_locks_dev {
	struct marlin_dev *md;
	unsigned int peer_count; /* with this machine */
	struct locks_lock home[MARLIN_LOCKS];
	struct lock_peer peers[]; /* the last: this machine, as its own home */
};

/* A program's claim to a lock. Guarded by lock_mutex, but for what its caller alone uses. */
struct cmmc_locker {
	struct list_head link; /* of the seat's lockers, or of the file's held ones */
	struct lock_seat *seat; /* NULL: the lock is lost, or the wait has failed */
	struct lock_peer *home; /* valid while seat is */
	struct list_head *held; /* of its file */
	u32 port, number;
	struct user_struct *user;
	bool holds;
	bool broken;
	int err;
	struct completion done;
};

/*
 * Guards all of it: a locker outlives the device. Not a spinlock, since a flush of the peer's
 * memory takes a round trip of the bus.
 */
static DEFINE_MUTEX(lock_mutex);

/* ---- words ---- */

static struct marlin_locks *lock_own_window(struct lock_peer *at)
{
	return at->peer->in_memory + MARLIN_LOCKS_OFFSET;
}

static struct marlin_locks *lock_peer_window(struct lock_peer *at)
{
	return at->peer->out_memory + MARLIN_LOCKS_OFFSET;
}

/* Tells a peer that words in its memory have changed. */
static void lock_tell(struct lock_peer *at)
{
	wmb(); /* the words come before the number that says that they changed */
	if (!++at->told)
		at->told++;
	bus_store32(&at->peer->bus, &lock_peer_window(at)->changed, at->told);
	marlin_flush(at->peer);
	marlin_ring(at->peer);
}

static struct lock_peer *lock_at(struct marlin_locks_dev *locks, u32 port)
{
	for (unsigned int i = 0; i < locks->peer_count; i++)
		if (locks->peers[i].port == port)
			return &locks->peers[i];
	return NULL;
}

static void lock_write_want(struct lock_peer *at, u32 number)
{
	u32 word = at->seats[number].word;

	if (!at->peer) {
		locks_want(&at->locks->home[number], at->port, word);
		return;
	}
	bus_store32(&at->peer->bus, &lock_peer_window(at)->want[number], word);
	lock_tell(at);
}

/* ---- requester ---- */

/* Asks, or gives back, or both, in one store. */
static void lock_seat_write(struct lock_peer *at, u32 number, u32 word)
{
	struct lock_seat *seat = &at->seats[number];

	seat->holder = NULL;
	seat->state = list_empty(&seat->lockers) ? LOCK_IDLE : LOCK_WANTED;
	seat->word = seat->state == LOCK_WANTED ? locks_word_ask(word) : word;
	lock_write_want(at, number);
}

static void lock_seat_leave(struct lock_peer *at, u32 number, bool abandoned)
{
	lock_seat_write(at, number, locks_word_leave(at->seats[number].word, abandoned));
}

static void lock_seat_grant(struct lock_peer *at, u32 number, u32 grant)
{
	struct lock_seat *seat = &at->seats[number];
	bool broken = grant & MARLIN_LOCK_BROKEN;
	struct cmmc_locker *locker;

	if (seat->state != LOCK_WANTED || !locks_is_granted(seat->word, grant))
		return;
	locker = list_first_entry_or_null(&seat->lockers, struct cmmc_locker, link);
	if (!locker) {
		/* The next holder is told what this one would have been. */
		lock_seat_leave(at, number, broken);
		return;
	}
	seat->state = LOCK_HELD;
	seat->holder = locker;
	locker->holds = true;
	locker->broken = broken;
	list_del_init(&locker->link);
	complete(&locker->done);
}

static void lock_locker_fail(struct cmmc_locker *locker, int err)
{
	locker->seat = NULL;
	locker->err = err;
	list_del_init(&locker->link);
	complete(&locker->done);
}

/* The session with a home ended, and with it all that this machine had there. */
static void lock_seats_end(struct lock_peer *at, int err)
{
	struct cmmc_locker *locker, *next;

	for (u32 n = 0; n < MARLIN_LOCKS; n++) {
		struct lock_seat *seat = &at->seats[n];

		list_for_each_entry_safe(locker, next, &seat->lockers, link)
			lock_locker_fail(locker, err);
		if (seat->holder)
			seat->holder->seat = NULL;
		seat->holder = NULL;
		seat->state = LOCK_IDLE;
		seat->word = 0;
	}
}

/* ---- home ---- */

/* Grants a lock of this machine, if it is free and wanted. */
static void lock_serve(struct marlin_locks_dev *locks, u32 number)
{
	struct lock_peer *at;
	u32 grant;
	int port;

	while ((port = locks_next(&locks->home[number], &grant)) >= 0) {
		at = lock_at(locks, port);
		if (at->peer) {
			bus_store32(&at->peer->bus, &lock_peer_window(at)->grant[number], grant);
			lock_tell(at);
		} else {
			/* A seat without lockers gives the lock back at once. */
			lock_seat_grant(at, number, grant);
		}
	}
}

static void lock_serve_all(struct marlin_locks_dev *locks)
{
	for (u32 n = 0; n < MARLIN_LOCKS; n++)
		lock_serve(locks, n);
}

/* All words of a peer, if it changed any. */
static void lock_look_peer(struct lock_peer *at)
{
	struct marlin_locks *own = lock_own_window(at);
	u32 changed = le32_to_cpu(READ_ONCE(own->changed));

	if (changed == at->seen)
		return;
	WRITE_ONCE(at->seen, changed);
	rmb(); /* pairs with lock_tell(): the words are as new as the number */
	for (u32 n = 0; n < MARLIN_LOCKS; n++) {
		locks_want(&at->locks->home[n], at->port, le32_to_cpu(READ_ONCE(own->want[n])));
		lock_seat_grant(at, n, le32_to_cpu(READ_ONCE(own->grant[n])));
	}
}

/* ---- the device ---- */

/* Whether a doorbell may be of locks. In an interrupt. */
bool cmmc_locks_changed(struct marlin_dev *md)
{
	struct marlin_locks_dev *locks = smp_load_acquire(&md->locks); /* pairs with attach */

	for (unsigned int i = 0; locks && i < locks->peer_count; i++) {
		struct lock_peer *at = &locks->peers[i];

		if (READ_ONCE(at->live) && at->peer &&
		    le32_to_cpu(READ_ONCE(lock_own_window(at)->changed)) != READ_ONCE(at->seen))
			return true;
	}
	return false;
}

/* Peers have changed words. By a work item that ends before the device. */
void cmmc_locks_look(struct marlin_dev *md)
{
	struct marlin_locks_dev *locks = md->locks;

	if (!locks)
		return;
	mutex_lock(&lock_mutex);
	for (unsigned int i = 0; i < locks->peer_count; i++)
		if (locks->peers[i].live && locks->peers[i].peer)
			lock_look_peer(&locks->peers[i]);
	lock_serve_all(locks);
	mutex_unlock(&lock_mutex);
}

static struct lock_peer *lock_of(struct marlin_peer *peer)
{
	return peer->md->locks ? &peer->md->locks->peers[peer->index] : NULL;
}

static void lock_ended(struct lock_peer *at)
{
	mutex_lock(&lock_mutex);
	if (!at->live) {
		for (u32 n = 0; n < MARLIN_LOCKS; n++)
			locks_ended(&at->locks->home[n], at->port);
		lock_serve_all(at->locks);
	}
	mutex_unlock(&lock_mutex);
}

static void lock_dead_work(struct work_struct *work)
{
	struct lock_peer *at = container_of(to_delayed_work(work), struct lock_peer, dead_work);

	if (cmmc_peer_is_dead(at->peer, &at->down))
		lock_ended(at);
	else
		schedule_delayed_work(&at->dead_work, CMMC_DEAD);
}

/* A session begins. */
void cmmc_locks_start(struct marlin_peer *peer)
{
	struct lock_peer *at = lock_of(peer);

	if (!at)
		return;
	mutex_lock(&lock_mutex);
	at->told = 0;
	WRITE_ONCE(at->seen, 0);
	WRITE_ONCE(at->live, true);
	lock_tell(at);
	mutex_unlock(&lock_mutex);
}

/* A session ends: own holders have lost the peer's locks when this returns. */
void cmmc_locks_stop(struct marlin_peer *peer)
{
	struct lock_peer *at = lock_of(peer);

	if (!at || !at->live)
		return;
	mutex_lock(&lock_mutex);
	WRITE_ONCE(at->live, false);
	lock_seats_end(at, -ENOLINK);
	for (u32 n = 0; n < MARLIN_LOCKS; n++)
		locks_gone(&at->locks->home[n], at->port);
	mutex_unlock(&lock_mutex);
	at->down = false;
	cmmc_peer_is_dead(peer, &at->down);
	mod_delayed_work(system_wq, &at->dead_work, CMMC_DEAD);
}

/* The peer has ended its session. */
void cmmc_locks_clean(struct marlin_peer *peer)
{
	struct lock_peer *at = lock_of(peer);

	memset(peer->in_memory + MARLIN_LOCKS_OFFSET, 0, sizeof(struct marlin_locks));
	if (!at)
		return;
	/* A new session begins only after this. */
	cancel_delayed_work_sync(&at->dead_work);
	lock_ended(at);
}

static void lock_peer_init(struct lock_peer *at, struct marlin_locks_dev *locks, u32 port)
{
	at->locks = locks;
	at->port = port;
	INIT_DELAYED_WORK(&at->dead_work, lock_dead_work);
	for (u32 n = 0; n < MARLIN_LOCKS; n++)
		INIT_LIST_HEAD(&at->seats[n].lockers);
}

int cmmc_locks_attach(struct marlin_dev *md)
{
	unsigned int count = md->peer_count + 1;
	struct marlin_locks_dev *locks;

	locks = kvzalloc(struct_size(locks, peers, count), GFP_KERNEL);
	if (!locks)
		return -ENOMEM;
	locks->md = md;
	locks->peer_count = count;
	for (u32 n = 0; n < MARLIN_LOCKS; n++)
		locks_init(&locks->home[n]);
	for (unsigned int i = 0; i < md->peer_count; i++) {
		lock_peer_init(&locks->peers[i], locks, md->peers[i].port);
		locks->peers[i].peer = &md->peers[i];
	}
	lock_peer_init(&locks->peers[count - 1], locks, md->port);
	locks->peers[count - 1].live = true;
	smp_store_release(&md->locks, locks); /* pairs with cmmc_locks_changed() */
	return 0;
}

/* The links are down, no call of a program is in here, nor any work of the device. */
void cmmc_locks_detach(struct marlin_dev *md)
{
	struct marlin_locks_dev *locks = md->locks;

	if (!locks)
		return;
	md->locks = NULL;
	for (unsigned int i = 0; i < locks->peer_count; i++)
		cancel_delayed_work_sync(&locks->peers[i].dead_work);
	mutex_lock(&lock_mutex);
	for (unsigned int i = 0; i < locks->peer_count; i++)
		lock_seats_end(&locks->peers[i], -ENODEV);
	mutex_unlock(&lock_mutex);
	kvfree(locks);
}

/* ---- calls of programs ---- */

/* Gives up what the locker has: a place in the list, or the lock. */
static void lock_locker_end(struct cmmc_locker *locker, bool abandoned)
{
	lockdep_assert_held(&lock_mutex);
	list_del_init(&locker->link);
	if (!locker->seat || !locker->holds)
		return;
	lock_seat_leave(locker->home, locker->number, abandoned);
	if (!locker->home->peer)
		lock_serve(locker->home->locks, locker->number);
}

static void lock_locker_free(struct cmmc_locker *locker)
{
	free_uid(locker->user);
	kfree(locker);
}

static struct cmmc_locker *lock_find(struct list_head *held, u32 port, u32 number)
{
	struct cmmc_locker *locker;

	list_for_each_entry(locker, held, link)
		if (locker->port == port && locker->number == number)
			return locker;
	return NULL;
}

static bool lock_seat_is_of(const struct lock_seat *seat, const struct user_struct *user)
{
	const struct cmmc_locker *locker;

	if (seat->holder && seat->holder->user == user)
		return true;
	list_for_each_entry(locker, &seat->lockers, link)
		if (locker->user == user)
			return true;
	return false;
}

/*
 * A user has or awaits no more of a home's locks than are left for others of this machine: n greedy
 * users get 1 / (n + 1) of them each, and as many are free for one more.
 */
static bool lock_has_share(const struct lock_peer *home, const struct cmmc_locker *locker)
{
	u32 used = 0, left = 0;

	lockdep_assert_held(&lock_mutex);
	if (lock_seat_is_of(&home->seats[locker->number], locker->user))
		return true;
	for (u32 n = 0; n < MARLIN_LOCKS; n++) {
		const struct lock_seat *seat = &home->seats[n];

		used += lock_seat_is_of(seat, locker->user);
		left += !seat->holder && list_empty(&seat->lockers);
	}
	return used < left;
}

/* Puts the locker into its seat's list. Caller holds the device. */
static int lock_enqueue(struct marlin_dev *md, struct cmmc_locker *locker)
{
	struct cmmc_locker *held;
	struct lock_peer *home;
	struct lock_seat *seat;
	int err = 0;

	if (!md->locks)
		return -ENODEV;
	home = lock_at(md->locks, locker->port);
	if (!home)
		return -EINVAL;
	mutex_lock(&lock_mutex);
	held = lock_find(locker->held, locker->port, locker->number);
	if (held) {
		/* A program that lost the lock learns so before it gets the lock again. */
		err = -EDEADLK;
	} else if (!home->live || (home->peer && !READ_ONCE(lock_own_window(home)->changed))) {
		err = -ENOLINK;
	} else if (!lock_has_share(home, locker)) {
		err = -ENOSPC;
	} else {
		seat = &home->seats[locker->number];
		locker->home = home;
		locker->seat = seat;
		list_add_tail(&locker->link, &seat->lockers);
		if (seat->state == LOCK_IDLE)
			lock_seat_write(home, locker->number, seat->word);
		if (!home->peer)
			lock_serve(md->locks, locker->number);
	}
	mutex_unlock(&lock_mutex);
	return err;
}

/* Once the locker is in its file's list, a thread of the program may unlock and free it. */
static int lock_wait(struct cmmc_locker *locker, struct cmmc_lock *in)
{
	unsigned long ticks = in->timeout_ms ? msecs_to_jiffies(in->timeout_ms) :
					       MAX_SCHEDULE_TIMEOUT;
	long left = wait_for_completion_interruptible_timeout(&locker->done, ticks);
	int err;

	mutex_lock(&lock_mutex);
	/* The lock may have been granted just before the wait ended for another reason. */
	err = locker->holds ? 0 : locker->err ?: left ? -EINTR : -ETIMEDOUT;
	if (err) {
		lock_locker_end(locker, false);
	} else {
		in->state = locker->broken ? CMMC_LOCK_BROKEN : 0;
		list_add_tail(&locker->link, locker->held);
	}
	mutex_unlock(&lock_mutex);
	return err;
}

/* held: the file's list. */
int cmmc_lock(struct list_head *held, struct cmmc_lock *in)
{
	struct cmmc_locker *locker;
	struct marlin_dev *md;
	int err;

	in->state = 0;
	if (in->flags || in->reserved || in->number >= MARLIN_LOCKS)
		return -EINVAL;
	locker = kzalloc(sizeof(*locker), GFP_KERNEL_ACCOUNT);
	if (!locker)
		return -ENOMEM;
	INIT_LIST_HEAD(&locker->link);
	init_completion(&locker->done);
	locker->held = held;
	locker->port = in->port;
	locker->number = in->number;
	locker->user = get_uid(current_user());
	md = cmmc_enter_device();
	err = PTR_ERR_OR_ZERO(md);
	if (!err) {
		err = lock_enqueue(md, locker);
		cmmc_leave();
	}
	if (!err)
		err = lock_wait(locker, in);
	if (err)
		lock_locker_free(locker);
	return err;
}

int cmmc_unlock(struct list_head *held, const struct cmmc_unlock *in)
{
	struct cmmc_locker *locker;
	int err = -EPERM;

	if (in->flags)
		return -EINVAL;
	mutex_lock(&lock_mutex);
	locker = lock_find(held, in->port, in->number);
	if (locker) {
		err = locker->seat ? 0 : -ENOLINK;
		lock_locker_end(locker, false);
	}
	mutex_unlock(&lock_mutex);
	if (locker)
		lock_locker_free(locker);
	return err;
}

/* The file is closed: the next holder is told that its locks were not given back. */
void cmmc_locks_release(struct list_head *held)
{
	struct cmmc_locker *locker, *next;

	mutex_lock(&lock_mutex);
	list_for_each_entry_safe(locker, next, held, link) {
		lock_locker_end(locker, true);
		lock_locker_free(locker);
	}
	mutex_unlock(&lock_mutex);
}
