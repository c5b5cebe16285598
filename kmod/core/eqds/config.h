/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Parameters that the operator sets and both ends of a tunnel agree on, and arithmetic of numbers
 * that wrap.
 * A profile gives the widths of the numbers. The wire has two (wire.h); the model checker brings
 * a third whose numbers have two or three bits, so that they wrap within a few packets.
 */
#ifndef REMORA_EQDS_CONFIG_H
#define REMORA_EQDS_CONFIG_H

#include "core/base/types.h"

#define EQDS_NEVER	    (~0ULL)
#define EQDS_WINDOW_PACKETS 512U /* config.window_packets, unless the caller changes it */

/*
 * config.strikes_max, unless the caller changes it: eight losses while the peer was heard, or 64
 * trims. A path that loses half of all packets gives up one in 256.
 */
#define EQDS_STRIKES_MAX 64U
#define EQDS_STRIKES_LOSS 8U /* of a transmission that nothing answered; one trimmed: 1 */

struct eqds_profile {
	u8 seq_bits;   /* 2 .. 32 */
	u8 pull_bits;  /* 2 .. 32; half the space is more than a window of pulls */
	u8 epoch_bits; /* 2 .. 32 */
	/*
	 * Paper: low bits of a sequence number that are 0 at the start of an epoch; the epoch is
	 * above them. 0: every packet carries its epoch, and an epoch starts with number 0.
	 */
	u8 start_bits;
};

extern const struct eqds_profile eqds_profile_extended;
extern const struct eqds_profile eqds_profile_paper;

/* One for all tunnels of an interface. The caller keeps it as long as it has tunnels. */
struct eqds_config {
	const struct eqds_profile *profile;
	u32 mtu_bytes;	    /* credit of one pull; the largest packet, with the tunnel's headers */
	u32 outer_bytes;    /* headers around a tunnel's, for the bound on answers; or 0 */
	u32 window_bytes;   /* one bandwidth-delay product; at least mtu_bytes */
	u16 window_packets; /* numbers in use at once, a power of two: eqds_config_is_valid() */
	u32 epoch_packets;  /* numbers of an epoch, after which a later one begins; 0: they wrap */
	u16 train_packets;  /* new packets that take one path, if they leave at one time; from 1 */
	bool trimming;	    /* the network trims: start with a burst; else with an RTS */
	bool overdraw;	    /* send on any credit above 0; else (paper) on a packet's bytes */
	bool pull_trimmed;  /* pull early for what was trimmed; else (paper) the sender asks */
	bool ordered;	    /* deliver in order; else as it arrives */
	bool cookies;	    /* peers want a cookie: a sender without one opens by an RTS */
	u8 strikes_max;	    /* of a packet, after which it is given up: sender.h; 0: never */
	u8 timeouts_max;    /* timeouts in a row, after which the tunnel is opened anew */
	u64 rto_min_ns, rto_max_ns;
	u64 idle_ns; /* without a packet, after which state is dropped */
};

/* Values for one MTU and BDP; the caller changes what it likes. */
void eqds_config_init(struct eqds_config *config, const struct eqds_profile *profile,
		      u32 mtu_bytes, u32 window_bytes);
bool eqds_config_is_valid(const struct eqds_config *config);

static inline u32 eqds_mask(u8 bits)
{
	return ~0U >> (32 - bits);
}

/* x + n, wrapped. */
static inline u32 eqds_add(u32 x, u32 n, u8 bits)
{
	return (x + n) & eqds_mask(bits);
}

/* How far a is ahead of b; negative if it is behind. Half the space ahead counts as behind. */
static inline s32 eqds_ahead(u32 a, u32 b, u8 bits)
{
	return (s32)((a - b) << (32 - bits)) >> (32 - bits);
}

/* MTUs that cover bytes. */
static inline u32 eqds_mtus(const struct eqds_config *config, u32 bytes)
{
	return bytes / config->mtu_bytes + !!(bytes % config->mtu_bytes);
}

/* How far a pull target may be ahead of a pull number; a debt takes one MTU more to pay. */
static inline u32 eqds_target_max(const struct eqds_config *config)
{
	return eqds_mtus(config, config->window_bytes) + config->overdraw;
}

/* How far pull numbers may run ahead of the highest target that the sender has told. */
static inline u32 eqds_gift_max(const struct eqds_config *config)
{
	return config->pull_trimmed ? eqds_target_max(config) : 0;
}

/* The first sequence number of an epoch. */
static inline u32 eqds_epoch_start(const struct eqds_profile *profile, u32 epoch)
{
	return profile->start_bits ? (epoch << profile->start_bits) & eqds_mask(profile->seq_bits) :
				     0;
}

#endif
