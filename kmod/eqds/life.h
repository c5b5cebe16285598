/* SPDX-License-Identifier: GPL-2.0 */
/* Tunnels are made and end. */
#ifndef KMOD_EQDS_LIFE_H
#define KMOD_EQDS_LIFE_H

#include "eqds/device.h"

struct eqds_tx *eqds_life_tx_get(struct eqds_dev *ed, const struct in6_addr *peer, u8 kind,
				 struct eqds_work *work);
struct eqds_rx *eqds_life_rx_new(struct eqds_dev *ed, const struct eqds_cb *cb, u16 sender,
				 u64 cookie, struct eqds_work *work);
void eqds_life_tx_lose(struct eqds_dev *ed, struct eqds_tx *tx, struct eqds_work *work);
void eqds_life_close_all(struct eqds_dev *ed, struct eqds_work *work);
u32 eqds_life_shrink(struct eqds_dev *ed, u64 before_ns, u32 looks, struct eqds_work *work);
enum hrtimer_restart eqds_life_fire(struct hrtimer *timer);

#endif
