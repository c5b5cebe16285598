/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The matcher: an online greedy matching of sources and destinations (EDM, ASPLOS'25, 3.1.1). It is
 * event-driven: when a chunk's time has passed, it looks at the two ports that became idle.
 *
 *   edm_match_announce()          edm_match_next()
 *   a new message ---.                .--> the better pair? --> shorten --> book both ports
 *                    v                |        |  ^
 *   a chunk ends --> ports to look at +        '--' each step is a better level
 *                    (edm_match_next(), from the heap of ends)
 *
 * Differences from the paper's algorithm:
 *   - Chunks are aligned. Ports whose chunks end at different times would stay out of phase for
 *     ever, and a short message between two of them would find both idle only by chance. If a
 *     better message waits for one of the chunk's ports, and its other port becomes idle first, the
 *     chunk is shortened to end by that moment. If that leaves less than config.unit_bytes, the
 *     port waits instead: with a unit booked, the two ports would miss each other again.
 *   - A destination whose egress queue is above config.egress_bytes_max gets no chunk. Bytes of
 *     control messages count: they lengthen the next booking of their port.
 *   - A message that is the oldest of its source or its destination, and older than config.age_ns,
 *     goes first.
 *   - Each announcer has a share: bytes of short messages that precede others. They return at
 *     share_permille of the port's rate, up to share_bytes. An announcer that has none left is
 *     served last. A byte counts once for each announcer or destination that has messages for the
 *     same peer, so that all who split theirs precede others with share_permille of that peer's
 *     rate together. Splitting a message thus gains share_bytes once.
 *
 * Invariants:
 *   - a port is in at most one chunk as source and in one as destination;
 *   - after edm_match_next() has returned false, no idle source has a message to an idle
 *     destination, unless one of them waits for a better message and less than a unit's time (the
 *     matching is maximal but for these);
 *   - a booked pair is locally best: no idle port has a message of a better level to or from it.
 *
 * Work: a booking takes one heap operation a port, O(log ports), and at most EDM_LEVELS choices. A
 * choice is at most EDM_LEVELS ANDs of ports / 64 words. The caller serialises all calls. The unit
 * of time is the caller's, if rates and periods use the same: a simulator has picoseconds.
 */
#ifndef REMORA_EDM_MATCH_H
#define REMORA_EDM_MATCH_H

#include "core/edm/demand.h"

/* Peers that the alignment looks at, of each of the two ports. */
#define EDM_ALIGN_PEERS 4U
/* Fastest and slowest port: the products of rates with times and with bytes fit 64 bits. */
#define EDM_BYTE_Q24_MIN (1ULL << 8)
#define EDM_BYTE_Q24_MAX (1ULL << 42)

enum edm_side {
	EDM_SOURCE,
	EDM_DESTINATION,
	EDM_SIDES,
};

struct edm_match_config {
	struct edm_demand_config demand;
	u32 chunk_bytes; /* most bytes of a booking; a multiple of unit_bytes */
	u32 unit_bytes;	 /* a shortened chunk has a multiple of these, but for a message's end */
	/*
	 * A port that was idle for at most their time is booked from the end of its last chunk: for
	 * callers whose timers are late. Its queue can have so much more. At most chunk_bytes.
	 */
	u32 late_bytes_max;
	u64 age_ns;
	u32 egress_bytes_max;
	u32 share_bytes; /* chunk_bytes to 2^30 */
	u32 share_permille; /* 1 to 1000 */
};

/* One direction of a port. */
struct edm_half {
	u64 free_ns;	   /* busy: until then */
	u64 hold_ns;	   /* no chunk before then: another scheduler's may be under way */
	u32 rest_q24;	   /* part of a nanosecond by which free_ns was rounded down */
	u32 control_bytes; /* sent beside chunks since the last booking */
	bool follows, full, busy;
};

struct edm_share {
	u64 byte_q24; /* of the port: nanoseconds a byte takes, times 2^24 */
	u64 filled_ns;
	s64 bytes;
};

