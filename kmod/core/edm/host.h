/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A host's side of EDM (ASPLOS'25, 3.2.1): its message table, what it announces, and what it may
 * send.
 *
 *   edm_host_submit()   [ queue of a peer ] --X active, a slot--> message --> DEMAND or REQUEST
 *                         small writes in it become one message (a "mega" message)
 *   edm_host_grant()    message: accepted --> edm_host_next(): send these bytes of this op
 *   edm_host_request()  an answer, at the source of a read, is granted and sent alike
 *
 *   flow (message or answer):
 *     [ sent | accepted, to be sent | to be granted | size ]   sent <= accepted <= size
 *
 *   link to a scheduler:  DOWN --JOIN, CHALLENGE, JOIN, WELCOME--> UP --3 silent leases--> DOWN
 *   A host follows one of its links. When that is silent it follows another that is UP, and tells
 *   it all its flows. If none is, it is unscheduled: it sends without grants until one is.
 *   All hosts have to follow the same scheduler, so each returns to its first one: it ceases to
 *   follow the other, and turns once that has confirmed it and books it no more.
 *
 * Invariants:
 *   - a byte of an op is sent once, even if grants are repeated, reordered or late;
 *   - an answer is NEW once: a repeated request is never executed again;
 *   - an id is not used again while it may be late: a cancelled message keeps its slot for
 *     config.late_ns;
 *   - a host that has heard nothing for EDM_MUTE_LEASES sends only JOINs to the scheduler.
 *
 * The caller serialises all calls. After each it calls edm_host_next() until it returns false.
 * A call takes at most EDM_MEGA_MAX or EDM_ENTRIES_MAX steps, but a change of the scheduler or of a
 * peer's epoch takes as many as there are flows.
 */
#ifndef REMORA_EDM_HOST_H
#define REMORA_EDM_HOST_H

#include "core/edm/link.h"

#define EDM_LINKS_MAX 2U /* a scheduler and its standby */
#define EDM_MEGA_MAX 32U /* ops in one message */
#define EDM_NOTES_MAX 32U /* ended messages to tell at a time; their leases end in any case */
#define EDM_UNSCHEDULED 0xffU /* host.follow: no scheduler */

/* An operation, in the caller's memory until it is returned by edm_host_next() or cancelled. */
struct edm_op {
	struct edm_op *next;
	u32 bytes;  /* of a write's data, or of a read's answer; 1 or more */
	u32 offset; /* in its message */
	u32 slot;   /* of its message */
	u16 peer;
	u8 type;  /* EDM_WRITE or EDM_READ */
	u8 state; /* enum edm_op_state; the caller sets EDM_OP_IDLE once */
};

enum edm_op_state {
	EDM_OP_IDLE,
	EDM_OP_QUEUED, /* waits for a slot */
	EDM_OP_ACTIVE, /* part of a message */
};

/* A message or an answer. */
struct edm_flow {
	struct edm_node open;  /* not accepted in full: by the time of the last report */
	struct edm_node ready; /* may be sent */
	struct edm_op *ops;    /* message: in order; those that were sent have left */
	u64 reported_ns;       /* 0: at once */
	u64 repeat_ns;	       /* READ: when to send its REQUEST again; or EDM_NEVER */
	u64 free_ns;	       /* cancelled: the slot is free again */
	u32 id, size, accepted, sent;
	u16 peer;
	u8 type; /* EDM_WRITE, EDM_READ (asks only), EDM_ANSWER */
	u8 state;
	u8 repeats;
	bool is_open, is_ready; /* in a list; open also holds late slots */
	bool is_active;		/* counts among the X of its peer */
	bool has_data;	     /* ANSWER: the caller has it */
	bool is_refused;     /* to be sent without grants */
	bool named;	     /* id is valid */
};

enum edm_flow_state {
	EDM_FLOW_FREE,
	EDM_FLOW_USED,
	EDM_FLOW_LATE, /* cancelled; its id must not be used yet */
};

struct edm_host_config {
	struct edm_link_config link;
	u16 ports; /* of the rack, 2 to EDM_PORTS_MAX */
	u8 links;  /* 1 to EDM_LINKS_MAX */
	u32 mega_bytes;	 /* writes up to these, together, share a message; 0: none do */
	u64 patience_ns; /* from the start, until a host without its first scheduler does without */
	u64 late_ns;	 /* longest life of a datagram in the network */
};

struct edm_host_counts {
	u64 unscheduled; /* messages and answers sent without all grants */
	u64 refused;	 /* by the scheduler; they are part of unscheduled */
	u64 gaps;	 /* datagrams of a scheduler that were lost or came late */
	u64 silences;	 /* times that the followed scheduler was given up */
	u64 duplicates;	 /* requests that had been received */
};

