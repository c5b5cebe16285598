/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * How the two machines of a link start together (pair words, include/remora/marlin.h).
 *
 *            wanted                 the words match
 *     DOWN ----------> HELLO ------------------------> READY --(the peer is READY, too)--> live
 *       ^   new session  ^       PAIR_CLEAN              |         PAIR_START
 *       |                '------- no match, fault -------'
 *       '-- not wanted --           new session, PAIR_STOP
 *
 * Invariant: a machine that is live, and only that, writes into the peer's memory; and while it is,
 * the peer doesn't clean that memory. A peer cleans it after it has read a word of HELLO that names
 * its own session, which the machine publishes after PAIR_STOP.
 */
#ifndef REMORA_MARLIN_PAIR_H
#define REMORA_MARLIN_PAIR_H

#include "core/base/types.h"
#include "remora/marlin.h"

/* Duties of the caller, in this order. */
enum pair_action {
	PAIR_STOP = 1,	  /* end all access to the peer's memory, and to the ring it fills */
	PAIR_CLEAN = 2,	  /* zero each struct marlin_window and ring's first word in own memory */
	PAIR_PUBLISH = 4, /* write pair_word() to the scratchpad, and ring the peer */
	PAIR_START = 8,	  /* exchange frames */
};

struct pair {
	u32 stage;
	u32 session;	  /* own */
	u32 peer_session; /* as last read */
	u32 ring_log;	  /* of the bytes of each ring in own memory */
	u32 rings_log;	  /* of how many those are */
	bool live;
};

/* session: any number, best one that the machine's last life did not use. There is one ring. */
void pair_init(struct pair *pair, u32 session, u32 ring_log);

/* The word to publish. */
u32 pair_word(const struct pair *pair);

/* Bytes of each of the rings that a peer's word tells of; 0 if there can be no such ring. */
u32 pair_word_ring_bytes(u32 word);

/* How many rings a peer's word tells of: 1 to 8, which may be more than there can be. */
u32 pair_word_rings(u32 word);

/* Look at the peer's word. wanted: interface and link are up. Returns enum pair_action's bits. */
u32 pair_look(struct pair *pair, bool wanted, u32 peer_word);

/* The peer broke a rule: start again, if it was started. Returns enum pair_action's bits. */
u32 pair_restart(struct pair *pair);

#endif
