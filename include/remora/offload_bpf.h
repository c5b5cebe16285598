/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The functions of remora/offload.h for a program in BPF, as the module rmem_bpf.ko has them.
 * remora/offload.h includes this. The verifier asks for more than a C compiler:
 *
 *   - sizes of slices, arguments, result and scratch are constants, and each is compared with NULL;
 *   - a loop ends after a constant number of turns, or is an rmem_for_steps();
 *   - nothing else of the kernel is called, neither helpers nor functions; the program's own
 *     functions beside the step are static;
 *   - memory that rmem_write() takes bytes from is writable, which arguments aren't.
 *
 * Besides, rmem_at() takes addresses that are multiples of 8 (of the size, where that is smaller):
 * else it fails (-EINVAL), as all do for a size of 0. rmem_read() and rmem_write() copy up to 4096
 * bytes (-EINVAL). A step that takes more than 100 us gets no memory any more (-ETIME).
 */
#ifndef REMORA_OFFLOAD_BPF_H
#define REMORA_OFFLOAD_BPF_H

#include <linux/types.h>

/* A license that the kernel takes for compatible with its own, as "GPL" or "Dual MIT/GPL". */
#define RMEM_LICENSE(text)                                                                         \
	const char rmem_license[] __attribute__((section("license"), used)) = text

/* The kernel calls `name` with an array of its arguments. */
#define RMEM_STEP(name)                                                                            \
	static __attribute__((always_inline)) int name##_of_call(struct rmem_call *call);          \
	__attribute__((section("struct_ops"), used)) int name(struct rmem_call *arguments)         \
	{                                                                                          \
		return name##_of_call(*(struct rmem_call **)arguments);                            \
	}                                                                                          \
	static __attribute__((always_inline)) int name##_of_call(struct rmem_call *call)

struct rmem_call {
	__u8 opaque;
};

struct bpf_iter_rmem_steps {
	__u64 opaque[2];
};

#define RMEM_KFUNC __attribute__((section(".ksyms")))

__u32 bpf_rmem_function(const struct rmem_call *call) RMEM_KFUNC;
__u32 bpf_rmem_args_bytes(const struct rmem_call *call) RMEM_KFUNC;
const __u8 *bpf_rmem_args(struct rmem_call *call, __u32 rdonly_buf_size) RMEM_KFUNC;
__u8 *bpf_rmem_result(struct rmem_call *call, __u32 rdwr_buf_size) RMEM_KFUNC;
__u8 *bpf_rmem_scratch(struct rmem_call *call, __u32 rdwr_buf_size) RMEM_KFUNC;
const __u8 *bpf_rmem_look(struct rmem_call *call, __u64 addr, __u32 rdonly_buf_size) RMEM_KFUNC;
__u8 *bpf_rmem_at(struct rmem_call *call, __u64 addr, __u32 rdwr_buf_size) RMEM_KFUNC;
int bpf_rmem_read(struct rmem_call *call, __u64 addr, void *to, __u32 to__sz) RMEM_KFUNC;
int bpf_rmem_write(struct rmem_call *call, __u64 addr, const void *from, __u32 from__sz) RMEM_KFUNC;
int bpf_rmem_error(const struct rmem_call *call) RMEM_KFUNC;
void bpf_rmem_prefetch(struct rmem_call *call, __u64 addr) RMEM_KFUNC;
int bpf_iter_rmem_steps_new(struct bpf_iter_rmem_steps *it, struct rmem_call *call) RMEM_KFUNC;
__u32 *bpf_iter_rmem_steps_next(struct bpf_iter_rmem_steps *it) RMEM_KFUNC;
void bpf_iter_rmem_steps_destroy(struct bpf_iter_rmem_steps *it) RMEM_KFUNC;

#define rmem_function bpf_rmem_function
#define rmem_args_bytes bpf_rmem_args_bytes
#define rmem_args(call, bytes) ((const void *)bpf_rmem_args(call, bytes))
#define rmem_result(call, bytes) ((void *)bpf_rmem_result(call, bytes))
#define rmem_scratch(call, bytes) ((void *)bpf_rmem_scratch(call, bytes))
#define rmem_look(call, addr, bytes) ((const void *)bpf_rmem_look(call, addr, bytes))
#define rmem_at(call, addr, bytes) ((void *)bpf_rmem_at(call, addr, bytes))
#define rmem_read bpf_rmem_read
#define rmem_write bpf_rmem_write
#define rmem_error bpf_rmem_error
#define rmem_prefetch bpf_rmem_prefetch

#define rmem_for_steps(call)                                                                       \
	for (struct bpf_iter_rmem_steps                                                            \
		     steps_ __attribute__((cleanup(bpf_iter_rmem_steps_destroy))),                 \
	     *begun_ __attribute__((unused)) =                                                     \
		     (bpf_iter_rmem_steps_new(&steps_, call),                                      \
		      (void)bpf_iter_rmem_steps_destroy, (struct bpf_iter_rmem_steps *)0);         \
	     bpf_iter_rmem_steps_next(&steps_);)

#endif
