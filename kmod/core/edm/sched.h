/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A scheduler's side of the datagrams (remora/edm.h): which hosts have joined, whose leases run,
 * and which demand each datagram means. The matcher decides (match.h).
 *
 *   JOIN -----> edm_sched_join()    --> CHALLENGE, WELCOME
 *   DEMAND ---> edm_sched_demand()  --> GRANT: an acknowledgement, with refusals
 *   REQUEST --> edm_sched_request() --> FORWARD, or a GRANT that refuses
 *   time -----> edm_sched_expire()      leases
 *               edm_sched_next()    --> GRANT: a chunk
 *
 *   a port:  UNKNOWN --JOIN with cookie--> JOINED --DEMAND that follows--> FOLLOWS
 *                                            ^                               |
 *                                            '--- lease, DEMAND that doesn't-'
 *
 * All state is soft. A scheduler that starts knows nothing; hosts join, repeat their demands, and
 * tell how much they have been granted. A standby has joined hosts already, so it serves within a
 * round trip of the first DEMAND that follows it.
 *
 * Invariants:
 *   - bytes of a message are booked again only if the source says that it has not accepted them,
 *     and has received a later datagram than the one that granted them. It accepts no grants out of
 *     order, so it never accepts the first one any more;
 *   - a port that does not follow is not booked.
 *
 * The caller verifies tags before it calls, and serialises all calls.
 */
#ifndef REMORA_EDM_SCHED_H
#define REMORA_EDM_SCHED_H

#include "core/edm/match.h"
#include "core/edm/wire.h"

/* Leases that one edm_sched_expire() ends. */
#define EDM_EXPIRES_MAX 16U

struct edm_member {
	struct edm_node lease; /* joined: by renewal */
	struct base_siphash_key key;
	u64 heard_ns;
	u64 turned_ns; /* began or ceased to follow */
	u64 address; /* the caller's name for it */
	u64 byte_q24;
	u64 cookie;
	u32 epoch;    /* 0: has never joined */
	u32 seq_in;   /* greatest received */
	u32 seq_out;  /* last sent */
	bool listed;  /* its lease runs */
};

struct edm_sched_config {
	struct edm_match_config match;
	u32 life;	     /* at random, not 0 */
	u32 lease_us;	     /* of ports and demands; sets match.demand.lease_ns */
	u32 book_permille;   /* of a link's rate that is booked, 1 to 1000 */
	u32 overhead_bytes;  /* of a control datagram on the link, around the UDP payload */
	struct base_siphash_key key; /* the operator's */
};

struct edm_sched_counts {
	u64 grants, retracted, refused, stale, expired, joins;
};

struct edm_sched {
	struct edm_sched_config config;
	struct edm_match match;
	struct edm_member *member; /* [port] */
	struct edm_node lease;
	struct edm_sched_counts counts;
};

enum edm_sched_verdict {
	EDM_SCHED_REPLY,  /* send what was filled in */
	EDM_SCHED_IGNORE, /* no answer */
	EDM_SCHED_REFUSE, /* REQUEST: send the GRANT, which refuses */
};

bool edm_sched_config_is_valid(const struct edm_sched_config *config);
/* As for edm_demand_init(). */
size_t edm_sched_bytes(const struct edm_sched_config *config);
void edm_sched_init(struct edm_sched *s, const struct edm_sched_config *config, void *memory);

/* The key of a port's datagrams but JOIN, or NULL: no host has joined by it. */
const struct base_siphash_key *edm_sched_key(const struct edm_sched *s, u16 port);

/*
 * A JOIN whose tag verifies under the operator's key. address: the caller's name for the sender.
 * cookie: edm_wire_cookie() of the sender. reply is CHALLENGE or WELCOME, for the operator's key.
 */
enum edm_sched_verdict edm_sched_join(struct edm_sched *s, u64 now_ns,
				      const struct edm_message *join, u64 address, u64 cookie,
				      struct edm_message *reply);

/* A DEMAND, whose bytes are data. items: room for EDM_ENTRIES_MAX. */
enum edm_sched_verdict edm_sched_demand(struct edm_sched *s, u64 now_ns,
					const struct edm_message *demand, const void *data,
					struct edm_message *reply, struct edm_item *items);

/*
 * A REQUEST. REPLY: reply is FORWARD, to reply->port, with the request's payload. REFUSE: reply is
 * GRANT with one item. In all cases drain edm_sched_next() afterwards.
 */
enum edm_sched_verdict edm_sched_request(struct edm_sched *s, u64 now_ns,
					 const struct edm_message *request,
					 struct edm_message *reply, struct edm_item *item);

/* The next grant: a GRANT to message->port. Call until false, after each event. */
bool edm_sched_next(struct edm_sched *s, u64 now_ns, struct edm_message *message,
		    struct edm_item *item);

/* End leases. Returns true if there may be more. */
bool edm_sched_expire(struct edm_sched *s, u64 now_ns);

/*
 * When to call edm_sched_expire() until false and then edm_sched_next() until false; or EDM_NEVER.
 * It is later than now_ns after these calls.
 */
u64 edm_sched_deadline_ns(const struct edm_sched *s);

#endif
