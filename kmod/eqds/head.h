/* SPDX-License-Identifier: GPL-2.0 */
/* Headers without payload. */
#ifndef KMOD_EQDS_HEAD_H
#define KMOD_EQDS_HEAD_H

#include "eqds/device.h"

void eqds_head_send(struct eqds_dev *ed, const struct in6_addr *peer, const struct in6_addr *local,
		    const struct eqds_head *head, struct eqds_work *work);
void eqds_head_send_translated(struct eqds_dev *ed, const struct eqds_cb *to,
			       const struct eqds_head *head, struct eqds_work *work);

#endif
