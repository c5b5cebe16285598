/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Demands: the messages that hosts have announced, and the queues that the matcher picks from
 * (EDM, ASPLOS'25, 3.1.1 and 3.1.2).
 *
 *   table, by announcer and slot        pair (source, destination)      levels of a port
 *   [port 0][id % slots] -+-> demand -> [ best | next | ... ] -----> in[destination], out[source]:
 *   [port 1][...]         |                sorted, <= 2 X                a set of peers per level
 *                         |
 *       FREE --announce--> QUEUED --grant of the last byte--> SPENT --end, or lease--> FREE
 *                            ^                                   |
 *                            '------- retract: a grant was lost -'
 *
 * A level is a band of priority, 0 first. Each port has, for each level, the set of peers whose
 * pair has its best message in that level. Choosing the best peer among idle ones is thus an AND of
 * bit sets, level by level: no scan of queues, and an exact answer whichever ports are busy.
 *   SRPT  half octaves of the remaining bytes and `beyond`, so sizes within 41 % of each other
 *         count as equal
 *   FCFS  turns of config.turn_ns, at most EDM_TURNS beyond the oldest message queued
 * Peers within a level take turns.
 *
 * Invariants:
 *   - a pair is in exactly the level of its first message, in both ports' sets, or in none;
 *   - at most EDM_ACTIVE_MAX messages of an announcer are in a pair, so a pair has 2 X at most;
 *   - granted <= size; the bytes before granted are booked, and only retract lowers granted;
 *   - a slot's id moves forward only, so a late copy of an old entry changes nothing.
 *
 * The caller serialises all calls. Each call takes at most 2 X steps, except init.
 */
#ifndef REMORA_EDM_DEMAND_H
#define REMORA_EDM_DEMAND_H

#include "core/base/types.h"
#include "remora/edm.h"

#define EDM_LEVELS 32U
#define EDM_LEVEL_URGENT 0U		     /* has waited longer than config.age_ns */
#define EDM_LEVEL_LAST (EDM_LEVELS - 1) /* long, or its announcer has used up its share */
#define EDM_TURNS 29U
#define EDM_NEVER (~0ULL) /* a deadline: there is none */

enum edm_policy {
	EDM_SRPT,
	EDM_FCFS,
};

struct edm_node {
	struct edm_node *next, *prev;
};

enum edm_demand_state {
	EDM_FREE,
	EDM_QUEUED, /* has bytes to be granted */
	EDM_SPENT,  /* all bytes are granted, but the source has not ended the message */
};

struct edm_demand {
	struct edm_node to;	 /* QUEUED: by arrival, of one destination */
	struct edm_node from;	 /* QUEUED: by arrival, of one source */
	struct edm_node all;	 /* QUEUED: by arrival, of all */
	struct edm_node lease;	 /* not FREE: by renewal */
	struct edm_demand *next; /* QUEUED: in its pair */
	u64 arrived_ns; /* first announced */
	u64 queued_ns;	/* arrived, or retracted last */
	u64 renewed_ns;
	u32 id;	       /* of the slot's last message */
	u32 size;      /* bytes */
	u32 granted;   /* bytes, from the first */
	u32 beyond;    /* bytes that are another's to grant, and count for the priority */
	u32 grant_seq; /* of the datagram that told the last grant */
	u32 turn;      /* FCFS */
	u16 source, destination;
	u8 state;
	u8 level;   /* QUEUED: of the message; the pair has that of its first */
	u8 type;    /* EDM_WRITE or EDM_READ */
	bool named; /* id is valid */
	bool urgent;
	bool disfavoured; /* the announcer has used up its share */
};

/* One port's demand, as destination or as source. */
struct edm_queue {
	u32 levels; /* bit l: set[l] isn't empty */
	u32 last;    /* peer that was served last */
	u32 peers;   /* in all sets */
	u64 *set;    /* [EDM_LEVELS][words] of peers */
};

struct edm_demand_config {
	u16 ports; /* 2 to EDM_PORTS_MAX */
	u16 slots; /* per port, a power of two up to EDM_SLOTS_MAX */
	u8 active_max; /* X: per announcer and pair, 1 to EDM_ACTIVE_MAX */
	u8 policy;     /* enum edm_policy */
	bool in_order; /* within a pair by arrival, as the paper has it; else by policy */
	u64 turn_ns;   /* FCFS: width of a level, 1 or more */
	u64 lease_ns;
};

struct edm_demands {
	struct edm_demand_config config;
	u32 words;	    /* 64-bit words of a set of ports */
	u32 queued, live;   /* demands QUEUED, and not FREE */
	struct edm_demand *demand; /* [ports][slots] */
	struct edm_demand **pair;  /* [source][destination]: the first */
	struct edm_node *to;	   /* [destination] */
	struct edm_node *from;	   /* [source] */
	struct edm_queue *in;	   /* [destination], of sources */
	struct edm_queue *out;	   /* [source], of destinations */
	struct edm_node all, lease;
};

/* An announced message; bytes before granted need no grant. */
struct edm_announcement {
	u32 id, size, granted, beyond;
	u16 source, destination;
	u8 type; /* EDM_WRITE: source announces; EDM_READ: destination */
	bool disfavoured;
};

enum edm_demand_verdict {
	EDM_DEMAND_NEW,
	EDM_DEMAND_KNOWN, /* its lease is renewed */
	EDM_DEMAND_STALE, /* the slot has or had a later message */
	EDM_DEMAND_FULL,  /* the announcer has X messages in this pair */
};

bool edm_demand_config_is_valid(const struct edm_demand_config *config);

/* Bytes of memory that edm_demand_init() takes, aligned as a pointer is. config is valid. */
size_t edm_demand_bytes(const struct edm_demand_config *config);
void edm_demand_init(struct edm_demands *d, const struct edm_demand_config *config, void *memory);

static inline u16 edm_demand_announcer(const struct edm_demand *demand)
{
	return demand->type == EDM_READ ? demand->destination : demand->source;
}

static inline u32 edm_demand_left(const struct edm_demand *demand)
{
	return demand->size - demand->granted;
}

/* The message of an announcer, or NULL: the slot is free or has another. */
struct edm_demand *edm_demand_find(struct edm_demands *d, u16 announcer, u32 id);

/*
 * Announce or renew. The ports are below config.ports and differ; size is 1 or more; granted is at
 * most size. A new message of a slot ends the one before. *demand is the message if it is NEW or
 * KNOWN.
 */
enum edm_demand_verdict edm_demand_announce(struct edm_demands *d, u64 now_ns,
					    const struct edm_announcement *a,
					    struct edm_demand **demand);

/* Book bytes of a QUEUED message, 1 to edm_demand_left(). */
void edm_demand_grant(struct edm_demands *d, struct edm_demand *demand, u32 bytes);

/*
 * Return the booked bytes from offset granted on to the queue. The message isn't FREE. Returns
 * false if there are none, or if the announcer has X other messages in the pair.
 */
bool edm_demand_retract(struct edm_demands *d, u64 now_ns, struct edm_demand *demand, u32 granted);

/* The source has accepted grants up to an offset of another life of the scheduler. */
void edm_demand_advance(struct edm_demands *d, struct edm_demand *demand, u32 granted);

/* The message ends, whatever is left of it. */
void edm_demand_end(struct edm_demands *d, struct edm_demand *demand);

/* As edm_demand_end(), but the host may announce the same id again: it has only lost its lease. */
void edm_demand_expire(struct edm_demands *d, struct edm_demand *demand);

/* An announcer begins a new life: its messages end, its ids begin anew. Takes slots steps. */
void edm_demand_forget(struct edm_demands *d, u16 announcer);

/* Put a QUEUED message, or in order the first of its pair, into level EDM_LEVEL_URGENT. */
void edm_demand_hurry(struct edm_demands *d, struct edm_demand *demand);

/* The oldest QUEUED message to a destination, and from a source; or NULL. */
struct edm_demand *edm_demand_oldest_to(const struct edm_demands *d, u16 destination);
struct edm_demand *edm_demand_oldest_from(const struct edm_demands *d, u16 source);

/* The message whose lease ends first, if it has ended; or NULL. */
struct edm_demand *edm_demand_expired(struct edm_demands *d, u64 now_ns);
/* The end of the first lease, or EDM_NEVER. */
u64 edm_demand_deadline_ns(const struct edm_demands *d);

/*
 * The best peer of a queue among a set of ports; peers of a level take turns. Returns its level, or
 * EDM_LEVELS: there is none.
 */
u32 edm_demand_best(const struct edm_demands *d, const struct edm_queue *queue, const u64 *among,
		    u16 *peer);

/* Place of a level in the order of service; EDM_LEVELS is behind all. */
u32 edm_demand_rank(const struct edm_demands *d, u32 level);

/* The first message of a pair, or NULL. */
static inline struct edm_demand *edm_demand_first(const struct edm_demands *d, u16 source,
						  u16 destination)
{
	return d->pair[source * d->config.ports + destination];
}

/* NULL, or the invariant that is broken. Takes ports^2 steps: for tests. */
const char *edm_demand_check(const struct edm_demands *d);

#endif
