/* SPDX-License-Identifier: GPL-2.0 */
/* The words of a batch to the peers that sent it. */
#ifndef KMOD_EQDS_REPLY_H
#define KMOD_EQDS_REPLY_H

#include "eqds/device.h"

void eqds_reply(struct eqds_dev *ed, struct eqds_rx *rx, const struct eqds_head *head,
		struct eqds_work *work);
void eqds_reply_flush(struct eqds_dev *ed, struct eqds_work *work);

#endif
