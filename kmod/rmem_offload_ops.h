/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where modules with programs for the memory node meet it (remora/offload.h). A module registers
 * its program; the operator binds it to a space (remora node offload load). The functions that
 * register, replace and unregister can sleep.
 */
#ifndef REMORA_RMEM_OFFLOAD_OPS_H
#define REMORA_RMEM_OFFLOAD_OPS_H

#include <linux/module.h>

#include "remora/offload.h"

/* node/programs.c. -EEXIST: there is one of that name. */
int rmem_offload_register(const struct rmem_offload_ops *ops, struct module *owner);
/* The node loses it, once the calls that run have ended or used up some milliseconds. */
void rmem_offload_unregister(const struct rmem_offload_ops *ops);
/*
 * New calls run `to`; returns when none runs `from` any more, which the budgets of 256 calls bound.
 * -EINVAL: its id, name or functions are others.
 */
int rmem_offload_replace(const struct rmem_offload_ops *from, const struct rmem_offload_ops *to);
/* -EINVAL: ops can't be registered. */
int rmem_offload_check(const struct rmem_offload_ops *ops);

/*
 * node/steps.c. A step of a program in BPF calls this in each turn of a loop. False: the loop MUST
 * end.
 */
bool rmem_offload_turn(struct rmem_call *call);
/* An access. False, with -ETIME for rmem_error(): the step takes far too long. */
bool rmem_offload_access(struct rmem_call *call);
/* core/rmem/offload/memory.c. NULL, for an access that fails with this -errno. */
void *rmem_call_fails(struct rmem_call *call, int error);

/* A module that is an offload. It is found by the alias remora-offload-NAME. */
#define RMEM_OFFLOAD_MODULE(ops, name)                                                             \
	static int __init rmem_offload_init(void)                                                  \
	{                                                                                          \
		return rmem_offload_register(&(ops), THIS_MODULE);                                 \
	}                                                                                          \
	static void __exit rmem_offload_exit(void)                                                 \
	{                                                                                          \
		rmem_offload_unregister(&(ops));                                                   \
	}                                                                                          \
	module_init(rmem_offload_init);                                                            \
	module_exit(rmem_offload_exit);                                                            \
	MODULE_ALIAS("remora-offload-" name)

#endif
