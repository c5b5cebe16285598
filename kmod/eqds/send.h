/* SPDX-License-Identifier: GPL-2.0 */
/* Copies of packets that have credit. */
#ifndef KMOD_EQDS_SEND_H
#define KMOD_EQDS_SEND_H

#include "eqds/device.h"

u8 eqds_send_inner_tos(const struct sk_buff *skb);
void eqds_send_ready(struct eqds_dev *ed, u64 now_ns, struct eqds_work *work);

#endif
