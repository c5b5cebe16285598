/* SPDX-License-Identifier: GPL-2.0 */
/* Where requests come from: UDP, and modules' ports (rmem_port_ops.h). */
#ifndef REMORA_RMEM_NODE_PORTS_H
#define REMORA_RMEM_NODE_PORTS_H

struct netlink_ext_ack;
struct node_host;

int node_ports_open(struct node_host *host, struct netlink_ext_ack *extack);
void node_ports_close(struct node_host *host);

#endif
