// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/base/bytes.h"
#include "core/marlin/locks.h"

void locks_init(struct locks_lock *lock)
{
	base_zero(lock, sizeof(*lock));
	lock->holder = LOCKS_NONE;
}

static void locks_queue_add(struct locks_lock *lock, u32 machine)
{
	lock->queue[(lock->first + lock->count) % LOCKS_MACHINES] = (u8)machine;
	lock->count++;
}

static void locks_queue_remove(struct locks_lock *lock, u32 machine)
{
	u32 kept = 0;

	for (u32 i = 0; i < lock->count; i++) {
		u8 other = lock->queue[(lock->first + i) % LOCKS_MACHINES];

		if (other != machine)
			lock->queue[(lock->first + kept++) % LOCKS_MACHINES] = other;
	}
	lock->count = (u8)kept;
}

void locks_want(struct locks_lock *lock, u32 machine, u32 word)
{
	u32 before = lock->want[machine];

	if (word == before)
		return;
	if (lock->holder == machine) {
		lock->broken = (word ^ before) & MARLIN_LOCK_ABANDONED;
		lock->holder = LOCKS_NONE;
	} else if (before & MARLIN_LOCK_WANTS) {
		/* The machine breaks a rule, and loses its place. */
		locks_queue_remove(lock, machine);
	}
	lock->want[machine] = word;
	if (word & MARLIN_LOCK_WANTS)
		locks_queue_add(lock, machine);
}

int locks_next(struct locks_lock *lock, u32 *grant)
{
	u32 word;

	if (lock->holder != LOCKS_NONE || !lock->count)
		return -1;
	lock->holder = lock->queue[lock->first];
	lock->first = (lock->first + 1) % LOCKS_MACHINES;
	lock->count--;
	word = lock->want[lock->holder];
	*grant = word >> MARLIN_LOCK_SEQUENCE_SHIFT << MARLIN_LOCK_SEQUENCE_SHIFT |
		 (lock->broken ? MARLIN_LOCK_BROKEN : 0) | MARLIN_LOCK_GRANTED;
	return lock->holder;
}

void locks_gone(struct locks_lock *lock, u32 machine)
{
	if (lock->holder == machine)
		lock->lost = true;
	else if (lock->want[machine] & MARLIN_LOCK_WANTS)
		locks_queue_remove(lock, machine);
	lock->want[machine] = 0;
}

void locks_ended(struct locks_lock *lock, u32 machine)
{
	if (lock->holder != machine || !lock->lost)
		return;
	lock->holder = LOCKS_NONE;
	lock->lost = false;
	lock->broken = true;
}
