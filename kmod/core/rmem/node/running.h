/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Which calls of offloads run, as a FENCE sees them without the run table's lock (offload/run.h).
 *
 * Calls have numbers in the order of their admission, under their slots' locks. So a FENCE that has
 * held each of these once knows that all earlier calls have lower numbers than the next one's.
 */
#ifndef REMORA_RMEM_NODE_RUNNING_H
#define REMORA_RMEM_NODE_RUNNING_H

#include "core/base/types.h"

#define RMEM_RUN_CALLS 256U

/* All fields are atomic. */
struct rmem_running {
	u64 next; /* number of the next call, from 1 up */
	struct {
		u64 number; /* 0: none */
		u32 memory; /* index of the space that it reaches */
		u32 caller; /* index of its session's memory */
	} call[RMEM_RUN_CALLS];
};

/* Run lock, and the slot lock of the call's session. */
static inline void rmem_running_begin(struct rmem_running *running, u32 index, u32 memory,
				      u32 caller)
{
	u64 number = running->next;

	/* Pairs with rmem_running_has_older(): these are no fields of the number before. */
	__atomic_thread_fence(__ATOMIC_RELEASE);
	__atomic_store_n(&running->call[index].memory, memory, __ATOMIC_RELAXED);
	__atomic_store_n(&running->call[index].caller, caller, __ATOMIC_RELAXED);
	__atomic_store_n(&running->call[index].number, number, __ATOMIC_RELEASE);
	__atomic_store_n(&running->next, number + 1, __ATOMIC_RELEASE);
}

/* After its last step. */
static inline void rmem_running_end(struct rmem_running *running, u32 index)
{
	__atomic_store_n(&running->call[index].number, 0, __ATOMIC_RELEASE);
}

/* No lock. Does a call with a lower number run, of that memory or of its clients? */
static inline bool rmem_running_has_older(const struct rmem_running *running, u32 memory,
					  u64 number)
{
	u32 n;

	for (n = 0; n < RMEM_RUN_CALLS; n++) {
		u64 its = __atomic_load_n(&running->call[n].number, __ATOMIC_ACQUIRE);
		u32 reaches = __atomic_load_n(&running->call[n].memory, __ATOMIC_RELAXED);
		u32 caller = __atomic_load_n(&running->call[n].caller, __ATOMIC_RELAXED);

		if (!its || its >= number || (reaches != memory && caller != memory))
			continue;
		/* If it has another number by now, that call has ended. */
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&running->call[n].number, __ATOMIC_RELAXED) == its)
			return true;
	}
	return false;
}

#endif
