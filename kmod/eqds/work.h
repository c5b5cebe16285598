/* SPDX-License-Identifier: GPL-2.0 */
/* Packets collected under the lock, handled after the unlock. */
#ifndef KMOD_EQDS_WORK_H
#define KMOD_EQDS_WORK_H

#include "eqds/device.h"

void eqds_work_init(struct eqds_work *work);
void eqds_work_run(struct eqds_dev *ed, struct eqds_work *work);

#endif
