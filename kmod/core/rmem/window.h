/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The two windows a request must find open (Clio, ASPLOS'22, section 4.4).
 *
 *   cwnd, one per node, shared by the channels to it: packets under way to or from
 *   the node, driven by delay. Below the target delay it grows by one packet per
 *   round trip; above it shrinks in proportion to the excess (Swift,
 *   SIGCOMM'20, section 3.1), by RMEM_CWND_DECREASE_MAX at most and once per round
 *   trip at most. How far it shrinks depends on how sure it is that a queue of ours is
 *   the reason. Late answers: to 16 packets, for a machine whose processors are busy
 *   answers late as well, and less sent would not help it. Lost packets: likewise while the
 *   delay is on target, else below one packet. Silence: to one. A delay worth 8
 *   targets and 50 ms is an incast of many clients: below one packet, too. There one packet
 *   goes every round trip / cwnd. Up to 16 packets it grows by one for each answer.
 *
 *   iwnd, one per client machine: bytes of READ data that were asked for and are not here.
 *
 * Target delay: 8 base round trips, within 1 to 20 ms. The base is what the path takes
 * when idle; queues worth several times that cost latency and win no throughput, while the
 * factor leaves room for batching by NICs, softirqs and hypervisors, which delays without
 * congestion. The delay held against it is the least of 10 ms.
 *
 * Credit. rmem_window_acquire() lets an op begin as long as less than cwnd is under way, so
 * an op of several packets may overshoot by its own size. Whoever acquired
 * releases the same amount, in any portions, exactly once.
 *
 * Waiting. Who finds a window closed registers, and tries once more before it
 * goes to sleep; who released credit looks for registrations afterwards:
 *
 *     sleeper                          releaser
 *     acquire fails                    credit given back      (C)
 *     bit set in waiters     (A)       waiters read, cleared  (D)
 *     acquire tried again    (B)       those in it kicked
 *
 * A before B, C before D, and all four are sequentially consistent: if B doesn't see C
 * then D sees A. A bit set in vain costs a kick in vain. A closed window has
 * credit out, so there is a releaser to come; where cwnd is below one packet,
 * it may be time instead that opens it: acquire says when, the channel's timer does the rest.
 * selftests/model/window_wakeup.cpp explores all interleavings.
 *
 * Several channels on several CPUs call these at once: __atomic builtins, no lock.
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
/* However narrow the window, an op goes that often. */
#define RMEM_PACE_NS_MAX (50 * BASE_NSEC_PER_MSEC)

#define RMEM_IWND_BYTES (4U * 1024 * 1024)
/* Sleepers are woken when that much is free (or all): the largest op, RMEM_READ_BYTES_MAX. */
#define RMEM_IWND_ROOM_BYTES (256U * 1024)

/* Bits of waiters; a channel has one of them, several channels may share one. */
#define RMEM_WAITERS 64

struct rmem_window {
	u32 cwnd;	  /* 1/1024 packets */
	u32 in_flight;	  /* packets */
	u32 answered;	  /* packets, since cwnd grew last */
	u64 waiters;	  /* bit i: channels with waiter i sleep */
	u64 next_send_ns; /* cwnd below one packet: not before that */
	u64 decreased_ns; /* last decrease */
	u32 delay_us;	  /* least of the last period; 0: not measured yet */
	u32 least_us;	  /* of the period that runs; ~0: none */
	u64 period_end_ns;
};

struct rmem_incast {
	u64 used_bytes;
	u64 waiters;
	u64 limit_bytes;
};

void rmem_window_init(struct rmem_window *w);

/*
 * Credit for packets, if the window is open. Else *until_ns tells when time alone
 * opens it, or is 0 when a release is wanted: rmem_window_wait(), try again, sleep.
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

void rmem_window_wait(struct rmem_window *w, unsigned int waiter);

/*
 * Waiters to be kicked (their channels' rmem_client_next() called), as bits;
 * mostly 0. To be asked by whoever called into a client, after it dropped the channel's lock.
 */
u64 rmem_window_waiting(struct rmem_window *w);

u32 rmem_window_cwnd(const struct rmem_window *w);
u32 rmem_window_in_flight(const struct rmem_window *w);

/* limit_bytes: RMEM_IWND_BYTES unless the user knows better. */
void rmem_incast_init(struct rmem_incast *i, u64 limit_bytes);

/* As above. An op larger than the limit goes when it is alone. */
bool rmem_incast_acquire(struct rmem_incast *i, u32 bytes);
void rmem_incast_release(struct rmem_incast *i, u32 bytes);
void rmem_incast_wait(struct rmem_incast *i, unsigned int waiter);
u64 rmem_incast_waiting(struct rmem_incast *i);
u64 rmem_incast_used_bytes(const struct rmem_incast *i);

#endif
