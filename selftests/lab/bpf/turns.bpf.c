// SPDX-License-Identifier: GPL-2.0
/* A program with loops for the node's budget, and for a newer one (ANSWER) in its place. */
#include "offloads/common.h"

#ifndef ANSWER
#define ANSWER 1
#endif

enum { TURNS_ANSWER, TURNS_ENDLESS, TURNS_NESTED, TURNS_COUNT, TURNS_LONG, TURNS_LEFT, TURNS_LOOKS, TURNS_NOTHING };

#define LONG_STEPS 2000 /* of 2 us each, or 16 turns */
#define LOOKS 20000

/* A loop that is left before it looks at the clock by itself. */
#define LEFT_EARLY(level, body)                                                                    \
	rmem_for_steps(call) {                                                                     \
		if (++turns->left[level] % 12 == 11)                                               \
			break;                                                                     \
		body;                                                                              \
	}

struct turns {
	__u64 taken;
	__u64 answer; /* of the program that began the call */
	__u32 left[8];
};

static int turns_tell(struct rmem_call *call, __u64 value)
{
	__le64 *result = rmem_result(call, sizeof(*result));

	if (!result)
		return -EMSGSIZE;
	*result = cpu_to_le64(value);
	return 0;
}

RMEM_STEP(turns_step)
{
	struct turns *turns = rmem_scratch(call, sizeof(*turns));
	int n;

	if (!turns)
		return -EINVAL;
	switch (rmem_function(call)) {
	case TURNS_ANSWER:
		return turns_tell(call, ANSWER);
	case TURNS_ENDLESS:
		return RMEM_AGAIN;
	case TURNS_NESTED:
		rmem_for_steps(call) {
			rmem_for_steps(call) {
				rmem_for_steps(call)
					turns->taken++;
			}
		}
		return RMEM_AGAIN;
	case TURNS_LEFT:
		LEFT_EARLY(0, LEFT_EARLY(1, LEFT_EARLY(2, LEFT_EARLY(3, LEFT_EARLY(4, LEFT_EARLY(5, turns->taken++))))))
		return RMEM_AGAIN;
	case TURNS_LOOKS:
		for (n = 0; n < LOOKS; n++)
			rmem_prefetch(call, 0);
		return rmem_look(call, 0, 8) ? -EILSEQ : rmem_error(call);
	case TURNS_NOTHING:
		return rmem_scratch(call, 0) ? -EILSEQ : rmem_error(call);
	case TURNS_COUNT:
		rmem_for_steps(call) {
			if (turns->taken == 10000)
				return turns_tell(call, turns->taken);
			turns->taken++;
		}
		return RMEM_AGAIN;
	case TURNS_LONG:
		rmem_for_steps(call)
			;
		if (!turns->taken)
			turns->answer = ANSWER;
		if (++turns->taken < LONG_STEPS)
			return RMEM_AGAIN;
		return turns->answer == ANSWER ? turns_tell(call, ANSWER) : -EILSEQ;
	default:
		return -ENOSYS;
	}
}

const struct rmem_offload_ops rmem_offload = {
	.version = RMEM_OFFLOAD_VERSION,
	.id = 100,
	.budget_us = 100000,
	.name = "turns",
	.step = turns_step,
};

RMEM_LICENSE("GPL");
