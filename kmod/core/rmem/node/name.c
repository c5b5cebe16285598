// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/node/name.h"

#include "core/base/bytes.h"

size_t rmem_names_bytes(u32 spaces)
{
	return (size_t)spaces * RMEM_NAMES_MAX * sizeof(struct rmem_name);
}

void rmem_names_init(struct rmem_names *names, void *memory, u32 spaces)
{
	base_zero(memory, rmem_names_bytes(spaces));
	names->entry = memory;
}

bool rmem_name_is_sound(const u8 name[RMEM_NAME_BYTES])
{
	u32 n;

	for (n = 1; n < RMEM_NAME_BYTES; n++)
		if (name[n] && !name[n - 1])
			return false;
	return name[0];
}

static struct rmem_name *names_of(const struct rmem_names *names, u32 space_index)
{
	return &names->entry[(size_t)space_index * RMEM_NAMES_MAX];
}

int rmem_name_compare(const u8 a[RMEM_NAME_BYTES], const u8 b[RMEM_NAME_BYTES])
{
	u32 n = 0;

	while (n < RMEM_NAME_BYTES - 1 && a[n] == b[n])
		n++;
	return a[n] - b[n];
}

struct rmem_name *rmem_names_find(const struct rmem_names *names, u32 space_index,
				  const u8 name[RMEM_NAME_BYTES])
{
	struct rmem_name *entry = names_of(names, space_index);
	u32 n;

	for (n = 0; n < RMEM_NAMES_MAX; n++)
		if (entry[n].vpn && !rmem_name_compare(entry[n].name, name))
			return &entry[n];
	return NULL;
}

struct rmem_name *rmem_names_free(const struct rmem_names *names, u32 space_index)
{
	struct rmem_name *entry = names_of(names, space_index);
	u32 n = 0;

	while (n < RMEM_NAMES_MAX && entry[n].vpn)
		n++;
	return n < RMEM_NAMES_MAX ? &entry[n] : NULL;
}

bool rmem_names_add(struct rmem_names *names, u32 space_index, u64 vpn,
		    const u8 name[RMEM_NAME_BYTES])
{
	struct rmem_name *entry = rmem_names_free(names, space_index);

	if (!entry)
		return false;
	entry->vpn = vpn;
	base_copy(entry->name, name, RMEM_NAME_BYTES);
	return true;
}

void rmem_names_withdraw(struct rmem_names *names, u32 space_index, u64 vpn)
{
	struct rmem_name *entry = names_of(names, space_index);
	u32 n;

	for (n = 0; n < RMEM_NAMES_MAX; n++)
		if (entry[n].vpn == vpn)
			entry[n].vpn = 0;
}
