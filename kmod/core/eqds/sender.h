/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The sending end of a tunnel (EQDS, NSDI'22, sections 4.1 and 5, figures 5 and 26).
 *
 *     enqueue --> [ queue ] --next--> [ in flight ] --ACK--> free
 *                                      |        ^
 *                           NACK, timeout       next, before anything new
 *                             |        v        |
 *       lost <--many strikes--+     [ retransmit ]
 *
 *     CLOSED --packet--> SYN_SENT --SYN-ACK of our epoch--> ESTABLISHED
 *                        ^      |                                |
 *                        +------+ SYN-ACK of a later epoch       | RST, many timeouts, numbers
 *                        +---------------------------------------+ that can't be, no progress
 *                                                                  (CLOSED without packets)
 *
 * Credit. window W = one BDP in bytes, m = bytes of an MTU, C = credit held, P = highest pull
 * number seen, T = pull target. backlog: bytes queued and to be retransmitted.
 *
 *   target    T = max(T, P + ceil((min(backlog, W) - C) / m)), updated by every event
 *   upper     C + (T - P) m < W + m                no more than one BDP is ever asked for
 *   lower     C + (T - P) m >= min(backlog, W)     what is queued is asked for, or has credit
 *
 * T - P is what the paper calls credit in pulls, in data packets in flight and at the receiver:
 * the receiver's target and pull number are between P and T. So while backlog >= W the sum is one
 * BDP, rounded up to an MTU. A lost packet of either kind loses no credit: the numbers it carried
 * are in the next one. eqds_sender_check() asserts both bounds.
 *
 * pull_trimmed (as in the authors' simulator, which pulls ahead of demand too). The receiver may
 * pull for trimmed packets before T covers them: a pull number beyond T, by one BDP at most, raises
 * T, and C is cut to W. And near the end of the demand, T covers as many bytes more as are in
 * flight for the second time: so many may be trimmed again, and have credit when the NACK comes.
 *
 * RTS. A sender that has a backlog, but no credit to send, and a target that no packet has told
 * yet, tells it by an RTS, at most one per round trip. When no pull comes, it repeats the RTS
 * after a timeout that doubles, and not before the receiver's busy time is over. To a peer that is
 * silent the time between two is at least an eighth of the silence: an outage costs an eighth more,
 * and thousands of tunnels to peers that don't exist send little.
 *
 * Idle. A sender whose last packet was acknowledged gives up its credit, all but less than an MTU.
 * When it starts again, it has a window of credit if the network trims and busy time is over. Else
 * it has what it kept, and asks for more by RTS.
 *
 * Epochs that are full. After epoch_packets numbers the sender sends nothing new until all are
 * acknowledged, and then opens the next epoch: no number comes again in one epoch.
 *
 * Epochs that collide. A receiver may be in the epoch that a sender opens, by an earlier tunnel of
 * the same address: either end forgot, and a copy of an old SYN came late. Its numbers are then not
 * those of this sender. An ack or pull number that this sender can't have caused makes it open a
 * later epoch. Numbers that happen to fit are bounded by idle_ns: a sender that has packets to
 * send, but in that time got neither credit nor an acknowledgement, opens a later epoch, too.
 *
 * Trains. New packets that leave at one time, config.train_packets of them at most, take one path.
 * They then arrive together and in order, so that the receiver may take them as one (receiver.h).
 * A packet that is sent again chooses a path of its own.
 *
 * Packets given up. A packet that can't arrive (a path that drops its fragments, unlike MTUs) must
 * not hold up those behind it, so EQDS isn't fully reliable (section 4.1). Each transmission that
 * failed while the peer was heard is a strike: EQDS_STRIKES_LOSS if nothing answered it, 1 if it
 * was trimmed, and the receiver expects it. A NACK for lack of memory is none; receivers that don't
 * know its mark send it for later packets alone. A packet that fails after config.strikes_max is
 * given up, and its caller gets it back in out->lost. While a peer is silent there are no strikes:
 * an outage loses nothing. To tell the two apart, an RTS goes with each timeout after a packet's
 * first one, for a receiver answers it. The receiver learns of the hole by unacked. While no packet
 * tells it, an RTS does, until it is acknowledged. The paper's header has no place for that: there
 * the epoch ends as a full one does, or the tunnel if nothing is queued.
 *
 * Unnumbered packets. A packet whose loss its user expects can leave without a number: no copy of
 * it is kept, and nothing answers it (eqds_sender_unnumbered()). It costs credit and leaves only
 * while no other packet of the tunnel waits, so unnumbered packets cannot displace numbered ones.
 *
 * Whole packets. The caller may enqueue the segments of a packet as one, with memory for a node of
 * each. A whole packet has consecutive numbers and one header (remora/eqds.h, "Counted numbers").
 * The core splits it where credit, an acknowledgement or a NACK covers some of its numbers alone.
 * Lost numbers are retransmitted one by one. A part is an eqds_packet in the node of its first
 * segment. All lists, and all chains of struct eqds_out, consist of parts.
 *
 * A path may change IP IDs. Until it is proven not to (proof.h), packets leave segment by segment.
 *
 * Deviations from the paper: none in the credit rule unless overdraw is set: then a packet may
 * leave on any credit above 0 (as in the authors' simulator), and the debt is part of C.
 *
 * Locking: the caller serialises all calls for one tunnel.
 */
#ifndef REMORA_EQDS_SENDER_H
#define REMORA_EQDS_SENDER_H

#include "core/eqds/packet.h"
#include "core/eqds/path.h"
#include "core/eqds/proof.h"

enum eqds_sender_state {
	EQDS_SENDER_CLOSED,
	EQDS_SENDER_SYN_SENT,
	EQDS_SENDER_ESTABLISHED,
};

struct eqds_eqif;

struct eqds_sender {
	const struct eqds_config *config;
	struct eqds_paths *paths;   /* NULL: all packets take path 0 */
	struct eqds_packet **slot;  /* window_packets of them: a number's packet */
	struct eqds_list queue;	    /* not sent in this epoch */
	struct eqds_list retransmit; /* by number */
	struct eqds_list in_flight; /* by time of transmission */
	s64 credit_bytes;
	u32 spare_bytes; /* pull_trimmed: in flight for the second time or more */
	u64 cookie;
	u32 epoch;
	u32 una;	 /* oldest number not acknowledged */
	u32 next;	 /* next number to be used */
	u32 room;	 /* numbers left in the epoch */
	u32 pull;	 /* highest pull number seen */
	u32 target;	 /* pull number asked for */
	u32 target_told; /* highest target a packet has carried */
	u32 skip;	 /* skipping: the number after the last one given up */
	u16 id;		 /* the wire's sender */
	u8 state;	 /* enum eqds_sender_state */
	u8 timeouts;	 /* in a row */
	bool skipping;	 /* the receiver has not acknowledged that it skipped those given up */
	bool resting;	 /* nothing queued nor in flight */
	bool translated; /* the receiver sees another address than this end has */
	bool ecn;	 /* the receiver heeds marks of congestion on any packet */
	bool unnumbered; /* the receiver takes unnumbered packets */
	u16 train_path;
	u16 train_left;	 /* packets that may join the last train, if they leave at train_ns */
	u64 train_ns;
	u64 busy_until_ns;
	u64 rts_sent_ns;
	u64 rts_due_ns; /* EQDS_NEVER: no RTS is wanted */
	u64 rtt_ns, rtt_var_ns; /* smoothed; 0: not measured */
	u64 used_ns;	/* last event that brought or acknowledged a packet */
	u64 progress_ns; /* last credit, acknowledgement, or start */
	u64 heard_ns;	 /* last control packet of this epoch, or first packet since the rest */
	u64 silent_ns;	 /* from heard_ns to the last timeout */
	u64 timeout_ns;	 /* the last timeout that was counted */
	struct eqds_proof proof;
	/* drr.h's */
	struct eqds_sender *ready_next, *ready_prev;
	struct eqds_eqif *eqif; /* NULL: in no list */
};

/*
 * slot: the caller's, config->window_packets pointers. epoch: random bits. cookie: what an
 * earlier tunnel to the same address had been given, or 0.
 */
void eqds_sender_init(struct eqds_sender *s, const struct eqds_config *config,
		      struct eqds_packet **slot, struct eqds_paths *paths, u16 id, u32 epoch,
		      u64 cookie);

/* Take packet. out: an RTS, if one is due. Then see eqds_sender_is_ready(). */
void eqds_sender_enqueue(struct eqds_sender *s, u64 now_ns, struct eqds_packet *packet,
			 struct eqds_out *out);

/*
 * Take a packet of more + 1 segments. Each but the last costs each_bytes; together they cost
 * packet->bytes. packet: the first of an array of more + 1 nodes. The caller may free the array
 * when the chains of struct eqds_out have returned all segments: more + 1 of each part.
 */
void eqds_sender_enqueue_whole(struct eqds_sender *s, u64 now_ns, struct eqds_packet *packet,
			       u16 more, u32 each_bytes, struct eqds_out *out);

/*
 * Charges bytes and fills head if a packet can leave now without a number. False: nothing changed;
 * enqueue it.
 */
bool eqds_sender_unnumbered(struct eqds_sender *s, u64 now_ns, u32 bytes, u8 next_proto,
			    struct eqds_head *head);

/* Is there a packet that may leave now? */
bool eqds_sender_is_ready(const struct eqds_sender *s);

/* Bytes of the packet that is next; 0: none may leave now. */
u32 eqds_sender_next_bytes(const struct eqds_sender *s, u64 now_ns);

/*
 * The next packet to send, retransmissions first, and its header; NULL: none may leave. The
 * packet stays the core's; the caller sends a copy. After the last one see the deadline.
 * Of a whole packet: the part that may leave. Its segments are nth to nth + more.
 */
struct eqds_packet *eqds_sender_next(struct eqds_sender *s, u64 now_ns, struct eqds_head *head);

/* A control packet. out: acknowledged packets to free, packets given up, an RTS, if one is due. */
void eqds_sender_receive(struct eqds_sender *s, u64 now_ns, const struct eqds_head *head,
			 struct eqds_out *out);

/*
 * When to call eqds_sender_expire(); EQDS_NEVER. Changes with every call above. It can be in the
 * past, but after eqds_sender_expire(now_ns) it is later than now_ns.
 */
u64 eqds_sender_deadline_ns(const struct eqds_sender *s);
/*
 * The deadline has passed. out: packets given up, an RTS, if one is due; verdict EQDS_CLOSED: idle,
 * its state may be freed.
 */
void eqds_sender_expire(struct eqds_sender *s, u64 now_ns, struct eqds_out *out);

/* Drop all state. out: every packet to free, FIN for the receiver if it knows the tunnel. */
void eqds_sender_close(struct eqds_sender *s, struct eqds_out *out);

/* NULL, or which invariant is broken. */
const char *eqds_sender_check(const struct eqds_sender *s);

static inline u64 eqds_sender_backlog_bytes(const struct eqds_sender *s)
{
	return (u64)s->queue.bytes + s->retransmit.bytes;
}

#endif
