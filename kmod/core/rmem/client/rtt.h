/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Round-trip time and retransmission timeout of one channel (RFC 6298), and the base round trip of
 * the path to a node, which the channels of a machine to that node share.
 *
 * Responses echo the attempt they answer, so a sample is never ambiguous and
 * retransmissions can be measured, too (Karn's rule is not needed).
 *
 * RMEM_RTO_NS_MIN: answers come out of the node's softirq within microseconds,
 * but where either softirq is deferred to ksoftirqd, or the machine is itself a
 * virtual one, a few scheduler ticks (4 ms at HZ=250) are normal and no loss. The timeout is the
 * last resort: loss.h tells most losses within a round trip.
 */
#ifndef REMORA_RMEM_RTT_H
#define REMORA_RMEM_RTT_H

#include "core/base/types.h"

#define RMEM_RTO_NS_FIRST (200 * BASE_NSEC_PER_MSEC) /* nothing measured yet */
#define RMEM_RTO_NS_MIN (20 * BASE_NSEC_PER_MSEC)
#define RMEM_RTO_NS_MAX BASE_NSEC_PER_SEC
#define RMEM_RTT_HORIZON_NS (10 * BASE_NSEC_PER_SEC)

struct rmem_rtt {
	u64 srtt_ns; /* 0: no sample yet */
	u64 rttvar_ns;
};

/*
 * The base round trip: the path's time when no queue stands. Channels on several CPUs change it
 * without a lock; an update lost to another CPU's is one sample less, which is harmless.
 */
struct rmem_base {
	/* The least of the horizon that runs and of the one before it. */
	u64 min_ns, min_before_ns; /* ~0: no sample in it */
	u64 horizon_end_ns;
};

void rmem_rtt_init(struct rmem_rtt *rtt);

/* A whole operation took this long; for the timeout. */
void rmem_rtt_sample(struct rmem_rtt *rtt, u64 sample_ns);

void rmem_base_init(struct rmem_base *base);

/* A packet was answered after this long. */
void rmem_base_sample(struct rmem_base *base, u64 now_ns, u64 sample_ns);

/* The least of the last 10 to 20 seconds; 0 if nothing was measured. */
u64 rmem_base_ns(const struct rmem_base *base);

/*
 * Timeout after the given number of timeouts in a row without any sign of the
 * node: doubled for each, and up to a quarter later, as random says, so that
 * clients who lost the same node don't come back to it in step.
 */
u64 rmem_rtt_rto_ns(const struct rmem_rtt *rtt, u32 silent, u32 random);

#endif
