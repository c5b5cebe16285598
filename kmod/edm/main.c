// SPDX-License-Identifier: GPL-2.0
/*
 * edm.ko: a scheduler of memory messages, and this machine as the host of one. Loading it does
 * nothing but offer the netlink family.
 */
#include <linux/init.h>
#include <linux/module.h>

#include "edm/edm.h"

static int __init main_module_init(void)
{
	return edm_netlink_register();
}

/* Transports use this module, so it goes after them. */
static void __exit main_module_exit(void)
{
	edm_netlink_unregister();
	edm_service_stop();
	edm_member_leave_all();
}

module_init(main_module_init);
module_exit(main_module_exit);

MODULE_DESCRIPTION("Remora EDM: scheduled memory messages");
MODULE_LICENSE("GPL");
MODULE_VERSION(REMORA_VERSION);
