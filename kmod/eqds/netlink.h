/* SPDX-License-Identifier: GPL-2.0 */
/* Family eqds. */
#ifndef KMOD_EQDS_NETLINK_H
#define KMOD_EQDS_NETLINK_H

#include <linux/types.h>

int eqds_netlink_register(void);
void eqds_netlink_unregister(void);

#endif
