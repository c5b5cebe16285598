// SPDX-License-Identifier: GPL-2.0
/*
 * rmem.ko: /dev/rmbN, /dev/rmemN, memory of other machines for disks and programs. Each device
 * holds the module, so it goes only when they are detached, and closed.
 *
 * Hibernation is refused while there are devices. The image can't be written to one: its
 * writer runs when the network was suspended and tasks are frozen; and what swapping puts on
 * a node between snapshot and power off would not fit the memory that is
 * resumed. Neither can be told from here for one device but not another.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/suspend.h>

#include "rmem/client/channel.h"

static int sleep_notify(struct notifier_block *block, unsigned long event, void *unused)
{
	if (event != PM_HIBERNATION_PREPARE || !rmem_device_any())
		return NOTIFY_DONE;
	pr_err("no hibernation with remote memory attached: detach /dev/rmb* first\n");
	return notifier_from_errno(-EBUSY);
}

static struct notifier_block sleep_block = { .notifier_call = sleep_notify };

static int __init rmem_init(void)
{
	int err;

	rmem_incast_init(&rmem_channel_incast, RMEM_IWND_BYTES);
	err = rmem_status_start();
	if (err)
		return err;
	err = register_pm_notifier(&sleep_block);
	if (err)
		goto stop_status;
	err = rmem_chr_start();
	if (err)
		goto unregister_sleep;
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
unregister_sleep:
	unregister_pm_notifier(&sleep_block);
stop_status:
	rmem_status_stop();
	return err;
}

static void __exit rmem_exit(void)
{
	rmem_netlink_unregister();
	rmem_udp_unregister();
	unregister_pm_notifier(&sleep_block);
	rmem_status_stop();
	rmem_chr_stop();
	/* Callbacks of this module may still put the last references of devices. */
	rcu_barrier();
}

module_init(rmem_init);
module_exit(rmem_exit);

MODULE_DESCRIPTION("Remora remote memory: client and devices /dev/rmbN, /dev/rmemN");
MODULE_LICENSE("GPL");
