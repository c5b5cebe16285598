/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Names of regions, as OpenFAM has them. Each space has entries of its own, so a tenant that
 * publishes all it can takes no room from another. A name is looked for among at most
 * RMEM_NAMES_MAX entries, which is little beside the way to the slow path.
 *
 * Invariant: an entry in use names a region of its space that is not being freed. So a call that
 * begins to free a region withdraws its names first.
 *
 * Locking: slow lock.
 */
#ifndef REMORA_RMEM_NAME_H
#define REMORA_RMEM_NAME_H

#include "core/base/types.h"
#include "remora/rmem.h"

struct rmem_name {
	u64 vpn; /* first page of the region; 0: entry is free */
	u8 name[RMEM_NAME_BYTES];
};

struct rmem_names {
	struct rmem_name *entry; /* RMEM_NAMES_MAX of each space */
};

size_t rmem_names_bytes(u32 spaces);
void rmem_names_init(struct rmem_names *names, void *memory, u32 spaces);

/* True if name isn't empty and has nothing behind its first zero byte. */
bool rmem_name_is_sound(const u8 name[RMEM_NAME_BYTES]);

/* Below 0, 0 or above 0: a comes before b in the order of their bytes, equals b, comes behind b. */
int rmem_name_compare(const u8 a[RMEM_NAME_BYTES], const u8 b[RMEM_NAME_BYTES]);

/* The entry of a sound name, or NULL. */
struct rmem_name *rmem_names_find(const struct rmem_names *names, u32 space_index,
				  const u8 name[RMEM_NAME_BYTES]);

/* The entry that the next name gets, or NULL: the space has RMEM_NAMES_MAX already. */
struct rmem_name *rmem_names_free(const struct rmem_names *names, u32 space_index);

/* name isn't there. False: there is no free entry. */
bool rmem_names_add(struct rmem_names *names, u32 space_index, u64 vpn,
		    const u8 name[RMEM_NAME_BYTES]);

/* All names of the region that begins at vpn. */
void rmem_names_withdraw(struct rmem_names *names, u32 space_index, u64 vpn);

#endif
