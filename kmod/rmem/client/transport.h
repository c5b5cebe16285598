/* SPDX-License-Identifier: GPL-2.0 */
#ifndef REMORA_RMEM_TRANSPORT_H
#define REMORA_RMEM_TRANSPORT_H

struct netlink_ext_ack;
struct rmem_transport_ops;

/* The transport of an address, or NULL, explained in extack. */
const struct rmem_transport_ops *rmem_transport_get(const char *address,
						    struct netlink_ext_ack *extack);
void rmem_transport_put(const struct rmem_transport_ops *ops);

#endif
