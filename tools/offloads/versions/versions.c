// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Objects with versions (Clio's code has them as an offload, ASPLOS'22). README.md has the picture.
 *
 * Invariants of an object: count <= taken <= the table's versions; each version up to count has an
 * entry that names its room, and a room has one version at most.
 *
 * A function runs from its start in each step and comes one access farther, which it prefetches.
 * The last step has the whole effect, so functions are atomic. It makes its changes after all
 * accesses that can fail. Readers by READ see a version in `count` alone, which is stored last.
 *
 * Clients can write to all of it, during a step, too: numbers are loaded once and checked, so that
 * products stay below 2^64, and no loop depends on them.
 */
#include "versions.h"

#include "../common.h"

#define VERSIONS_MAGIC 0x31736e6f69737276ULL /* "vrsions1" */
#define VERSIONS_ENTRY_BYTES 8U

_Static_assert(sizeof(struct versions_table) == VERSIONS_ALIGN, "one slice");
_Static_assert(sizeof(struct versions_object) == VERSIONS_ALIGN, "one slice");

/* A call's table and object, for one step. */
struct versions {
	struct rmem_call *call;
	struct versions_table *table;	/* QUERY: not to be written */
	struct versions_object *object; /* QUERY: not to be written */
	__u64 table_at, object_at;
	__u64 object_bytes, room_bytes;
	__u32 objects, versions, version_bytes;
	__u32 fresh;
	__u32 index, generation; /* the object's */
	__u32 count, taken;
};

/* From step to step. */
struct versions_work {
	__u32 fetched; /* accesses that were prefetched */
};

/* ---- memory --------------------------------------------------------------------------------- */

/* False: the step ends here, and the next one finds the nth access in the caches. */
static bool versions_fetched(struct rmem_call *call, __u32 nth, __u64 addr)
{
	struct versions_work *work = rmem_scratch(call, sizeof(*work));

	if (work->fetched >= nth)
		return true;
	work->fetched = nth;
	rmem_prefetch(call, addr);
	return false;
}

static bool versions_fits(__u32 objects, __u32 versions, __u32 version_bytes)
{
	return objects - 1 < VERSIONS_OBJECTS_MAX && versions - 1 < VERSIONS_MAX &&
	       version_bytes - 1 < VERSIONS_BYTES_MAX;
}

/* change: of the table's header. */
static int versions_open(struct versions *v, struct rmem_call *call, __le64 table, bool change)
{
	struct versions_table *header;

	v->call = call;
	v->table_at = le64_to_cpu(table);
	if (v->table_at % VERSIONS_ALIGN)
		return -EINVAL;
	if (!versions_fetched(call, 1, v->table_at))
		return RMEM_AGAIN;
	header = (struct versions_table *)rmem_look(call, v->table_at, sizeof(*header));
	if (!header)
		return rmem_error(call);
	if (offload_load(&header->magic) != VERSIONS_MAGIC)
		return -ENXIO;
	/* After the look: a change gives a page to an address where no table is. */
	if (change)
		header = rmem_at(call, v->table_at, sizeof(*header));
	if (!header)
		return rmem_error(call);
	v->table = header;
	v->objects = offload_load_32(&header->objects);
	v->versions = offload_load_32(&header->versions);
	v->version_bytes = offload_load_32(&header->version_bytes);
	v->fresh = offload_load_32(&header->fresh);
	if (!versions_fits(v->objects, v->versions, v->version_bytes) || v->fresh > v->objects)
		return -EUCLEAN;
	v->room_bytes = VERSIONS_ROOM_BYTES(v->version_bytes);
	v->object_bytes = VERSIONS_OBJECT_BYTES(v->versions, v->version_bytes);
	return 0;
}

