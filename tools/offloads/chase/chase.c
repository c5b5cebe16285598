// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Pointer chasing at the node (Clio, ASPLOS'22, section 6): one request walks a list, where reads
 * take a round trip for each element. A step looks at one element and prefetches the next.
 */
#include "chase.h"

#include "../common.h"

#define CHASE_OFFSET_MAX 0xffffU

struct chase {
	__u64 addr; /* of the next element to look at */
	__u64 steps;
	__u32 begun;
};

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
	__u32 offset;
	__le64 *value;

	if (!added)
		return rmem_error(call);
	if (!args)
		return -EINVAL;
	offset = le32_to_cpu(args->value_offset);
	if (offset > CHASE_OFFSET_MAX || args->reserved || (addr + offset) % sizeof(*value))
		return -EINVAL;
	value = rmem_at(call, addr + offset, sizeof(*value));
	if (!value)
		return rmem_error(call);
	added->addr = cpu_to_le64(addr);
	added->value = offload_add(value, le64_to_cpu(args->value));
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

static int chase_look_one(struct rmem_call *call, __u64 addr, __u64 *value)
{
	const __le64 *at = rmem_look(call, addr, sizeof(*at));

	if (!at)
		return rmem_error(call);
	*value = offload_load(at);
	return 0;
}

/* Key and next address of an element: by one slice where they are neighbours in a page. */
static int chase_look(struct rmem_call *call, const struct chase_args *args, __u64 addr,
		      __u64 *key, __u64 *next)
{
	__u32 key_offset = le32_to_cpu(args->key_offset);
	__u32 next_offset = le32_to_cpu(args->next_offset);
	const __le64 *both = NULL;
	int error;

	if (next_offset == key_offset + sizeof(*key))
		both = rmem_look(call, addr + key_offset, 2 * sizeof(*key));
	if (both) {
		*key = offload_load(&both[0]);
		*next = offload_load(&both[1]);
		return 0;
	}
	error = chase_look_one(call, addr + key_offset, key);
	return error ? error : chase_look_one(call, addr + next_offset, next);
}

/* Arguments don't change, so they are checked once. */
static int chase_begin(struct rmem_call *call, const struct chase_args *args, struct chase *chase)
{
	__u32 bytes = rmem_function(call) == CHASE_ADD ? sizeof(struct chase_add_args) : sizeof(*args);

	if (rmem_function(call) > CHASE_ADD)
		return -ENOSYS;
	if (!args || rmem_args_bytes(call) != bytes ||
	    le32_to_cpu(args->key_offset) > CHASE_OFFSET_MAX ||
	    le32_to_cpu(args->next_offset) > CHASE_OFFSET_MAX)
		return -EINVAL;
	chase->begun = 1;
	chase->addr = le64_to_cpu(args->start);
	rmem_prefetch(call, chase->addr + le32_to_cpu(args->key_offset));
	return RMEM_AGAIN;
}

RMEM_STEP(chase_step)
{
	const struct chase_args *args = rmem_args(call, sizeof(*args));
	struct chase *chase = rmem_scratch(call, sizeof(*chase));
	__u64 key = 0, next = 0;
	int error;

	if (!chase)
		return rmem_error(call);
	if (!args || !chase->begun)
		return chase_begin(call, args, chase);
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

#ifdef __bpf__
RMEM_LICENSE("Dual MIT/GPL");
#endif

#ifdef __KERNEL__
RMEM_OFFLOAD_MODULE(rmem_offload, "chase");
MODULE_DESCRIPTION("Pointer chasing at a memory node");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(REMORA_VERSION);
#endif
