/* SPDX-License-Identifier: GPL-2.0 */
/* UDP/IP around what the tunnels send. */
#ifndef KMOD_EQDS_EMIT_H
#define KMOD_EQDS_EMIT_H

#include "eqds/device.h"

int eqds_emit_init(struct eqds_dev *ed);
void eqds_emit_exit(struct eqds_dev *ed);
void eqds_emit(struct eqds_dev *ed, struct sk_buff *skb);

#endif
