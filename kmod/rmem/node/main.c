// SPDX-License-Identifier: GPL-2.0
/*
 * rmem_node.ko: lends a part of this machine's memory to others. Loading it does nothing but offer
 * the netlink family.
 */
#include <linux/init.h>
#include <linux/module.h>

#include "rmem/node/epoch.h"
#include "rmem/node/netlink.h"

#define CREATE_TRACE_POINTS
#include "rmem/node/trace.h"

static int __init main_module_init(void)
{
	int err = node_epoch_register();

	if (err)
		return err;
	err = node_netlink_register();
	if (err)
		node_epoch_unregister();
	return err;
}

static void __exit main_module_exit(void)
{
	node_netlink_unregister();
	node_epoch_unregister();
}

module_init(main_module_init);
module_exit(main_module_exit);

MODULE_DESCRIPTION("Remora memory node: lends memory to other machines");
MODULE_LICENSE("GPL");
MODULE_VERSION(REMORA_VERSION);
