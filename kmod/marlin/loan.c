// SPDX-License-Identifier: GPL-2.0
/*
 * Loans (include/remora/marlin.h; core/marlin/loans.h): memory that a client lends its node, for
 * the node to copy the data of READs there, and that of WRITEs from there.
 *
 *   client                                             node
 *   marlin_loan_lend      lent[]: epoch                marlin_loan_copy: claim (claim.h)
 *   marlin_loan_end       lent[]: 0                      still lent? hrdma_start
 *     a copy? asked again --------------------------->   loan_moved: whole? copies[]: 0, done()
 *
 * A client's loans are of a port, not of a device: they outlive the device, since the node may copy
 * still when that has gone. They are quiet at the latest when the next session begins.
 *
 * A node's copy has entered the client's window, which a link that goes down waits for. So the
 * session doesn't end before the copy.
 */
#include <linux/delay.h>
#include <linux/export.h>
#include <linux/slab.h>

#include "core/marlin/loans.h"
#include "marlin/cmmc.h"

/* Ports are below this: main_check() refuses others. */
#define LOAN_PORTS 64
/* As long as the link of a node is down before its copies count as ended: it is dead. */
#define LOAN_DEAD (5 * HZ)

/* ---- the client's ---- */

struct loan_port {
	spinlock_t lock; /* guards what follows; softirqs off */
	struct marlin_peer *peer; /* the words are in its window; NULL: below */
	struct loans core;
	u32 epoch; /* the last one */
	unsigned long down_since; /* jiffies when the link was first seen down; 0: it wasn't, */
	unsigned long looked;	  /* and when it was last looked at */
	u32 lent[MARLIN_LOANS];
	u32 copies[MARLIN_LOANS]; /* as they were when the device went */
};

/* Made by the first device that has the port; they stay. */
static struct loan_port *loan_ports[LOAN_PORTS];

static struct loan_port *loan_port(unsigned int port)
{
	/* Pairs with marlin_loans_init(). */
	return port < LOAN_PORTS ? smp_load_acquire(&loan_ports[port]) : NULL;
}

int marlin_loan_lend(unsigned int port, u32 *epoch)
{
	struct loan_port *loans = loan_port(port);
	int number = -1;

	if (!loans)
		return -1;
	spin_lock(&loans->lock);
	if (loans->peer) {
		loans->epoch = loans->epoch + 1 ?: 1;
		*epoch = loans->epoch;
		number = loans_lend(&loans->core, *epoch);
	}
	if (number >= 0)
		loans->peer->loans_lent++;
	spin_unlock(&loans->lock);
	return number;
}
EXPORT_SYMBOL_GPL(marlin_loan_lend);

bool marlin_loan_has(unsigned int port, u32 number, u32 epoch)
{
	struct loan_port *loans = loan_port(port);
	bool has;

	if (!loans)
		return false;
	spin_lock(&loans->lock);
	has = loans_has(&loans->core, number, epoch);
	spin_unlock(&loans->lock);
	return has;
}
EXPORT_SYMBOL_GPL(marlin_loan_has);

/*
 * A node that died in a copy can't say that it ended. While our own interface is down, the link is
 * of no meaning for that (cmmc_peer_is_dead()).
 */
static bool loan_node_is_dead(struct loan_port *loans)
{
	struct marlin_peer *peer = loans->peer;

	lockdep_assert_held(&loans->lock);
	if (!peer || !READ_ONCE(peer->md->open) ||
	    ntb_link_is_up(peer->md->ntb, NULL, NULL) & BIT_ULL(peer->index)) {
		loans->down_since = 0;
		return false;
	}
	/* Ops that wait look each tick: what was seen long ago was another time. */
	if (!loans->down_since || time_after(jiffies, loans->looked + HZ))
		loans->down_since = jiffies ?: 1;
	loans->looked = jiffies;
	return time_after(jiffies, loans->down_since + LOAN_DEAD);
}

bool marlin_loan_end(unsigned int port, u32 number)
{
	struct loan_port *loans = loan_port(port);
	bool ended;

	spin_lock(&loans->lock);
	loans_take_back(&loans->core, number);
	ended = loans_is_quiet(&loans->core, number) || loan_node_is_dead(loans);
	if (ended)
		loans_end(&loans->core, number);
	spin_unlock(&loans->lock);
	return ended;
}
EXPORT_SYMBOL_GPL(marlin_loan_end);

/* ---- the node's ---- */

enum loan_state {
	LOAN_BEGUN = 1, /* marlin_loan_copy() has handed it over */
	LOAN_MOVED = 2,
};

/* The client's window, entered, or NULL. Under rcu_read_lock(). */
static struct hrdma_window *loan_enter(struct marlin_peer *peer)
{
	/* The peer's copies are there: pairs with cmmc_add(). */
	struct marlin_cmmc *cmmc = peer ? smp_load_acquire(&peer->cmmc) : NULL;

