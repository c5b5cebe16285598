// SPDX-License-Identifier: GPL-2.0
/*
 * Copies of this machine's programs to and from a peer's pages.
 *
 *   cmmc_copy -> copy_batch: own pages are locked, up to COPY_PAGES
 *                  -> copy_enter: the handle is checked; the peer's page list, read once
 *                       -> copy_transactions: announced, still live, moved, ended
 *
 * Own pages are locked before the device is held by copy_enter(): a page fault of the program may
 * take as long as the program likes (userfaultfd), and must not hold up the device's removal.
 *
 * A copy is announced to the owner for a transaction at a time, in which it never waits. So neither
 * a long copy nor a page fault of the program holds up a revocation.
 */
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "marlin/cmmc.h"

#define COPY_PAGES 256
/* Of all page lists kept of a peer. Beyond, they are dropped, and read again when used. */
#define COPY_IMPORT_PAGES_MAX (4ULL * MARLIN_GRANT_PAGES_MAX)

struct copy_state {
	struct marlin_cmmc *cmmc; /* while a batch is entered, as is import */
	struct cmmc_import *import;
	struct marlin_handle handle;
	u64 session;
	u32 index;
	bool write;
	struct page *pages[COPY_PAGES];
	u64 local[COPY_PAGES];
	struct scatter_part parts[SCATTER_PARTS];
};

/* ---- what is announced to the owner ---- */

/* An entry of the owner's table, or an error. Caller holds session_lock. */
static struct marlin_grant *copy_entry(struct marlin_cmmc *cmmc, u32 index)
{
	u64 table = le64_to_cpu(READ_ONCE(cmmc_own_window(cmmc)->table));
	const u64 bytes = MARLIN_GRANTS * sizeof(struct marlin_grant);

	if (!table)
		return ERR_PTR(-ENOLINK); /* the owner has not told of it yet */
	if (!IS_ALIGNED(table, sizeof(struct marlin_grant)) || table > cmmc->ram_bytes - bytes)
		return ERR_PTR(-EREMOTEIO);
	return (struct marlin_grant *)(cmmc->ram + table) + index;
}

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

/*
 * Runs a step as a copy of a grant, which the owner waits for: 0, or the grant isn't that of `word`
 * any more.
 */
static int copy_announced(struct copy_state *state, u64 word,
			  int (*step)(struct copy_state *state, void *context), void *context)
{
	struct marlin_cmmc *cmmc = state->cmmc;
	struct marlin_grant *entry;
	__le64 *copy;
	int which, err;

	if (down_killable(&cmmc->copies_free))
		return -EINTR;
	err = copy_session_enter(cmmc, state->session);
	if (err)
		goto up;
	entry = copy_entry(cmmc, state->index);
	if (IS_ERR(entry)) {
		err = PTR_ERR(entry);
		goto leave;
	}
	which = copy_word_take(cmmc);
	copy = &cmmc_peer_window(cmmc)->copy[which];
	WRITE_ONCE(*copy, cpu_to_le64(grants_copy_word(atomic64_inc_return(&cmmc->sequence),
						       state->index)));
	/* Pairs with grants_revoke(): it sees the copy, or the copy sees that it is revoked. */
	marlin_flush(cmmc->peer);
	err = READ_ONCE(entry->word) == cpu_to_le64(word) ? 0 : -EKEYREVOKED;
	rmb(); /* the entry was live before what is read now */
	if (!err)
		err = step(state, context);
	mb(); /* all loads and stores of the step come before the copy's end */
	WRITE_ONCE(*copy, 0);
	marlin_flush(cmmc->peer);
	if (READ_ONCE(entry->word) != cpu_to_le64(word))
		marlin_ring(cmmc->peer);
	clear_bit_unlock(which, &cmmc->copies_used);
leave:
	up_read(&cmmc->session_lock);
up:
	up(&cmmc->copies_free);
	return err;
}

/* ---- the owner's page list ---- */

static void copy_import_put(struct cmmc_import *import)
{
	if (import && refcount_dec_and_test(&import->users))
		kvfree(import);
}

