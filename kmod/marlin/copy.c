// SPDX-License-Identifier: GPL-2.0
/*
 * Copies of this machine's programs to and from a peer's pages.
 *
 *   cmmc_copy -> copy_batch: own pages are locked, up to COPY_PAGES
 *                  -> copy_enter: the handle is checked; the peer's page list, read once
 *                       -> copy_flight_begin: parts cut, claimed (claim.h), begun (hrdma.h)
 *             ...  copy_moved: whole? signalled; the claim ends
 *             -> copy_flight_end: moved, pages unlocked
 *
 * Own pages are locked before the device is held by copy_enter(): a page fault of the program may
 * take as long as the program likes (userfaultfd), and must not hold up the device's removal.
 *
 * A copy is announced to the owner for a transaction at a time, which waits for a DMA engine only,
 * whose time is bounded. A transaction ends by itself: while an engine has one, the pages of the
 * next are locked. So neither a long copy nor a page fault of the program holds up a revocation.
 * A page list is read by steps, each a claim of its own, without a lock that a link's end or other
 * lists wait for.
 */
#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/hash.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "marlin/cmmc.h"
#include "marlin/trace.h"

#define COPY_PAGES 256
/* Copy words kept for a page list and a doorbell, so that copies of data don't delay them. */
#define COPY_STEPS 2
/* Transactions of a user at once, so that others find room however many threads it has. */
#define COPY_USER_FLIGHTS ((MARLIN_COPIES - COPY_STEPS) / 2)
#define COPY_FLIGHTS 2 /* of a copy at once: more would gain nothing while an engine is busy */
/* Entries of a page list that are read by one claim: over a slow bus each takes 20 us. */
#define COPY_LIST_ENTRIES 64
/* Of all page lists kept of a peer. Beyond, they are dropped, and read again when used. */
#define COPY_IMPORT_PAGES_MAX (4ULL * MARLIN_GRANT_PAGES_MAX)

/* A transaction, and what it holds. */
struct copy_flight {
	struct hrdma_request request;
	struct completion moved;
	struct marlin_cmmc *cmmc; /* until it has moved, as what follows */
	struct claim claim;
	u32 index;
	int copy; /* copy word */
	struct semaphore *user; /* queue of the user, in *cmmc */
	bool signal;
	bool posted; /* the bytes need not have arrived */
	bool lost; /* once it has moved */
	int pinned; /* pages to unlock */
	u32 pages_max, parts_max;
	struct page **pages;
	u64 *local; /* their addresses */
	struct scatter_part *parts;
};

struct copy_state {
	struct marlin_cmmc *cmmc; /* while a batch is entered, as is import */
	struct cmmc_import *import;
	struct marlin_handle handle;
	u64 session;
	u32 index;
	bool write;
	u32 rights; /* rights that the handle must have */
	u32 pages_max; /* of a transaction */
	bool lost; /* the link went, and nobody knows how much was copied */
	unsigned int begun, ended; /* flights; begun % COPY_FLIGHTS is the next one's place */
	struct copy_flight *flights[COPY_FLIGHTS];
};

/* ---- what is announced to the owner ---- */

static int copy_session_enter(struct marlin_cmmc *cmmc, u64 session)
{
	down_read(&cmmc->session_lock);
	if (cmmc->live && cmmc->session == session)
		return 0;
	up_read(&cmmc->session_lock);
	return -ENOLINK;
}

static int copy_word_take(struct marlin_cmmc *cmmc)
{
	int which;

	do {
		which = find_first_zero_bit(&cmmc->copies_used, MARLIN_COPIES);
	} while (which >= MARLIN_COPIES || test_and_set_bit_lock(which, &cmmc->copies_used));
	return which;
}

/* The link was down since the session began. The session doesn't end meanwhile. */
static bool copy_link_is_lost(struct marlin_cmmc *cmmc)
{
	struct marlin_peer *peer = cmmc->peer;

	return bus_epoch(&peer->bus) != READ_ONCE(peer->epoch);
}

/*
 * Tells the owner of a copy, for which it waits, by a copy word; or returns an error: the grant
 * isn't that of `word` any more, or there is no link. The caller holds a share of copies_free, or
 * runs a step. The session doesn't end before copy_claim_end().
 */
