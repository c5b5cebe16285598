/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The incast window of a client machine, iwnd: bytes of READ data that were asked for and have not
 * arrived, over all channels (Clio, ASPLOS'22, section 4.4). A queue of tickets makes it fair.
 *
 *            head                  tail
 *   ---------|--- w --- w --- x ---|-----------> tickets
 *     passed   waits  waits  left    not yet given out
 *
 *   word: | head 16 | tail 16 | used bytes 32 |    one atomic word, so the states are few
 *   slot[ticket % slots]: | ticket 16 | waiter or LEFT 16 |    how to reach its owner
 *
 * FIFO. A channel without a ticket gets bytes only if no ticket is out (head == tail). One with a
 * ticket gets them only when head is its ticket, and its bytes and head's step are one exchange
 * of the word. So a channel that registered is served before all that come later.
 *
 * No lost wake-up. Every change that can let the head in (a release, head's step, a leave) is
 * followed by a look, rmem_incast_next(), whose answer the caller wakes:
 *
 *     waiter                              releaser
 *     tail's step: a ticket     (A)       bytes given back, or head's step  (C)
 *     slot written              (B)       word and slot of head read        (D)
 *     word read again: let in?  (E)       its waiter woken
 *
 * All of these are sequentially consistent. If D doesn't see B then E comes after C and lets the
 * waiter in. A waiter behind the head is looked for by the one that steps head to its ticket.
 *
 * A place isn't given up in the middle but when its channel ends: a channel that no longer wants
 * bytes keeps its ticket, and steps head on when it is woken there (rmem_incast_pass()). A channel
 * that ends marks its slot LEFT (rmem_incast_leave()). Head's next step to that ticket and the mark
 * race; whichever is later sees the other, and steps on.
 *
 * Shares. The channels of a device have one turn together, or a device of 128 queues would be
 * served 128 times while another one is served once. A share has a queue of the same kind, of one
 * byte: the channel that holds the byte waits in the machine's queue for all of its device, and
 * gives the byte to the next channel once it was served.
 *
 *      channels of a device --> share->queue --> its holder --> the machine's queue
 *
 * No deadlock: used bytes are out, so a releaser is to come; when none are out the head fits.
 * selftests/model/incast_queue.cpp explores all interleavings of these steps.
 *
 * Several channels on several CPUs call these at once: __atomic builtins, no lock, for a kernel's
 * spinlock would have to be taken within the core.
 */
#ifndef REMORA_RMEM_INCAST_H
#define REMORA_RMEM_INCAST_H

#include "core/base/types.h"

#define RMEM_IWND_BYTES (4U * 1024 * 1024)
/* The head is woken when that much is free (or all): the largest op, RMEM_READ_BYTES_MAX. */
#define RMEM_IWND_ROOM_BYTES (256U * 1024)

/* Tickets out at most; beyond that a channel tries again after RMEM_INCAST_RETRY_NS. */
#define RMEM_INCAST_SLOTS 1024U
#define RMEM_INCAST_RETRY_NS BASE_NSEC_PER_MSEC

/* Names of waiters; a channel has one of them, several channels can share one. */
#define RMEM_WAITERS 64
#define RMEM_WAITER_NONE (-1)

struct rmem_incast {
	u64 word;
	u32 limit_bytes;
	u32 slot[RMEM_INCAST_SLOTS];
};

/* A place in the queue. */
struct rmem_incast_turn {
	bool waits;
	u16 ticket; /* if it waits */
};

/* The turn of several channels: a device's. */
struct rmem_incast_share {
	struct rmem_incast queue; /* of the channels */
	struct rmem_incast_turn turn; /* in the machine's; guarded by the byte of queue */
};

/* A channel's place; the channel's lock guards it. */
struct rmem_incast_place {
	struct rmem_incast_turn turn; /* in the share's queue; without a share in the machine's */
	bool holds;		      /* the byte of the share's queue */
};

/* limit_bytes: RMEM_IWND_BYTES unless the user knows better; below 2^31. */
void rmem_incast_init(struct rmem_incast *i, u32 limit_bytes);

/*
 * Take bytes, if it is turn's turn and they fit; more than the limit fits when nothing is out.
 * Else turn waits, woken under the name waiter; but if the queue is full, it doesn't.
 */
bool rmem_incast_acquire(struct rmem_incast *i, struct rmem_incast_turn *turn, unsigned int waiter,
			 u32 bytes);
void rmem_incast_release(struct rmem_incast *i, u32 bytes);

/* The owner wants nothing now: if it is the head, the next one is. */
void rmem_incast_pass(struct rmem_incast *i, struct rmem_incast_turn *turn);
/* The owner ends, or begins anew. */
void rmem_incast_leave(struct rmem_incast *i, struct rmem_incast_turn *turn);

void rmem_incast_share_init(struct rmem_incast_share *share);

/* The same for a channel of a share; share NULL: the channel has a turn of its own. */
bool rmem_incast_place_acquire(struct rmem_incast *i, struct rmem_incast_share *share,
			       struct rmem_incast_place *place, unsigned int waiter, u32 bytes);
void rmem_incast_place_pass(struct rmem_incast *i, struct rmem_incast_share *share,
			    struct rmem_incast_place *place);
void rmem_incast_place_leave(struct rmem_incast *i, struct rmem_incast_share *share,
			     struct rmem_incast_place *place);
/* Whether the channel is woken when its turn comes; else a queue was full. */
bool rmem_incast_place_waits(const struct rmem_incast_share *share,
			     const struct rmem_incast_place *place);

/*
 * The waiter to be woken (the rmem_client_next() of its channels called), or RMEM_WAITER_NONE,
 * mostly. The caller asks after each call into a client, having dropped the channel's lock, and
 * again after it woke one, RMEM_INCAST_SLOTS times at most: for the queue of the channel's share
 * first, then for the machine's.
 */
int rmem_incast_next(struct rmem_incast *i);

u32 rmem_incast_used_bytes(const struct rmem_incast *i);

#endif
