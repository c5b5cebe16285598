// SPDX-License-Identifier: GPL-2.0
/*
 * Pages of programs, which stay in memory and in place until they are given back. They count
 * against RLIMIT_MEMLOCK of the user, beside what io_uring and AF_XDP lock for it.
 */
#include <linux/mm.h>
#include <linux/sched/user.h>

#include "compat/compat.h"
#include "marlin/cmmc.h"

/* So many pages are locked in one go; a signal is looked for in between. */
#define PIN_BATCH 512

static int pin_charge(struct cmmc_pin *pin)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	struct user_struct *user = get_uid(current_user());
	long old, new;

	old = atomic_long_read(&user->locked_vm);
	do {
		new = old + pin->count;
		if (new > limit && !capable(CAP_IPC_LOCK)) {
			free_uid(user);
			return -ENOMEM;
		}
	} while (!atomic_long_try_cmpxchg(&user->locked_vm, &old, new));
	pin->user = user;
	return 0;
}

static void pin_uncharge(struct cmmc_pin *pin)
{
	atomic_long_sub(pin->count, &pin->user->locked_vm);
	free_uid(pin->user);
}

/* write: the pages will be written to, by whoever. */
int cmmc_pin_start(struct cmmc_pin *pin, u64 address, u64 bytes, bool write)
{
	unsigned int flags = write ? FOLL_LONGTERM | FOLL_WRITE : COMPAT_FOLL_LONGTERM_READ;
	unsigned long pinned = 0;
	int got;

	if (!bytes || bytes > CMMC_BYTES_MAX || address + bytes < address)
		return -EINVAL;
	pin->offset = offset_in_page(address);
	pin->bytes = bytes;
	pin->write = write;
	pin->count = grants_pages(pin->offset, bytes);
	if (pin->count > MARLIN_GRANT_PAGES_MAX)
		return -EINVAL;
	got = pin_charge(pin);
	if (got)
		return got;
	pin->pages = kvmalloc_array(pin->count, sizeof(*pin->pages), GFP_KERNEL_ACCOUNT);
	if (!pin->pages) {
		pin_uncharge(pin);
		return -ENOMEM;
	}
	address -= pin->offset;
	while (pinned < pin->count) {
		got = signal_pending(current) ? -EINTR :
			pin_user_pages_fast(address + pinned * PAGE_SIZE,
					    min_t(u64, pin->count - pinned, PIN_BATCH), flags,
					    pin->pages + pinned);
		if (got <= 0)
			break;
		pinned += got;
	}
	if (pinned == pin->count)
		return 0;
	unpin_user_pages(pin->pages, pinned);
	kvfree(pin->pages);
	pin_uncharge(pin);
	return got ?: -EFAULT;
}

void cmmc_pin_end(struct cmmc_pin *pin)
{
	unpin_user_pages_dirty_lock(pin->pages, pin->count, pin->write);
	kvfree(pin->pages);
	pin_uncharge(pin);
}
