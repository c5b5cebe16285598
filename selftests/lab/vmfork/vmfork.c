// SPDX-License-Identifier: GPL-2.0
/*
 * Tells the kernel what the driver of vmgenid tells it when a hypervisor has restored the machine
 * from a snapshot: insmod once for each time. The function isn't exported, so a probe finds it.
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/random.h>

static int __init vmfork_init(void)
{
	struct kprobe probe = { .symbol_name = "add_vmfork_randomness" };
	void (*vm_was_restored)(const void *unique_vm_id, size_t len);
	u64 id[2] = { get_random_u64(), get_random_u64() };
	int err = register_kprobe(&probe);

	if (err)
		return err;
	vm_was_restored = (void *)probe.addr;
	unregister_kprobe(&probe);
	vm_was_restored(id, sizeof(id));
	return -ECANCELED; /* The notifiers have run; the module need not stay. */
}
module_init(vmfork_init);

MODULE_DESCRIPTION("A virtual machine's snapshot is restored, to the notifiers");
MODULE_LICENSE("GPL");
