/* SPDX-License-Identifier: GPL-2.0 */
/* Tables of tunnels, by peer, by use and by deadline. All under the lock. */
#ifndef KMOD_EQDS_TABLE_H
#define KMOD_EQDS_TABLE_H

#include "eqds/device.h"

void eqds_table_init(struct eqds_dev *ed);
void eqds_table_link(struct eqds_dev *ed, struct eqds_table *table, struct eqds_tunnel *tunnel,
		     const struct in6_addr *peer);
void eqds_table_unlink(struct eqds_dev *ed, struct eqds_tunnel *tunnel);
struct eqds_tx *eqds_table_tx(struct eqds_dev *ed, const struct in6_addr *peer, u16 sender);
struct eqds_rx *eqds_table_rx(struct eqds_dev *ed, const struct eqds_cb *cb, u16 sender);
u64 eqds_table_deadline_ns(const struct eqds_tunnel *tunnel);
/* Arms the timer for the earliest deadline. */
void eqds_table_arm(struct eqds_dev *ed);
void eqds_table_due(struct eqds_dev *ed, struct eqds_tunnel *tunnel, u64 deadline_ns);
void eqds_table_postpone(struct eqds_dev *ed, u64 now_ns);

#endif