static int copy_claim_begin(struct marlin_cmmc *cmmc, u32 index, u64 word, struct claim *claim,
			    int *which)
{
	enum claim_verdict verdict;

	*which = copy_word_take(cmmc);
	*claim = (struct claim){
		.word = &cmmc_peer_window(cmmc)->copy[*which],
		.permit = &cmmc_own_table(cmmc)[index].word,
		.value = grants_copy_word(atomic64_inc_return(&cmmc->sequence), index),
		.permitted = word,
		.bytes = sizeof(u64),
		.epoch = READ_ONCE(cmmc->peer->epoch),
		.mirrored = true,
		.late = bus_is_late(&cmmc->peer->bus),
	};
	verdict = claim_begin(claim, &marlin_claim_bus, &cmmc->peer->bus);
	if (verdict == CLAIM_OK)
		return 0;
	if (verdict == CLAIM_LOST)
		marlin_link_lost(cmmc->peer);
	/* The owner may have seen the word, and wait. */
	marlin_ring(cmmc->peer);
	clear_bit_unlock(*which, &cmmc->copies_used);
	return verdict == CLAIM_REFUSED ? -EKEYREVOKED : -ENOLINK;
}

/* A copy has ended. Any context. */
static void copy_claim_end(struct marlin_cmmc *cmmc, const struct claim *claim, int which)
{
	claim_end(claim, &marlin_claim_bus, &cmmc->peer->bus);
	if (claim_is_awaited(claim))
		marlin_ring(cmmc->peer);
	clear_bit_unlock(which, &cmmc->copies_used);
}

/* Runs a step as a copy of a grant. Caller holds list_lock or bell_lock, so words are left. */
static int copy_claimed(struct copy_state *state, u64 word,
			int (*step)(struct copy_state *state, void *context), void *context)
{
	struct marlin_cmmc *cmmc = state->cmmc;
	struct claim claim;
	int which, err;

	err = copy_session_enter(cmmc, state->session);
	if (err)
		return err;
	err = copy_claim_begin(cmmc, state->index, word, &claim, &which);
	if (!err) {
		err = step(state, context);
		if (!claim_is_whole(&claim, &marlin_claim_bus, &cmmc->peer->bus))
			err = -ENOLINK;
		copy_claim_end(cmmc, &claim, which);
	}
	up_read(&cmmc->session_lock);
	return err;
}

/* ---- the owner's page list ---- */

static void copy_import_put(struct cmmc_import *import)
{
	if (import && refcount_dec_and_test(&import->users))
		kvfree(import);
}

/* Drops all page lists. */
static void copy_imports_drop(struct marlin_cmmc *cmmc)
{
	lockdep_assert_held(&cmmc->import_lock);
	for (u32 i = 0; i < MARLIN_GRANTS; i++) {
		copy_import_put(cmmc->imports[i]);
		cmmc->imports[i] = NULL;
	}
	cmmc->import_pages = 0;
}

static bool copy_is_page(struct marlin_cmmc *cmmc, u64 address)
{
	return PAGE_ALIGNED(address) && address < cmmc->ram_bytes;
}

/* An import that is being read. */
struct copy_list {
	struct cmmc_import *import;
	u64 read; /* entries */
};

/* Reads entries of one list, by claimed steps' rules; context: struct copy_list. */
static int copy_read_list(struct copy_state *state, void *context)
{
	struct marlin_cmmc *cmmc = state->cmmc;
	struct marlin_bus *bus = &cmmc->peer->bus;
	struct copy_list *reading = context;
	struct cmmc_import *import = reading->import;
	u64 directory = le64_to_cpu(import->entry.directory), address;
	u64 end = min_t(u64, import->count, reading->read + COPY_LIST_ENTRIES);
	const __le64 *list;

	static_assert(MARLIN_LIST_PAGES % COPY_LIST_ENTRIES == 0);
	if (!copy_is_page(cmmc, directory))
		return -EREMOTEIO;
	list = cmmc->ram + directory;
	address = bus_load64(bus, &list[reading->read / MARLIN_LIST_PAGES]);
	if (!copy_is_page(cmmc, address))
		return -EREMOTEIO;
	list = cmmc->ram + address;
	for (u64 n = reading->read; n < end; n++) {
		u64 page = bus_load64(bus, &list[n % MARLIN_LIST_PAGES]);

		if (!copy_is_page(cmmc, page))
			return -EREMOTEIO;
		if (!marlin_link_may_copy(cmmc->peer, page))
			return -EACCES;
		import->pages[n] = page;
	}
	reading->read = end;
	return 0;
}

