// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/client/incast.h"

#define HEAD_SHIFT 48
#define TAIL_SHIFT 32

#define SLOT_LEFT 0xffffU

static u64 incast_load(const struct rmem_incast *i)
{
	return __atomic_load_n(&i->word, __ATOMIC_SEQ_CST);
}

/* False: *word is set to the current value. */
static bool incast_exchange(struct rmem_incast *i, u64 *word, u64 wanted)
{
	return __atomic_compare_exchange_n(&i->word, word, wanted, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
}

static u16 incast_head_of(u64 word)
{
	return (u16)(word >> HEAD_SHIFT);
}

static u16 incast_tail_of(u64 word)
{
	return (u16)(word >> TAIL_SHIFT);
}

static u32 incast_used_of(u64 word)
{
	return (u32)word;
}

static u64 incast_word_of(u16 head, u16 tail, u32 used)
{
	return (u64)head << HEAD_SHIFT | (u64)tail << TAIL_SHIFT | used;
}

static u64 incast_head_stepped(u64 word)
{
	return incast_word_of((u16)(incast_head_of(word) + 1), incast_tail_of(word),
			      incast_used_of(word));
}

static u32 *incast_slot_of(struct rmem_incast *i, u16 ticket)
{
	return &i->slot[ticket % RMEM_INCAST_SLOTS];
}

static void incast_slot_write(struct rmem_incast *i, u16 ticket, u32 value)
{
	__atomic_store_n(incast_slot_of(i, ticket), (u32)ticket << 16 | value, __ATOMIC_SEQ_CST);
}

/* RMEM_WAITER_NONE: its owner hasn't written it yet, and looks by itself when it has. */
static int incast_slot_read(struct rmem_incast *i, u16 ticket)
{
	u32 slot = __atomic_load_n(incast_slot_of(i, ticket), __ATOMIC_SEQ_CST);

	/* A slot that was never written is 0, like ticket 0's: so names start at 1 here. */
	return slot >> 16 == ticket && (slot & 0xffff) ? (int)(slot & 0xffff) : RMEM_WAITER_NONE;
}

void rmem_incast_init(struct rmem_incast *i, u32 limit_bytes)
{
	u32 n;

	i->word = 0;
	i->limit_bytes = limit_bytes;
	for (n = 0; n < RMEM_INCAST_SLOTS; n++)
		i->slot[n] = 0;
}

static bool incast_fits(const struct rmem_incast *i, u64 word, u32 bytes)
{
	return !incast_used_of(word) || (u64)incast_used_of(word) + bytes <= i->limit_bytes;
}

bool rmem_incast_acquire(struct rmem_incast *i, struct rmem_incast_turn *turn, unsigned int waiter,
			 u32 bytes)
{
	u64 word = incast_load(i), wanted;
	u16 first;

	for (;;) {
		first = turn->waits ? turn->ticket : incast_tail_of(word);
		if (incast_head_of(word) == first && incast_fits(i, word, bytes)) {
			wanted = turn->waits ? incast_head_stepped(word) : word;
			if (!incast_exchange(i, &word, wanted + bytes))
				continue;
			turn->waits = false;
			return true;
		}
		if (turn->waits ||
		    (u16)(incast_tail_of(word) - incast_head_of(word)) >= RMEM_INCAST_SLOTS)
			return false;
		wanted = incast_word_of(incast_head_of(word), (u16)(incast_tail_of(word) + 1),
					incast_used_of(word));
		if (!incast_exchange(i, &word, wanted))
			continue;
		turn->waits = true;
		turn->ticket = first;
		incast_slot_write(i, first, 1 + waiter % RMEM_WAITERS);
		word = incast_load(i);
	}
}

void rmem_incast_release(struct rmem_incast *i, u32 bytes)
{
	__atomic_fetch_sub(&i->word, bytes, __ATOMIC_SEQ_CST);
}

/* Past the heads that have left. */
static u64 incast_skip(struct rmem_incast *i)
{
	u64 word = incast_load(i);

	while (incast_head_of(word) != incast_tail_of(word) &&
	       incast_slot_read(i, incast_head_of(word)) == (int)SLOT_LEFT) {
		if (incast_exchange(i, &word, incast_head_stepped(word)))
			word = incast_head_stepped(word);
	}
	return word;
}

void rmem_incast_pass(struct rmem_incast *i, struct rmem_incast_turn *turn)
{
	u64 word;

	if (!turn->waits)
		return;
	word = incast_load(i);
	while (incast_head_of(word) == turn->ticket) {
		if (!incast_exchange(i, &word, incast_head_stepped(word)))
			continue;
		turn->waits = false;
		return;
	}
}

void rmem_incast_leave(struct rmem_incast *i, struct rmem_incast_turn *turn)
{
	rmem_incast_pass(i, turn);
	if (!turn->waits)
		return;
	turn->waits = false;
	incast_slot_write(i, turn->ticket, SLOT_LEFT);
	incast_skip(i);
}

/* ---- shares ---- */

void rmem_incast_share_init(struct rmem_incast_share *share)
{
	rmem_incast_init(&share->queue, 1);
	share->turn.waits = false;
}

/* Takes the bytes if no ticket is out and they fit. */
static bool incast_try(struct rmem_incast *i, u32 bytes)
{
	u64 word = incast_load(i);

	while (incast_head_of(word) == incast_tail_of(word) && incast_fits(i, word, bytes))
		if (incast_exchange(i, &word, word + bytes))
			return true;
	return false;
}

static bool incast_share_is_idle(const struct rmem_incast_share *share)
{
	u64 word = incast_load(&share->queue);

	return incast_head_of(word) == incast_tail_of(word) && !incast_used_of(word);
}

static void incast_place_hand_over(struct rmem_incast_share *share, struct rmem_incast_place *place)
{
	place->holds = false;
	rmem_incast_release(&share->queue, 1);
}

bool rmem_incast_place_acquire(struct rmem_incast *i, struct rmem_incast_share *share,
			       struct rmem_incast_place *place, unsigned int waiter, u32 bytes)
{
	if (!share)
		return rmem_incast_acquire(i, &place->turn, waiter, bytes);
	/* Mostly no channel waits anywhere. */
	if (!place->turn.waits && incast_share_is_idle(share) && incast_try(i, bytes))
		return true;
	if (!place->holds && !rmem_incast_acquire(&share->queue, &place->turn, waiter, 1))
		return false;
	place->holds = true;
	if (!rmem_incast_acquire(i, &share->turn, waiter, bytes))
		return false;
	incast_place_hand_over(share, place);
	return true;
}

void rmem_incast_place_pass(struct rmem_incast *i, struct rmem_incast_share *share,
			    struct rmem_incast_place *place)
{
	if (!share) {
		rmem_incast_pass(i, &place->turn);
		return;
	}
	if (!place->holds) {
		rmem_incast_pass(&share->queue, &place->turn);
		return;
	}
	rmem_incast_pass(i, &share->turn);
	if (!share->turn.waits)
		incast_place_hand_over(share, place);
}

void rmem_incast_place_leave(struct rmem_incast *i, struct rmem_incast_share *share,
			     struct rmem_incast_place *place)
{
	if (!share) {
		rmem_incast_leave(i, &place->turn);
	} else if (place->holds) {
		rmem_incast_leave(i, &share->turn);
		incast_place_hand_over(share, place);
	} else {
		rmem_incast_leave(&share->queue, &place->turn);
	}
}

bool rmem_incast_place_waits(const struct rmem_incast_share *share,
			     const struct rmem_incast_place *place)
{
	return place->holds ? share->turn.waits : place->turn.waits;
}

/* ---- waking ---- */

/* Wakes when any op would fit, or none is out: a few READs at a time, not one packet each. */
int rmem_incast_next(struct rmem_incast *i)
{
	u64 word = incast_load(i);
	int waiter;

	if (incast_head_of(word) == incast_tail_of(word))
		return RMEM_WAITER_NONE;
	word = incast_skip(i);
	if (incast_head_of(word) == incast_tail_of(word))
		return RMEM_WAITER_NONE;
	if (incast_used_of(word) &&
	    (u64)incast_used_of(word) + RMEM_IWND_ROOM_BYTES > i->limit_bytes)
		return RMEM_WAITER_NONE;
	waiter = incast_slot_read(i, incast_head_of(word));
	return waiter > 0 && waiter != (int)SLOT_LEFT ? waiter - 1 : RMEM_WAITER_NONE;
}

u32 rmem_incast_used_bytes(const struct rmem_incast *i)
{
	return incast_used_of(incast_load(i));
}