/* The memory of the object `index`, used or free. */
static int versions_object(struct versions *v, __u32 index, bool change)
{
	v->index = index;
	v->object_at = v->table_at + sizeof(*v->table) + index * v->object_bytes;
	if (!versions_fetched(v->call, 2, v->object_at))
		return RMEM_AGAIN;
	v->object = change ? rmem_at(v->call, v->object_at, sizeof(*v->object)) :
			     (struct versions_object *)rmem_look(v->call, v->object_at,
								 sizeof(*v->object));
	if (!v->object)
		return rmem_error(v->call);
	v->generation = offload_load_32(&v->object->generation);
	return 0;
}

static int versions_find(struct versions *v, __le64 object, bool change)
{
	__u64 name = le64_to_cpu(object), count;
	int error;

	/* Headers from `fresh` on are those of an earlier table. */
	if ((__u32)name >= v->fresh)
		return -ENOENT;
	error = versions_object(v, (__u32)name, change);
	if (error)
		return error;
	if (v->generation != name >> 32 || v->generation % 2 == 0)
		return -ENOENT;
	count = offload_load(&v->object->count);
	v->taken = offload_load_32(&v->object->taken);
	if (count > v->taken || v->taken > v->versions)
		return -EUCLEAN;
	v->count = (__u32)count;
	return 0;
}

/* The table and one of its objects. change_table: of the header, change: of the object. */
static int versions_reach(struct versions *v, struct rmem_call *call, __le64 table, __le64 object,
			  bool change_table, bool change)
{
	int error = versions_open(v, call, table, change_table);

	return error ? error : versions_find(v, object, change);
}

static __u64 versions_entry_at(const struct versions *v, __u32 nth)
{
	return v->object_at + sizeof(*v->object) + (__u64)nth * VERSIONS_ENTRY_BYTES;
}

static __u64 versions_room_at(const struct versions *v, __u32 room)
{
	return versions_entry_at(v, v->versions) + room * v->room_bytes;
}

/* Arguments of exactly so many bytes. */
static const void *versions_args(struct rmem_call *call, __u32 bytes)
{
	return rmem_args_bytes(call) == bytes ? rmem_args(call, bytes) : NULL;
}

/* ---- objects -------------------------------------------------------------------------------- */

static int versions_format(struct rmem_call *call)
{
	const struct versions_format_args *args = versions_args(call, sizeof(*args));
	struct versions_result *result = rmem_result(call, sizeof(*result));
	struct versions_table *table;
	__u32 objects, versions, version_bytes;
	__u64 at, bytes;

	if (!args || !result || args->reserved)
		return -EINVAL;
	at = le64_to_cpu(args->table);
	bytes = le64_to_cpu(args->bytes);
	objects = le32_to_cpu(args->objects);
	versions = le32_to_cpu(args->versions);
	version_bytes = le32_to_cpu(args->version_bytes);
	if (at % VERSIONS_ALIGN || !versions_fits(objects, versions, version_bytes) ||
	    bytes < VERSIONS_TABLE_BYTES(objects, versions, version_bytes) || at + bytes < at)
		return -EINVAL;
	if (!rmem_look(call, at + bytes - 1, 1))
		return rmem_error(call);
	table = rmem_at(call, at, sizeof(*table));
	if (!table)
		return rmem_error(call);
	if (offload_load(&table->magic) == VERSIONS_MAGIC)
		return -EEXIST;
	table->objects = args->objects;
	table->versions = args->versions;
	table->version_bytes = args->version_bytes;
	table->free = 0;
	table->fresh = 0;
	/* Not next_generation: names of an earlier table here MUST find nothing. */
	offload_store(&table->magic, VERSIONS_MAGIC);
	return 0;
}