/* Lists have turns: a long one is read a step at a time, and so are those that came later. */
static int copy_read_lists(struct copy_state *state, struct cmmc_import *import)
{
	struct mutex *lock = &state->cmmc->list_lock;
	struct copy_list reading = { .import = import };
	int err = 0;

	while (!err && reading.read < import->count) {
		err = mutex_lock_killable(lock);
		if (err)
			break;
		err = copy_claimed(state, le64_to_cpu(import->entry.word), copy_read_list,
				   &reading);
		mutex_unlock(lock);
		cond_resched();
	}
	return err;
}

/* Keeps a page list in place of another, unless its session has ended. */
static int copy_import_keep(struct copy_state *state, struct cmmc_import *import)
{
	struct marlin_cmmc *cmmc = state->cmmc;
	struct cmmc_import **at = &cmmc->imports[state->index], *old = NULL;
	int err = 0;

	mutex_lock(&cmmc->import_lock);
	/* copy_stop() clears `live` before it takes the lock. */
	if (!READ_ONCE(cmmc->live) || READ_ONCE(cmmc->session) != state->session) {
		err = -ENOLINK;
	} else {
		old = *at;
		if (old)
			cmmc->import_pages -= old->count;
		*at = NULL;
		if (cmmc->import_pages + import->count > COPY_IMPORT_PAGES_MAX)
			copy_imports_drop(cmmc);
		cmmc->import_pages += import->count;
		refcount_inc(&import->users);
		*at = import;
	}
	mutex_unlock(&cmmc->import_lock);
	copy_import_put(old);
	return err;
}

/* Reads a grant's page list, and keeps it. No lock is held while memory is allocated. */
static int copy_import_load(struct copy_state *state, const struct marlin_grant *entry)
{
	u64 count = grants_pages(le32_to_cpu(entry->offset), le64_to_cpu(entry->bytes));
	struct cmmc_import *import;
	int err;

	import = kvmalloc(struct_size(import, pages, count), GFP_KERNEL_ACCOUNT);
	if (!import)
		return -ENOMEM;
	refcount_set(&import->users, 1);
	import->entry = *entry;
	import->count = count;
	err = copy_read_lists(state, import);
	if (!err)
		err = copy_import_keep(state, import);
	if (err)
		copy_import_put(import);
	else
		state->import = import;
	return err;
}

static int copy_verdict(enum grants_verdict verdict)
{
	switch (verdict) {
	case GRANTS_OK:
		return 0;
	case GRANTS_STALE:
		return -ESTALE;
	case GRANTS_FORGED:
		return -EACCES;
	case GRANTS_REVOKED:
		return -EKEYREVOKED;
	case GRANTS_RIGHTS:
		return -EPERM;
	case GRANTS_BROKEN:
		break;
	}
	return -EREMOTEIO;
}

/* A copy of the entry that a handle names, checked against it. */
static int copy_entry_read(struct copy_state *state, struct marlin_grant *entry)
{
	struct marlin_cmmc *cmmc = state->cmmc;
	const struct marlin_grant *from = &cmmc_own_table(cmmc)[state->index];
	__le64 word;
	int err;

	down_read(&cmmc->session_lock);
	state->session = cmmc->session;
	if (!cmmc->live) {
		err = -ENOLINK;
		goto up;
	}
	/* The owner writes the word last, and the rest only while nothing copies by it. */
	word = READ_ONCE(from->word);
	dma_rmb();
	memcpy(entry, from, sizeof(*entry));
	entry->word = word;
	barrier(); /* the copy is what is checked */
	err = copy_verdict(grants_check(entry, &state->handle, state->rights));
	/* The entry might be lost. */
	if (err && copy_link_is_lost(cmmc))
		err = -ENOLINK;
up:
	up_read(&cmmc->session_lock);
	return err;
}

/* The page list of an entry, if it is kept. */
static bool copy_import_find(struct copy_state *state, const struct marlin_grant *entry)
{
	struct marlin_cmmc *cmmc = state->cmmc;
	struct cmmc_import *import;
	bool found;

	mutex_lock(&cmmc->import_lock);
	import = cmmc->imports[state->index];
	found = import && !memcmp(&import->entry, entry, sizeof(*entry));
	if (found) {
		state->import = import;
		refcount_inc(&import->users);
	}
	mutex_unlock(&cmmc->import_lock);
	return found;
}

