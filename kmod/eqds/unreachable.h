/* SPDX-License-Identifier: GPL-2.0 */
/* Notices to the senders of inner packets. */
#ifndef KMOD_EQDS_UNREACHABLE_H
#define KMOD_EQDS_UNREACHABLE_H

#include "eqds/device.h"

void eqds_unreachable_tell(struct eqds_dev *ed, struct sk_buff *skb);

#endif
