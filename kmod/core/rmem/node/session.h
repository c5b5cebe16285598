/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Sessions: they make a late copy of a finished write harmless, in bounded state.
 *
 *      ids:  1 ........ floor ................... floor + window - 1 ....
 *            \_ STALE _/ \__ executed: REPEATED __/                \_ BEYOND
 *                        \__ executed and refused: REFUSED __/
 *                        \__ refused only: RUNNING __/
 *                        \__ neither: FRESH __/
 *
 * Clio (ASPLOS'22, section 4.5) calls a write idempotent, so that a retry does
 * no harm. It does: a first copy that is delayed until the sender has written
 * the place again would bring the old content back. Clio's ring of executed
 * requests is here one bit per id, and its acknowledgement is the floor that
 * every request carries.
 *
 * A change refused because its address isn't allocated has to be remembered, too: its sender
 * goes on, another one allocates the address, and neither has told a floor above it when a
 * copy of it comes. The other refusals need no mark: the node refuses the same message again, no
 * matter which requests come meanwhile.
 *
 * The value that an ATOMIC or PUT found is kept as long as the id counts as done, for the first
 * replay_ids ids from the floor. Where it lies is said by its id alone, so the oldest one
 * outstanding always has its place: were there one list for all, newer ones could fill it that
 * are kept until the oldest is acknowledged, which would then never be executed.
 *
 * A CALL runs for a while outside of its slot's lock (offload/run.h). It is RUNNING from its
 * admission to its end, so no copy begins it again. As long as a session has calls that run, it is
 * neither renewed nor ended, and its slot not used for another: so a call never outlives the name
 * that its request gave. A request that would end the session lets it drain: no calls begin for
 * a while, in which that request comes again.
 *
 * Invariants:
 *   - floor never falls; an id below it is never FRESH again;
 *   - an id done or refused is never FRESH again: its bits are cleared only as the floor
 *     passes it;
 *   - a name (shuffled generation << 16 | slot) is given to one session only: generations grow
 *     from one OPEN to the next and start at a random place in every boot. A sender that hasn't
 *     received the answer to an OPEN can't name the session, so no client uses one from a forged
 *     address;
 *   - renewed, a session has another name, and all that it knows of ids.
 *
 * A session is written under its slot's lock, but for used and used_ns, which
 * whoever looks for a slot reads without it. The fields that identify a session
 * (name, nonce, client, place, peer, integrity) are written under the slow lock as well.
 */
#ifndef REMORA_RMEM_SESSION_H
#define REMORA_RMEM_SESSION_H

#include "core/base/siphash.h"
#include "core/base/types.h"
#include "core/rmem/node/traffic.h"
#include "core/rmem/seal.h"
#include "remora/rmem.h"

#define RMEM_SESSIONS_MAX      65536U
#define RMEM_SESSION_SLOT_BITS 16
#define RMEM_SESSION_NONE      0 /* name of a free slot */

/* Where a request came from; answers go there, and a session belongs to one peer. */
struct rmem_peer {
	u8 addr[16]; /* IPv6, or IPv4 mapped into it */
	u16 port;    /* host byte order */
};

bool rmem_peer_equal(const struct rmem_peer *a, const struct rmem_peer *b);

/* A space as a session belongs to it: an id that was deleted and added again is another place. */
struct rmem_place {
	u32 space;	 /* id on the wire */
	u32 index;	 /* of its slot in struct rmem_spaces */
	u64 incarnation; /* counts additions of spaces */
	u32 memory;	 /* index of the slot whose memory it is: its own, or its base's */
	bool read_only;	 /* a view */
};

struct rmem_session {
	u64 name;   /* RMEM_SESSION_NONE: slot is free */
	u64 origin; /* its first name, by which its ALLOCs' regions know it */
	u64 before; /* the name that the OPEN which renewed it gave; or none */
	u64 boot;   /* the node's when it was opened */
	u64 floor;
	u64 rising; /* the floor it is being raised to; at most floor: it isn't */
	u64 *executed;		  /* bit id % window_ids, for floor <= id < floor + window_ids */
	u64 *refused;		  /* the same; of an id that isn't executed: it runs */
	struct rmem_found *found; /* of ATOMIC, PUT, CALL, at id % replay_ids, while executed */
	u32 window_ids;		  /* a power of two */
	u32 replay_ids;		  /* the same, not above window_ids */
	u8 integrity;		  /* enum rmem_integrity */
	u16 datagram_bytes;	  /* answers are bundled up to this size */
	bool used;		  /* a request named it; atomic */
	u64 used_ns;		  /* when a new one did; atomic */
	u64 newest_id;		  /* of the requests that did; 0: none */
	struct rmem_peer peer;
	struct rmem_place place;
	u64 refused_id; /* newest ever refused, or run; 0: none */
	u32 running;	/* QUERY and CALL messages; atomic */
	bool stops;	/* these are stopped after their step, for nobody is answered; atomic */
	u64 drains_ns;	/* until then no more of them begin */
	u64 fence_id;	/* of its last FENCE that all slots were looked at for; 0: none */
	u64 fence_number; /* calls with lower numbers had begun then (running.h) */
	u64 alloc_id;	/* newest ALLOC that made a region; 0: none */
	struct rmem_traffic traffic; /* grows from one session of the slot to the next; atomic */
	struct rmem_traffic settled; /* as much of it is told; slow lock */
	u64 nonce;	/* id of the OPEN that made or renewed it */
	u8 client[16];
	/* RMEM_SEALED: keys of its name, atomic; the node's public key in OPEN's answer. */
	struct rmem_seal_keys keys;
	u8 node_key[RMEM_X25519_BYTES];
};

enum rmem_session_verdict {
	RMEM_SESSION_FRESH,    /* execute, then rmem_session_done() */
	RMEM_SESSION_REPEATED, /* executed before: answer only */
	RMEM_SESSION_REFUSED,  /* refused before: do so again */
	RMEM_SESSION_RUNNING,  /* a call that runs: drop, for its answer will come */
	RMEM_SESSION_STALE,    /* below the floor: its sender went on */
	RMEM_SESSION_BEYOND,   /* not remembered that far */
};

/* memory: rmem_session_window_bytes() of it, 8-byte aligned; the slot is free afterwards. */
size_t rmem_session_window_bytes(u32 window_ids);
void rmem_session_init(struct rmem_session *session, void *memory, u32 window_ids);

/* Raises the session's floor, then accepts or refuses id; floor <= id, as parsing made sure. */
enum rmem_session_verdict rmem_session_check(struct rmem_session *session, u64 id, u64 floor);

/* id, which was FRESH, is executed; or refused, and will be for good. */
void rmem_session_done(struct rmem_session *session, u64 id);
void rmem_session_refuse(struct rmem_session *session, u64 id);

/* Is there a place for the result of id, which was FRESH? If not, there will be: later. */
bool rmem_session_has_place(const struct rmem_session *session, u64 id);
/* id, an ATOMIC or PUT there is a place for, is executed. */
void rmem_session_keep(struct rmem_session *session, u64 id, const struct rmem_found *found);
/* Reads the value kept for id, an ATOMIC or PUT, which was REPEATED. */
void rmem_session_replay(const struct rmem_session *session, u64 id, struct rmem_found *found);

/* id, a CALL there is a place for, is refused with two words that replay() gives. */
void rmem_session_keep_refusal(struct rmem_session *session, u64 id, u64 first, u64 second);

/*
 * id, a QUERY or CALL which was FRESH, runs from now on. False: it has no mark, for it is out of
 * the window, which a QUERY can be.
 */
bool rmem_session_run(struct rmem_session *session, u64 id);
/* The call has ended. id is FRESH again, unless kept in the same hold of the lock. */
void rmem_session_ran(struct rmem_session *session, u64 id, bool marked);
/* No calls begin for RMEM_SESSION_DRAIN_NS, which is longer than a client takes to ask again. */
#define RMEM_SESSION_DRAIN_NS (3 * BASE_NSEC_PER_SEC)
void rmem_session_drain(struct rmem_session *session, u64 now_ns);

/* id, an ALLOC, made a region. It is acknowledged when the floor has passed it. */
void rmem_session_made(struct rmem_session *session, u64 id);
/* Whether there might be a region that the client wasn't told of for certain. */
bool rmem_session_owes(const struct rmem_session *session);

/*
 * A request with that id named the session. It counts as used now if no later one did: a replayed
 * recording must not keep the session of a client that has gone.
 */
void rmem_session_touch(struct rmem_session *session, u64 id, u64 now_ns);

/* The input of the computation of a session's keys; keying has all but the session's name. */
struct rmem_seal_attempt {
	const struct rmem_cipher *cipher;
	const struct base_siphash_key *space_key;
	struct rmem_keying keying;
};

/* The parameters of an OPEN. Two copies of one OPEN are the same attempt. */
struct rmem_attempt {
	struct rmem_place place;
	u64 nonce;
	u64 renews; /* name of the session to be renewed; or none */
	bool replaces; /* ended a session of its space, so it takes no more than the space has */
	u8 integrity;
	u16 datagram_bytes;
	u8 client[16];
	/* RMEM_SEALED: keys are computed of it and the session's name; else NULL. */
	struct rmem_seal_attempt *seal;
};

bool rmem_session_is_attempt(const struct rmem_session *session,
			     const struct rmem_attempt *attempt);

/* The slots. */
struct rmem_undo;

struct rmem_sessions {
	struct rmem_session *slot;
	u32 slots;
	u32 in_use;
	u64 generation;			/* of the last one opened */
	struct base_siphash_key secret; /* of names and challenges */
	bool foreseen;
	struct rmem_undo *undo; /* of a slot; NULL: the state ends with the process */
};

size_t rmem_sessions_bytes(u32 slots, u32 window_ids);
/* secret: random, shuffles names; NULL: they aren't shuffled, for models. */
void rmem_sessions_init(struct rmem_sessions *sessions, void *memory, u32 slots, u32 window_ids,
			u64 generation, const struct base_siphash_key *secret);

/*
 * For sessions that outlive their process (store.h): locate: where they are. rebuild: completes
 * changes that were cut, and ends calls.
 * They count as used at now_ns: their clients might have waited for the node.
 */
void rmem_sessions_locate(struct rmem_sessions *sessions, void *memory, u32 slots, u32 window_ids);
void rmem_sessions_rebuild(struct rmem_sessions *sessions, u64 now_ns);

/* The session that an ALLOC's region knows by its origin, or NULL. Slow lock and slot lock. */
struct rmem_session *rmem_sessions_by_origin(const struct rmem_sessions *sessions, u64 origin);
/* True if id counts as executed. Slot lock. */
bool rmem_session_is_done(const struct rmem_session *session, u64 id);

/*
 * The challenge for those who open a session from peer, in that boot. It changes every 2^32 ns, and
 * the one before is valid, too. Never 0. No lock.
 */
u64 rmem_sessions_challenge(const struct rmem_sessions *sessions, u64 boot, u32 space,
			    const struct rmem_peer *peer, u64 now_ns);
bool rmem_sessions_meets(const struct rmem_sessions *sessions, u64 challenge, u64 boot, u32 space,
			 const struct rmem_peer *peer, u64 now_ns);

/* The slot a name points at, below slots for any name. */
u32 rmem_sessions_slot_of(const struct rmem_sessions *sessions, u64 name);

/* No lock: true if there was a session of that name a moment ago. *space: its id. */
bool rmem_sessions_names(const struct rmem_sessions *sessions, u64 name, u32 *space);

/* No lock. The keys of a sealed session of that name and space; false: there is none. */
bool rmem_sessions_keys(const struct rmem_sessions *sessions, u64 name, u32 space,
			struct rmem_seal_keys *keys);

/* A sealed session whose space was deleted has no keys from now on. Call lock. */
void rmem_session_forget_keys(struct rmem_session *session);

/* The session of that name, or NULL. Slot lock. */
struct rmem_session *rmem_sessions_find(const struct rmem_sessions *sessions, u64 name);

/*
 * Has the attempt's client a session that a later OPEN made? Or had it one that a later OPEN made,
 * or this one if the client used it, and whose slot was not used again? A client that never used
 * its session might not have heard of it, and repeats the same OPEN. Slow lock.
 */
bool rmem_sessions_is_late(const struct rmem_sessions *sessions,
			   const struct rmem_attempt *attempt);

/* The slot of an older session of the attempt's client in its space, or -1. Slow lock. */
int rmem_sessions_superseded(const struct rmem_sessions *sessions,
			     const struct rmem_attempt *attempt);

/*
 * The slot for an attempt: the one it got already, else the free one unused for longest, so that
 * rmem_sessions_is_late() remembers. If the attempt's space, one of so many, has its share of them
 * (rmem_share_permits()), or none is free, the one unused for longest if that is idle_ns at least:
 * of the space, else of any if ending idle sessions makes the attempt succeed. Else -1: nothing is
 * to be evicted for an OPEN that is refused.
 * Slow lock; the choice is to be confirmed under the slot's lock by rmem_sessions_may_open(), for a
 * request can use the session meanwhile.
 */
int rmem_sessions_choose(const struct rmem_sessions *sessions, const struct rmem_attempt *attempt,
			 u32 spaces, u64 now_ns, u64 idle_ns);
bool rmem_sessions_may_open(const struct rmem_sessions *sessions, u32 slot, u64 now_ns,
			    u64 idle_ns);

/*
 * Slow lock and slot lock. Opening ends the slot's former session. False: the cipher failed, and
 * the slot is free.
 */
bool rmem_sessions_open(struct rmem_sessions *sessions, u32 slot, u64 now_ns,
			const struct rmem_attempt *attempt, const struct rmem_peer *peer);
static inline bool rmem_session_is_renewed(const struct rmem_session *session)
{
	return session->name != session->origin;
}

/*
 * Whether the attempt names the session, which its peer doesn't matter for: the caller has another
 * peer meet a challenge. The name before counts until a request uses the present one, for the
 * client might not have heard of it.
 */
bool rmem_session_may_renew(const struct rmem_session *session, const struct rmem_attempt *attempt);
/* The session goes on under another name, for peer. False: the cipher failed; nothing changed. */
bool rmem_sessions_renew(struct rmem_sessions *sessions, u32 slot, u64 now_ns,
			 const struct rmem_attempt *attempt, const struct rmem_peer *peer);
void rmem_sessions_close(struct rmem_sessions *sessions, u32 slot);

#endif