/* The grant that a handle names. The entry is compared whole, so a page list is never another's. */
static int copy_import(struct copy_state *state)
{
	struct marlin_grant entry;
	int err = copy_entry_read(state, &entry);

	if (err || copy_import_find(state, &entry))
		return err;
	return copy_import_load(state, &entry);
}

/* Words of the owner's can't be true, whatever the program's handle is: the owner broke a rule. */
static void copy_blame(struct marlin_cmmc *cmmc, int err)
{
	if (err == -EREMOTEIO)
		marlin_link_fault(cmmc->peer, CMMC_FAULT);
}

/* ---- own pages ---- */

/* The next pages of a buffer of io_uring, which keeps them. */
static int copy_own_vector(struct copy_flight *flight, const struct cmmc_memory *memory, u32 count)
{
	struct bvec_iter iter = memory->iter;
	struct bio_vec part;
	u32 got = 0;

	for_each_bvec(part, memory->vector, iter, iter) {
		if (got == count)
			break;
		/* Of a program's memory only the first page may begin inside. */
		if (got && part.bv_offset)
			return -EFAULT;
		flight->local[got++] = page_to_phys(part.bv_page);
	}
	return got ?: -EFAULT;
}

/* The addresses of own pages, which are locked here if the memory is the current task's. */
static int copy_own_pages(struct copy_flight *flight, const struct cmmc_memory *memory,
			  u64 address, u32 count, bool write)
{
	int got = count;

	if (memory->vector)
		return copy_own_vector(flight, memory, count);
	if (memory->pin) {
		memcpy(flight->pages, memory->pin->pages + address / PAGE_SIZE,
		       count * sizeof(*flight->pages));
	} else {
		got = pin_user_pages_fast(address & PAGE_MASK, count, write ? 0 : FOLL_WRITE,
					  flight->pages);
		flight->pinned = max(got, 0);
	}
	for (int i = 0; i < got; i++)
		flight->local[i] = page_to_phys(flight->pages[i]);
	return got ?: -EFAULT;
}

/* Where the copy goes on in own memory. Of its first byte only the place in the page matters. */
static u64 copy_own_address(const struct cmmc_memory *memory, const struct cmmc_copy *in)
{
	u64 at = in->address + in->done;

	if (memory->vector)
		return bvec_iter_offset(memory->vector, memory->iter);
	return memory->pin ? memory->pin->offset + at : at;
}

/* ---- transactions ---- */

/* pages: of own memory, at most. NULL: no memory. */
static struct copy_flight *copy_flight_alloc(u32 pages)
{
	u32 parts = min_t(u32, 2 * pages, SCATTER_PARTS);
	struct copy_flight *flight;

	flight = kvmalloc(sizeof(*flight) +
				  pages * (sizeof(*flight->pages) + sizeof(*flight->local)) +
				  parts * (sizeof(*flight->parts) + sizeof(*flight->request.slots)),
			  GFP_KERNEL_ACCOUNT);
	if (!flight)
		return NULL;
	flight->pages_max = pages;
	flight->parts_max = parts;
	flight->pages = (void *)(flight + 1);
	flight->local = (void *)(flight->pages + pages);
	flight->parts = (void *)(flight->local + pages);
	flight->request.slots = (void *)(flight->parts + parts);
	return flight;
}

static void copy_signal(struct marlin_cmmc *cmmc, u32 index)
{
	unsigned long flags;

	wmb(); /* the data comes before the signal */
	spin_lock_irqsave(&cmmc->signal_lock, flags);
	bus_store32(&cmmc->peer->bus, &cmmc_peer_window(cmmc)->signal[index],
		    ++cmmc->signals[index]);
	spin_unlock_irqrestore(&cmmc->signal_lock, flags);
}

/*
 * The link carried it all. An engine's stores don't come before those of the CPU by themselves, and
 * without a link a read returns all ones.
 */
static bool copy_is_whole(const struct copy_flight *flight)
{
	struct marlin_bus *bus = &flight->cmmc->peer->bus;

	if (flight->posted && !flight->request.channel) {
		hrdma_posted(&flight->cmmc->hrdma);
		return claim_is_sent(&flight->claim, &marlin_claim_bus, bus);
	}
	return claim_is_whole(&flight->claim, &marlin_claim_bus, bus);
}

