/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * How a sending interface treats a packet before its tunnel's queue (NSDI'22, section 6): the
 * feedback that the protocol above expects of a network.
 *
 *   TCP     drop-tail; ECN-capable packets by RED, marked instead of dropped
 *   RDMA    never dropped while the peer heeds: the queue asks for a pause, or for CNPs
 *   native  bounded, the user sees the queue
 *
 * RED after Floyd and Jacobson (1993): an average of the queue's bytes, and between two
 * thresholds a probability that grows with it.
 */
#ifndef REMORA_EQDS_CLASS_H
#define REMORA_EQDS_CLASS_H

#include "core/base/types.h"

/* The paper's buffer per destination. */
#define EQDS_CLASS_TCP_PACKETS 100U

enum eqds_class_kind {
	EQDS_CLASS_TCP,
	EQDS_CLASS_RDMA,
	EQDS_CLASS_NATIVE,
	EQDS_CLASSES,
};

/* Of an interface. */
struct eqds_class {
	u8 kind;	   /* enum eqds_class_kind */
	bool cnp;	   /* RDMA: tell the sender by CNPs; else by pause */
	u8 average_shift;  /* RED: the average moves by 1 / 2^average_shift of the difference */
	u32 packets_max;   /* of a tunnel's queue */
	u32 low_bytes;	   /* RED, CNP: probability 0 below; pause ends below */
	u32 high_bytes;	   /* RED, CNP: probability_q16 here, 1 above; pause begins above */
	u32 probability_q16;
	u64 cnp_gap_ns;	   /* between CNPs of a tunnel */
};

/* Of a tunnel. */
struct eqds_class_queue {
	u64 average_q16; /* bytes */
	u64 cnp_ns;	 /* when the next CNP may leave */
	bool paused;
};

struct eqds_class_verdict {
	bool drop;
	bool mark; /* set congestion experienced in the user's packet */
	bool cnp;  /* send a CNP to the user's sender */
	bool pause, resume; /* the user's sender, now */
};

void eqds_class_init(struct eqds_class *policy, enum eqds_class_kind kind);
void eqds_class_queue_init(struct eqds_class_queue *queue);

/*
 * A packet wants into a queue that has packets and bytes, or (arrives false) one left it.
 * ecn: the user's packet is ECN-capable. random: 32 random bits; of the TCP class only with ecn.
 */
struct eqds_class_verdict eqds_class_arrive(const struct eqds_class *policy,
					    struct eqds_class_queue *queue, u64 now_ns, u32 packets,
					    u32 bytes, bool ecn, u32 random);
struct eqds_class_verdict eqds_class_depart(const struct eqds_class *policy,
					    struct eqds_class_queue *queue, u32 bytes);

#endif
