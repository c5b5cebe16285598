/* SPDX-License-Identifier: MIT */
/*
 * Locks in remote memory.
 *
 * A lock is REMOTE_LOCK_BYTES of remote memory at a multiple of 8, initially zero. Any thread that
 * has the address MAY take it, by any handle, on any machine. Waiters get the lock in the order
 * they came.
 *
 * The holder of a lock is a thread, and it has a lease. If it neither releases the lock nor extends
 * the lease in time, the next waiter gets the lock, and remote_lock() returns 1 to it. Each waiter
 * measures the lease by its own clock, from when it first saw the present holder. A holder
 * therefore has at least three quarters of the lease from the return of remote_lock(): all but the
 * time that remote_lock() needed to see its turn, mostly less than 5 ms. remote_lock() extends the
 * lease if it needed more. A lease MUST be longer than four round trips to the node: with a shorter
 * one remote_lock() might extend it without end.
 */
#ifndef REMOTE_LOCK_H
#define REMOTE_LOCK_H

#include <remote/remote.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REMOTE_LOCK_BYTES 16

/* Sets the lease, 1 ms to 2^32 - 1 ms. MUST precede any use of the lock. Default: 10 s. */
int remote_lock_init(remote_t *r, raddr_t lock, uint64_t lease_us);

/*
 * Waits until the calling thread holds the lock. 0: it does. 1: it does, and the lease of the
 * previous holder expired, so the protected data might be half changed. A call that times out keeps
 * its place in the queue for the handle's next remote_lock(). A place that no remote_lock() takes
 * up costs the other waiters a lease. So does a place whose number is lost, because the session
 * ended or no answer came. The call therefore waits for that answer up to half a second, even
 * beyond the handle's call_timeout_us. -EDEADLK: the calling thread holds the lock by
 * this handle, or takes it by an operation that hasn't ended (queue.h).
 */
int remote_lock(remote_t *r, raddr_t lock);

/*
 * Starts the lease anew, at some time between call and return. -EPERM: the calling thread doesn't
 * hold the lock, or no longer.
 */
int remote_lock_extend(remote_t *r, raddr_t lock);

/*
 * Waits as remote_release() does, then releases the lock. -EPERM: the calling thread doesn't hold
 * it, or no longer: the lease expired and another thread got the lock.
 */
int remote_unlock(remote_t *r, raddr_t lock);

/* Clio's names; remote.h says why a program MAY leave them out. */
#ifndef REMOTE_NO_SHORT_NAMES
static inline int rlock(remote_t *r, raddr_t lock)
{
	return remote_lock(r, lock);
}

static inline int runlock(remote_t *r, raddr_t lock)
{
	return remote_unlock(r, lock);
}
#endif

#ifdef __cplusplus
}
#endif

#endif