/* A transaction has moved all bytes. The owner doesn't wait for it any more. */
static void copy_moved(struct hrdma_request *request)
{
	struct copy_flight *flight = container_of(request, struct copy_flight, request);
	struct marlin_cmmc *cmmc = flight->cmmc;

	flight->lost = !copy_is_whole(flight);
	/* The signal tells that all bytes are there. */
	flight->signal &= !flight->lost;
	if (flight->signal)
		copy_signal(cmmc, flight->index);
	copy_claim_end(cmmc, &flight->claim, flight->copy);
	if (flight->signal)
		marlin_ring(cmmc->peer);
	up(&cmmc->copies_free);
	up(flight->user);
	/* Without it the device may go. */
	hrdma_leave(&cmmc->hrdma);
	complete(&flight->moved);
}

/* Waits for the oldest transaction. */
static void copy_flight_end(struct copy_state *state)
{
	struct copy_flight *flight = state->flights[state->ended++ % COPY_FLIGHTS];

	wait_for_completion(&flight->moved);
	state->lost |= flight->lost;
	unpin_user_pages_dirty_lock(flight->pages, flight->pinned, !state->write);
}

/* The place of the next transaction, or NULL. bytes: what is left to copy. */
static struct copy_flight *copy_flight_next(struct copy_state *state, u64 bytes)
{
	struct copy_flight **at = &state->flights[state->begun % COPY_FLIGHTS];

	if (state->begun - state->ended == COPY_FLIGHTS)
		copy_flight_end(state);
	if (!*at)
		*at = copy_flight_alloc(min_t(u64, COPY_PAGES, bytes / PAGE_SIZE + 2));
	if (*at)
		(*at)->pinned = 0;
	return *at;
}

/* Waits for a transaction's turn: first of its user's, then of all. */
static int copy_turn_take(struct marlin_cmmc *cmmc, struct copy_flight *flight)
{
	u32 number = hash_32(__kuid_val(current_uid()), ilog2(CMMC_USERS));

	flight->user = &cmmc->user_copies[number];
	if (down_killable(flight->user))
		return -EINTR;
	if (!down_killable(&cmmc->copies_free))
		return 0;
	up(flight->user);
	return -EINTR;
}

/* Announces a transaction whose parts are cut, and begins it. It ends by copy_moved(). */
static int copy_flight_begin(struct copy_state *state, struct copy_flight *flight)
{
	struct marlin_cmmc *cmmc = state->cmmc;
	int err = copy_turn_take(cmmc, flight);

	if (err)
		return err;
	err = copy_session_enter(cmmc, state->session);
	if (err)
		goto up;
	/* From now on the session's end waits. */
	err = hrdma_enter(&cmmc->hrdma) ? 0 : -ENOLINK;
	up_read(&cmmc->session_lock);
	if (err)
		goto up;
	flight->cmmc = cmmc;
	flight->index = state->index;
	err = copy_claim_begin(cmmc, flight->index, le64_to_cpu(state->import->entry.word),
			       &flight->claim, &flight->copy);
	if (err)
		goto leave;
	init_completion(&flight->moved);
	flight->request.parts = flight->parts;
	flight->request.flags = state->write ? HRDMA_WRITE : 0;
	/* Over a bus the CPU waits for each load, and an engine for none. */
	if (!state->write && !READ_ONCE(cmmc->peer->loads_fast))
		flight->request.flags |= HRDMA_ENGINE;
	flight->request.done = copy_moved;
	err = hrdma_start(&cmmc->hrdma, &flight->request);
	if (!err)
		return 0;
	copy_claim_end(cmmc, &flight->claim, flight->copy);
leave:
	hrdma_leave(&cmmc->hrdma);
up:
	up(&cmmc->copies_free);
	up(flight->user);
	return err;
}

/*
 * Opens the way to the owner's pages for a batch: the device is held, and the handle's grant is
 * got. Each batch checks the handle, as the device, session and grant may have ended since the
 * last.
 */
static int copy_enter(struct copy_state *state, const struct cmmc_copy *in)
{
	struct marlin_cmmc *cmmc = cmmc_enter(state->handle.owner);
	u64 grant_bytes;
	int err;

	if (IS_ERR(cmmc))
		return PTR_ERR(cmmc);
	state->cmmc = cmmc;
	err = state->handle.peer == cmmc->peer->md->port ? copy_import(state) : -EACCES;
	copy_blame(cmmc, err);
	if (err)
		goto leave;
	grant_bytes = le64_to_cpu(state->import->entry.bytes);
	if (grants_contain(grant_bytes, in->offset, in->bytes))
		return 0;
	copy_import_put(state->import);
	err = -ERANGE;
leave:
	cmmc_leave();
	return err;
}