static int versions_create(struct rmem_call *call, const struct versions_args *args)
{
	struct versions_result *result = rmem_result(call, sizeof(*result));
	struct versions v;
	__u32 free, generation;
	int error;

	if (args->object || args->number || args->bytes)
		return -EINVAL;
	error = versions_open(&v, call, args->table, true);
	if (error)
		return error;
	free = offload_load_32(&v.table->free);
	if (!free && v.fresh == v.objects)
		return -ENOSPC;
	error = free > v.fresh ? -EUCLEAN : versions_object(&v, free ? free - 1 : v.fresh, true);
	/* The free list is damaged, for it leads to an object in use: give the list up. */
	if (!error && free && v.generation % 2)
		error = -EUCLEAN;
	if (error) {
		if (error == -EUCLEAN)
			v.table->free = 0;
		return error;
	}
	if (free)
		v.table->free = v.object->free_next;
	else
		v.table->fresh = cpu_to_le32(v.fresh + 1);
	generation = offload_load_32(&v.table->next_generation) | 1;
	v.table->next_generation = cpu_to_le32(generation + 2);
	v.object->taken = 0;
	offload_store(&v.object->count, 0);
	offload_store_32(&v.object->generation, generation);
	result->number = cpu_to_le64(v.index | (__u64)generation << 32);
	result->addr = 0;
	return 0;
}

static int versions_delete(struct rmem_call *call, const struct versions_args *args)
{
	struct versions_result *result = rmem_result(call, sizeof(*result));
	struct versions v;
	int error;

	if (le32_to_cpu(args->number) & ~VERSIONS_FORCE || args->bytes)
		return -EINVAL;
	error = versions_reach(&v, call, args->table, args->object, true, true);
	if (error)
		return error;
	if (v.count != v.taken && !args->number)
		return -EBUSY;
	offload_store_32(&v.object->generation, v.generation + 1);
	v.object->free_next = v.table->free;
	v.table->free = cpu_to_le32(v.index + 1);
	result->number = 0;
	result->addr = 0;
	return 0;
}

/* ---- versions ------------------------------------------------------------------------------- */

/* The room's bytes are there: they become the next version. */
static int versions_publish_room(struct versions *v, __u32 number, __u32 bytes)
{
	struct versions_result *result = rmem_result(v->call, sizeof(*result));
	__le64 *entry = rmem_at(v->call, versions_entry_at(v, v->count), sizeof(*entry));
	struct versions_room *room = entry ? rmem_at(v->call, versions_room_at(v, number),
						     sizeof(*room)) : NULL;

	if (!room)
		return rmem_error(v->call);
	if (number < v->taken && offload_load(&room->number))
		return -EALREADY;
	offload_store(entry, number | (__u64)bytes << 32);
	offload_store(&room->number, v->count + 1);
	if (number == v->taken)
		v->object->taken = cpu_to_le32(number + 1);
	offload_store(&v->object->count, v->count + 1);
	result->number = cpu_to_le64(v->count + 1);
	result->addr = 0;
	return 0;
}

static int versions_append(struct rmem_call *call)
{
	const struct versions_object_args *args = rmem_args(call, sizeof(*args));
	__u32 bytes = rmem_args_bytes(call) - sizeof(*args);
	struct versions v;
	__u64 room_at;
	int error;

	if (!args)
		return -EINVAL;
	error = versions_reach(&v, call, args->table, args->object, false, true);
	if (error)
		return error;
	if (bytes > v.version_bytes)
		return -EMSGSIZE;
	if (v.taken == v.versions)
		return -ENOSPC;
	room_at = versions_room_at(&v, v.taken);
	if (!versions_fetched(call, 3, room_at))
		return RMEM_AGAIN;
	/* No client uses this room yet. */
	if (bytes)
		error = rmem_write(call, room_at + sizeof(struct versions_room), args + 1, bytes);
	return error ? error : versions_publish_room(&v, v.taken, bytes);
}

static int versions_stage(struct rmem_call *call, const struct versions_args *args)
{
	struct versions_result *result = rmem_result(call, sizeof(*result));
	struct versions_room *room;
	struct versions v;
	int error;

	if (args->number || args->bytes)
		return -EINVAL;
	error = versions_reach(&v, call, args->table, args->object, false, true);
	if (error)
		return error;
	if (v.taken == v.versions)
		return -ENOSPC;
	room = rmem_at(call, versions_room_at(&v, v.taken), sizeof(*room));
	if (!room)
		return rmem_error(call);
	offload_store(&room->number, 0);
	v.object->taken = cpu_to_le32(v.taken + 1);
	result->number = cpu_to_le64(v.taken);
	result->addr = cpu_to_le64(versions_room_at(&v, v.taken) + sizeof(*room));
	return 0;
}

