// SPDX-License-Identifier: GPL-2.0
/*
 * rmem_bpf.ko: lets programs in BPF run beside the node's memory. The kernel drops its functions
 * and struct_ops with the module's type information, so leaving takes no call.
 */
#include <linux/init.h>
#include <linux/module.h>

#include "rmem/bpf/bpf.h"

static int __init main_module_init(void)
{
	int err;

	/* Without it the kernel would only warn, and programs would find no functions. */
	if (!THIS_MODULE->btf_data_size) {
		pr_err("rmem_bpf: no type information: build it with pahole installed, for headers with a vmlinux\n");
		return -EOPNOTSUPP;
	}
	err = bpf_kfuncs_register();
	return err ? err : bpf_ops_register();
}

static void __exit main_module_exit(void)
{
}

module_init(main_module_init);
module_exit(main_module_exit);

MODULE_DESCRIPTION("Remora memory node: programs in BPF");
MODULE_LICENSE("GPL");
MODULE_VERSION(REMORA_VERSION);