static void copy_leave(struct copy_state *state)
{
	copy_import_put(state->import);
	cmmc_leave();
}

/* Begins a transaction of own pages that are locked; moves in->done on. */
static int copy_batch_begin(struct copy_state *state, struct copy_flight *flight,
			    struct cmmc_copy *in, u32 offset, u64 bytes)
{
	struct scatter_pages own = { flight->local, offset };
	struct scatter_pages theirs = {
		state->import->pages,
		le32_to_cpu(state->import->entry.offset) + in->offset + in->done,
	};
	u64 cut;
	int err;

	flight->request.count = scatter_cut(flight->parts, flight->parts_max, &own, &theirs, bytes,
					    &cut);
	/* Both sides' offsets in a page differ: pages have two parts each. */
	if (cut < bytes)
		state->pages_max = COPY_PAGES / 2;
	flight->signal = in->flags & CMMC_COPY_SIGNAL && in->done + cut == in->bytes;
	flight->posted = in->flags & CMMC_COPY_POSTED;
	/* The signal tells that all bytes are there. */
	while (flight->signal && state->begun != state->ended)
		copy_flight_end(state);
	err = state->lost ? -ENOLINK : copy_flight_begin(state, flight);
	if (err)
		return err;
	state->begun++;
	in->done += cut;
	return 0;
}

/* Locks own pages, as many as a transaction may have, and begins it. */
static int copy_batch(struct copy_state *state, struct cmmc_copy *in, struct cmmc_memory *memory)
{
	u64 at = copy_own_address(memory, in), before = in->done;
	struct copy_flight *flight = copy_flight_next(state, in->bytes - in->done);
	u32 offset = offset_in_page(at);
	int got = 0, err;
	u64 bytes;

	if (!flight)
		return -ENOMEM;
	bytes = min_t(u64, in->bytes - in->done,
		      min(state->pages_max, flight->pages_max) * PAGE_SIZE - offset);
	if (bytes) {
		got = copy_own_pages(flight, memory, at, grants_pages(offset, bytes),
				     state->write);
		/* Fewer pages than asked for: an error, if any, comes with the next batch. */
		if (got > 0)
			bytes = min_t(u64, bytes, got * PAGE_SIZE - offset);
	}
	err = copy_enter(state, in);
	if (!err) {
		/* A wrong handle is told of first. */
		err = got < 0 ? got : copy_batch_begin(state, flight, in, offset, bytes);
		copy_leave(state);
	}
	if (err)
		unpin_user_pages_dirty_lock(flight->pages, flight->pinned, false);
	else if (memory->vector)
		bvec_iter_advance(memory->vector, &memory->iter, in->done - before);
	return err;
}

/* Transactions until all bytes are copied, or one can't be begun; what was begun has ended. */
static int copy_all(struct copy_state *state, struct cmmc_copy *in, struct cmmc_memory *memory)
{
	int err;

	do {
		err = signal_pending(current) ? -EINTR : copy_batch(state, in, memory);
		cond_resched();
	} while (!err && in->done < in->bytes);
	while (state->begun != state->ended)
		copy_flight_end(state);
	for (int i = 0; i < COPY_FLIGHTS; i++)
		kvfree(state->flights[i]);
	if (state->lost) {
		in->done = 0;
		err = -ENOLINK;
	}
	return err;
}

static int copy_handle(struct copy_state *state, const struct cmmc_handle *handle)
{
	memcpy(&state->handle, handle, sizeof(state->handle));
	state->index = le16_to_cpu(state->handle.index);
	return le32_to_cpu(state->handle.magic) == MARLIN_HANDLE_MAGIC &&
		       state->index < MARLIN_GRANTS ? 0 : -EINVAL;
}

/* in->done tells how far it came. Moves memory->iter on. */
int cmmc_copy(struct cmmc_copy *in, struct cmmc_memory *memory, bool write)
{
	struct copy_state state = {
		.write = write,
		.rights = write ? MARLIN_GRANT_WRITE : MARLIN_GRANT_READ,
		.pages_max = COPY_PAGES,
	};
	int err = copy_handle(&state, &in->handle);

	in->done = 0;
	if (err)
		return err;
	if (memory->pin ? !grants_contain(memory->pin->bytes, in->address, in->bytes) :
			  in->address + in->bytes < in->address)
		return -EFAULT;
	trace_cmmc_start(state.handle.owner, in->bytes, write);
	err = copy_all(&state, in, memory);
	trace_cmmc_end(state.handle.owner, in->done, err);
	return err;
}

