// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/eqds/path.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"

void eqds_paths_init(struct eqds_paths *paths, struct eqds_path *memory, u32 count, u64 seed)
{
	base_zero(memory, count * sizeof(*memory));
	paths->path = memory;
	paths->mask = count - 1;
	paths->at = 0;
	paths->random = seed;
	paths->order = (u32)base_mix64(seed);
}

/* The at-th path of the round: an odd factor and an offset permute the ids. */
static u32 paths_nth(const struct eqds_paths *paths)
{
	return (paths->at * (paths->order | 1) + (paths->order >> 16)) & paths->mask;
}

u16 eqds_paths_pick(struct eqds_paths *paths)
{
	for (;;) {
		u32 path = paths_nth(paths);

		if (paths->at++ == paths->mask) {
			paths->at = 0;
			paths->order = (u32)base_mix64(++paths->random);
		}
		/* Ends: each path passed over is not passed over again. */
		if (paths->path[path].skip) {
			paths->path[path].skip = false;
			continue;
		}
		paths->path[path].sent++;
		return path;
	}
}

u16 eqds_paths_pick_again(struct eqds_paths *paths, u16 path, u32 count)
{
	paths->path[path & paths->mask].sent += count;
	return path;
}

void eqds_paths_acked(struct eqds_paths *paths, u16 path, u64 rtt_ns)
{
	struct eqds_path *p = &paths->path[path & paths->mask];
	u32 rtt = rtt_ns < ~0U ? (u32)rtt_ns : ~0U;

	p->rtt_ns = p->rtt_ns ? p->rtt_ns - p->rtt_ns / 8 + rtt / 8 : rtt;
}

void eqds_paths_trimmed(struct eqds_paths *paths, u16 path)
{
	paths->path[path & paths->mask].trimmed++;
	paths->path[path & paths->mask].skip = true;
}

void eqds_paths_lost(struct eqds_paths *paths, u16 path)
{
	paths->path[path & paths->mask].lost++;
	paths->path[path & paths->mask].skip = true;
}

void eqds_paths_marked(struct eqds_paths *paths, u16 path)
{
	paths->path[path & paths->mask].marked++;
	paths->path[path & paths->mask].skip = true;
}
