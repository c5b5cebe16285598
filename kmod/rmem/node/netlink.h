/* SPDX-License-Identifier: GPL-2.0 */
/* Control: family rmem_node. */
#ifndef REMORA_RMEM_NODE_NETLINK_H
#define REMORA_RMEM_NODE_NETLINK_H

int node_netlink_register(void);
void node_netlink_unregister(void);

#endif
