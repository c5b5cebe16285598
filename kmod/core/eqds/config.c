// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/config.h"

#include "core/base/bits.h"
#include "remora/eqds.h"

const struct eqds_profile eqds_profile_extended = {
	.seq_bits = 32,
	.pull_bits = 32,
	.epoch_bits = 32,
};

const struct eqds_profile eqds_profile_paper = {
	.seq_bits = 16,
	.pull_bits = 16,
	.epoch_bits = 16 - EQDS_PAPER_START_BITS,
	.start_bits = EQDS_PAPER_START_BITS,
};

void eqds_config_init(struct eqds_config *config, const struct eqds_profile *profile,
		      u32 mtu_bytes, u32 window_bytes)
{
	config->profile = profile;
	config->mtu_bytes = mtu_bytes;
	config->outer_bytes = 0;
	config->window_bytes = window_bytes;
	config->window_packets = EQDS_WINDOW_PACKETS;
	/* A number that came again would make an old packet pass for a new one. */
	config->epoch_packets = profile->seq_bits == 32 ? 1U << 31 : 0;
	config->train_packets = 1;
	config->trimming = false;
	config->overdraw = false;
	config->pull_trimmed = false;
	config->ordered = true;
	config->cookies = false;
	config->strikes_max = EQDS_STRIKES_MAX;
	config->timeouts_max = 8;
	config->rto_min_ns = 200 * BASE_NSEC_PER_USEC;
	config->rto_max_ns = 20 * BASE_NSEC_PER_MSEC;
	config->idle_ns = 10 * BASE_NSEC_PER_SEC;
}

bool eqds_config_is_valid(const struct eqds_config *config)
{
	const struct eqds_profile *p = config->profile;
	u32 half_seq = 1U << (p->seq_bits - 1), half_pull = 1U << (p->pull_bits - 1);

	if (!config->mtu_bytes || config->mtu_bytes > 0xffff)
		return false;
	if (config->window_bytes < config->mtu_bytes || config->window_bytes > 1U << 30)
		return false;
	if (!config->train_packets)
		return false;
	if (!base_is_pow2(config->window_packets) || config->window_packets > half_seq)
		return false;
	/* A SYN's number has to tell the epoch, and so has its acknowledgement. */
	if (p->start_bits && config->window_packets > 1U << (p->start_bits - 1))
		return false;
	return eqds_target_max(config) + eqds_gift_max(config) < half_pull &&
	       config->timeouts_max && config->rto_min_ns &&
	       config->rto_max_ns >= config->rto_min_ns && config->idle_ns;
}
