/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * An offload: a program that a memory node runs beside the memory, for QUERY and CALL
 * (remora/rmem.h). It MUST NOT call other functions of the node than these, nor any that can sleep.
 * One C source is built as a kernel module, as a shared object for remora-node, in BPF for the
 * kernel's node (remora/offload_bpf.h), and into tests.
 *
 *   step() --+-- RMEM_AGAIN: it prefetched the data of its next step; other calls run meanwhile
 *            +-- 0: the call is answered with its result
 *            '-- -errno: the call is answered RMEM_FAILED
 *
 * A call is made of steps. Up to 256 calls take turns, a step each, so that the memory that one
 * waits for comes while the others run. No two steps of calls on one space run at once. A step MUST
 * be short, a microsecond or so: it MUST NOT sleep, nor loop for a number of times that its
 * arguments tell, except by rmem_for_steps(). The node stops a call between two steps once its
 * budget is used up; a step in C that never returns stops the node.
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

#define RMEM_OFFLOAD_VERSION 2

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
	/*
	 * NULL, or remora-node alone: called as step() is, in a call of its own without arguments,
	 * until it returns 0. Clients can call the program from then on. -errno: the program isn't
	 * loaded, and the operator is told the error. remora-node has sentences for these: -ENODEV:
	 * the space has no persistent memory; -EPROTONOSUPPORT: its content is of another format;
	 * -EUCLEAN: that is damaged, or has another size; -ENOLINK: a link is missing; -ETIMEDOUT:
	 * another node doesn't answer. The kernel's node doesn't load a program with a start.
	 */
	int (*start)(struct rmem_call *call);
};

/* The program of a shared object, or of a file in BPF, by this name. */
#ifdef __bpf__
extern const struct rmem_offload_ops rmem_offload
	__attribute__((section(".struct_ops.link")));

#include "remora/offload_bpf.h"
#else
extern RMEM_OFFLOAD_API const struct rmem_offload_ops rmem_offload;

/* RMEM_STEP(mine_step) { ... } defines a step, whose parameter is `call`. */
#define RMEM_STEP(name) static int name(struct rmem_call *call)

/*
 * A loop that ends in time for a step: after 64 turns, in BPF after 2 us, which all loops of a step
 * have together. The step returns RMEM_AGAIN behind it, to go on.
 */
#define RMEM_STEP_TURNS 64
#define rmem_for_steps(call)                                                                       \
	for (unsigned int turn_ = ((void)(call), 0); turn_ < RMEM_STEP_TURNS; turn_++)

/* Which function is called: 0 to RMEM_FUNCTIONS_MAX - 1. An unknown one ends with -ENOSYS. */
RMEM_OFFLOAD_API __u32 rmem_function(const struct rmem_call *call);

/* The first `bytes` bytes of the arguments; NULL (-EINVAL): there are fewer. */
RMEM_OFFLOAD_API const void *rmem_args(struct rmem_call *call, __u32 bytes);
RMEM_OFFLOAD_API __u32 rmem_args_bytes(const struct rmem_call *call);

/*
 * Room for a result of so many bytes, which the call is answered with; zeros at first. NULL
 * (-EMSGSIZE): the client has less room; a CALL has 16.
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

/* ---- remora-node alone: in the kernel's node these return -EOPNOTSUPP ---- */

#define RMEM_KEYS_MAX 64
#define RMEM_FORWARDS_MAX 16
/* A forward is tried again for so long. It bounds each time that a call waits. */
#define RMEM_FORWARD_MS_MAX 5000
/* Bytes of the arguments of one message, and of an answer. */
#define RMEM_FORWARD_BYTES_MAX 1024
#define RMEM_FORWARDED_BYTES 16

/*
 * Where the persistent memory of the offload's space begins, if it has any (remora-node
 * --memory-file). Clients can only read it; rmem_at() and rmem_write() change it.
 */
#define RMEM_PERSISTENT_ADDR (1ULL << 40)
/* Its size; 0: the space has none. */
RMEM_OFFLOAD_API __u64 rmem_persistent_bytes(const struct rmem_call *call);

/*
 * Begins to make bytes of persistent memory durable; they lie within it (-EFAULT). rmem_drain()
 * returns 0 once all bytes are durable that were begun in this step. Else -EIO: the medium failed.
 * Where the file isn't persistent memory, rmem_drain() waits for its disk.
 */
RMEM_OFFLOAD_API int rmem_persist(struct rmem_call *call, __u64 addr, __u64 bytes);
RMEM_OFFLOAD_API int rmem_drain(struct rmem_call *call);

/*
 * Locks a key among the calls of this offload. 0: the call has the lock, until it ends. -EAGAIN:
 * another call has it; the step MUST return RMEM_AGAIN. It is called again once the call has the
 * lock, and asks for the key again. Calls get a lock in the order in which they asked for it.
 * A call MUST lock its keys in ascending order (-EDEADLK), RMEM_KEYS_MAX at most (-ENOSPC).
 */
RMEM_OFFLOAD_API int rmem_key_lock(struct rmem_call *call, __u64 key);

/*
 * Sends a CALL of a function of the same offload's id by the link that the operator gave that name.
 * bytes: RMEM_FORWARD_BYTES_MAX at most (-EINVAL); -ENOLINK: there is no such link;
 * -ENOSPC: the call has RMEM_FORWARDS_MAX forwards that weren't taken. The node sends it again
 * while no answer comes, also to a next node that has restarted. So the function can be executed
 * several times, also after a later one.
 */
RMEM_OFFLOAD_API int rmem_forward(struct rmem_call *call, const char *link, __u32 function,
				  const void *args, __u32 bytes);
/*
 * Takes the answer of the oldest forward: RMEM_FORWARDED_BYTES to *answer. -EAGAIN: it isn't there;
 * the step MUST return RMEM_AGAIN and is called again when it is. -ETIMEDOUT: none came within
 * RMEM_FORWARD_MS_MAX. -ENOENT: no forward is under way. Another -errno is the function's. A call
 * that waits for a forward or a lock uses neither time of the processor nor of its budget.
 */
RMEM_OFFLOAD_API int rmem_forwarded(struct rmem_call *call, void *answer);
#endif

#ifdef __cplusplus
}
#endif

#endif
