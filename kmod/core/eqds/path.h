/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The paths to one destination, and which one the next packet takes.
 *
 *   pick: every path once a round, in an order drawn anew each round (packet spraying)
 *   pick_again: a train (sender.h) takes the path of its first packet
 *   feedback: acknowledged -> round trip; trimmed, lost or marked -> skipped once
 *
 * A path that just trimmed or lost a packet is left out once, and taken again in the next round.
 * A path id is what the caller makes the UDP source port of. The caller may share one struct
 * between the tunnels to a destination, under the lock it holds around their senders.
 */
#ifndef REMORA_EQDS_PATH_H
#define REMORA_EQDS_PATH_H

#include "core/base/types.h"

struct eqds_path {
	u32 rtt_ns; /* smoothed, 0: not measured */
	u32 sent, trimmed, lost, marked;
	bool skip;
};

struct eqds_paths {
	struct eqds_path *path; /* the caller's, count of them */
	u32 mask;		/* count - 1 */
	u32 at;			/* picks of this round */
	u32 order;		/* random state that the round's order is drawn from */
	u64 random;
};

/* count: a power of two, 1 .. 65536. seed: 64 random bits, for neighbours share their rounds. */
void eqds_paths_init(struct eqds_paths *paths, struct eqds_path *memory, u32 count, u64 seed);
u16 eqds_paths_pick(struct eqds_paths *paths);
/* count: packets more on a path that was picked. */
u16 eqds_paths_pick_again(struct eqds_paths *paths, u16 path, u32 count);

void eqds_paths_acked(struct eqds_paths *paths, u16 path, u64 rtt_ns);
void eqds_paths_trimmed(struct eqds_paths *paths, u16 path);
void eqds_paths_lost(struct eqds_paths *paths, u16 path);
void eqds_paths_marked(struct eqds_paths *paths, u16 path);

#endif
