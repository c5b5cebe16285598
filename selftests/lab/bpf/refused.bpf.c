// SPDX-License-Identifier: GPL-2.0
/* Programs that the kernel has to refuse, one for each macro that the test defines. */
#include "offloads/common.h"

#ifndef ID
#define ID 101
#endif
#ifndef NAME
#define NAME "refused"
#endif

#ifdef KERNELS_LOOP
struct bpf_iter_num {
	__u64 opaque;
} __attribute__((aligned(8)));
extern int bpf_iter_num_new(struct bpf_iter_num *it, int from, int to) RMEM_KFUNC;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) RMEM_KFUNC;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) RMEM_KFUNC;
#endif

#ifdef HELPER
static __u64 (*const ktime_get_ns)(void) = (void *)5;
#endif

#ifdef GLOBAL_FUNCTION
__attribute__((noinline)) int refused_long(int turns)
{
	volatile int n, sum = 0;

	for (n = 0; n < 1000; n++)
		sum += turns;
	return sum;
}
#endif

#ifdef SLEEPABLE
__attribute__((section("struct_ops.s"), used)) int refused_sleeper(struct rmem_call *arguments)
{
	return 0;
}
#define refused_step refused_sleeper
#else
RMEM_STEP(refused_step)
{
	__u64 *scratch = rmem_scratch(call, sizeof(*scratch));
	const __u64 *args = rmem_args(call, sizeof(*args));

#ifdef NO_NULL_CHECK
	*scratch = 1;
#endif
	if (!scratch || !args)
		return -EINVAL;
#ifdef BEYOND_SLICE
	scratch[1] = 1;
#endif
#ifdef WRITES_ARGUMENTS
	*(volatile __u64 *)args = 1;
#endif
#ifdef VARIABLE_SIZE
	if (!rmem_look(call, 4096, *args))
		return -EINVAL;
#endif
#ifdef FORGED_CALL
	rmem_prefetch((struct rmem_call *)*args, 0);
#endif
#ifdef WRITES_CALL
	*(volatile __u8 *)call = 1;
#endif
#ifdef PLAIN_ENDLESS
	while (*(volatile __u64 *)args)
		;
#endif
#ifdef KERNELS_LOOP
	struct bpf_iter_num it;

	bpf_iter_num_new(&it, 0, 1 << 30);
	while (bpf_iter_num_next(&it))
		;
	bpf_iter_num_destroy(&it);
#endif
#ifdef MAY_GOTO
	/* may_goto +1 in a loop; the assembler doesn't know it. */
	asm volatile("1: .byte 0xe5, 0, 1, 0, 0, 0, 0, 0; goto 1b;");
#endif
#ifdef HELPER
	return ktime_get_ns();
#endif
#ifdef GLOBAL_FUNCTION
	return refused_long(*args);
#endif
	return 0;
}
#endif

const struct rmem_offload_ops rmem_offload = {
	.version = RMEM_OFFLOAD_VERSION,
	.id = ID,
	.name = NAME,
	.step = refused_step,
};

#ifndef NO_LICENSE
RMEM_LICENSE("GPL");
#endif