	return cmmc && hrdma_enter(&cmmc->hrdma) ? &cmmc->hrdma : NULL;
}

u64 marlin_loan_ram(unsigned int port)
{
	struct hrdma_window *window;
	u64 bytes = 0;

	rcu_read_lock();
	window = loan_enter(marlin_messages_peer(port));
	if (window) {
		bytes = window->bytes;
		hrdma_leave(window);
	}
	rcu_read_unlock();
	return bytes;
}
EXPORT_SYMBOL_GPL(marlin_loan_ram);

bool marlin_loan_fetches(unsigned int port)
{
	struct marlin_peer *peer;
	bool fetches;

	rcu_read_lock();
	peer = marlin_messages_peer(port);
	fetches = peer && (READ_ONCE(peer->loads_fast) || hrdma_engine_is_there());
	rcu_read_unlock();
	return fetches;
}
EXPORT_SYMBOL_GPL(marlin_loan_fetches);

bool marlin_loan_holds(unsigned int port, const struct scatter_pieces *remote, u64 bytes)
{
	return scatter_holds(remote, marlin_loan_ram(port), bytes);
}
EXPORT_SYMBOL_GPL(marlin_loan_holds);

bool marlin_loan_add(struct scatter_part *parts, u32 *count, struct scatter_pieces *remote,
		     u64 local, u64 bytes)
{
	return scatter_add(parts, count, SCATTER_PARTS, remote, local, bytes);
}
EXPORT_SYMBOL_GPL(marlin_loan_add);

/* Does the management host open all those pages to this machine? The window is entered. */
static bool loan_may_copy(const struct marlin_loan_copy *copy)
{
	for (u32 i = 0; i < copy->request.count; i++) {
		const struct scatter_part *part = &copy->request.parts[i];
		u64 page = part->remote & PAGE_MASK;

		for (; page < part->remote + part->bytes; page += PAGE_SIZE)
			if (!marlin_link_may_copy(copy->peer, page))
				return false;
	}
	return true;
}

static struct claim loan_claim(const struct marlin_loan_copy *copy)
{
	struct marlin_messages *other = copy->peer->out_messages;

	return (struct claim){
		.word = &other->copies[copy->number],
		.permit = &other->lent[copy->number],
		.value = copy->epoch,
		.permitted = copy->epoch,
		.bytes = sizeof(u32),
		.epoch = READ_ONCE(copy->peer->epoch),
		.late = bus_is_late(&copy->peer->bus),
	};
}

/* Tells the client of the copy, for which it waits. The window is entered. */
static int loan_claim_begin(struct marlin_loan_copy *copy)
{
	struct marlin_peer *peer = copy->peer;
	const struct claim claim = loan_claim(copy);
	enum claim_verdict verdict;

	if (test_and_set_bit_lock(copy->number, peer->loans_copying))
		return -EALREADY;
	verdict = claim_begin(&claim, &marlin_claim_bus, &peer->bus);
	if (verdict == CLAIM_OK)
		return 0;
	clear_bit_unlock(copy->number, peer->loans_copying);
	return verdict == CLAIM_REFUSED ? -ESTALE : -ENOTCONN;
}

/* The copy is over, or was never begun. The session ends after that. */
static void loan_claim_end(struct marlin_loan_copy *copy)
{
	struct marlin_peer *peer = copy->peer;
	const struct claim claim = loan_claim(copy);

	/* A client that waits looks each tick. */
	claim_end(&claim, &marlin_claim_bus, &peer->bus);
	clear_bit_unlock(copy->number, peer->loans_copying);
}

static void loan_finish(struct marlin_loan_copy *copy)
{
	struct hrdma_window *window = copy->request.window;
	const struct claim claim = loan_claim(copy);

	copy->whole = claim_is_whole(&claim, &marlin_claim_bus, &copy->peer->bus);
	loan_claim_end(copy);
	atomic64_inc(copy->fetches ? &copy->peer->loans_fetched : &copy->peer->loans_copied);
	hrdma_leave(window);
	copy->done(copy);
}

static void loan_work(struct work_struct *work)
{
	local_bh_disable();
	loan_finish(container_of(work, struct marlin_loan_copy, work));
	local_bh_enable();
}

/*
 * Any context, with locks of an engine. So a work does the rest, or marlin_loan_copy() if that has
 * yet to return.
 */
static void loan_moved(struct hrdma_request *request)
{
	struct marlin_loan_copy *copy = container_of(request, struct marlin_loan_copy, request);

	if (atomic_fetch_or(LOAN_MOVED, &copy->state) & LOAN_BEGUN)
		queue_work(hrdma_queue, &copy->work);
}

