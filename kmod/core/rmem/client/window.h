/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The congestion window of one channel, cwnd: the most packets under way between the channel and
 * its node, driven by delay (Clio, ASPLOS'22, section 4.4; Swift, SIGCOMM'20, section 3.1).
 *
 *   cwnd, packets
 *     4096 |
 *          |   delay <= target:                  +1 per round trip
 *          |   delay >  target:                  less, by the excess; not below 16
 *       16 +-- floor ------------------------------------------------------------
 *          |   delay <= target:                  +1 per answer
 *          |   target < delay <= incast target:  +1 per round trip
 *          |   delay >  incast target:           less, by the excess
 *     1/64 |   below one packet: one packet every round trip / cwnd
 *
 * A decrease takes RMEM_CWND_DECREASE_MAX at most, once per round trip at most. The floor is there
 * because a machine whose processors are busy answers late as well, and less sent would not help
 * it. A delay worth 8 targets and 50 ms is an incast of many flows, so it passes the floor; below,
 * a flow's incast target is the larger the smaller its window.
 * A lost packet passes it if the delay is above the target. Silence leads to one packet.
 *
 * Fairness. Channels to one node see the same delay. Each adds the same per round trip and gives up
 * in proportion to its share, on both sides of the floor, so their windows converge (Chiu and Jain,
 * 1989). That takes the same target in all of them, so the channels of a machine to a node share
 * the base round trip (rtt.h): a channel that starts while a queue stands would measure the queue
 * as its base, allow itself a target of eight of it, and starve the others.
 *
 * Target delay: 8 base round trips, within 1 to 20 ms. The base is the path's time when idle;
 * queues worth several times that cost latency and win no throughput, while the factor leaves room
 * for batching by NICs, softirqs and hypervisors, which delays without congestion. The delay held
 * against it is the least of 10 ms.
 *
 * Credit. rmem_window_acquire() lets a packet begin as long as less than cwnd is under way.
 * A READ's request is one packet that asks for several, so it can overshoot (send_op()). The
 * channel releases the same amount, in any portions, exactly once.
 *
 * The channel's lock is held around all calls here: no channel waits for another one's window.
 */
#ifndef REMORA_RMEM_WINDOW_H
#define REMORA_RMEM_WINDOW_H

#include "core/base/types.h"

#define RMEM_CWND_ONE 1024U /* one packet */
#define RMEM_CWND_START (64 * RMEM_CWND_ONE)
#define RMEM_CWND_FLOOR (16 * RMEM_CWND_ONE)
#define RMEM_CWND_MIN (RMEM_CWND_ONE / 64)
#define RMEM_CWND_MAX (4096 * RMEM_CWND_ONE)
#define RMEM_CWND_DECREASE_MAX 512 /* of 1024 */
#define RMEM_TARGET_RTTS 8
#define RMEM_TARGET_NS_MIN BASE_NSEC_PER_MSEC
#define RMEM_TARGET_NS_MAX (20 * BASE_NSEC_PER_MSEC)
#define RMEM_DELAY_PERIOD_NS (10 * BASE_NSEC_PER_MSEC)
#define RMEM_TARGETS_INCAST 8
#define RMEM_INCAST_US_MIN 50000U
/* However narrow the window, a packet goes that often. */
#define RMEM_PACE_NS_MAX (50 * BASE_NSEC_PER_MSEC)

struct rmem_window {
	bool fixed;	  /* the path loses nothing: cwnd stays at its most */
	u32 cwnd;	  /* 1/1024 packets */
	u32 in_flight;	  /* packets */
	u32 answered;	  /* packets, since cwnd grew last */
	u64 next_send_ns; /* cwnd below one packet: not before that */
	u64 decreased_ns; /* last decrease */
	u32 delay_us;	  /* least of the last period; 0: not measured yet */
	u32 least_us;	  /* of the period that runs; ~0: none */
	u64 period_end_ns;
};

/* fixed: the path has credit of its own, and loses nothing for want of room. */
void rmem_window_init(struct rmem_window *w, bool fixed);

/*
 * Take credit for packets, if the window is open. Else *until_ns is the time that opens it, or 0
 * when a release is needed.
 */
bool rmem_window_acquire(struct rmem_window *w, u64 now_ns, u32 packets, u64 *until_ns);
void rmem_window_release(struct rmem_window *w, u32 packets);

/* Packets were answered, delay_ns after they left (0: not measured); before their release. */
void rmem_window_answered(struct rmem_window *w, u64 now_ns, u32 packets, u64 delay_ns,
			  u64 base_ns);
/* A packet or its answer was lost: a later attempt was answered, and not the first. */
void rmem_window_lost(struct rmem_window *w, u64 now_ns, u64 base_ns);
/* No answer of any kind came in time. */
void rmem_window_timeout(struct rmem_window *w, u64 now_ns, u64 rto_ns);

/* Packets that fit into the rest of the window; 0: it is full. */
static inline u32 rmem_window_room(const struct rmem_window *w)
{
	u32 packets = (w->cwnd + RMEM_CWND_ONE - 1) / RMEM_CWND_ONE;

	return packets > w->in_flight ? packets - w->in_flight : 0;
}

#endif
