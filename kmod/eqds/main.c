// SPDX-License-Identifier: GPL-2.0
/* eqds.ko: tunnel devices whose receivers clock every packet. */
#include <linux/module.h>
#include <net/rtnetlink.h>

#include "eqds/memory.h"
#include "eqds/native.h"
#include "eqds/netdev.h"
#include "eqds/netlink.h"

#define CREATE_TRACE_POINTS
#include "eqds/trace.h"

static int __init main_init(void)
{
	int err;

	err = eqds_memory_register();
	if (err)
		return err;
	err = eqds_netdev_register();
	if (err)
		goto unregister_memory;
	err = eqds_netlink_register();
	if (err)
		goto unregister_netdev;
	err = eqds_native_register();
	if (err)
		goto unregister_netlink;
	return 0;

unregister_netlink:
	eqds_netlink_unregister();
unregister_netdev:
	eqds_netdev_unregister();
unregister_memory:
	eqds_memory_unregister();
	return err;
}

static void __exit main_exit(void)
{
	eqds_netlink_unregister();
	eqds_netdev_unregister();
	eqds_native_unregister();
	eqds_memory_unregister();
}

module_init(main_init);
module_exit(main_exit);

MODULE_ALIAS_RTNL_LINK("eqds");
MODULE_DESCRIPTION("EQDS: network devices whose receivers clock every packet");
MODULE_LICENSE("GPL");
MODULE_VERSION(REMORA_VERSION);