/* Drops all page lists. Caller holds import_lock. */
static void copy_imports_drop(struct marlin_cmmc *cmmc)
{
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

/* Reads the lists, by announced steps' rules; context: the import to fill. */
static int copy_read_lists(struct copy_state *state, void *context)
{
	struct marlin_cmmc *cmmc = state->cmmc;
	struct cmmc_import *import = context;
	u64 directory = le64_to_cpu(import->entry.directory);
	const __le64 *list = NULL;

	if (!copy_is_page(cmmc, directory))
		return -EREMOTEIO;
	for (u64 n = 0; n < import->count; n++) {
		u64 at = n % MARLIN_LIST_PAGES;

		if (!at) {
			const __le64 *lists = cmmc->ram + directory;
			u64 address = le64_to_cpu(READ_ONCE(lists[n / MARLIN_LIST_PAGES]));

			if (!copy_is_page(cmmc, address))
				return -EREMOTEIO;
			list = cmmc->ram + address;
		}
		import->pages[n] = le64_to_cpu(READ_ONCE(list[at]));
		if (!copy_is_page(cmmc, import->pages[n]))
			return -EREMOTEIO;
		if (!marlin_link_may_copy(cmmc->peer, import->pages[n]))
			return -EACCES;
	}
	return 0;
}

/* Reads a grant's page list and keeps it. Caller holds import_lock. */
static int copy_import_load(struct copy_state *state, const struct marlin_grant *entry)
{
	struct marlin_cmmc *cmmc = state->cmmc;
	u64 count = grants_pages(le32_to_cpu(entry->offset), le64_to_cpu(entry->bytes));
	struct cmmc_import *import, **at = &cmmc->imports[state->index];
	int err;

	import = kvmalloc(struct_size(import, pages, count), GFP_KERNEL_ACCOUNT);
	if (!import)
		return -ENOMEM;
	refcount_set(&import->users, 1);
	import->entry = *entry;
	import->count = count;
	err = copy_announced(state, le64_to_cpu(entry->word), copy_read_lists, import);
	if (err) {
		kvfree(import);
		return err;
	}
	if (*at)
		cmmc->import_pages -= (*at)->count;
	copy_import_put(*at);
	*at = NULL;
	if (cmmc->import_pages + count > COPY_IMPORT_PAGES_MAX)
		copy_imports_drop(cmmc);
	cmmc->import_pages += count;
	*at = import;
	return 0;
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
	const struct marlin_grant *from;
	int err;

	down_read(&cmmc->session_lock);
	state->session = cmmc->session;
	if (!cmmc->live) {
		err = -ENOLINK;
		goto up;
	}
	from = copy_entry(cmmc, state->index);
	if (IS_ERR(from)) {
		err = PTR_ERR(from);
		goto up;
	}
	memcpy(entry, from, sizeof(*entry));
	barrier(); /* the copy is what is checked */
	err = copy_verdict(grants_check(entry, &state->handle,
					state->write ? MARLIN_GRANT_WRITE : MARLIN_GRANT_READ));
up:
	up_read(&cmmc->session_lock);
	return err;
}

/* The grant that a handle names. The entry is compared whole, so a page list is never another's. */
static int copy_import(struct copy_state *state)
{
	struct marlin_cmmc *cmmc = state->cmmc;
	struct cmmc_import **at = &cmmc->imports[state->index];
	struct marlin_grant entry;
	int err;

	err = copy_entry_read(state, &entry);
	if (err)
		return err;
	err = mutex_lock_killable(&cmmc->import_lock);
	if (err)
		return err;
	if (!*at || memcmp(&(*at)->entry, &entry, sizeof(entry)))
		err = copy_import_load(state, &entry);
	if (!err) {
		state->import = *at;
		refcount_inc(&state->import->users);
	}
	mutex_unlock(&cmmc->import_lock);
	return err;
}

/* ---- moving ---- */

struct copy_move {
	u32 count;
	bool signal;
};

static int copy_move(struct copy_state *state, void *context)
{
	struct marlin_cmmc *cmmc = state->cmmc;
	struct copy_move *move = context;

	cmmc_hrdma_move(cmmc, state->parts, move->count, state->write);
	if (!move->signal)
		return 0;
	wmb(); /* the data comes before the signal */
	spin_lock(&cmmc->signal_lock);
	WRITE_ONCE(cmmc_peer_window(cmmc)->signal[state->index],
		   cpu_to_le32(++cmmc->signals[state->index]));
	spin_unlock(&cmmc->signal_lock);
	return 0;
}

/* The next pages of a buffer of io_uring, which keeps them. */
static int copy_own_vector(struct copy_state *state, const struct cmmc_memory *memory, u32 count)
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
		state->local[got++] = page_to_phys(part.bv_page);
	}
	return got ?: -EFAULT;
}