/* ---- doorbells ---- */

struct copy_number {
	u64 bell; /* address in the peer's RAM */
	u64 number;
};

/* By claimed steps' rules; context: the number. */
static int copy_ring(struct copy_state *state, void *context)
{
	const struct copy_number *ring = context;
	struct marlin_cmmc *cmmc = state->cmmc;
	struct marlin_bus *bus = &cmmc->peer->bus;
	struct marlin_bell *bell;
	u32 rung, held;

	lockdep_assert_held(&cmmc->bell_lock);
	if (!IS_ALIGNED(ring->bell, MARLIN_LINE_BYTES) ||
	    ring->bell > cmmc->ram_bytes - sizeof(*bell))
		return -EREMOTEIO;
	bell = cmmc->ram + ring->bell;
	rung = bus_load32(bus, &bell->rung);
	held = rung - bus_load32(bus, &bell->taken);
	if (held >= MARLIN_BELL_NUMBERS)
		return held == MARLIN_BELL_NUMBERS ? -EAGAIN : -EREMOTEIO;
	bus_store64(bus, &bell->number[rung % MARLIN_BELL_NUMBERS], ring->number);
	wmb(); /* pairs with cmmc_grant_take(): the number comes before the count */
	bus_store32(bus, &bell->rung, rung + 1);
	copy_signal(cmmc, state->index);
	return 0;
}

int cmmc_ring(const struct cmmc_ring *in)
{
	struct copy_state state = { .rights = MARLIN_GRANT_BELL };
	struct copy_number ring = { .number = in->number };
	struct marlin_grant entry;
	struct marlin_cmmc *cmmc;
	int err = copy_handle(&state, &in->handle);

	if (err || in->flags)
		return -EINVAL;
	cmmc = cmmc_enter(state.handle.owner);
	if (IS_ERR(cmmc))
		return PTR_ERR(cmmc);
	state.cmmc = cmmc;
	err = state.handle.peer == cmmc->peer->md->port ? copy_entry_read(&state, &entry) :
							  -EACCES;
	if (!err)
		err = mutex_lock_killable(&cmmc->bell_lock);
	if (err)
		goto leave;
	ring.bell = le64_to_cpu(entry.directory);
	err = copy_claimed(&state, le64_to_cpu(entry.word), copy_ring, &ring);
	mutex_unlock(&cmmc->bell_lock);
	if (!err)
		marlin_ring(cmmc->peer);
leave:
	copy_blame(cmmc, err);
	cmmc_leave();
	return err;
}

/* ---- sessions ---- */

void cmmc_copy_init(struct marlin_cmmc *cmmc)
{
	init_rwsem(&cmmc->session_lock);
	sema_init(&cmmc->copies_free, MARLIN_COPIES - COPY_STEPS);
	for (u32 i = 0; i < CMMC_USERS; i++)
		sema_init(&cmmc->user_copies[i], COPY_USER_FLIGHTS);
	spin_lock_init(&cmmc->signal_lock);
	mutex_init(&cmmc->bell_lock);
	mutex_init(&cmmc->list_lock);
	mutex_init(&cmmc->import_lock);
	atomic64_set(&cmmc->sequence, 0);
}

void cmmc_copy_start(struct marlin_cmmc *cmmc)
{
	hrdma_window_start(&cmmc->hrdma);
	down_write(&cmmc->session_lock);
	memset(cmmc->signals, 0, sizeof(cmmc->signals));
	cmmc->session++;
	cmmc->live = true;
	up_write(&cmmc->session_lock);
}

/* Returns when all copies have ended. The caller flushes. */
void cmmc_copy_stop(struct marlin_cmmc *cmmc)
{
	bool live;

	down_write(&cmmc->session_lock);
	live = cmmc->live;
	cmmc->live = false;
	up_write(&cmmc->session_lock);
	if (!live)
		return;
	hrdma_window_stop(&cmmc->hrdma);
	mutex_lock(&cmmc->import_lock);
	copy_imports_drop(cmmc);
	mutex_unlock(&cmmc->import_lock);
}
