/* SPDX-License-Identifier: GPL-2.0 */
/* The receiving edge. */
#ifndef KMOD_EQDS_RECV_H
#define KMOD_EQDS_RECV_H

#include "eqds/device.h"

int eqds_recv(struct sock *sk, struct sk_buff *skb);
bool eqds_recv_is_tunnel_socket(const struct sock *sk);
int eqds_recv_poll(struct napi_struct *napi, int budget);

#endif