struct edm_match {
	struct edm_match_config config;
	struct edm_demands demands;
	u64 *idle[EDM_SIDES]; /* sets of ports: follow, and neither busy nor full */
	u64 *look[EDM_SIDES]; /* sets of ports: became idle, or got a message */
	u64 *held[EDM_SIDES]; /* sets of ports: to look at when the next chunk ends */
	bool any_held;
	struct edm_half *half[EDM_SIDES];
	struct edm_share *share; /* [port] */
	u32 *heap;		 /* side * ports + port: busy ones, by free_ns */
	u32 heap_count;
};

struct edm_booking {
	struct edm_demand *demand;
	u32 bytes;
	u32 end;     /* end offset, for the grant */
	u64 ends_ns; /* both ports' times are over */
};

/* Time of a byte on a link, of which permille of 1000 are booked. */
static inline u64 edm_match_byte_q24(u64 bits_per_sec, u32 permille)
{
	return ((8 * BASE_NSEC_PER_SEC << 24) / bits_per_sec) * 1000 / permille;
}

bool edm_match_config_is_valid(const struct edm_match_config *config);
/* As for edm_demand_init(). No port follows. */
size_t edm_match_bytes(const struct edm_match_config *config);
void edm_match_init(struct edm_match *m, const struct edm_match_config *config, void *memory);

/*
 * A port begins to follow: it counts as busy for the time of a chunk. byte_q24:
 * EDM_BYTE_Q24_MIN to EDM_BYTE_Q24_MAX. A port that follows already only gets the rate.
 */
void edm_match_follow(struct edm_match *m, u64 now_ns, u16 port, u64 byte_q24);
/* The port gets no chunks. Its messages stay until their leases end. */
void edm_match_leave(struct edm_match *m, u16 port);

static inline bool edm_match_follows(const struct edm_match *m, u16 port)
{
	return m->half[EDM_SOURCE][port].follows;
}

/* As edm_demand_announce(), which see. Sets a->disfavoured. */
enum edm_demand_verdict edm_match_announce(struct edm_match *m, u64 now_ns,
					   struct edm_announcement *a, struct edm_demand **demand);
/* As edm_demand_retract(). */
bool edm_match_retract(struct edm_match *m, u64 now_ns, struct edm_demand *demand, u32 granted);

/*
 * A half of a port gets no chunk until it is no longer stopped. A port that begins to follow isn't.
 */
void edm_match_stop(struct edm_match *m, enum edm_side side, u16 port, bool stop);
/*
 * Bytes in the egress queue to a port: it is stopped above a bound. The caller reports again when
 * they fall.
 */
void edm_match_egress(struct edm_match *m, u16 port, u32 bytes);
/* Control messages use the link of a port: to it (EDM_DESTINATION) or from it (EDM_SOURCE). */
void edm_match_charge(struct edm_match *m, enum edm_side side, u16 port, u32 bytes);

/*
 * The next chunk to grant. The caller calls until false: after each other call, and at
 * edm_match_deadline_ns().
 */
bool edm_match_next(struct edm_match *m, u64 now_ns, struct edm_booking *booking);

/* The time at which a port becomes idle, or EDM_NEVER. Later than the last edm_match_next(). */
static inline u64 edm_match_deadline_ns(const struct edm_match *m)
{
	const u32 ports = m->config.demand.ports;
	const u32 top = m->heap_count ? m->heap[0] : 0;

	if (!m->heap_count)
		return EDM_NEVER;
	return m->half[top / ports][top % ports].free_ns;
}

/* ---- steps of edm_match_next(), for the cycle model (pim.h) ---- */

/* End the chunks whose time has passed. */
void edm_match_release(struct edm_match *m, u64 now_ns);
bool edm_match_is_idle(const struct edm_match *m, u32 side, u16 port);
/* The level of the port's best message to or from an idle peer, or EDM_LEVELS. */
u32 edm_match_best(struct edm_match *m, u64 now_ns, u32 side, u16 port, u16 *peer);
/* Book a chunk of a message whose ports are idle. */
void edm_match_book(struct edm_match *m, u64 now_ns, struct edm_demand *demand,
		    struct edm_booking *booking);

/* NULL, or the invariant that is broken, after edm_match_next() has returned false. For tests. */
const char *edm_match_check(const struct edm_match *m);

#endif
