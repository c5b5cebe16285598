/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The active sender list: which tunnel gets the next MTU of credit (EQDS, NSDI'22, section 5).
 *
 *      data, RTS --target rises--> [ list ] --every MTU time--> the receiver: pull + 1, a PULL
 *                                     ^                              |
 *                                     +------ target not reached ----+
 *
 * The list knows of a tunnel no more than its share. It picks the next one, and the receiver
 * charges it (receiver.h).
 *
 * FIFO: equal shares. PIFO: strict priority, then shares by weight (start-time fair queueing).
 * One list per ingress link. Pulls leave at the link's rate; a caller that comes late may catch
 * up by burst_mtus at most. A tunnel whose rate is lowered (rate.h) lets turns pass.
 *
 * A tunnel that lets its turn pass leaves it to the next one. If all do, nobody is pulled.
 *
 * Busy time is the demand of all tunnels that are not refused credit, at the link's rate.
 */
#ifndef REMORA_EQDS_ASL_H
#define REMORA_EQDS_ASL_H

#include "core/eqds/packet.h"
#include "core/eqds/pifo.h"
#include "core/eqds/rate.h"

#define EQDS_WEIGHT_MAX 1024U
#define EQDS_PRIORITIES 8U
/* Turns looked at per pull: a bound on work when many tunnels let theirs pass. */
#define EQDS_ASL_LOOKS 16U

enum eqds_asl_policy {
	EQDS_ASL_FIFO,
	EQDS_ASL_PIFO,
};

struct eqds_asl {
	u64 mtu_time_q16;  /* ns one MTU takes on the link, times 65536 */
	u64 next_ns;	   /* when the next pull may leave */
	u32 next_fraction; /* in 1 / 65536 ns */
	u32 burst_mtus;
	u32 active;	   /* tunnels in the list */
	u64 owed_mtus;	   /* of all not refused credit: target - pull + backlog */
	u64 virtual_time[EQDS_PRIORITIES];
	struct eqds_share *head, *tail; /* FIFO */
	struct eqds_pifo pifo;
	u8 policy; /* enum eqds_asl_policy */
};

/* A tunnel's part of a list. pull <= target, modulo the width of the numbers. */
struct eqds_share {
	struct eqds_asl *asl;
	u32 pull;	   /* pulls sent */
	u32 target;	   /* pull number the sender asked for, or will ask for */
	u32 backlog_mtus;  /* bytes the sender claims to have beyond target; bounded */
	u32 owed_mtus;	   /* its part of the list's */
	u8 pull_bits;	   /* width of pull numbers */
	bool may_send;	   /* else it is refused credit; the receiver's word */
	bool active;	   /* in the list */
	u8 priority;	   /* lower is served first */
	u32 stride;	   /* virtual time a pull costs it */
	u64 finish;	   /* virtual time of its next turn */
	struct eqds_share *next, *prev; /* FIFO */
	struct eqds_pifo_node node;	/* PIFO */
	struct eqds_rate rate;
};

/* bits_per_sec: of the ingress link, or the part of it that tunnels may fill. burst_mtus: 1 .. */
void eqds_asl_init(struct eqds_asl *asl, enum eqds_asl_policy policy, u32 mtu_bytes,
		   u64 bits_per_sec, u32 burst_mtus);

void eqds_share_init(struct eqds_share *share, struct eqds_asl *asl, u8 pull_bits);

/* PIFO: priority 0 is served first; weight 1 .. EQDS_WEIGHT_MAX. Any time. */
void eqds_asl_set(struct eqds_share *share, u8 priority, u32 weight);

/*
 * When to call eqds_receiver_next(); EQDS_NEVER: the list is empty. Each call at or after the
 * deadline moves it on by the time of one MTU, and after a burst of calls it is later than now_ns.
 */
u64 eqds_asl_deadline_ns(const struct eqds_asl *asl);

/*
 * The share that gets the next MTU of credit; NULL: not yet, or nobody may have it. It is out of
 * the list until eqds_asl_update(). For eqds_receiver_next().
 */
struct eqds_share *eqds_asl_next(struct eqds_asl *asl, u64 now_ns);

/* How long the link is busy with what is asked for, in us, 65535 at most. */
u16 eqds_asl_busy_us(const struct eqds_asl *asl);

/* The demand, pull or may_send has changed; join as the demand says. */
void eqds_asl_update(struct eqds_share *share, u32 target, u32 backlog_mtus);
/* The pull number becomes pull, without credit. */
void eqds_asl_renumber(struct eqds_share *share, u32 pull);
void eqds_asl_leave(struct eqds_share *share);

#endif
