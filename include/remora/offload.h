/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * An offload: a program that a memory node runs beside the memory, for QUERY and CALL
 * (remora/rmem.h). It MUST NOT call other functions of the node than these, nor any that can sleep.
 * One C source is built as a kernel module, as a shared object for remora-node, and into tests.
 *
 *   step() --+-- RMEM_AGAIN: it prefetched the data of its next step; other calls run meanwhile
 *            +-- 0: the call is answered with its result
 *            '-- -errno: the call is answered RMEM_FAILED
 *
 * A call is made of steps. Up to 256 calls take turns, a step each, so that the memory that one
 * waits for comes while the others run. A step MUST be short, a microsecond or so: it MUST NOT
 * sleep, nor loop for a number of times that its arguments tell. The node stops a call between two
 * steps once its budget is used up; a step that never returns stops the node.
 *
 * Arguments, result and scratch are aligned to 16 bytes. Integers in remote memory are
 * little-endian in Remora's own offloads.
 *
 * Slices and copies reach the space that the offload is bound to, by its addresses. A slice lies in
 * one page and is the program's until the step returns. Other clients can write to the same bytes
 * meanwhile. rmem_scratch() is the memory that a program has from step to step.
 */
#ifndef REMORA_OFFLOAD_H
#define REMORA_OFFLOAD_H

#include <linux/errno.h>
#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__KERNEL__) || !defined(__GNUC__)
#define RMEM_OFFLOAD_API
#else
#define RMEM_OFFLOAD_API __attribute__((visibility("default")))
#endif

#define RMEM_OFFLOAD_VERSION 1

/*
 * A step's result: call it again. Accesses also return it while no zeroed page is ready. A step
 * that passes that on is called again from its start, with its scratch and earlier changes as it
 * left them.
 */
#define RMEM_AGAIN (-EAGAIN)

#define RMEM_OFFLOAD_NAME_BYTES 16
#define RMEM_SCRATCH_BYTES_MAX 256
#define RMEM_BUDGET_US_DEFAULT 100
#define RMEM_BUDGET_US_MAX 100000

struct rmem_call;

struct rmem_offload_ops {
	__u32 version;	 /* RMEM_OFFLOAD_VERSION */
	__u32 id;	 /* by which clients call it; not 0 */
	__u32 once_mask; /* bit n: function n can change memory, so it is called by CALL */
	/* A call's budget; 0: RMEM_BUDGET_US_DEFAULT. An operator can load it with another. */
	__u32 budget_us;
	char name[RMEM_OFFLOAD_NAME_BYTES]; /* for people; a zero at its end */
	int (*step)(struct rmem_call *call);
};

/* The program of a shared object, by this name. */
extern RMEM_OFFLOAD_API const struct rmem_offload_ops rmem_offload;

/* Which function is called: 0 to RMEM_FUNCTIONS_MAX - 1. An unknown one ends with -ENOSYS. */
RMEM_OFFLOAD_API __u32 rmem_function(const struct rmem_call *call);

/* The first `bytes` bytes of the arguments; NULL (-EINVAL): there are fewer. */
RMEM_OFFLOAD_API const void *rmem_args(struct rmem_call *call, __u32 bytes);
RMEM_OFFLOAD_API __u32 rmem_args_bytes(const struct rmem_call *call);

/*
 * Room for a result of so many bytes, which the call is answered with. NULL (-EMSGSIZE): the client
 * has less room; a CALL has 16.
 */
RMEM_OFFLOAD_API void *rmem_result(struct rmem_call *call, __u32 bytes);

/* The call's own memory, up to RMEM_SCRATCH_BYTES_MAX; zeros at first. NULL (-EINVAL): too much. */
RMEM_OFFLOAD_API void *rmem_scratch(struct rmem_call *call, __u32 bytes);

/*
 * A slice to read, or to change: `bytes` bytes at addr, 1 to a packet's payload, in one page. NULL:
 * rmem_error() says why. -EFAULT: not allocated; -EACCES: the region permits no writing, or the
 * call is a QUERY; -EINVAL: not in one page; -EAGAIN: no zeroed page is ready, the step MAY return
 * that and is called again. Time that it waits so isn't charged; at most 20 ms of steps, then the
 * call fails with ENOMEM.
 */
RMEM_OFFLOAD_API const void *rmem_look(struct rmem_call *call, __u64 addr, __u32 bytes);
RMEM_OFFLOAD_API void *rmem_at(struct rmem_call *call, __u64 addr, __u32 bytes);

/* Copies, across pages. 0, or -errno as above; then the first bytes might have been copied. */
RMEM_OFFLOAD_API int rmem_read(struct rmem_call *call, __u64 addr, void *to, __u32 bytes);
RMEM_OFFLOAD_API int rmem_write(struct rmem_call *call, __u64 addr, const void *from,
				__u32 bytes);

/* Why the last function returned NULL. */
RMEM_OFFLOAD_API int rmem_error(const struct rmem_call *call);

/* The program will look at addr in its next step. */
RMEM_OFFLOAD_API void rmem_prefetch(struct rmem_call *call, __u64 addr);

#ifdef __cplusplus
}
#endif

#endif
