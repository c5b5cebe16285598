/* SPDX-License-Identifier: GPL-2.0 */
/* Parameters of tunnels. RTNL; those that change them besides: ed->lock, or the device is down. */
#ifndef KMOD_EQDS_CONFIGURE_H
#define KMOD_EQDS_CONFIGURE_H

#include "eqds/device.h"

struct netlink_ext_ack;

int eqds_configure(struct eqds_dev *ed, u32 mbits);
u32 eqds_configure_mbits(const struct eqds_dev *ed);
u16 eqds_configure_train_packets(const struct eqds_dev *ed);
u32 eqds_configure_max_mtu(const struct eqds_dev *ed, const struct net_device *link);
int eqds_configure_rate(struct eqds_dev *ed, u32 mbits);
int eqds_configure_window(struct eqds_dev *ed, u16 mtus);
int eqds_configure_key(struct eqds_dev *ed, const u8 *bytes, struct netlink_ext_ack *extack);
int eqds_configure_fit(struct eqds_dev *ed, struct netlink_ext_ack *extack);
void eqds_configure_quiesce(struct eqds_dev *ed);
int eqds_configure_resume(struct eqds_dev *ed);

#endif
