/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The receiving end of a tunnel (EQDS, NSDI'22, section 5, figure 27).
 *
 *   data --> number new? --no--> ACK again
 *              | yes
 *              v
 *            [ reorder queue: slot of each number ] --number expected--> deliver, in order
 *
 *   no state: the caller has none and asks eqds_receiver_admit(); established: this struct
 *
 * Invariants, modulo the width of the numbers:
 *   pull <= target <= pull + one BDP in MTUs     lies about demand are cut
 *   target <= target_told + one BDP in MTUs      and equal unless pull_trimmed
 *   the reorder queue holds numbers of (expected, expected + window_packets) alone
 *   in an epoch, each number is delivered at most once; if ordered, in order
 *
 * pull_trimmed: a trimmed packet raises the target at once, so that the pull for it leaves a round
 * trip before the sender, told by the NACK, could ask for it (as in the authors' simulator).
 *
 * Trains. The caller may have joined the packets of consecutive numbers, and give them as one, with
 * head.more. All of its numbers are taken or none: if one of them was there before or is beyond the
 * window, the whole train is dropped, and its sender sends again what was new, after a timeout.
 *
 * Credit that is not used. A sender that asks and sends nothing would take turns from the others.
 * Its receiver counts the credit given less twice the bytes that arrived for it: a path that loses
 * half of all packets is no lie. At two BDP the tunnel leaves the list until something arrives.
 * Else one pull is forgiven in eight of the longest timeouts, if the sender asks. A new epoch
 * changes none of it.
 *
 * Unnumbered packets are delivered at once, and change nothing but the tunnel's time of use, its
 * demand, and the credit that is not used. Nothing answers them.
 *
 * Proof. The caller admits no tunnel whose SYN lacks the cookie of its address, if it has cookies
 * (eqds_receiver_admit()): a peer without proof has no state, no credit and no packet delivered.
 *
 * A tunnel with pull < target is in the active sender list (asl.h). A SYN of a later epoch
 * releases the reorder queue to the user, out of order, and starts anew.
 *
 * Locking: one lock of the caller's for a list and all tunnels that belong to it.
 */
#ifndef REMORA_EQDS_RECEIVER_H
#define REMORA_EQDS_RECEIVER_H

#include "core/eqds/asl.h"
#include "core/eqds/packet.h"

struct eqds_receiver {
	const struct eqds_config *config;
	struct eqds_packet **slot; /* window_packets of them; what has arrived */
	u32 held;		   /* packets in the reorder queue; a train is one */
	u32 held_bytes;
	u32 epoch;
	u32 expected;	 /* lowest number that has not arrived */
	u32 end;	 /* highest number that has arrived, plus 1 */
	u32 target_told; /* highest one it has asked for */
	s32 trimmed_bytes; /* trimmed and not yet covered by target; below 0: covered in advance */
	u16 id;		 /* the wire's sender */
	bool established;
	u32 unused_bytes; /* credit given, less twice the bytes that came for it */
	u64 forgiven_ns; /* when unused_bytes was lowered although nothing came */
	u64 cookie;
	u64 used_ns;
	struct eqds_share share; /* credit: pull, target, turns */
};

/*
 * Decides about a packet of a tunnel that has no state. cookie: of the peer's address (cookie.h),
 * which a SYN has to carry, or it is told to come again with it; 0: addresses need no proof.
 * Returns true: initialise a receiver and give it the packet; false: see out.
 */
bool eqds_receiver_admit(const struct eqds_head *head, u64 cookie, struct eqds_out *out);

/*
 * slot: the caller's, config->window_packets pointers. cookie: the one that control packets tell
 * the peer to repeat, or 0. Afterwards the caller can set shares (eqds_asl_set()) and have
 * delay count as congestion (eqds_rate_init() of share.rate).
 */
void eqds_receiver_init(struct eqds_receiver *r, const struct eqds_config *config,
			struct eqds_asl *asl, struct eqds_packet **slot, u16 id, u64 cookie);

/*
 * A data packet. packet: the caller's node for its payload, NULL for EMPTY, TRIM and no_room; it
 * comes back in a chain of out, now or later. wire_bytes: of the UDP payload, of all of a train.
 */
void eqds_receiver_receive(struct eqds_receiver *r, u64 now_ns, const struct eqds_head *head,
			   u32 wire_bytes, struct eqds_packet *packet, struct eqds_out *out);

/*
 * Gives the next MTU of credit. Returns the tunnel that got it, with the PULL to send in head;
 * NULL: not yet, or nobody may have it. Call until NULL.
 */
struct eqds_receiver *eqds_receiver_next(struct eqds_asl *asl, u64 now_ns, struct eqds_head *head);

/*
 * Would the packet end the tunnel's epoch and begin another? A caller that asks for proof that the
 * packet is new (remora/eqds.h, "Tags") gives it to eqds_receiver_admit() first.
 */
bool eqds_receiver_restarts(const struct eqds_receiver *r, const struct eqds_head *head);

/* After eqds_receiver_expire(now_ns) it is later than now_ns, or EQDS_NEVER. */
u64 eqds_receiver_deadline_ns(const struct eqds_receiver *r);
/* Past the deadline: idle. out as eqds_receiver_close(). */
void eqds_receiver_expire(struct eqds_receiver *r, u64 now_ns, struct eqds_out *out);

/* Drop all state. out: the reorder queue to deliver, and RST for the sender. */
void eqds_receiver_close(struct eqds_receiver *r, struct eqds_out *out);

/* NULL, or which invariant is broken. */
const char *eqds_receiver_check(const struct eqds_receiver *r);

#endif
