/* SPDX-License-Identifier: GPL-2.0 */
#ifndef REMORA_RMEM_NETLINK_H
#define REMORA_RMEM_NETLINK_H

int rmem_netlink_register(void);
void rmem_netlink_unregister(void);

#endif
