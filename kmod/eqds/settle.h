/* SPDX-License-Identifier: GPL-2.0 */
/* The consequences of an event of a tunnel. */
#ifndef KMOD_EQDS_SETTLE_H
#define KMOD_EQDS_SETTLE_H

#include "eqds/device.h"

void eqds_settle_tx(struct eqds_dev *ed, struct eqds_tx *tx, const struct eqds_out *out,
		    struct eqds_work *work);
void eqds_settle_rx(struct eqds_dev *ed, struct eqds_rx *rx, const struct eqds_out *out,
		    struct eqds_work *work);

#endif