struct edm_host {
	struct edm_host_config config;
	struct edm_link link[EDM_LINKS_MAX];
	struct edm_flow *message;     /* [slots] */
	struct edm_flow *answer;      /* [ports][slots], by announcer and its slot */
	u32 *peer_epoch;	      /* [ports] of announcers; 0: none yet */
	struct edm_op **head, **tail; /* [ports] queued ops */
	u8 *active;		      /* [ports] messages to the peer that wait for grants */
	u64 *waiting;		      /* set of peers with queued ops, and fewer than X active */
	u64 *free;		      /* set of slots */
	struct edm_node open, ready, late;
	struct edm_item note[EDM_NOTES_MAX];
	struct edm_op *sent; /* to be returned by the next action */
	u32 notes_count;
	u32 turn_seq;  /* of the DEMAND by which it ceased to follow; 0: not sent yet */
	u32 next_peer; /* peer that gets the next slot, if its queue waits */
	u64 start_ns;
	u64 gap_ns;    /* flows reported before then are to be reported again */
	u8 follow;     /* a link, or EDM_UNSCHEDULED */
	u8 turn;       /* the link that it turns to, or EDM_UNSCHEDULED */
	bool patient;  /* no scheduler yet, but within config.patience_ns */
	bool is_mute;  /* the followed link was, at the last edm_host_next() */
	struct edm_host_counts counts;
};

enum edm_host_do {
	EDM_HOST_TELL,	/* message and items, to the scheduler of link; JOIN: operator's key */
	EDM_HOST_ASK,	/* message is a REQUEST: with op's request behind it */
	EDM_HOST_SEND,	/* message is DATA: with op's bytes [from, from + bytes) behind it */
	EDM_HOST_ANSWER, /* the same, with bytes of the answer to message.id of peer */
	EDM_HOST_SENT,	/* all bytes of op, a write, have been sent: it is the caller's again */
};

struct edm_host_action {
	u8 what; /* enum edm_host_do */
	u8 link;
	u16 peer; /* SEND, ANSWER: the destination */
	/*
	 * SEND, ANSWER: beyond the grants. ASK: the caller sends the request to the peer by its own
	 * protocol. The scheduler might have forwarded it before, so it carries the caller's id, by
	 * which the peer knows a duplicate.
	 */
	bool unscheduled;
	struct edm_op *op;
	u32 from, bytes;
	struct edm_message message;
	struct edm_item items[EDM_ENTRIES_MAX];
};

enum edm_host_verdict {
	EDM_HOST_NEW,	    /* execute it, then edm_host_answer() */
	EDM_HOST_DUPLICATE, /* executed, or being executed */
	EDM_HOST_STALE,	    /* of an earlier life of its host, or of an id that was ended */
};

bool edm_host_config_is_valid(const struct edm_host_config *config);
size_t edm_host_bytes(const struct edm_host_config *config);
void edm_host_init(struct edm_host *h, u64 now_ns, const struct edm_host_config *config,
		   void *memory);

/* A write or read to another port. The op is the core's until SENT, done or cancelled. */
void edm_host_submit(struct edm_host *h, u64 now_ns, struct edm_op *op);
/* A read's data have arrived in full. The op is the caller's. */
void edm_host_done(struct edm_host *h, u64 now_ns, struct edm_op *op);
/*
 * Give up an op. Returns false if it shares a message with others, or is a write whose bytes were
 * sent in part: it then ends by SENT.
 */
bool edm_host_cancel(struct edm_host *h, u64 now_ns, struct edm_op *op);

/* The key of a link's datagrams but JOIN, CHALLENGE and WELCOME; or NULL. */
static inline const struct base_siphash_key *edm_host_key(const struct edm_host *h, u8 link)
{
	return h->link[link].up ? &h->link[link].key : NULL;
}

/* A CHALLENGE, WELCOME or GRANT from the scheduler of a link, whose tag verifies. */
void edm_host_receive(struct edm_host *h, u64 now_ns, u8 link, const struct edm_message *message,
		      const void *data);

/* A FORWARD from the scheduler of a link, or a REQUEST that a peer sent unscheduled. */
enum edm_host_verdict edm_host_request(struct edm_host *h, u64 now_ns, u8 link,
				       const struct edm_message *forward);
/* The answer's data are there. */
void edm_host_answer(struct edm_host *h, u16 peer, u32 id);

/* The op that DATA of an answer belongs to, or NULL: it is late or makes no sense. */
struct edm_op *edm_host_op_of(struct edm_host *h, const struct edm_message *data);

/* Is the host without a scheduler, and sends without grants? */
static inline bool edm_host_is_unscheduled(const struct edm_host *h)
{
	return h->follow == EDM_UNSCHEDULED && !h->patient;
}

/* The next thing to do. */
bool edm_host_next(struct edm_host *h, u64 now_ns, struct edm_host_action *action);

/* When to call edm_host_next(); later than now_ns after it has returned false. */
u64 edm_host_deadline_ns(const struct edm_host *h);

/* NULL, or the invariant that is broken. For tests. */
const char *edm_host_check(const struct edm_host *h);

#endif
