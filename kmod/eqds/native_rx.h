/* SPDX-License-Identifier: GPL-2.0 */
/* Packets for programs. */
#ifndef KMOD_EQDS_NATIVE_RX_H
#define KMOD_EQDS_NATIVE_RX_H

#include "eqds/native_types.h"

bool eqds_native_deliver(struct eqds_dev *ed, struct sk_buff *skb, u32 head_bytes);

#endif
