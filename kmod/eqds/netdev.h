/* SPDX-License-Identifier: GPL-2.0 */
/* Links of type eqds. */
#ifndef KMOD_EQDS_NETDEV_H
#define KMOD_EQDS_NETDEV_H

#include <linux/types.h>

int eqds_netdev_register(void);
void eqds_netdev_unregister(void);

#endif
