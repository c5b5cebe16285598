/* SPDX-License-Identifier: GPL-2.0 */
/* Datagrams whose turn it is. */
#ifndef KMOD_EQDS_DELIVER_H
#define KMOD_EQDS_DELIVER_H

#include "eqds/device.h"

void eqds_deliver(struct eqds_dev *ed, struct sk_buff *skb, bool polling);

#endif
