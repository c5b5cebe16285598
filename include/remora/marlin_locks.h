/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Marlin's locks across machines, version 1. This header is the specification; include/README.md
 * has the glossary. MUST, MUST NOT and MAY bind both ends. After Marlin (ANCS'14), section 3.2,
 * which proposes locks in shared memory and leaves their algorithm open.
 *
 * A bridge carries loads and stores, but no atomic operation: two machines can't swap one word. So
 * each word here has one writer. A lock has a home, the machine in whose memory its words lie. The
 * home alone decides which machine has the lock.
 *
 *     requester                                            home's memory
 *       "I want lock n", "I gave it back" ----------------> want[n], behind the requester's window
 *     requester's memory                                   home
 *       grant[n], behind the home's window <-------------- "you have lock n"
 *
 * Lamport's bakery would need no home. But there each machine looks at all the others' words, and
 * all must agree which of the others are dead: a bridge gives no such agreement, and two machines
 * that lost each other would both enter. A home knows by its own links. When the home dies, its
 * locks end together with its memory, which they guard. That is why programs SHOULD choose the
 * machine as home whose memory the lock guards.
 *
 * The struct at MARLIN_LOCKS_OFFSET of both windows is 0 when a session of marlin.h starts. A
 * machine that serves locks MUST then write a number other than 0 to `changed` in the peer's
 * memory. All fields are little-endian. A machine MUST read each shared word once, and check the
 * copy.
 *
 * Request. A want word has a sequence number, and two bits. To ask for a lock, a requester sets
 * MARLIN_LOCK_WANTS, under the next sequence number. It MUST NOT change the word again before the
 * lock is granted. To give the lock back, it clears MARLIN_LOCK_WANTS, or asks anew in the same
 * store. If the holder did not give it back itself, since it died, the requester inverts
 * MARLIN_LOCK_ABANDONED in that store.
 *
 * Grant. The home writes the want word's sequence number and MARLIN_LOCK_GRANTED. It sets
 * MARLIN_LOCK_BROKEN if the lock's last holder did not give it back: the guarded memory might be
 * half changed. A grant with another sequence number is none.
 *
 * Order. The home MUST serve the machines in the order in which it found their requests. It MUST
 * look at all machines' words each time. A machine that has a lock goes to the end when it asks
 * again. So each other machine gets the lock once at most before a request that has become
 * visible.
 *
 * Change. After a store to want or grant, and ordered behind it, a machine MUST write another
 * number to `changed`. It MUST then make both visible, which over a bus takes a read, and ring the
 * doorbell. The other end reads `changed`, and then all words if it isn't the number of the last
 * time.
 *
 * End of a session. A requester's locks at the home, and its requests, end with the session.
 * Before a requester leaves the stage READY it MUST have told its holders that they lost the lock,
 * and have ended its copies (marlin_grants.h). A home MUST NOT grant a lock of a lost holder to
 * another machine before the holder's machine has left the stage READY, or is known to be dead. It
 * is granted with MARLIN_LOCK_BROKEN then.
 */
#ifndef REMORA_MARLIN_LOCKS_H
#define REMORA_MARLIN_LOCKS_H

#include <linux/types.h>

#define MARLIN_LOCKS_OFFSET 3392 /* in a window, behind struct marlin_grants_window */
#define MARLIN_LOCKS 64		 /* of a home */

#define MARLIN_LOCK_WANTS 1u	 /* want: the machine asks for the lock, or has it */
#define MARLIN_LOCK_ABANDONED 2u /* want: inverted each time a holder did not give it back */
#define MARLIN_LOCK_GRANTED 1u	 /* grant */
#define MARLIN_LOCK_BROKEN 2u	 /* grant: the last holder did not give it back */
#define MARLIN_LOCK_SEQUENCE_SHIFT 2

/* All words are written by the peer. */
struct marlin_locks {
	__le32 changed; /* another number after each change of the words below */
	__u8 reserved[60];
	__le32 want[MARLIN_LOCKS];  /* the peer's, for locks of this machine */
	__le32 grant[MARLIN_LOCKS]; /* to this machine, of the peer's locks */
};

#ifdef __cplusplus
#define MARLIN_ASSERT static_assert
#else
#define MARLIN_ASSERT _Static_assert
#endif

MARLIN_ASSERT(__builtin_offsetof(struct marlin_locks, want) == 64, "layout");
MARLIN_ASSERT(MARLIN_LOCKS_OFFSET % 64 == 0, "begins at a cache line");
MARLIN_ASSERT(MARLIN_LOCKS_OFFSET + sizeof(struct marlin_locks) <= 4096, "the ring begins there");

#undef MARLIN_ASSERT

#endif
