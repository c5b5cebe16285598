// SPDX-License-Identifier: GPL-2.0
/*
 * rmem.ko: /dev/rmbN, /dev/rmemN, memory of other machines for disks and programs. Each device
 * holds the module, so it goes only when they are detached, and closed.
 *
 * Hibernation is refused while there are devices. The image can't be written to one: its
 * writer runs when the network was suspended and tasks are frozen; and pages swapped to a node
 * between snapshot and power off would not fit the memory that is resumed. This module can't judge
 * either for one device but not another.
 *
 * When the machine is restored from a virtual machine's snapshot, the devices' content is newer
 * than this kernel and its programs know, and the node has executed ids that would be used again.
 * So all devices are lost then. Without CONFIG_VMGENID, or a vmgenid device, nobody tells.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/random.h>
#include <linux/suspend.h>

#include "rmem/client/channel.h"
#include "rmem/client/chr.h"
#include "rmem/client/device.h"
#include "rmem/client/netlink.h"
#include "rmem/client/reserve.h"
#include "rmem/client/status.h"

static int main_sleep_notify(struct notifier_block *block, unsigned long event, void *unused)
{
	if (event == PM_POST_HIBERNATION)
		rmem_devices_awake();
	if (event != PM_HIBERNATION_PREPARE || rmem_devices_hibernate())
		return NOTIFY_DONE;
	pr_err("no hibernation with remote memory attached: detach /dev/rmb* first\n");
	return notifier_from_errno(-EBUSY);
}

static int main_vmfork_notify(struct notifier_block *block, unsigned long event, void *unused)
{
	rmem_devices_rolled_back();
	return NOTIFY_OK;
}

static struct notifier_block sleep_block = { .notifier_call = main_sleep_notify };
static struct notifier_block vmfork_block = { .notifier_call = main_vmfork_notify };

static int __init main_module_init(void)
{
	int err;

	rmem_incast_init(&rmem_channel_incast, RMEM_IWND_BYTES);
	err = rmem_status_start();
	if (err)
		return err;
	err = register_pm_notifier(&sleep_block);
	if (err)
		goto stop_status;
	err = register_random_vmfork_notifier(&vmfork_block);
	if (err)
		goto unregister_sleep;
	err = rmem_chr_start();
	if (err)
		goto unregister_vmfork;
	err = rmem_udp_register();
	if (err)
		goto stop_chr;
	err = rmem_netlink_register();
	if (err)
		goto unregister_udp;
	return 0;

unregister_udp:
	rmem_udp_unregister();
stop_chr:
	rmem_chr_stop();
unregister_vmfork:
	unregister_random_vmfork_notifier(&vmfork_block);
unregister_sleep:
	unregister_pm_notifier(&sleep_block);
stop_status:
	rmem_status_stop();
	return err;
}

static void __exit main_module_exit(void)
{
	rmem_netlink_unregister();
	rmem_udp_unregister();
	unregister_random_vmfork_notifier(&vmfork_block);
	unregister_pm_notifier(&sleep_block);
	rmem_status_stop();
	rmem_chr_stop();
	rmem_reserve_stop();
	/* Callbacks of this module might still put the last references of devices. */
	rcu_barrier();
}

module_init(main_module_init);
module_exit(main_module_exit);

MODULE_DESCRIPTION("Remora remote memory: client and devices /dev/rmbN, /dev/rmemN");
MODULE_LICENSE("GPL");
MODULE_VERSION(REMORA_VERSION);
