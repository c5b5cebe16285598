// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/marlin/frames.h"
#include "core/marlin/pair.h"

void pair_init(struct pair *pair, u32 session, u32 ring_log)
{
	pair->stage = MARLIN_STAGE_DOWN;
	pair->session = session & MARLIN_SESSION_MASK;
	pair->peer_session = 0;
	pair->ring_log = ring_log;
	pair->rings_log = 0;
	pair->live = false;
}

u32 pair_word(const struct pair *pair)
{
	if (pair->stage == MARLIN_STAGE_DOWN)
		return 0;
	return pair->session | pair->peer_session << MARLIN_PEER_SESSION_SHIFT |
	       (pair->ring_log - MARLIN_RING_LOG_MIN) << MARLIN_RING_LOG_SHIFT |
	       pair->rings_log << MARLIN_RINGS_LOG_SHIFT | pair->stage << MARLIN_STAGE_SHIFT;
}

u32 pair_word_ring_bytes(u32 word)
{
	u64 bytes = (u64)MARLIN_RING_BYTES_MIN
		    << (word >> MARLIN_RING_LOG_SHIFT & MARLIN_RING_LOG_MASK);

	return frames_ring_is_valid(bytes) ? (u32)bytes : 0;
}

u32 pair_word_rings(u32 word)
{
	return 1u << (word >> MARLIN_RINGS_LOG_SHIFT & MARLIN_RINGS_LOG_MASK);
}

/*
 * Another session number than the last, and than the one that the peer's word names: it may do so
 * since this machine's last life, whose number is not known any more. 0 names none.
 */
static void pair_new_session(struct pair *pair, u32 named)
{
	do {
		pair->session = pair->session % MARLIN_SESSION_MASK + 1;
	} while (pair->session == named);
	pair->peer_session = 0;
	pair->live = false;
	pair->stage = MARLIN_STAGE_HELLO;
}

u32 pair_restart(struct pair *pair)
{
	if (pair->stage != MARLIN_STAGE_READY)
		return 0;
	pair_new_session(pair, 0);
	return PAIR_STOP | PAIR_PUBLISH;
}

u32 pair_look(struct pair *pair, bool wanted, u32 peer_word)
{
	u32 peer_stage = peer_word >> MARLIN_STAGE_SHIFT & MARLIN_STAGE_MASK;
	u32 peers = peer_stage ? peer_word & MARLIN_SESSION_MASK : 0;
	u32 named = peer_word >> MARLIN_PEER_SESSION_SHIFT & MARLIN_SESSION_MASK;
	u32 actions = 0;

	if (!wanted) {
		if (pair->stage == MARLIN_STAGE_DOWN)
			return 0;
		pair->stage = MARLIN_STAGE_DOWN;
		pair->live = false;
		return PAIR_STOP | PAIR_PUBLISH;
	}
	if (pair->stage == MARLIN_STAGE_DOWN) {
		pair_new_session(pair, named);
		actions |= PAIR_PUBLISH;
	}
	if (pair->stage == MARLIN_STAGE_READY &&
	    (!peers || peers != pair->peer_session || named != pair->session ||
	     (pair->live && peer_stage != MARLIN_STAGE_READY)))
		actions |= pair_restart(pair);
	if (pair->stage == MARLIN_STAGE_HELLO) {
		if (pair->peer_session != peers) {
			pair->peer_session = peers;
			actions |= PAIR_PUBLISH;
		}
		if (peers && named == pair->session) {
			pair->stage = MARLIN_STAGE_READY;
			actions |= PAIR_CLEAN | PAIR_PUBLISH;
		}
	}
	if (pair->stage == MARLIN_STAGE_READY && !pair->live &&
	    peer_stage == MARLIN_STAGE_READY) {
		pair->live = true;
		actions |= PAIR_START;
	}
	return actions;
}
