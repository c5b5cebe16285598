/* SPDX-License-Identifier: GPL-2.0 */
/* Copies of packets that have credit. */
#ifndef KMOD_EQDS_SEND_H
#define KMOD_EQDS_SEND_H

#include "eqds/device.h"

u8 eqds_send_inner_tos(const struct sk_buff *skb);
/* Sends a packet at once and without a number, if its tunnel may. Else the caller keeps it. */
bool eqds_send_unnumbered(struct eqds_dev *ed, struct eqds_tx *tx, u64 now_ns, struct sk_buff *skb,
			  u8 next_proto, struct eqds_work *work);
void eqds_send_ready(struct eqds_dev *ed, u64 now_ns, struct eqds_work *work);

#endif
