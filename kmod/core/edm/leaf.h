/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The scheduler of a leaf in a leaf-spine. EDM (ASPLOS'25) has a single switch; this is how several
 * share its work. A leaf schedules the messages to its own hosts. Their sources can be anywhere.
 *
 *   own source                                      source of another leaf
 *     announce -> demand -> booking -> GRANT          announce -> demand -> booking -> OFFER
 *                              ^                                                         |
 *     offer of another leaf -> demand, to the port that stands for the links     its leaf: booking,
 *                              to that leaf                                      GRANT and TAKEN
 *
 * Invariants:
 *   - the leaf of a source books it for one chunk at a time, whichever leaf has asked: no source is
 *     promised to two receivers;
 *   - a destination is booked by its leaf for one chunk at a time. A chunk is late by the time that
 *     its offer waits;
 *   - offers with a source that its leaf has not taken have window_bytes and less than a chunk, and
 *     are EDM_LEAF_OFFERS at most. So an offer waits for at most so much of each leaf.
 *
 * Offers of a leaf with a source are taken in their order: that leaf has picked them by priority.
 * Between leaves, the bytes that the offered message has left decide. No datagram between leaves is
 * lost: an offer has no lease. The caller serialises all calls.
 */
#ifndef REMORA_EDM_LEAF_H
#define REMORA_EDM_LEAF_H

#include "core/edm/match.h"

#define EDM_LEAF_OFFERS 64U

struct edm_leaf_config {
	struct edm_match_config match; /* demand.ports: hosts of all leaves, then a port a leaf */
	u16 leaves;	       /* 1: a single switch, and no port for it */
	u16 leaf;	       /* this one */
	u16 hosts;	       /* of a leaf, at most demand.slots; leaf 0's come first */
	u32 window_bytes;      /* chunk_bytes or more */
};

/* A chunk. The leaf of its destination has booked it. */
struct edm_offer {
	void *request; /* the caller's: with the first chunk of a message; or NULL */
	u32 id;
	u32 bytes;
	u32 end;    /* end offset in the message */
	u32 beyond; /* bytes of the message behind it */
	u16 source, destination;
	u8 type; /* EDM_WRITE or EDM_READ */
};

/* Offers of another leaf with one of this leaf's hosts. */
struct edm_leaf_queue {
	u32 head, count; /* in offer[], modulo EDM_LEAF_OFFERS */
	u32 next;	 /* number of the next demand */
	struct edm_offer offer[EDM_LEAF_OFFERS];
};

struct edm_leaf {
	struct edm_leaf_config config;
	struct edm_match match;
	struct edm_leaf_queue *queue; /* [leaf][host of this leaf] */
	u32 *offered;		      /* [host of all] bytes that its leaf has not taken */
	u32 *offers;		      /* [host of all] and their number */
};

enum edm_leaf_do {
	EDM_LEAF_GRANT, /* tell the source, one of this leaf's hosts */
	EDM_LEAF_OFFER, /* tell the leaf of the source */
};

struct edm_leaf_action {
	u8 what;
	bool last;    /* taken_by: the offer has been taken in full */
	u16 taken_by; /* the leaf to tell TAKEN, of chunk.bytes; or EDM_LEAF_NONE */
	struct edm_demand *demand; /* of this leaf's own queues; NULL: it was an offer */
	struct edm_offer chunk;	   /* request: the offer's; NULL for an own demand */
};

#define EDM_LEAF_NONE 0xffffU

bool edm_leaf_config_is_valid(const struct edm_leaf_config *config);
size_t edm_leaf_bytes(const struct edm_leaf_config *config);
/*
 * No port follows: see edm_match_follow(). Ports of hosts have a host's rate, of leaves the links'.
 */
void edm_leaf_init(struct edm_leaf *l, const struct edm_leaf_config *config, void *memory);

static inline u16 edm_leaf_of(const struct edm_leaf *l, u16 host)
{
	return (u16)(host / l->config.hosts);
}

/* The port of the links to a leaf. */
static inline u16 edm_leaf_port(const struct edm_leaf *l, u16 leaf)
{
	return (u16)(l->config.leaves * l->config.hosts + leaf);
}

/* Messages to hosts of this leaf: edm_match_announce(&l->match, ...). */

/* Another leaf's. Returns false if it has EDM_LEAF_OFFERS with that source. */
bool edm_leaf_offer(struct edm_leaf *l, u64 now_ns, const struct edm_offer *offer);
/* The leaf of a source has taken an offer, or so much of it. Last: all of it. */
void edm_leaf_taken(struct edm_leaf *l, u16 source, u32 bytes, bool last);
/* The next chunk. As edm_match_next(), also after an offer and after one was taken. */
bool edm_leaf_next(struct edm_leaf *l, u64 now_ns, struct edm_leaf_action *action);

/* The same for a booking of another matcher (pim.h). */
void edm_leaf_booked(struct edm_leaf *l, u64 now_ns, const struct edm_booking *booking,
		     struct edm_leaf_action *action);

/* NULL, or the invariant that is broken. For tests. */
const char *edm_leaf_check(const struct edm_leaf *l);

#endif
