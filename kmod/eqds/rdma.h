/* SPDX-License-Identifier: GPL-2.0 */
/* Packets of RDMA over UDP. */
#ifndef KMOD_EQDS_RDMA_H
#define KMOD_EQDS_RDMA_H

#include "eqds/device.h"

bool eqds_rdma_is(const struct sk_buff *skb);
int eqds_rdma_set_cnp(struct eqds_dev *ed, bool on);
void eqds_rdma_sent(struct eqds_dev *ed, const struct sk_buff *skb);
void eqds_rdma_congested(struct eqds_dev *ed, const struct sk_buff *skb, struct eqds_work *work);
bool eqds_rdma_receive(struct eqds_dev *ed, struct sk_buff *skb, const struct in6_addr *peer);

#endif
