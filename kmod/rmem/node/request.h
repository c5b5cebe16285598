/* SPDX-License-Identifier: GPL-2.0 */
/* Requests are executed. */
#ifndef REMORA_RMEM_NODE_REQUEST_H
#define REMORA_RMEM_NODE_REQUEST_H

struct netlink_ext_ack;
struct node_host;

/* Requests come from open on, and none runs any more after close. */
int node_request_open(struct node_host *host, struct netlink_ext_ack *extack);
void node_request_close(struct node_host *host);

#endif