static int versions_publish(struct rmem_call *call, const struct versions_args *args)
{
	__u32 number = le32_to_cpu(args->number), bytes = le32_to_cpu(args->bytes);
	struct versions v;
	int error = versions_reach(&v, call, args->table, args->object, false, true);

	if (error)
		return error;
	if (number >= v.taken)
		return -EINVAL;
	if (bytes > v.version_bytes)
		return -EMSGSIZE;
	if (v.count == v.taken)
		return -EALREADY;
	if (!versions_fetched(call, 3, versions_room_at(&v, number)))
		return RMEM_AGAIN;
	return versions_publish_room(&v, number, bytes);
}

static int versions_read(struct rmem_call *call, const struct versions_args *args)
{
	__u32 number = le32_to_cpu(args->number), room, bytes;
	struct versions_found *found;
	const __le64 *entry;
	struct versions v;
	__u64 word, data_at;
	int error;

	if (args->bytes)
		return -EINVAL;
	error = versions_reach(&v, call, args->table, args->object, false, false);
	if (error)
		return error;
	if (!number)
		number = v.count;
	if (!number || number > v.count)
		return -ENODATA;
	if (!versions_fetched(call, 3, versions_entry_at(&v, number - 1)))
		return RMEM_AGAIN;
	entry = rmem_look(call, versions_entry_at(&v, number - 1), sizeof(*entry));
	if (!entry)
		return rmem_error(call);
	word = offload_load(entry);
	room = (__u32)word;
	bytes = (__u32)(word >> 32);
	if (room >= v.versions || bytes > v.version_bytes)
		return -EUCLEAN;
	data_at = versions_room_at(&v, room) + sizeof(struct versions_room);
	if (!versions_fetched(call, 4, data_at))
		return RMEM_AGAIN;
	found = rmem_result(call, sizeof(*found) + bytes);
	if (found && bytes)
		error = rmem_read(call, data_at, found + 1, bytes);
	else
		found = rmem_result(call, sizeof(*found));
	if (error || !found)
		return error ? error : rmem_error(call);
	found->number = cpu_to_le32(number);
	found->bytes = cpu_to_le32(bytes);
	found->addr = cpu_to_le64(data_at);
	return 0;
}

static int versions_step(struct rmem_call *call)
{
	const struct versions_args *args = versions_args(call, sizeof(*args));
	__u32 function = rmem_function(call);

	if (function > VERSIONS_READ)
		return -ENOSYS;
	if (function == VERSIONS_FORMAT)
		return versions_format(call);
	if (function == VERSIONS_APPEND)
		return versions_append(call);
	if (!args)
		return -EINVAL;
	switch (function) {
	case VERSIONS_CREATE:
		return versions_create(call, args);
	case VERSIONS_DELETE:
		return versions_delete(call, args);
	case VERSIONS_STAGE:
		return versions_stage(call, args);
	case VERSIONS_PUBLISH:
		return versions_publish(call, args);
	default:
		return versions_read(call, args);
	}
}

const struct rmem_offload_ops rmem_offload = {
	.version = RMEM_OFFLOAD_VERSION,
	.id = VERSIONS_ID,
	.once_mask = 1 << VERSIONS_FORMAT | 1 << VERSIONS_CREATE | 1 << VERSIONS_DELETE |
		     1 << VERSIONS_APPEND | 1 << VERSIONS_STAGE | 1 << VERSIONS_PUBLISH,
	.budget_us = RMEM_BUDGET_US_DEFAULT, /* five steps */
	.name = "versions",
	.step = versions_step,
};

#ifdef __KERNEL__
RMEM_OFFLOAD_MODULE(rmem_offload, "versions");
MODULE_DESCRIPTION("Objects with versions at a memory node");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(REMORA_VERSION);
#endif