/* The window is entered. */
static int loan_begin(struct marlin_loan_copy *copy, struct hrdma_window *window)
{
	int err;

	if (!loan_may_copy(copy))
		return -EACCES;
	err = loan_claim_begin(copy);
	if (err)
		return err;
	atomic_set(&copy->state, 0);
	INIT_WORK(&copy->work, loan_work);
	copy->request.flags = copy->fetches ? 0 : HRDMA_WRITE;
	if (copy->fetches && !READ_ONCE(copy->peer->loads_fast))
		copy->request.flags |= HRDMA_ENGINE | HRDMA_LATER;
	copy->request.done = loan_moved;
	err = hrdma_start(window, &copy->request);
	if (err)
		loan_claim_end(copy);
	else if (atomic_fetch_or(LOAN_BEGUN, &copy->state) & LOAN_MOVED)
		loan_finish(copy);
	return err;
}

int marlin_loan_copy(struct marlin_loan_copy *copy)
{
	struct hrdma_window *window;
	int err = -ENOTCONN;

	if (copy->number >= MARLIN_LOANS || !copy->epoch)
		return -EINVAL;
	rcu_read_lock();
	copy->peer = marlin_messages_peer(copy->port);
	window = loan_enter(copy->peer);
	if (window) {
		err = loan_begin(copy, window);
		if (err)
			hrdma_leave(window);
	}
	rcu_read_unlock();
	return err;
}
EXPORT_SYMBOL_GPL(marlin_loan_copy);

/* ---- life ---- */

/* Without memory nothing is lent to that port. */
void marlin_loans_init(unsigned int port)
{
	struct loan_port *loans = loan_port(port);

	if (loans)
		return;
	loans = kzalloc(sizeof(*loans), GFP_KERNEL);
	if (!loans)
		return;
	spin_lock_init(&loans->lock);
	loans_place(&loans->core, loans->lent, loans->copies);
	smp_store_release(&loan_ports[port], loans); /* pairs with loan_port() */
}

void marlin_loans_exit(void)
{
	for (unsigned int port = 0; port < LOAN_PORTS; port++)
		kfree(loan_ports[port]);
}

#define LOAN_TRIES   5
/* 32 words over a bus take tens of microseconds, and even an emulated machine a few. */
#define LOAN_FAST_NS (8 * NSEC_PER_USEC)

/* A session begins; the peer's memory is there. */
void marlin_loans_measure(struct marlin_peer *peer)
{
	u64 best = U64_MAX;

	for (int i = 0; i < LOAN_TRIES; i++) {
		__le32 words[MARLIN_LOANS];
		u64 begun = ktime_get_ns();

		bus_read(&peer->bus, words, peer->out_messages->lent, sizeof(words));
		barrier_data(words);
		best = min(best, ktime_get_ns() - begun);
	}
	WRITE_ONCE(peer->loads_fast, best < LOAN_FAST_NS);
}

/* A session begins: the peer has ended its copies, and loans are lent anew, in this window. */
void marlin_loans_clean(struct marlin_peer *peer)
{
	struct marlin_messages *own = marlin_own_messages(peer);
	struct loan_port *loans = loan_port(peer->port);
	bool serves;

	rcu_read_lock();
	serves = marlin_messages_peer(peer->port) == peer;
	rcu_read_unlock();
	if (!loans || !serves) {
		memset(own->lent, 0, sizeof(own->lent));
		memset(own->copies, 0, sizeof(own->copies));
		return;
	}
	spin_lock_bh(&loans->lock);
	memset(own->lent, 0, sizeof(own->lent));
	memset(own->copies, 0, sizeof(own->copies));
	loans_place(&loans->core, marlin_word(own->lent), marlin_word(own->copies));
	loans->peer = peer;
	loans->down_since = 0;
	spin_unlock_bh(&loans->lock);
}

static bool loan_all_quiet(struct loan_port *loans)
{
	bool quiet = true;

	spin_lock_bh(&loans->lock);
	for (u32 i = 0; i < MARLIN_LOANS; i++)
		quiet &= !(loans->core.used >> i & 1) || loans_is_quiet(&loans->core, i);
	spin_unlock_bh(&loans->lock);
	return quiet;
}

/* The link is down, and no copy of the peer is under way. */
bool marlin_loans_are_quiet(struct marlin_peer *peer)
{
	struct loan_port *loans = loan_port(peer->port);

	return !loans || READ_ONCE(loans->peer) != peer || loan_all_quiet(loans);
}

/*
 * The device goes, and with it the window. The link is down, so a node ends its copies, unless it
 * is dead or stands still. A loan that has a copy under way then keeps it until a session begins.
 */
void marlin_loans_free(struct marlin_peer *peer)
{
	struct loan_port *loans = loan_port(peer->port);
	unsigned long end = jiffies + LOAN_DEAD;

	if (!loans || READ_ONCE(loans->peer) != peer)
		return;
	while (!loan_all_quiet(loans) && time_before(jiffies, end))
		msleep(20);
	spin_lock_bh(&loans->lock);
	if (loans->peer == peer) {
		memcpy(loans->copies, loans->core.copies, sizeof(loans->copies));
		loans_place(&loans->core, loans->lent, loans->copies);
		loans->peer = NULL;
	}
	spin_unlock_bh(&loans->lock);
}
