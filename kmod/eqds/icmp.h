/* SPDX-License-Identifier: GPL-2.0 */
/* ICMP errors about outer packets. */
#ifndef KMOD_EQDS_ICMP_H
#define KMOD_EQDS_ICMP_H

#include "eqds/device.h"

int eqds_icmp_lookup(struct sock *sk, struct sk_buff *skb);

#endif
