// SPDX-License-Identifier: GPL-2.0
/*
 * The clock of a step of a program in BPF: its loops and accesses end in time. rmem_bpf.ko calls
 * this, so that a program in C pays nothing for it.
 */
#include <linux/export.h>
#include <linux/ktime.h>

#include "core/rmem/offload/run.h"
#include "rmem_offload_ops.h"

/* Turns and accesses between two looks at the clock; bounds of a step. */
#define STEPS_TURNS 16
#define STEPS_LOOP_NS (2 * NSEC_PER_USEC)
#define STEPS_ACCESS_NS (100 * NSEC_PER_USEC)

/* The time of the step that runs, from its sixteenth turn on. */
static u64 steps_time_ns(struct rmem_call *call)
{
	u64 now_ns;

	if (++call->turns % STEPS_TURNS)
		return call->step_ns;
	now_ns = ktime_get_ns();
	if (call->turns == STEPS_TURNS)
		call->began_ns = now_ns;
	call->step_ns = now_ns - call->began_ns;
	return call->step_ns;
}

bool rmem_offload_turn(struct rmem_call *call)
{
	return steps_time_ns(call) < STEPS_LOOP_NS;
}
EXPORT_SYMBOL_GPL(rmem_offload_turn);

bool rmem_offload_access(struct rmem_call *call)
{
	if (steps_time_ns(call) < STEPS_ACCESS_NS)
		return true;
	rmem_call_fails(call, -ETIME);
	return false;
}
EXPORT_SYMBOL_GPL(rmem_offload_access);
