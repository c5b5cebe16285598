/* SPDX-License-Identifier: GPL-2.0 */
/* Packets of many segments that leave as one. */
#ifndef KMOD_EQDS_WHOLE_H
#define KMOD_EQDS_WHOLE_H

#include "eqds/device.h"

bool eqds_whole_fits(const struct sk_buff *skb);
u32 eqds_whole_segments(const struct sk_buff *skb);
u32 eqds_whole_each_bytes(const struct sk_buff *skb);
struct sk_buff *eqds_whole_cut(const struct sk_buff *whole, u32 headroom, u32 nth, u32 count);
bool eqds_whole_count(const struct sk_buff *skb, u32 bytes, struct eqds_head *head);

#endif
