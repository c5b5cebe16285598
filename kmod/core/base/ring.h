/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A bounded ring of 32-bit values for many producers and many consumers, none
 * of which ever waits (after D. Vyukov's bounded MPMC queue).
 *
 *      position:   tail                    head
 *                   |  v   v   v   v   v    |
 *      cell:   ... [ ][x] [x] [x] [x] [x]  [ ] ...      cell of a position: position % cells
 *                   pop                    push
 *
 * A cell's turn says which call owns it: position p when the push of p can fill it, p + 1 when the
 * pop of p can empty it, p + cells when it is empty for the next round.
 *
 * Invariants:
 *   - a value that was pushed is popped exactly once;
 *   - the consumer sees after pop() everything that the producer did before push();
 *   - push() fails only if `cells` values are in the ring or in a push or pop that hasn't
 *     returned. A ring with a cell for every existing value therefore never fails.
 * pop() can find nothing while a push() is under way, though later ones have returned.
 */
#ifndef REMORA_BASE_RING_H
#define REMORA_BASE_RING_H

#include "core/base/bits.h"
#include "core/base/types.h"

#define BASE_RING_CELLS_MAX (1U << 30)

struct base_ring_cell {
	u32 turn;
	u32 value;
};

struct base_ring {
	struct base_ring_cell *cell;
	u32 mask;
	/* One cache line each, so that producers and consumers don't invalidate each other's. */
	u32 head __attribute__((aligned(64)));
	u32 tail __attribute__((aligned(64)));
};

/* cells: a power of two, 2 up to BASE_RING_CELLS_MAX. */
static inline size_t base_ring_bytes(u32 cells)
{
	return (size_t)cells * sizeof(struct base_ring_cell);
}

static inline void base_ring_init(struct base_ring *ring, void *memory, u32 cells)
{
	u32 n;

	ring->cell = (struct base_ring_cell *)memory;
	ring->mask = cells - 1;
	ring->head = 0;
	ring->tail = 0;
	for (n = 0; n < cells; n++)
		ring->cell[n].turn = n;
}

static inline bool base_ring_push(struct base_ring *ring, u32 value)
{
	u32 at = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);

	for (;;) {
		struct base_ring_cell *cell = &ring->cell[at & ring->mask];
		/* Pairs with base_ring_pop(): the cell's old value was read before. */
		u32 turn = __atomic_load_n(&cell->turn, __ATOMIC_ACQUIRE);
		s32 ahead = turn - at;

		if (ahead < 0)
			return false;
		if (ahead > 0) {
			at = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);
			continue;
		}
		/* Release pairs with base_ring_head(). */
		if (__atomic_compare_exchange_n(&ring->head, &at, at + 1, true, __ATOMIC_RELEASE,
						__ATOMIC_RELAXED)) {
			cell->value = value;
			/* Pairs with base_ring_pop(): value, and the object it stands for. */
			__atomic_store_n(&cell->turn, at + 1, __ATOMIC_RELEASE);
			return true;
		}
	}
}

static inline bool base_ring_pop(struct base_ring *ring, u32 *value)
{
	u32 at = __atomic_load_n(&ring->tail, __ATOMIC_RELAXED);

	for (;;) {
		struct base_ring_cell *cell = &ring->cell[at & ring->mask];
		/* Pairs with base_ring_push(): value, and the object it stands for. */
		u32 turn = __atomic_load_n(&cell->turn, __ATOMIC_ACQUIRE);
		s32 ahead = turn - (at + 1);

		if (ahead < 0)
			return false;
		if (ahead > 0) {
			at = __atomic_load_n(&ring->tail, __ATOMIC_RELAXED);
			continue;
		}
		if (__atomic_compare_exchange_n(&ring->tail, &at, at + 1, true, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED)) {
			*value = cell->value;
			/* Pairs with base_ring_push(): value was read. */
			__atomic_store_n(&cell->turn, at + ring->mask + 1, __ATOMIC_RELEASE);
			return true;
		}
	}
}

/*
 * The position of the next push. The caller sees all that producers did before they pushed to
 * positions below; such a push() might not have returned.
 */
static inline u32 base_ring_head(const struct base_ring *ring)
{
	return __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
}

/* The position of the next pop. */
static inline u32 base_ring_tail(const struct base_ring *ring)
{
	return __atomic_load_n(&ring->tail, __ATOMIC_RELAXED);
}

/* Values in the ring, at some moment during the call; exact while no push or pop is in progress. */
static inline u32 base_ring_count(const struct base_ring *ring)
{
	u32 popped = __atomic_load_n(&ring->tail, __ATOMIC_RELAXED);
	u32 pushed = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);
	s32 count = (s32)(pushed - popped); /* read one after the other: can be out of bounds */

	if (count < 0)
		return 0;
	return (u32)count <= ring->mask ? (u32)count : ring->mask + 1;
}

#endif
