/* SPDX-License-Identifier: GPL-2.0 */
/* Packets that arrive together as one. */
#ifndef KMOD_EQDS_TRAIN_H
#define KMOD_EQDS_TRAIN_H

#include "eqds/device.h"

struct sk_buff *eqds_train_join(struct sock *sk, struct list_head *head, struct sk_buff *skb);
int eqds_train_complete(struct sock *sk, struct sk_buff *skb, int nhoff);
bool eqds_train_count(const struct sk_buff *skb, u32 bytes, struct eqds_head *head);

#endif