/* The addresses of own pages, which are locked here if the memory is the current task's. */
static int copy_own_pages(struct copy_state *state, const struct cmmc_memory *memory, u64 address,
			  u32 count)
{
	int got = count;

	if (memory->vector)
		return copy_own_vector(state, memory, count);
	if (memory->pin)
		memcpy(state->pages, memory->pin->pages + address / PAGE_SIZE,
		       count * sizeof(*state->pages));
	else
		got = pin_user_pages_fast(address & PAGE_MASK, count,
					  state->write ? 0 : FOLL_WRITE, state->pages);
	for (int i = 0; i < got; i++)
		state->local[i] = page_to_phys(state->pages[i]);
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

static int copy_transactions(struct copy_state *state, struct scatter_pages *own,
			     struct scatter_pages *theirs, u64 bytes, bool signal, u64 *done)
{
	u64 word = le64_to_cpu(state->import->entry.word);
	struct copy_move move;
	u64 cut;
	int err;

	do {
		move.count = scatter_cut(state->parts, SCATTER_PARTS, own, theirs, bytes, &cut);
		bytes -= cut;
		move.signal = signal && !bytes;
		err = copy_announced(state, word, copy_move, &move);
		if (err)
			return err;
		if (move.signal)
			marlin_ring(state->cmmc->peer);
		*done += cut;
	} while (bytes);
	return 0;
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

/* Copies up to COPY_PAGES of own pages; moves in->done on. */
static int copy_batch(struct copy_state *state, struct cmmc_copy *in, struct cmmc_memory *memory)
{
	u64 at = copy_own_address(memory, in);
	u32 offset = offset_in_page(at);
	u64 bytes = min_t(u64, in->bytes - in->done, COPY_PAGES * PAGE_SIZE - offset);
	struct scatter_pages own = { state->local, offset };
	struct scatter_pages theirs;
	bool signal = in->flags & CMMC_COPY_SIGNAL;
	int got = 0, err;

	if (bytes) {
		got = copy_own_pages(state, memory, at, grants_pages(offset, bytes));
		/* Fewer pages than asked for: an error, if any, comes with the next batch. */
		if (got > 0)
			bytes = min_t(u64, bytes, got * PAGE_SIZE - offset);
	}
	signal &= in->done + bytes == in->bytes;
	err = copy_enter(state, in);
	if (!err) {
		theirs = (struct scatter_pages){
			state->import->pages,
			le32_to_cpu(state->import->entry.offset) + in->offset + in->done,
		};
		/* A wrong handle is told of first. */
		err = got < 0 ? got :
			copy_transactions(state, &own, &theirs, bytes, signal, &in->done);
		copy_leave(state);
	}
	if (!memory->pin && !memory->vector && got > 0)
		unpin_user_pages_dirty_lock(state->pages, got, !state->write);
	if (!err && memory->vector)
		bvec_iter_advance(memory->vector, &memory->iter, bytes);
	return err;
}

/* in->done tells how far it came. Moves memory->iter on. */
int cmmc_copy(struct cmmc_copy *in, struct cmmc_memory *memory, bool write)
{
	struct marlin_handle handle;
	struct copy_state *state;
	int err;

	memcpy(&handle, &in->handle, sizeof(handle));
	in->done = 0;
	if (le32_to_cpu(handle.magic) != MARLIN_HANDLE_MAGIC ||
	    le16_to_cpu(handle.index) >= MARLIN_GRANTS)
		return -EINVAL;
	if (memory->pin ? !grants_contain(memory->pin->bytes, in->address, in->bytes) :
			  in->address + in->bytes < in->address)
		return -EFAULT;
	state = kmalloc(sizeof(*state), GFP_KERNEL_ACCOUNT);
	if (!state)
		return -ENOMEM;
	state->handle = handle;
	state->index = le16_to_cpu(handle.index);
	state->write = write;
	do {
		err = signal_pending(current) ? -EINTR : copy_batch(state, in, memory);
		cond_resched();
	} while (!err && in->done < in->bytes);
	kfree(state);
	return err;
}

/* ---- sessions ---- */

void cmmc_copy_init(struct marlin_cmmc *cmmc)
{
	init_rwsem(&cmmc->session_lock);
	sema_init(&cmmc->copies_free, MARLIN_COPIES);
	spin_lock_init(&cmmc->signal_lock);
	mutex_init(&cmmc->import_lock);
	atomic64_set(&cmmc->sequence, 0);
}

void cmmc_copy_start(struct marlin_cmmc *cmmc)
{
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
	mutex_lock(&cmmc->import_lock);
	copy_imports_drop(cmmc);
	mutex_unlock(&cmmc->import_lock);
}
