/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A lock across machines, at its home and at a requester (include/remora/marlin_locks.h; Marlin,
 * ANCS'14, 3.2).
 *
 *   a machine at the home:
 *   nothing --locks_want: asks--> queued --locks_next--> holder --locks_want: gave back--> nothing
 *                                   |                      |
 *                                   '----- locks_gone -----+--> lost --locks_ended--> nothing
 *
 * Invariants, whatever the machines write:
 *   - one machine at most is the holder, until its own word or locks_ended() says that it isn't;
 *   - a machine is in the queue once at most, and one machine's words change no other's place;
 *   - the queue is first come, first served. A holder that asks again goes to its end.
 * Each call takes at most LOCKS_MACHINES steps. The caller serialises the calls for one struct
 * locks_lock, and sees to barriers, bells and the order of looks that the specification asks for.
 *
 * Why the sequence number: a requester may give a lock back and ask anew before the home looks. The
 * home would see the same word, and the requester the same grant.
 */
#ifndef REMORA_MARLIN_LOCKS_CORE_H
#define REMORA_MARLIN_LOCKS_CORE_H

#include "core/base/types.h"
#include "remora/marlin_locks.h"

#define LOCKS_MACHINES 64 /* by port, the home itself, too */
#define LOCKS_NONE 0xff

struct locks_lock {
	u32 want[LOCKS_MACHINES]; /* words as they were found last; 0: nothing */
	u8 queue[LOCKS_MACHINES]; /* machines, a ring from first on */
	u8 first, count;
	u8 holder; /* or LOCKS_NONE */
	bool lost; /* the holder's session ended, and its copies may be under way */
	bool broken; /* the last holder did not give the lock back */
};

/* ---- home ---- */

void locks_init(struct locks_lock *lock);

/* A machine's word, as it is now. The machine has a session. */
void locks_want(struct locks_lock *lock, u32 machine, u32 word);

/* The machine that has the lock from now on, and its grant word. -1: none waits, or it is held. */
int locks_next(struct locks_lock *lock, u32 *grant);

/* A machine's session ended. If it has the lock, nobody gets it before locks_ended(). */
void locks_gone(struct locks_lock *lock, u32 machine);

/* Nothing of that machine's session is under way any more. Does nothing if it held no lock. */
void locks_ended(struct locks_lock *lock, u32 machine);

/* ---- requester ---- */

/* Want words that follow a word. The first of a session follows 0. */
static inline u32 locks_word_ask(u32 word)
{
	const u32 step = 1u << MARLIN_LOCK_SEQUENCE_SHIFT;

	return (word | MARLIN_LOCK_WANTS) + step;
}

static inline u32 locks_word_leave(u32 word, bool abandoned)
{
	return (word & ~MARLIN_LOCK_WANTS) ^ (abandoned ? MARLIN_LOCK_ABANDONED : 0);
}

/* A grant is for this word. */
static inline bool locks_is_granted(u32 word, u32 grant)
{
	return word & MARLIN_LOCK_WANTS && grant & MARLIN_LOCK_GRANTED &&
	       grant >> MARLIN_LOCK_SEQUENCE_SHIFT == word >> MARLIN_LOCK_SEQUENCE_SHIFT;
}

#endif
