// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/client/rtt.h"

#define NONE_NS (~0ULL)

#define load(p)	    __atomic_load_n((p), __ATOMIC_RELAXED)
#define store(p, x) __atomic_store_n((p), (x), __ATOMIC_RELAXED)

static u64 rtt_least(u64 a, u64 b)
{
	return a < b ? a : b;
}

void rmem_rtt_init(struct rmem_rtt *rtt)
{
	rtt->srtt_ns = 0;
	rtt->rttvar_ns = 0;
}

void rmem_rtt_sample(struct rmem_rtt *rtt, u64 sample_ns)
{
	u64 error_ns;

	if (!rtt->srtt_ns) {
		rtt->srtt_ns = sample_ns ? sample_ns : 1;
		rtt->rttvar_ns = sample_ns / 2;
		return;
	}
	error_ns = sample_ns > rtt->srtt_ns ? sample_ns - rtt->srtt_ns : rtt->srtt_ns - sample_ns;
	rtt->rttvar_ns += error_ns / 4 - rtt->rttvar_ns / 4;
	rtt->srtt_ns += sample_ns / 8 - rtt->srtt_ns / 8;
}

void rmem_base_init(struct rmem_base *base)
{
	base->min_ns = NONE_NS;
	base->min_before_ns = NONE_NS;
	base->horizon_end_ns = 0;
}

void rmem_base_sample(struct rmem_base *base, u64 now_ns, u64 sample_ns)
{
	u64 end_ns = load(&base->horizon_end_ns);
	u64 min_ns = load(&base->min_ns);

	if (now_ns >= end_ns) {
		bool long_ago = now_ns - end_ns >= RMEM_RTT_HORIZON_NS;

		store(&base->min_before_ns, long_ago ? NONE_NS : min_ns);
		store(&base->horizon_end_ns, now_ns + RMEM_RTT_HORIZON_NS);
		store(&base->min_ns, sample_ns);
	} else if (sample_ns < min_ns) {
		store(&base->min_ns, sample_ns);
	}
}

u64 rmem_base_ns(const struct rmem_base *base)
{
	u64 min_ns = rtt_least(load(&base->min_ns), load(&base->min_before_ns));

	return min_ns == NONE_NS ? 0 : min_ns;
}

u64 rmem_rtt_rto_ns(const struct rmem_rtt *rtt, u32 silent, u32 random)
{
	u64 rto_ns = RMEM_RTO_NS_FIRST;

	if (rtt->srtt_ns)
		rto_ns = rtt->srtt_ns + 4 * rtt->rttvar_ns;
	if (rto_ns < RMEM_RTO_NS_MIN)
		rto_ns = RMEM_RTO_NS_MIN;
	if (!silent)
		return rtt_least(rto_ns, RMEM_RTO_NS_MAX);
	rto_ns = rtt_least(rtt_least(rto_ns, RMEM_RTO_NS_MAX) << rtt_least(silent, 10),
			   RMEM_RTO_NS_MAX);
	return rto_ns + ((rto_ns / 4 * (random & 1023)) >> 10);
}
