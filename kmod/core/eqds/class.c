// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/class.h"

#include "core/base/bytes.h"

void eqds_class_init(struct eqds_class *policy, enum eqds_class_kind kind)
{
	base_zero(policy, sizeof(*policy));
	policy->kind = kind;
	policy->average_shift = 4;
	if (kind == EQDS_CLASS_TCP) {
		policy->packets_max = EQDS_CLASS_TCP_PACKETS;
		policy->low_bytes = 30 * 1500;
		policy->high_bytes = 90 * 1500;
		policy->probability_q16 = 65536 / 10;
	} else {
		/* The paper's baseline thresholds, appendix B. */
		policy->packets_max = 4096;
		policy->low_bytes = 150 * 1000;
		policy->high_bytes = 1500 * 1000;
		policy->probability_q16 = 65536 / 5;
		policy->cnp_gap_ns = 4 * BASE_NSEC_PER_USEC;
	}
}

void eqds_class_queue_init(struct eqds_class_queue *queue)
{
	base_zero(queue, sizeof(*queue));
}

/* The line from 0 at low to probability at high, and 1 above. */
static bool class_draws(const struct eqds_class *policy, u32 bytes, u32 random)
{
	u32 span = policy->high_bytes - policy->low_bytes;

	if (bytes <= policy->low_bytes)
		return false;
	if (bytes >= policy->high_bytes)
		return true;
	return (random >> 16) <
	       (u64)policy->probability_q16 * (bytes - policy->low_bytes) / span;
}

static void class_average(const struct eqds_class *policy, struct eqds_class_queue *queue,
			  u32 bytes)
{
	queue->average_q16 -= queue->average_q16 >> policy->average_shift;
	queue->average_q16 += ((u64)bytes << 16) >> policy->average_shift;
}

struct eqds_class_verdict eqds_class_arrive(const struct eqds_class *policy,
					    struct eqds_class_queue *queue, u64 now_ns, u32 packets,
					    u32 bytes, bool ecn, u32 random)
{
	struct eqds_class_verdict verdict = { .drop = packets >= policy->packets_max };

	class_average(policy, queue, bytes);
	if (policy->kind == EQDS_CLASS_TCP) {
		verdict.mark = !verdict.drop && ecn &&
			       class_draws(policy, (u32)(queue->average_q16 >> 16), random);
	} else if (policy->kind == EQDS_CLASS_RDMA && policy->cnp) {
		verdict.cnp = now_ns >= queue->cnp_ns && class_draws(policy, bytes, random);
		if (verdict.cnp)
			queue->cnp_ns = now_ns + policy->cnp_gap_ns;
	} else if (policy->kind == EQDS_CLASS_RDMA && !queue->paused &&
		   bytes >= policy->high_bytes) {
		queue->paused = true;
		verdict.pause = true;
	}
	return verdict;
}

struct eqds_class_verdict eqds_class_depart(const struct eqds_class *policy,
					    struct eqds_class_queue *queue, u32 bytes)
{
	struct eqds_class_verdict verdict = { .drop = false };

	if (queue->paused && bytes <= policy->low_bytes) {
		queue->paused = false;
		verdict.resume = true;
	}
	return verdict;
}
