// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Pointer chasing at the node (Clio, ASPLOS'22, section 6): one request walks a list, where reads
 * take a round trip for each element. A step looks at one element and prefetches the next.
 */
#include "chase.h"

#include "remora/offload.h"

#ifdef __KERNEL__
#include <asm/byteorder.h>
#include <linux/module.h>

#include "rmem_offload_ops.h"
#else
#include <endian.h>
#include <string.h>

#define le64_to_cpu le64toh
#define le32_to_cpu le32toh
#define cpu_to_le64 htole64
#endif

#define CHASE_OFFSET_MAX 0xffffU

struct chase {
	__u64 addr; /* of the next element to look at */
	__u64 steps;
	__u32 begun;
};

static __u64 chase_load(const void *from)
{
	__le64 value;

	memcpy(&value, from, sizeof(value));
	return le64_to_cpu(value);
}

static int chase_not_found(struct rmem_call *call, const struct chase *chase)
{
	struct chase_found *found = rmem_result(call, sizeof(*found));

	if (!found)
		return rmem_error(call);
	found->addr = 0;
	found->steps = rmem_function(call) == CHASE_FIND ? cpu_to_le64(chase->steps) : 0;
	return 0;
}

static int chase_add(struct rmem_call *call, __u64 addr)
{
	const struct chase_add_args *args = rmem_args(call, sizeof(*args));
	struct chase_added *added = rmem_result(call, sizeof(*added));
	__u32 offset = le32_to_cpu(args->value_offset);
	__u64 *value, before, after;

	if (!added)
		return rmem_error(call);
	if (offset > CHASE_OFFSET_MAX || args->reserved || (addr + offset) % sizeof(*value))
		return -EINVAL;
	value = rmem_at(call, addr + offset, sizeof(*value));
	if (!value)
		return rmem_error(call);
	before = __atomic_load_n(value, __ATOMIC_RELAXED);
	do {
		after = cpu_to_le64(le64_to_cpu(before) + le64_to_cpu(args->value));
	} while (!__atomic_compare_exchange_n(value, &before, after, 0, __ATOMIC_SEQ_CST,
					      __ATOMIC_RELAXED));
	added->addr = cpu_to_le64(addr);
	added->value = before;
	return 0;
}

static int chase_found_at(struct rmem_call *call, const struct chase *chase)
{
	struct chase_found *found;

	if (rmem_function(call) == CHASE_ADD)
		return chase_add(call, chase->addr);
	found = rmem_result(call, sizeof(*found));
	if (!found)
		return rmem_error(call);
	found->addr = cpu_to_le64(chase->addr);
	found->steps = cpu_to_le64(chase->steps + 1);
	return 0;
}

/* Key and next address of an element: by one slice, unless a page ends between them. */
static int chase_look(struct rmem_call *call, const struct chase_args *args, __u64 addr,
		      __u64 *key, __u64 *next)
{
	__u32 key_offset = le32_to_cpu(args->key_offset);
	__u32 next_offset = le32_to_cpu(args->next_offset);
	__u32 first = key_offset < next_offset ? key_offset : next_offset;
	__u32 last = key_offset < next_offset ? next_offset : key_offset;
	const char *both = rmem_look(call, addr + first, last - first + sizeof(__u64));
	const void *alone;

	if (both) {
		*key = chase_load(both + (key_offset - first));
		*next = chase_load(both + (next_offset - first));
		return 0;
	}
	alone = rmem_look(call, addr + key_offset, sizeof(__u64));
	if (!alone)
		return rmem_error(call);
	*key = chase_load(alone);
	alone = rmem_look(call, addr + next_offset, sizeof(__u64));
	if (!alone)
		return rmem_error(call);
	*next = chase_load(alone);
	return 0;
}

static int chase_step(struct rmem_call *call)
{
	__u32 bytes = rmem_function(call) == CHASE_ADD ? sizeof(struct chase_add_args) :
							  sizeof(struct chase_args);
	const struct chase_args *args = rmem_args(call, bytes);
	struct chase *chase = rmem_scratch(call, sizeof(*chase));
	__u64 key = 0, next = 0;
	int error;

	if (rmem_function(call) > CHASE_ADD)
		return -ENOSYS;
	if (!args || rmem_args_bytes(call) != bytes || le32_to_cpu(args->key_offset) > CHASE_OFFSET_MAX ||
	    le32_to_cpu(args->next_offset) > CHASE_OFFSET_MAX)
		return -EINVAL;
	if (!chase->begun) {
		chase->begun = 1;
		chase->addr = le64_to_cpu(args->start);
		rmem_prefetch(call, chase->addr + le32_to_cpu(args->key_offset));
		return RMEM_AGAIN;
	}
	if (!chase->addr || (args->steps_max && chase->steps == le64_to_cpu(args->steps_max)))
		return chase_not_found(call, chase);
	error = chase_look(call, args, chase->addr, &key, &next);
	if (error)
		return error;
	if (key == le64_to_cpu(args->key))
		return chase_found_at(call, chase);
	chase->addr = next;
	chase->steps++;
	rmem_prefetch(call, chase->addr + le32_to_cpu(args->key_offset));
	return RMEM_AGAIN;
}

const struct rmem_offload_ops rmem_offload = {
	.version = RMEM_OFFLOAD_VERSION,
	.id = CHASE_ID,
	.once_mask = 1 << CHASE_ADD,
	.budget_us = 10000, /* a hundred thousand elements that miss the caches */
	.name = "chase",
	.step = chase_step,
};

#ifdef __KERNEL__
RMEM_OFFLOAD_MODULE(rmem_offload, "chase");
MODULE_DESCRIPTION("Pointer chasing at a memory node");
MODULE_LICENSE("Dual MIT/GPL");
#endif
