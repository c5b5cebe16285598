/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where modules with programs for the memory node meet it (remora/offload.h). A module registers
 * its program; the operator binds it to a space (remora node offload load).
 */
#ifndef REMORA_RMEM_OFFLOAD_OPS_H
#define REMORA_RMEM_OFFLOAD_OPS_H

#include <linux/module.h>

#include "remora/offload.h"

/* node/calls.c. -EEXIST: there is one of that name. */
int rmem_offload_register(const struct rmem_offload_ops *ops, struct module *owner);
/* No node has it any more, for that would hold the module. */
void rmem_offload_unregister(const struct rmem_offload_ops *ops);

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
