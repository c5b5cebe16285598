/* SPDX-License-Identifier: GPL-2.0 */
/* The sending edge. */
#ifndef KMOD_EQDS_XMIT_H
#define KMOD_EQDS_XMIT_H

#include "eqds/device.h"

netdev_tx_t eqds_xmit(struct sk_buff *skb, struct net_device *dev);
void eqds_xmit_packet(struct eqds_dev *ed, struct sk_buff *skb, const struct in6_addr *peer,
		      bool captured);
void eqds_xmit_native(struct eqds_dev *ed, struct sk_buff *skb, const struct in6_addr *peer);
bool eqds_xmit_peer_is_good(const struct in6_addr *peer);

/* Is it an eqds device? Files below netdev.c ask by this. */
static inline bool eqds_xmit_is_device(const struct net_device *dev)
{
	return dev->netdev_ops->ndo_start_xmit == eqds_xmit;
}

#endif
