/* SPDX-License-Identifier: GPL-2.0 */
/* Replies to one receive batch, merged per peer. */
#ifndef KMOD_EQDS_REPLY_H
#define KMOD_EQDS_REPLY_H

#include "eqds/device.h"

void eqds_reply(struct eqds_dev *ed, struct eqds_rx *rx, const struct eqds_head *head,
		struct eqds_work *work);
void eqds_reply_flush(struct eqds_dev *ed, struct eqds_work *work);

#endif
